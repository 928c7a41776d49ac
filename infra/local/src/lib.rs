//! Suture on one machine: the four functions wired together, in real or in virtual time.

pub mod command_line;
pub mod config;
pub mod doctor;
mod keys;
pub mod replay;
pub mod simulate;
pub mod up;
