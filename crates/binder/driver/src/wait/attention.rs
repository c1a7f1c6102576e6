//! Attention: loopers look so often that senders of one-way transactions need not ring.
//!
//! A ring costs both ends a system call and wakes a looper, which mostly finds that another one has
//! taken the transaction. So a looper that looks, and finds that the last look was
//! [a moment](OFTEN_NS) ago, tells senders not to ring for one-way transactions. It is like a
//! network card's driver that polls while packets come. Calls ring as ever.
//!
//! The pool is attentive until a looper is about to sleep: that one tells senders to ring, and then
//! looks once more (see `shm::bell`). Others that are awake may be so for long. A handler may take
//! longer than those before it, and a looper may not come back. So while the pool is attentive, the
//! control thread looks once in [`REPEAT_AFTER`] whether a looper has looked since. If not, the
//! pool is attentive no more, and the control thread takes in what has come. An ordinary one-way
//! transaction waits for that at most twice as long.
//!
//! [`REPEAT_AFTER`]: crate::sys::control_poll::REPEAT_AFTER

use crate::sys::control_poll::ControlPoll;
use baton_abi::lane::{STATUS_BYTES, status};
use baton_shm::bell::Attentive;
use baton_shm::mapping::Mapping;
use baton_shm::sync::{AtomicU64, Ordering, fence};
use std::sync::Arc;

/// Two looks that are no further apart come often.
const OFTEN_NS: u64 = 50_000;

/// When the pool's loopers have looked, and whether senders count on it.
#[derive(Debug)]
pub(crate) struct Attention {
    page: Arc<Mapping<STATUS_BYTES>>,
    control: Arc<ControlPoll>,
    last_look_ns: AtomicU64,
    /// The last look that the control thread knows of.
    seen_look_ns: AtomicU64,
}

impl Attention {
    /// Of a pool in which nobody has looked yet.
    pub fn new(page: Arc<Mapping<STATUS_BYTES>>, control: Arc<ControlPoll>) -> Attention {
        let (last_look_ns, seen_look_ns) = Default::default();
        Attention { page, control, last_look_ns, seen_look_ns }
    }

    fn attentive(&self) -> Attentive<'_> {
        Attentive::new(self.page.word(status::ATTENTIVE))
    }

    /// Whether a looper that is awake will look soon.
    pub fn is_on(&self) -> bool {
        self.attentive().is_on()
    }

    /// A looper of the pool is about to look at all channels, and will look again before it sleeps.
    pub fn begin_look(&self, now_ns: u64) {
        // Relaxed: nothing is published by it. A look that is overwritten makes no difference.
        let before = self.last_look_ns.load(Ordering::Relaxed);
        self.last_look_ns.store(now_ns, Ordering::Relaxed);
        if now_ns.saturating_sub(before) < OFTEN_NS && !self.attentive().is_on() {
            self.attentive().begin();
            self.control.repeats.expect();
        }
    }

    /// A looper is about to sleep: it looks once more after this.
    pub fn begin_sleep(&self) {
        self.attentive().end();
    }

    /// A round of the control thread. True if the pool was attentive, and no looper has looked
    /// since the last round: the caller has to look.
    pub fn ends_neglect(&self) -> bool {
        if !self.attentive().is_on() {
            return false;
        }
        let last = self.last_look_ns.load(Ordering::Relaxed);
        if self.seen_look_ns.swap(last, Ordering::Relaxed) != last {
            self.control.repeats.expect();
            return false;
        }
        self.attentive().end();
        // Either the caller sees a transaction, or its sender sees the word.
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::payload::Payload;
    use crate::runner::send::Outgoing;
    use crate::runner::tests::{broker, channel};
    use crate::sys::thread::tid;
    use baton_abi::lane::MAX_PAYLOAD_BYTES;
    use baton_abi::uapi::TF_ONE_WAY;
    use baton_state::parcel::Sent;
    use baton_state::transaction::Target;

    const SELDOM: u64 = OFTEN_NS;

    #[test]
    fn looks_that_come_often_make_the_pool_attentive_until_a_looper_sleeps() {
        let broker = broker();
        let (server, client, _channel) = channel(&broker);
        let attention = &server.pool.attention;
        let is_attentive = || attention.attentive().is_on();
        for (now_ns, expected) in
            [(SELDOM, false), (2 * SELDOM, false), (3 * SELDOM - 1, true), (9 * SELDOM, true)]
        {
            attention.begin_look(now_ns);
            assert_eq!(is_attentive(), expected, "{now_ns}");
        }
        attention.begin_sleep();
        assert!(!is_attentive());
        client.close();
        server.close();
    }

    /// No looper comes: the control thread takes it in.
    #[test]
    fn a_transaction_that_an_attentive_pool_neglects_comes_in() {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        server.with_state(|state| {
            state.buffers.map(MAX_PAYLOAD_BYTES);
            state.enter_looper(tid());
        });
        let send = || {
            let (data, sent) = (Payload::Bytes(&[]), Sent::default());
            let outgoing = Outgoing { code: 1, flags: TF_ONE_WAY, data, offsets: &[], sent };
            client.send(tid(), Target::Handle(0), TF_ONE_WAY, (0, 0), Ok(outgoing));
        };
        let mut sent = 0;
        while channel.bell().is_none() {
            send();
            sent += 1;
        }
        let is_attentive = || channel.status_word(status::ATTENTIVE) != 0;
        for _ in 0..2 {
            (1..3).for_each(|now_ns| server.pool.attention.begin_look(now_ns));
            assert!(is_attentive());
            send();
            sent += 1;
            while server.lock().received < sent || is_attentive() {
                std::thread::yield_now();
            }
        }
        client.close();
        server.close();
    }
}
