//! Standard output, which somebody may have closed.

use std::io::{ErrorKind, Write as _, stdout};

/// Prints a text. Ends the process if that cannot be done: well if the reader has seen enough, with 1 otherwise.
pub(super) fn print(text: &str) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("damper-load: cannot write standard output: {error}");
        std::process::exit(1);
    }
}
