//! Standard output.

use crate::failure::Failure;
use std::io::Write;

/// Writes to standard output. If the reader has closed it, the command ends quietly.
pub fn show(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one JSON document.
pub fn show_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::new("write JSON", error))?;
    show(&(text + "\n"))
}
