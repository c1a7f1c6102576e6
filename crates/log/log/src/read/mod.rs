//! Reading. [`reader`] merges the [`track`]s of all files ([`file_reader`]). [`follow`] waits.
//! [`item`] and [`origin`]: the results.

pub(crate) mod file_reader;
pub(crate) mod follow;
pub(crate) mod item;
pub(crate) mod origin;
pub(crate) mod reader;
pub(crate) mod track;
