//! Entry point of the `suture` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    suture::command_line::main()
}
