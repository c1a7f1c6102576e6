//! The commands of the broadcast service.

use super::intent_args::IntentArgs;
use crate::failure::{Failure, Kind};
use crate::manager::{ContextArgs, Manager};
use crate::stdout::{show, show_json};
use crate::threads;
use crate::timeout::parse_seconds;
use baton::android::Exception;
use baton_services::broadcast::client::{BroadcastError, Delivery};
use baton_services::broadcast::level::Outcome;
use baton_services::broadcast::priority::EXTRA_PRIORITY;
use baton_services::broadcast::protocol::Send;
use baton_services::broadcast::{BroadcastManager, NAME};
use baton_services::intent::Intent;
use clap::Args;
use serde::Serialize;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Options of `baton am broadcast`.
#[derive(Args)]
#[command(after_help = "\
The broadcast has the priority of this command: `chrt -f 80 baton am broadcast ...` sends at \
80, before all that is less urgent. --priority makes it a lower one.

An --ordered broadcast waits for its result. Receivers of a higher filter priority get it first.

Example: baton am broadcast -a org.example.NEWS --es title hello")]
pub struct BroadcastArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Deliver to one receiver after the other, and show the result
    #[arg(long)]
    ordered: bool,
    /// Keep the broadcast for receivers that register later
    #[arg(long, conflicts_with = "receiver_permission")]
    sticky: bool,
    /// Priority from 0, for an ordinary one, to 99; at most this command's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=99))]
    priority: Option<i32>,
    /// Permission that receivers need
    #[arg(long, value_name = "PERMISSION")]
    receiver_permission: Option<String>,
    /// How long to wait for the result of an --ordered broadcast
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Duration,
    /// Print {"receivers", "result": {"code", "data"}}; without --ordered the result is null
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    intent: IntentArgs,
}

/// Options of `baton am receivers`.
#[derive(Args)]
pub struct ReceiversArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Show what is pending and delivered by priority, and the receivers skipped last, instead
    #[arg(long)]
    stats: bool,
    /// Print {"receivers": [{"name", "pid", "uid", "actions", "schemes", "filter_priority",
    /// "permission"}], "stickies", "priorities": [{"priority", "pending", "ended", "delivered",
    /// "skipped"}], "skipped": [{"receiver", "action", "priority", "why"}], "without_priority"}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Sent {
    receivers: i32,
    result: Option<SentResult>,
}

#[derive(Serialize)]
struct SentResult {
    code: i32,
    data: Option<String>,
}

/// The broadcast service, and the process that calls it.
fn find(place: &ContextArgs, socket: &Path, tried: &str) -> Result<BroadcastManager, Failure> {
    let manager = Manager::find(&place.context, socket, tried)?;
    BroadcastManager::find(manager.process()).map_err(|error| explain(tried, error))
}

fn explain(tried: &str, error: BroadcastError) -> Failure {
    let failure = Failure::new(tried, &error);
    match error {
        BroadcastError::NoService => failure.advice(format!("start {NAME:?}: `baton am serve`")),
        BroadcastError::Refused(Exception { code: -5, .. }) => {
            failure.advice("wait until they are delivered: see `baton am receivers --stats`")
        }
        _ => failure,
    }
}

/// Sends a broadcast.
pub fn broadcast(args: &BroadcastArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "send the broadcast";
    let mut intent: Intent = args.intent.intent()?;
    if let Some(priority) = args.priority {
        intent.extras.put(EXTRA_PRIORITY, priority);
    }
    let service = find(&args.place, socket, tried)?;
    let send = Send {
        intent,
        permission: args.receiver_permission.clone(),
        is_sticky: args.sticky,
        ..Send::default()
    };
    let (receivers, result) = if args.ordered {
        let (receivers, outcome) = send_ordered(&service, &send, args.timeout, tried)?;
        (receivers, Some(SentResult { code: outcome.code, data: outcome.data }))
    } else {
        let sent = service.send_with(&send);
        (sent.map_err(|error| explain(tried, error))?, None)
    };
    if args.json {
        return show_json(&Sent { receivers, result });
    }
    let mut text = format!("Sent to {receivers} receivers\n");
    if let Some(SentResult { code, data }) = result {
        text.push_str(&format!("Result: {code}"));
        data.iter().for_each(|data| text.push_str(&format!(", data {data:?}")));
        text.push('\n');
    }
    show(&text)
}

fn send_ordered(
    service: &BroadcastManager,
    send: &Send,
    timeout: Duration,
    tried: &str,
) -> Result<(i32, Outcome), Failure> {
    let (tell, told) = mpsc::sync_channel(1);
    let loopers = threads::serve(tried, service.process(), 1)?;
    let result = move |delivery: Delivery| _ = tell.try_send(delivery.outcome().clone());
    let sent = service.send_ordered(send, result);
    let outcome = sent.map_err(|error| explain(tried, error)).and_then(|receivers| {
        let outcome = told.recv_timeout(timeout).map_err(|_| {
            Failure::new(tried, format!("there is no result after {} s", timeout.as_secs_f64()))
                .kind(Kind::TimedOut)
                .advice("see `baton am receivers --stats`, or give it longer with --timeout")
        })?;
        Ok((receivers, outcome))
    });
    service.process().close();
    loopers.into_iter().for_each(|looper| _ = looper.join());
    outcome
}

/// Shows receivers.
pub fn receivers(args: &ReceiversArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "show the receivers";
    let service = find(&args.place, socket, tried)?;
    let report = service.report().map_err(|error| explain(tried, error))?;
    if args.json {
        return show_json(&report);
    }
    let mut text = String::new();
    let written =
        if args.stats { report.write_counts(&mut text) } else { report.write_receivers(&mut text) };
    written.expect("a string takes all");
    show(&text)
}
