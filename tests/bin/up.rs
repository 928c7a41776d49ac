//! The command line of `infra/local`. It is a binary of this package so that the tests can find it with `CARGO_BIN_EXE_up`.

use std::process::ExitCode;

fn main() -> ExitCode {
    suture::command_line::main()
}
