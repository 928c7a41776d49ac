//! Suture on one machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    suture::command_line::main()
}
