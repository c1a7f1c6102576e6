//! Death notifications.

use std::sync::{Arc, Mutex, mpsc};

use rsbinder::{DeathRecipient, Interface, StatusCode, WIBinder, hub};

use crate::check::{Outcome, equal, holds, next, step};
use crate::child::{self, Child, Loopers};
use crate::listener::{listen, listen_and};
use crate::peer::{self, IPeer};

/// Forwards a death notification.
struct Recipient(Mutex<mpsc::Sender<WIBinder>>);

impl DeathRecipient for Recipient {
    fn binder_died(&self, who: &WIBinder) {
        // The receiver is gone once the scenario went on.
        let _ = self.0.lock().unwrap().send(who.clone());
    }
}

fn recipient() -> (Arc<dyn DeathRecipient>, mpsc::Receiver<WIBinder>) {
    let (sender, news) = mpsc::channel();
    (Arc::new(Recipient(Mutex::new(sender))), news)
}

fn dead<T>(result: Result<T, rsbinder::Status>) -> Outcome {
    let result = result.map(|_| ()).map_err(StatusCode::from);
    equal("a call to the dead", result, Err(StatusCode::DeadObject))
}

/// The client of a service that is killed: idle, and during a call.
pub fn of_service() -> Outcome {
    child::open(Loopers::Pool)?;

    step("two recipients are told, a third that was unlinked is not");
    let (mut child, service) = peer::start("suite.death.service")?;
    let binder = service.as_binder();
    let (first, first_news) = recipient();
    let (second, second_news) = recipient();
    let (unlinked, unlinked_news) = recipient();
    for recipient in [&first, &second, &unlinked] {
        binder.link_to_death(Arc::downgrade(recipient))?;
    }
    binder.unlink_to_death(Arc::downgrade(&unlinked))?;
    child.kill()?;
    holds("the first is told who", next("the news", &first_news)? == binder)?;
    holds("the second is told who", next("the news", &second_news)? == binder)?;
    holds("the unlinked one is not told", unlinked_news.try_recv().is_err())?;

    step("after the news");
    dead(service.pid())?;
    dead(service.post(0, 0))?;
    let late = binder.link_to_death(Arc::downgrade(&first));
    equal("linking to the dead", late, Err(StatusCode::DeadObject))?;
    holds("the dead do not answer a ping", binder.ping_binder().is_err())?;

    step("linking to one that is dead, before anybody knows");
    let (mut child, service) = peer::start("suite.death.unnoticed")?;
    let binder = service.as_binder();
    child.kill()?;
    let (third, news) = recipient();
    // The notification comes at once, unless the driver's refusal came first.
    if binder.link_to_death(Arc::downgrade(&third)).is_ok() {
        holds("told who", next("the news", &news)? == binder)?;
    }
    dead(service.pid())?;

    step("a caller waits for the one that is killed");
    let (mut child, service) = peer::start("suite.death.asleep")?;
    let (fourth, news) = recipient();
    service.as_binder().link_to_death(Arc::downgrade(&fourth))?;
    let caller = std::thread::spawn({
        let service = service.clone();
        move || service.sleep()
    });
    equal("the service", child.line()?.as_str(), "sleeping")?;
    child.kill()?;
    dead(caller.join().expect("the caller did not panic"))?;
    next("the news", &news)?;

    step("the service is killed in the midst of calling back");
    let (child, service) = peer::start("suite.death.nested")?;
    let child = Mutex::new(child);
    let (listener, _heard) = listen_and(move |_| {
        child.lock().unwrap().kill().map_err(|_| StatusCode::Unknown)?;
        Ok(())
    });
    dead(service.callBack(&listener, 1))?;

    step("the manager forgets the dead");
    let (mut child, service) = peer::start("suite.death.again")?;
    child.kill()?;
    let (child, again) = peer::start("suite.death.again")?;
    equal("the new one", again.pid()?, child.pid())?;
    dead(service.pid())?;
    child.end()
}

/// Role `client SERVICE NUMBER`: lets the service watch a listener of this process.
pub fn client(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let service: rsbinder::Strong<dyn IPeer> = hub::check_interface(&arguments[0])?;
    let (listener, _heard) = listen();
    let obituary = hub::check_interface("suite.death.obituary")?;
    service.watch(&listener, &obituary, arguments[1].parse()?)?;
    service.hold(Some(&listener))?;
    child::say("ready")?;
    child::until_end()
}

/// A service gets a notification for each client that dies.
pub fn of_client() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, service) = peer::start("suite.death.watcher")?;
    let (obituary, news) = listen();
    hub::add_service("suite.death.obituary", obituary.as_binder())?;
    let mut clients = (0..5)
        .map(|number| Child::start("client", &["suite.death.watcher", &number.to_string()]))
        .collect::<Outcome<Vec<_>>>()?;

    step("the one that was killed, and no other");
    for number in [3, 0, 4] {
        clients[number as usize].kill()?;
        equal("the dead one's number", next("the obituary", &news)?.value, number)?;
    }
    equal("the service answers", service.pid()?, child.pid())?;

    step("one that ends in peace dies as well");
    clients.remove(2).end()?;
    equal("the dead one's number", next("the obituary", &news)?.value, 2)?;
    clients.remove(1).kill()?;
    equal("the dead one's number", next("the obituary", &news)?.value, 1)?;
    holds("no more obituaries", news.try_recv().is_err())?;
    child.end()
}
