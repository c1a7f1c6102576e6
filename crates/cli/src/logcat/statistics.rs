//! `-S`: the amounts that programs have logged, of the readable entries.

use super::args::LogcatArgs;
use super::reading::{open, without_control_characters};
use crate::failure::Failure;
use baton_log::{Buffer, Item, Loss, Lost};
use baton_logcat::entry::{Body, Entry};
use baton_logcat::wire;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most rows of each table as text.
const SHOWN: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    entries: u64,
    bytes: u64,
    /// Entries that were overwritten or never had room.
    lost: u64,
    /// Rings with an unknown number of unreadable entries.
    damaged: u64,
    /// Files that were not read, because too many others were open.
    unread: u64,
}

#[derive(Debug, Default)]
struct Statistics {
    buffers: BTreeMap<&'static str, Amount>,
    users: BTreeMap<String, Amount>,
    /// By process number, program and user.
    processes: BTreeMap<String, Amount>,
    tags: BTreeMap<String, Amount>,
}

/// Shows the amounts that programs have logged.
pub fn show(args: &LogcatArgs, buffers: &[Buffer]) -> Result<(), Failure> {
    let mut reader = open(&args.directory(), buffers)?;
    let mut statistics = Statistics::default();
    while let Some(item) = reader.next_item() {
        match item {
            Item::Record(record) => {
                let entry = Entry::from(&record);
                if args.wants(&entry) {
                    statistics.count(&entry, &record.origin.program);
                }
            }
            Item::Lost(lost) if args.pid.is_none_or(|pid| pid == lost.origin.process) => {
                statistics.lose(&lost);
            }
            Item::Lost(_) => {}
        }
    }
    crate::stdout::show(&if args.json {
        format!("{}\n", statistics.json())
    } else {
        statistics.text()
    })
}

fn process(pid: u32, program: &str, user: u32) -> String {
    format!("{pid} {} (user {user})", without_control_characters(program))
}

impl Statistics {
    fn count(&mut self, entry: &Entry, program: &str) {
        let bytes = wire::encode(entry).len() as u64;
        let tag = match &entry.body {
            Body::Text { tag, .. } => without_control_characters(&String::from_utf8_lossy(tag)),
            Body::Event { tag, .. } => format!("[{tag}]"),
        };
        for amount in [
            self.buffers.entry(entry.buffer.name()).or_default(),
            self.users.entry(entry.uid.to_string()).or_default(),
            self.processes.entry(process(entry.pid, program, entry.uid)).or_default(),
            self.tags.entry(tag).or_default(),
        ] {
            amount.entries += 1;
            amount.bytes += bytes;
        }
    }

    fn lose(&mut self, lost: &Lost<'_>) {
        let origin = lost.origin;
        let is_of_buffer = lost.loss != Loss::Unread;
        let of_buffer = is_of_buffer.then(|| self.buffers.entry(lost.buffer.name()).or_default());
        for amount in of_buffer.into_iter().chain([
            self.users.entry(origin.user.to_string()).or_default(),
            self.processes
                .entry(process(origin.process, &origin.program, origin.user))
                .or_default(),
        ]) {
            match lost.loss {
                Loss::Overwritten { n_records, .. } | Loss::Unlogged { n_records } => {
                    amount.lost += n_records;
                }
                Loss::Damaged { .. } => amount.damaged += 1,
                Loss::Unread => amount.unread += 1,
            }
        }
    }

    fn text(&self) -> String {
        let names = |map: &BTreeMap<String, Amount>| {
            map.iter().map(|(name, amount)| (name.clone(), *amount)).collect()
        };
        let buffers = self.buffers.iter().map(|(name, amount)| ((*name).to_owned(), *amount));
        [
            table("BUFFER", buffers.collect()),
            table("USER", names(&self.users)),
            table("PROCESS", names(&self.processes)),
            table("TAG", names(&self.tags)),
        ]
        .join("\n")
    }

    fn json(&self) -> Value {
        let object = |map: &BTreeMap<String, Amount>| -> Value {
            map.iter().map(|(name, amount)| (name.clone(), amount.json())).collect()
        };
        let buffers: Value =
            self.buffers.iter().map(|(name, amount)| ((*name).to_owned(), amount.json())).collect();
        json!({
            "buffers": buffers,
            "users": object(&self.users),
            "processes": object(&self.processes),
            "tags": object(&self.tags),
        })
    }
}

impl Amount {
    fn json(&self) -> Value {
        json!({
            "entries": self.entries, "bytes": self.bytes, "lost": self.lost,
            "damaged_rings": self.damaged, "unread_files": self.unread,
        })
    }
}

/// A table, with the most bytes first.
fn table(head: &str, mut rows: Vec<(String, Amount)>) -> String {
    rows.sort_by_key(|(_, amount)| std::cmp::Reverse((amount.bytes, amount.lost)));
    let mut text = format!("{:>12} {:>12} {:>12}  {head}\n", "ENTRIES", "BYTES", "LOST");
    for (name, amount) in rows.iter().take(SHOWN) {
        let Amount { entries, bytes, lost, damaged, unread } = amount;
        let damage = if *damaged > 0 { " (and more, in damaged rings)" } else { "" };
        let rest = if *unread > 0 { " (and more, in files that were not read)" } else { "" };
        text += &format!("{entries:>12} {bytes:>12} {lost:>12}  {name}{damage}{rest}\n");
    }
    if rows.len() > SHOWN {
        text += &format!("{:>40} and {} others\n", "", rows.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_come_first_and_the_rest_are_counted() {
        let amount = |bytes| Amount { entries: 1, bytes, ..Amount::default() };
        let mut rows: Vec<_> =
            (0..SHOWN as u64 + 3).map(|bytes| (format!("p{bytes}"), amount(bytes))).collect();
        rows[0].1 = Amount { entries: 7, bytes: 1 << 30, lost: 5, damaged: 1, unread: 2 };
        let text = table("PROCESS", rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "     ENTRIES        BYTES         LOST  PROCESS");
        assert_eq!(
            lines[1],
            "           7   1073741824            5  p0 (and more, in damaged rings) (and more, in \
             files that were not read)"
        );
        assert!(lines[2].ends_with(" p22") && lines[SHOWN + 1].ends_with("and 3 others"));
    }
}
