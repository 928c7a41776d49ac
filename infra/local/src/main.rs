//! Suture on one machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    local::command_line::main()
}
