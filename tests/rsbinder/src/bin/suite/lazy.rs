//! A lazy service: it ends by itself when its last client has gone.

use std::time::Duration;

use rsbinder::lazy_service::LazyServiceRegistrar;
use rsbinder::{Interface, Strong, hub};

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Child, Loopers};
use crate::peer::{self, IPeer};

/// rsb_hub checks every five seconds whether a service has clients left.
const LIMIT: Duration = Duration::from_secs(40);

/// Role `lazy NAME`.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let service = peer::local().as_binder();
    LazyServiceRegistrar::instance().register_service(&arguments[0], service)?;
    child::say("ready")?;
    child::until_end()
}

pub fn scenario() -> Outcome {
    const NAME: &str = "suite.lazy.service";
    child::open(Loopers::Pool)?;
    let mut child = Child::start("lazy", &[NAME])?;

    step("it serves while it has a client");
    let service: Strong<dyn IPeer> = hub::check_interface(NAME)?;
    equal("process", service.pid()?, child.pid())?;

    step("it ends when it has none");
    drop(service);
    let status = child.wait(LIMIT)?;
    holds(&format!("it ends in peace: {status}"), status.success())?;
    holds("the manager does not know it any more", hub::check_service(NAME).is_none())
}
