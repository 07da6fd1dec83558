//! The binary `damper`.

fn main() -> std::process::ExitCode {
    damper_server::cli::main()
}
