//! Errors of files and of code.

/// The place and the reason for which a file is no dex file. The file's author is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset:#x} of the dex file: expected {expected}")]
pub struct DexError {
    /// Bytes from the start of the file.
    pub offset: usize,
    /// The bytes that belong there.
    pub expected: &'static str,
}

/// The instruction and the reason for which a method's code is not to be run: a VerifyError.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction at unit {unit:#x}: expected {expected}")]
pub struct CodeError {
    /// 16-bit units from the start of the method's instructions.
    pub unit: usize,
    /// The code that belongs there.
    pub expected: &'static str,
}
