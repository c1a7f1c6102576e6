//! Records of the crates `log` and `tracing`. One test, since a program has one logger.

use baton_log::{Content, Item, Options, Reader};
use std::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A value that logs while it is formatted.
struct Talkative;

impl fmt::Display for Talkative {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        log::debug!(target: "inner", "showing");
        out.write_str("talkative")
    }
}

#[test]
fn records_of_the_crates_log_and_tracing_are_read() {
    let directory = tempfile::tempdir().unwrap();
    assert!(baton_log::set_options(Options::new().directory(directory.path())));
    baton_log::adapter::log::Log::default().init(log::LevelFilter::Debug).unwrap();
    let layer = baton_log::adapter::tracing::Layer::new(baton_log::Buffer::System);
    let subscriber = tracing_subscriber::registry().with(layer);
    subscriber.try_init().unwrap();
    log::warn!(target: "tag", "{} of {}", 1, "two");
    log::trace!("not so much");
    log::info!(target: "outer", "{Talkative}");
    log::error!(target: "long", "{:>9000}", "x");
    tracing::info!(target: "events", found = 3, name = "words", "done");
    tracing::error!(target: "events", found = 3);
    let span = tracing::info_span!("request", id = 7, later = tracing::field::Empty);
    span.record("later", "now");
    let _entered = span.enter();
    let _inner = tracing::info_span!("inner").entered();
    tracing::trace!(target: "events", "within");
    let mut reader = Reader::open(directory.path()).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next_item() {
        let Item::Record(record) = item else { panic!("{item:?}") };
        let Content::Text { priority, tag, message } = record.content else { panic!() };
        let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (buffer, letter) = (record.buffer.name(), priority.letter());
        found.push(format!("{buffer} {letter} {}: {}", words(tag), words(message)));
    }
    assert!(found[3].starts_with("main E long:    ") && found[3].len() > 4000, "{}", found[3]);
    found.remove(3);
    assert_eq!(
        found,
        [
            "main W tag: 1 of two",
            "main D inner: showing",
            "main I outer: talkative",
            "system I events: done found=3 name=words",
            "system E events: found=3",
            "system V events: request{id=7 later=now}:inner: within",
        ]
    );
}
