//! Finding the next broker when one has died, and telling it what this process has.
//!
//! ```text
//!             the event socket ends                 Welcome
//!   (joined) ----------------------> Later <---> Greeted -----> claims, (joined)
//!                                    (timer)        |
//!                                                   +--> Over: it will not have us back
//! ```
//!
//! The control thread does all of this. No thread waits for a broker: until there is one, requests
//! to it fail. The claims are made under the state's lock; from then on the state's requests go to
//! the new broker.

use super::accept::ChannelSet;
use crate::channel::Channel;
use crate::engine::Engine;
use crate::engine::broker::{Greeting, Link};
use crate::sys::clock::now;
use crate::sys::control_poll::GREETING;
use baton_abi::claim::{Claim, MAX_CLAIMS};
use baton_abi::control::{Event, Request};
use rustix::event::Timespec;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Well within the time that a broker waits for engines.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How far the control thread has come.
#[derive(Debug, Default)]
pub(crate) enum RejoinState {
    /// There is a broker.
    #[default]
    Joined,
    /// There is none: the time of the next attempt, and the pause after it.
    Later(Instant, Duration),
    /// A broker was greeted; with the pause if it goes away.
    Greeted(Arc<OwnedFd>, Duration),
    /// The broker refuses this process for good.
    Over,
}

impl RejoinState {
    /// How long the control thread may sleep.
    pub fn pause(&self) -> Option<Timespec> {
        let RejoinState::Later(time, _) = self else { return None };
        let left = time.saturating_duration_since(now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    pub fn is_due(&self) -> bool {
        matches!(self, RejoinState::Later(time, _) if *time <= now())
    }
}

impl Engine {
    /// The old broker's last event has been taken: its later events are lost.
    pub(crate) fn broker_is_gone(&self) {
        if !self.is_closed() {
            let what = "the broker is gone; calls go on, nothing new can be reached";
            tracing::warn!(target: "binder", "{what}");
        }
        self.with_state(|state| {
            self.revoke(state);
            self.broker.forget_tally();
            state.broker_lost();
            self.accept(state, ChannelSet::All);
            self.take_priorities_back(state);
        });
    }

    /// Begins to look for another broker if ours is gone.
    pub(crate) fn look_for_broker(&self, rejoining: &mut RejoinState) {
        let link = self.broker.link();
        if link.is_lost() && matches!(rejoining, RejoinState::Joined) && !self.is_closed() {
            if let Some(events) = link.events() {
                self.control.forget(events);
            }
            // Frees the link's two descriptors: the next broker's link may need them.
            self.broker.replace(Arc::new(Link::none(link.era)));
            *rejoining = RejoinState::Later(now(), FIRST_PAUSE);
        }
    }

    pub(crate) fn greet_broker(&self, rejoining: &mut RejoinState) {
        let &mut RejoinState::Later(_, pause) = rejoining else { return };
        let greeted = self.broker.greet_next().and_then(|socket| {
            self.control.watch(socket.as_fd(), GREETING)?;
            Ok(socket)
        });
        *rejoining = match greeted {
            Ok(socket) => RejoinState::Greeted(socket, pause),
            Err(_) => self.try_later(pause),
        };
    }

    pub(crate) fn hear_broker(&self, rejoining: &mut RejoinState) {
        let RejoinState::Greeted(socket, pause) = std::mem::take(rejoining) else { return };
        self.control.forget(socket.as_fd());
        *rejoining = match self.broker.hear_next(socket) {
            Greeting::Welcome(link) => match self.rejoin(Arc::new(link)) {
                true => RejoinState::Joined,
                false => self.try_later(pause),
            },
            Greeting::Later => self.try_later(pause),
            Greeting::Refused(errno) => {
                tracing::warn!(target: "binder", "the next broker does not take us back: {errno}");
                self.broker.give_up_next();
                RejoinState::Over
            }
        };
    }

    fn try_later(&self, pause: Duration) -> RejoinState {
        self.broker.give_up_next();
        RejoinState::Later(now() + pause, (pause * 2).min(LONGEST_PAUSE))
    }

    /// Makes this process's claims. False if the new broker is gone as well.
    fn rejoin(&self, link: Arc<Link>) -> bool {
        let _events = self.broker.applying.lock();
        // Messages that were announced in time come in now; later ones have lost their references.
        let (mut state, _) = self.accept_posted(ChannelSet::All);
        self.revoke(&mut state);
        if self.is_closed() || self.watch_events(&link).is_err() {
            return false;
        }
        self.broker.forget_tally();
        state.rejoin(link.era, |process| !self.pool.channels.with(process).is_empty());
        // Requests of the state so far go to the old broker: the claims reflect them.
        self.carry_out(&mut state);
        let (mut claims, channels) = (state.claims(), self.pool.channels.all());
        let claim = |channel: &Arc<Channel>| {
            let (end, peer) = (channel.end, channel.peer);
            Claim::Channel { channel: channel.id, end, peer }
        };
        claims.extend(channels.iter().map(claim));
        let manages = state.managers();
        // A reservation that ends later is reported to the broker that is in place then.
        let reservations = self.real_time.reservations.all.lock();
        let all_sent = claims
            .chunks(MAX_CLAIMS)
            .all(|claims| link.tell(&Request::Claim { claims: claims.to_vec() }))
            && link.tell(&Request::Rejoin { manages })
            && self.tell_ended_lanes(&link, &channels);
        if !all_sent {
            state.broker_lost();
            // The state is of that broker's era: a thread that asks it is refused, and goes on.
            self.broker.replace(Arc::new(Link::none(link.era)));
            return false;
        }
        tracing::info!(target: "binder", "another broker is there");
        self.broker.replace(Arc::clone(&link));
        drop(reservations);
        drop(state);
        self.wake_standby();
        if self.is_closed() {
            link.shut_down();
        }
        true
    }

    /// A broker that did not create this process's status page cannot write it: the engine sets the
    /// frozen flag.
    pub(crate) fn see_freeze(&self, event: &Event) {
        if let Event::Frozen { process, frozen } = *event
            && process == self.identity.process
            && self.broker.link().era != process.era()
        {
            self.page.set_frozen(frozen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{TestBroker, broker};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::cell::Cell;

    fn engine() -> (Arc<Engine>, TestBroker) {
        let broker = broker();
        (Engine::open("binder", broker.socket()).unwrap(), broker)
    }

    /// Whoever asks the broker meanwhile is refused, and may see that by the era.
    #[test]
    fn after_a_failed_rejoin_the_link_is_of_the_states_era() {
        let (engine, _broker) = engine();
        let pair = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap().0
        };
        let next = Link::new(7, 2, Arc::new(pair()), pair());
        assert!(!engine.rejoin(Arc::new(next)), "nobody hears the claims");
        assert!(engine.lock().is_of(7) && engine.broker.link().era == 7);
        engine.close();
    }

    #[test]
    fn a_child_of_fork_closes_the_connection_to_the_next_broker() {
        let (engine, _broker) = engine();
        let n_sockets = || {
            let n_sockets = Cell::new(0);
            engine.broker.sockets_in_child(|_| n_sockets.set(n_sockets.get() + 1));
            n_sockets.get()
        };
        assert_eq!(n_sockets(), 2);
        engine.broker.greet_next().unwrap();
        assert_eq!(n_sockets(), 3);
        engine.broker.give_up_next();
        assert_eq!(n_sockets(), 2);
        engine.close();
    }
}
