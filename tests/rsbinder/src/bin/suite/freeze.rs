//! Freezing: a frozen process is not called, and later learns what it missed.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rsbinder::{
    FrozenState, FrozenStateChangeCallback, Interface, ProcessState, StatusCode, WIBinder,
};

use crate::check::{Outcome, equal, holds, next, step};
use crate::child::{self, Loopers};
use crate::peer;

struct Changes(Mutex<mpsc::Sender<FrozenState>>);

impl FrozenStateChangeCallback for Changes {
    fn on_state_changed(&self, _who: &WIBinder, state: FrozenState) {
        // The receiver is gone once the scenario went on.
        let _ = self.0.lock().unwrap().send(state);
    }
}

fn freeze(pid: i32, on: bool) -> Result<(), StatusCode> {
    ProcessState::as_self().freeze_process(pid, on, Duration::from_millis(500))
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (mut child, service) = peer::start("suite.freeze.service")?;
    let pid = child.pid();

    step("of a process that has nothing to do with Binder");
    equal("freezing it", freeze(1, true), Err(StatusCode::BadValue))?;

    step("notification of the change");
    let (sender, changes) = mpsc::channel();
    let callback: Arc<dyn FrozenStateChangeCallback> = Arc::new(Changes(Mutex::new(sender)));
    let told = service.as_binder().add_frozen_state_change_callback(Arc::downgrade(&callback));
    // Only newer drivers report this. Older ones refuse the question, which ends the check.
    let told = match told {
        Err(StatusCode::InvalidOperation) => false,
        result => result.map(|()| true)?,
    };
    let expect = |state| match told {
        true => equal("state", next("the change", &changes)?, state),
        false => Ok(()),
    };
    expect(FrozenState::Unfrozen)?;

    step("calls to the frozen");
    freeze(pid, true)?;
    expect(FrozenState::Frozen)?;
    let refused = service.pid().map_err(StatusCode::from);
    equal("a call", refused, Err(StatusCode::FailedTransaction))?;
    service.post(1, 1)?;
    let missed = ProcessState::as_self().process_freeze_info(pid)?;
    holds("it missed a call", missed.sync_received)?;
    holds("it missed a one-way call", missed.async_received)?;

    step("after the thaw");
    freeze(pid, false)?;
    expect(FrozenState::Unfrozen)?;
    equal("the one-way call arrives", service.received(1)?, vec![(1 << 32) | 1])?;
    equal("a call", service.pid()?, pid)?;

    step("with a call under way");
    std::thread::spawn({
        let service = service.clone();
        move || service.sleep()
    });
    equal("the service", child.line()?.as_str(), "sleeping")?;
    equal("freezing", freeze(pid, true), Err(StatusCode::WouldBlock))?;
    equal("the freeze was taken back", service.pid()?, pid)?;
    child.kill()
}
