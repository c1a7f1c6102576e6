//! The adapter of the crate `tracing`: a layer for subscribers.
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//! use tracing_subscriber::util::SubscriberInitExt;
//!
//! tracing_subscriber::registry().with(baton_log::adapter::tracing::Layer::default()).init();
//! tracing::info!(target: "sensors", found = 3, "done");
//! ```
//!
//! The text of an event is its spans, its message and its fields: `request{id=7}: done found=3`.

use super::{Words, put};
use crate::{Buffer, Priority};
use std::fmt::{self, Write};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A layer that writes events to this log. The event's target becomes the tag, unless one tag is
/// set for all.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    buffer: Buffer,
    tag: Option<&'static str>,
}

impl Default for Layer {
    /// Writes to the buffer `main`.
    fn default() -> Layer {
        Layer::new(Buffer::Main)
    }
}

impl Layer {
    /// Writes to this buffer.
    pub const fn new(buffer: Buffer) -> Layer {
        Layer { buffer, tag: None }
    }

    /// Sets the tag of all events, instead of their targets.
    pub const fn tag(self, tag: &'static str) -> Layer {
        Layer { tag: Some(tag), ..self }
    }
}

/// The formatted fields of a span.
struct Fields(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields(String::new());
        attributes.record(&mut Shown(&mut fields.0));
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(&mut Shown(&mut fields.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let tag = self.tag.unwrap_or(metadata.target());
        put(self.buffer, priority(*metadata.level()), tag, |words| {
            // `Words` accepts any bytes.
            let _ = spans(words, event, &context);
            let start = words.0.len();
            let mut message = Message { words, others: String::new() };
            event.record(&mut message);
            let Message { words, others } = message;
            let between = if words.0.len() > start && !others.is_empty() { " " } else { "" };
            let _ = write!(words, "{between}{others}");
        });
    }
}

fn priority(level: Level) -> Priority {
    match level {
        Level::ERROR => Priority::Error,
        Level::WARN => Priority::Warn,
        Level::INFO => Priority::Info,
        Level::DEBUG => Priority::Debug,
        Level::TRACE => Priority::Verbose,
    }
}

/// Formats the spans of an event: `outer{id=7}:inner: `
fn spans<S: Subscriber + for<'a> LookupSpan<'a>>(
    words: &mut Words,
    event: &Event<'_>,
    context: &Context<'_, S>,
) -> fmt::Result {
    let Some(scope) = context.event_scope(event) else { return Ok(()) };
    for span in scope.from_root() {
        words.write_str(span.name())?;
        let extensions = span.extensions();
        if let Some(Fields(fields)) =
            extensions.get().filter(|fields: &&Fields| !fields.0.is_empty())
        {
            write!(words, "{{{fields}}}")?;
        }
        words.write_str(":")?;
    }
    words.write_str(" ")
}

/// Formats fields as `name=value`, with spaces between them.
struct Shown<'a>(&'a mut String);

impl Visit for Shown<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let between = if self.0.is_empty() { "" } else { " " };
        let _ = write!(self.0, "{between}{field}={value:?}");
    }
}

/// The message of an event, and apart from it its other fields.
struct Message<'a> {
    words: &'a mut Words,
    others: String,
}

impl Visit for Message<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => drop(write!(self.words, "{value:?}")),
            _ => Shown(&mut self.others).record_debug(field, value),
        }
    }
}
