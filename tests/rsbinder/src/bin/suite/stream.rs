//! Streams: one call opens them, a ring in shared memory carries them, a death ends them.

use std::sync::{Condvar, Mutex};

use baton_rsbinder_programs::suite::IStreams::{BnStreams, IStreams};
use baton_rsbinder_programs::suite::ITypes::Point::Point;
use rsbinder::stream::{Receiver, Sink, StreamEndpoint, Token};
use rsbinder::{BinderResult, ExceptionCode, Interface, SIBinder, Status, StatusCode, Strong, hub};
use std::sync::Arc;

use crate::check::{Outcome, PATIENCE, equal, holds, step};
use crate::child::{self, Child, Loopers};

/// More than the ring holds, many times over.
const ITEMS: i32 = 20_000;

type Sum = (Mutex<Option<i64>>, Condvar);

#[derive(Default)]
struct Streams {
    sum: Arc<Sum>,
}

impl Interface for Streams {}

fn point(x: i32) -> Point {
    Point { x, y: -x, label: format!("number {x}") }
}

fn produce(mut sink: Sink<Point>, count: i32, fail: bool) -> Result<(), StatusCode> {
    (0..count).try_for_each(|x| sink.send(&point(x)))?;
    if fail {
        return sink.end_with(&Status::new_service_specific_error(7, Some("no more".into())));
    }
    sink.end()
}

impl IStreams for Streams {
    fn subscribe(
        &self,
        endpoint: &StreamEndpoint<Point>,
        count: i32,
        fail: bool,
    ) -> BinderResult<()> {
        let sink = Sink::open(endpoint)?;
        std::thread::spawn(move || produce(sink, count, fail));
        Ok(())
    }

    fn upload(&self, producer: &SIBinder) -> BinderResult<StreamEndpoint<Point>> {
        let (receiver, endpoint) = Receiver::<Point>::new(producer)?;
        let sum = self.sum.clone();
        std::thread::spawn(move || {
            // An item that is an error ends the stream: then the sum is not what it should be.
            let total = receiver.map_while(Result::ok).map(|point| i64::from(point.x)).sum();
            *sum.0.lock().unwrap() = Some(total);
            sum.1.notify_all();
        });
        Ok(endpoint)
    }

    fn sum(&self) -> BinderResult<i64> {
        let sum = self.sum.0.lock().unwrap();
        let (sum, _) = self.sum.1.wait_timeout_while(sum, PATIENCE, |sum| sum.is_none()).unwrap();
        Ok(sum.ok_or(StatusCode::TimedOut)?)
    }
}

/// Role `stream NAME`.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    child::serve(&arguments[0], BnStreams::new_binder(Streams::default()).as_binder())
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let mut child = Child::start("stream", &["suite.stream.service"])?;
    let service: Strong<dyn IStreams> = hub::check_interface("suite.stream.service")?;
    let binder = service.as_binder();

    step("from the service");
    let (receiver, endpoint) = Receiver::<Point>::new(&binder)?;
    holds("it goes through a ring", receiver.uses_ring())?;
    service.subscribe(&endpoint, ITEMS, false)?;
    let mut count = 0;
    for item in receiver {
        equal("item", item?, point(count))?;
        count += 1;
    }
    equal("items", count, ITEMS)?;

    step("an error ends it");
    let (receiver, endpoint) = Receiver::<Point>::new(&binder)?;
    service.subscribe(&endpoint, 10, true)?;
    let mut items: Vec<_> = receiver.collect();
    let end = items.pop().ok_or("the stream was empty")?.expect_err("the last item is the error");
    equal("items", items.len(), 10)?;
    equal("exception", end.exception_code(), ExceptionCode::ServiceSpecific)?;
    equal("code", end.service_specific_error(), 7)?;

    step("to the service");
    let token = Token::new();
    let sink = Sink::open(&service.upload(&token.binder())?)?;
    produce(sink, ITEMS, false)?;
    equal("sum", service.sum()?, i64::from(ITEMS) * i64::from(ITEMS - 1) / 2)?;

    step("from a service that is killed");
    let (mut receiver, endpoint) = Receiver::<Point>::new(&binder)?;
    service.subscribe(&endpoint, i32::MAX, false)?;
    equal("item", receiver.recv().ok_or("the stream was empty")??, point(0))?;
    child.kill()?;
    let end = receiver.find_map(Result::err).ok_or("the stream ended without an error")?;
    equal("end", StatusCode::from(end), StatusCode::DeadObject)
}
