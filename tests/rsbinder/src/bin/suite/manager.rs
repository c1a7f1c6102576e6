//! Functions of the service manager for a program.

use std::io::Read;
use std::sync::{Mutex, mpsc};

use baton_rsbinder_programs::suite::IListener::IListener;
use baton_rsbinder_programs::suite::IPeer::IPeer;
use rsbinder::hub::{self, BnServiceCallback, IServiceCallback};
use rsbinder::{BinderResult, Interface, ParcelFileDescriptor, SIBinder, Strong};

use crate::check::{Outcome, equal, holds, next, step};
use crate::child::{self, Child, Loopers};
use crate::peer;

struct Registered(Mutex<mpsc::Sender<String>>);

impl Interface for Registered {}

impl IServiceCallback for Registered {
    fn onRegistration(&self, name: &str, _service: &SIBinder) -> BinderResult<()> {
        // The receiver is gone once the scenario went on.
        let _ = self.0.lock().unwrap().send(name.to_owned());
        Ok(())
    }
}

fn listed(name: &str) -> bool {
    hub::list_services(hub::DUMP_FLAG_PRIORITY_ALL).iter().any(|listed| listed == name)
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    step("what is not there");
    holds("no such service", hub::check_service("suite.manager.nobody").is_none())?;
    holds("not declared", !hub::is_declared("suite.manager.nobody"))?;
    holds("the manager lists itself", listed("manager"))?;

    step("a registration is announced");
    let (sender, names) = mpsc::channel();
    let callback = BnServiceCallback::new_binder(Registered(Mutex::new(sender)));
    hub::register_for_notifications("suite.manager.service", &callback)?;
    let (child, service) = peer::start("suite.manager.service")?;
    equal("announced", next("the announcement", &names)?.as_str(), "suite.manager.service")?;

    step("lookups give one and the same object");
    let looked_up: Strong<dyn IPeer> = hub::wait_for_interface("suite.manager.service")?;
    holds("the same object", looked_up.as_binder() == service.as_binder())?;
    equal("name of the interface", looked_up.as_binder().descriptor(), "suite.IPeer")?;
    looked_up.as_binder().ping_binder()?;
    holds("listed", listed("suite.manager.service"))?;

    step("what every object offers");
    let proxy = service.as_binder();
    let (mut output, input) = ParcelFileDescriptor::pipe()?;
    let arguments = ["tell", "me"].map(String::from);
    proxy.as_proxy().ok_or("the service is not remote")?.dump(input, &arguments)?;
    let mut dumped = String::new();
    output.read_to_string(&mut dumped)?;
    equal("dump", dumped.as_str(), "tell me\n")?;
    let extension = proxy.get_extension()?.ok_or("the service has no extension")?;
    let extension: Strong<dyn IListener> = extension.into_interface()?;
    equal("a call to the extension", extension.call(1)?, 2)?;

    step("whose service it is");
    let info = hub::get_service_debug_info()?;
    let pid =
        info.iter().find(|info| info.name == "suite.manager.service").map(|info| info.debugPid);
    equal("process", pid, Some(child.pid()))?;

    step("waiting for one that comes later");
    let waiter = std::thread::spawn(|| hub::wait_for_interface::<dyn IPeer>("suite.manager.late"));
    let late = Child::start("peer", &["suite.manager.late"])?;
    let found = waiter.join().expect("the waiting thread did not panic")?;
    equal("process", found.pid()?, late.pid())?;

    step("one of this process's own");
    hub::add_service("suite.manager.own", peer::local().as_binder())?;
    let own: Strong<dyn IPeer> = hub::check_interface("suite.manager.own")?;
    holds("an own object comes back as itself", !own.as_binder().is_remote())?;

    step("a thousand lookups");
    for _ in 0..1000 {
        holds("found", hub::check_service("suite.manager.service").is_some())?;
    }
    late.end()?;
    child.end()
}
