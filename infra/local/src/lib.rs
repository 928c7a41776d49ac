//! Suture on one machine: the four functions wired together, in real or in virtual time.
