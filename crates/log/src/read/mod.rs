//! Reading: [`reader`], which merges what [`track`]s have, the rings of each [`author`];
//! [`follow`], which waits. [`item`] and [`origin`]: what comes of it.

pub(crate) mod author;
pub(crate) mod follow;
pub(crate) mod item;
pub(crate) mod origin;
pub(crate) mod reader;
pub(crate) mod track;
