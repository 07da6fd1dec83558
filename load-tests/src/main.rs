//! The binary `damper-load`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    damper_load::cli::main()
}
