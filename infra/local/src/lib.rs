//! Runs Suture on one machine: the four functions in one process, and the command line.

pub mod command_line;
pub mod config;
pub mod doctor;
mod keys;
pub mod up;
