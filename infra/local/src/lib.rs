//! Runs Suture on one machine: the four functions in one process, and the command line.

pub mod command_line;
pub mod config;
mod dead_letters;
pub mod doctor;
mod keys;
mod setup;
pub mod up;
