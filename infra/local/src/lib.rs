//! Suture on one machine: the four functions wired together, in real or in virtual time.

pub mod replay;
pub mod simulate;
