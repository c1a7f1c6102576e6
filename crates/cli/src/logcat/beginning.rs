//! The entries that are there when the command starts.

use super::args::{From, LogcatArgs};
use super::session::{Session, Wanted};
use baton_logcat::entry::Entry;
use std::collections::VecDeque;
use std::io;

/// The entries at the beginning that are shown.
pub struct Beginning<'a> {
    args: &'a LogcatArgs,
    from: From,
    /// The last entries, if only a number of them is wanted.
    last: VecDeque<Entry>,
}

impl<'a> Beginning<'a> {
    pub fn new(args: &'a LogcatArgs, from: From) -> Beginning<'a> {
        Beginning { args, from, last: VecDeque::new() }
    }

    pub fn take(&mut self, entry: Entry, session: &mut Session) -> io::Result<Wanted> {
        match self.from {
            _ if !self.args.wants(&entry) => {}
            From::Time(time) if entry.wall < time => {}
            From::Last(count) => {
                self.last.push_back(entry);
                if self.last.len() as u64 > count {
                    self.last.pop_front();
                }
            }
            From::Time(_) | From::Beginning => return session.take(&entry),
        }
        Ok(Wanted::More)
    }

    pub fn end(self, session: &mut Session) -> io::Result<Wanted> {
        for entry in &self.last {
            if session.take(entry)? == Wanted::Nothing {
                return Ok(Wanted::Nothing);
            }
        }
        Ok(Wanted::More)
    }
}
