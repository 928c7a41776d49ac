//! The command line of `infra/local`, built here so that its tests know where it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    suture::command_line::main()
}
