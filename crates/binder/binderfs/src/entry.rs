//! Entries of directories.

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its node, or an inode number that only listings show.
    pub node: u64,
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}
