//! The resources that an engine keeps, and when it drops them.

use super::accept::{ChannelSet, Look, MOST_AT_ONCE};
use crate::channel::Channel;
use crate::channel::lingering::lingering;
use crate::channel::payload::Payload;
use crate::channel::returns::ReliedOn;
use crate::engine::Engine;
use crate::engine::real_time::OwnRing;
use crate::engine::thread_end::remember;
use crate::runner::await_work::Until;
use crate::runner::send::Outgoing;
use crate::sys::clock::stamp;
use crate::sys::thread::is_running;
use crate::sys::thread::tid;
use baton_abi::control::{ChannelId, HeldNode, NodeId, Reply, Request, Strength};
use baton_abi::lane::{
    Carried, ChainEntry, Kind, MAX_CHAIN, MAX_FDS, MAX_PAYLOAD_BYTES, Message, status,
};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use baton_broker::{Config, Running};
use baton_shm::bell::Sleep;
use baton_shm::futex::{self, Wait};
use baton_shm::lane_owner::Owner;
use baton_shm::mailbox::{Reader, Seen};
use baton_shm::mapping::View;
use baton_shm::schedule;
use baton_shm::sync::{AtomicU32, Ordering};
use baton_state::parcel::Sent;
use baton_state::thread::{Calling, Raise, Waiting};
use baton_state::transaction::{LaneId, Refusal, Target};
use baton_state::work::{Completion, Tid, Work};
use baton_state::{Effect, Return, State};
use bytemuck::{Zeroable, bytes_of};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A broker, and the directory of its socket, which outlives it: the broker writes files there
/// until its end.
pub(crate) struct TestBroker {
    running: Running,
    _directory: tempfile::TempDir,
}

impl std::ops::Deref for TestBroker {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

pub(crate) fn broker() -> TestBroker {
    let directory = tempfile::tempdir().unwrap();
    let config = Config::at(directory.path().join("broker.sock"));
    TestBroker { running: Running::start(config).unwrap(), _directory: directory }
}

#[test]
fn a_thread_that_ends_is_forgotten() {
    let broker = broker();
    let engine = Engine::open("binder", broker.socket()).unwrap();
    let known = || (engine.lock().threads.len(), engine.own_words.lock().len());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            remember(&engine);
            remember(&engine);
            engine.lock().thread(tid());
            engine.own_word(tid());
            assert_eq!(known(), (1, 1));
        });
        // The scope's end waits for its body only, not for the thread's.
        thread.join().unwrap();
    });
    assert_eq!(known(), (0, 0));
}

#[test]
fn an_engine_may_go_before_its_threads_do() {
    let broker = broker();
    let engine = Engine::open("binder", broker.socket()).unwrap();
    let thread = std::thread::spawn(move || {
        remember(&engine);
        let gone = Arc::downgrade(&engine);
        engine.close();
        drop(engine);
        // The control thread has the last reference, and ends.
        while gone.strong_count() > 0 {
            std::thread::yield_now();
        }
    });
    thread.join().unwrap();
}

/// The broker keeps back what comes after more descriptors than an engine has read.
#[test]
fn events_that_the_broker_keeps_back_are_waited_for() {
    const CLIENTS: usize = 40;
    let broker = broker();
    let server = Engine::open("binder", broker.socket()).unwrap();
    server.become_manager(0x10, 0, 0).unwrap();
    let unread = server.broker.applying.lock();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = Engine::open("binder", broker.socket()).unwrap();
            client.find_manager().unwrap();
            client.channel_to(server.identity.process).unwrap();
            client
        })
        .collect();
    drop(unread);
    drop(server.pass_barrier());
    let channels = server.pool.channels.lists().n_incoming();
    assert_eq!(channels, CLIENTS, "all that was sent before has come");
    clients.iter().for_each(|client| client.close());
    server.close();
}

#[test]
fn a_node_that_may_not_manage_is_as_it_was() {
    let broker = broker();
    let manager = Engine::open("binder", broker.socket()).unwrap();
    manager.become_manager(0x10, 0x20, 0).unwrap();
    assert!(manager.lock().nodes.at(0x10).is_some());
    let other = Engine::open("binder", broker.socket()).unwrap();
    assert_eq!(other.become_manager(0x30, 0x40, 0), Err(Errno::BUSY));
    assert_eq!(other.lock().nodes.at(0x30), None);
    manager.close();
    other.close();
}

#[test]
fn a_manager_whose_death_has_been_told_elsewhere_is_not_known() {
    let broker = broker();
    let open = || Engine::open("binder", broker.socket()).unwrap();
    let (before, after, client) = (open(), open(), open());
    before.become_manager(0x10, 0, 0).unwrap();
    client.find_manager().unwrap();
    // The control thread does not hear of the death before this thread allows it.
    let events = client.broker.applying.lock();
    before.close();
    while after.become_manager(0x10, 0, 0) == Err(Errno::BUSY) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let found = scope.spawn(|| client.find_manager());
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(!found.is_finished(), "the dead manager is taken for the context's");
        }
        drop(events);
        found.join().unwrap().unwrap();
    });
    let state = client.lock();
    let owner = state.manager.and_then(|handle| state.references.get(handle)).map(|r| r.owner);
    assert_eq!(owner, Some(after.identity.process));
    drop(state);
    client.close();
    after.close();
}

/// A client's channel to a server that nobody serves but its control thread.
pub(crate) fn channel(broker: &Running) -> (Arc<Engine>, Arc<Engine>, Arc<Channel>) {
    let server = Engine::open("binder", broker.socket()).unwrap();
    server.become_manager(0x10, 0, 0).unwrap();
    let client = Engine::open("binder", broker.socket()).unwrap();
    client.find_manager().unwrap();
    let channel = client.channel_to(server.identity.process).unwrap();
    (server, client, channel)
}

pub(crate) fn other_end(server: &Engine, channel: &Channel) -> Arc<Channel> {
    loop {
        if let Some(theirs) = server.channel(channel.id) {
            return theirs;
        }
        std::thread::yield_now();
    }
}

/// The kernel counts a looper that sleeps on two bells as woken at both, until it runs.
#[test]
fn a_looper_that_two_clients_have_rung_wakes_another_one() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let other = Engine::open("binder", broker.socket()).unwrap();
    other.find_manager().unwrap();
    let second = other.channel_to(server.identity.process).unwrap();
    let ours = [&channel, &second].map(|channel| other_end(&server, channel));
    // The control thread tells loopers of nothing more.
    drop(server.pass_barrier());
    let pool = &server.pool;
    assert_eq!(pool.channels.active().len(), 2);
    std::thread::scope(|scope| {
        let any_work = pool.any_work.load(Ordering::Acquire);
        let loopers = [(); 2].map(|()| scope.spawn(move || pool.await_client(any_work, &mut None)));
        while pool.page.word(status::SLEEPERS).load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        channel.set_ready(0);
        second.set_ready(0);
        // A looper between its last look and its sleep misses a ring, as it does a client's.
        let bell = ours[0].own_bell().unwrap();
        while !bell.pass_on() && !loopers.iter().all(|looper| looper.is_finished()) {
            std::thread::yield_now();
        }
        for looper in loopers {
            assert_eq!(looper.join().unwrap(), Wait::Woken);
        }
    });
    client.close();
    other.close();
    server.close();
}

/// A ring has been made for a looper that was about to sleep, and its client undoes it: the looper
/// sleeps all the same.
fn sleep_all_the_same((word, expected): (&AtomicU32, u32)) {
    word.store(expected, Ordering::Relaxed);
    let woken = futex::wait(word, expected, Some(Duration::from_secs(60)));
    assert_eq!(woken, Wait::Woken, "somebody has rung again");
}

#[test]
fn a_ring_that_a_client_undoes_is_repeated_as_long_as_there_is_work() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let bell = theirs.own_bell().unwrap();
    let sleep = bell.announce(Sleep::Alone);
    {
        let mut state = server.lock();
        state.set_waiting(tid(), Waiting::Bell);
        state.thread(tid()).todo.push(Work::DeathCleared(1));
        server.carry_out_one(&mut state, Effect::Wake(tid(), Waiting::Bell));
    }
    sleep_all_the_same(sleep);
    sleep_all_the_same(sleep);
    bell.withdraw(Sleep::Alone);
    server.lock().set_waiting(tid(), Waiting::No);
    client.close();
    server.close();
}

#[test]
fn the_bell_of_a_channel_that_has_gone_is_rung_until_nobody_sleeps_there() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let bell = theirs.own_bell().unwrap();
    let sleep = bell.announce(Sleep::Alone);
    client.close();
    while server.channel(channel.id).is_some() {
        std::thread::yield_now();
    }
    sleep_all_the_same(sleep);
    sleep_all_the_same(sleep);
    bell.withdraw(Sleep::Alone);
    let gone = Arc::downgrade(&theirs);
    drop(theirs);
    // Its memory goes with the last looper that slept there.
    while gone.strong_count() > 0 {
        std::thread::yield_now();
    }
    server.close();
}

#[test]
fn a_close_waits_for_no_looper_and_its_control_thread_for_all() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let bell = theirs.own_bell().unwrap();
    let sleep = bell.announce(Sleep::Alone);
    server.close();
    sleep_all_the_same(sleep);
    sleep_all_the_same(sleep);
    bell.withdraw(Sleep::Alone);
    let gone = Arc::downgrade(&server);
    drop(server);
    while gone.strong_count() > 0 {
        std::thread::yield_now();
    }
    client.close();
}

/// A looper that watched a lane may have taken the request that its client announces to the pool a
/// millisecond later.
#[test]
fn what_has_been_taken_may_be_told_of() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    for _ in 0..1000 {
        channel.notify_of_request(0, Reader::Elsewhere, true);
        let _ = server.accept(&mut server.lock(), ChannelSet::Watched);
    }
    assert!(!theirs.ends().dead, "it is no violation");
    assert!(!theirs.has_news(), "and it is forgotten");
    assert!(theirs.start_serving(0, Owner::Pool), "nobody serves what is not there");
    client.close();
    server.close();
}

/// The caller has become an ordinary thread and a real-time thread again before the looper has
/// looked.
#[test]
fn who_leaves_a_lane_takes_no_later_offer_with_it() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let via = other_end(&server, &channel).via(0);
    {
        let mut state = server.lock();
        for looper in [1, 2] {
            state.enter_looper(looper);
            state.thread(looper).return_once = false;
        }
    }
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    assert_eq!(server.lock().become_dedicated(1), Some(via));
    server.end_dedicated(channel.id, Some(0));
    server.with_state(|state| server.withdraw(state, via));
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let mut state = server.lock();
    server.withdraw(&mut state, via);
    assert!(state.pool.wants_dedicated());
    drop(state);
    client.close();
    server.close();
}

/// The client has gone before the pool could spare a looper for the lane.
#[test]
fn no_lane_of_a_channel_that_has_gone_waits_for_a_looper() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let server_end = other_end(&server, &channel);
    server.lock().enter_looper(1);
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let mut state = server.lock();
    state.pool.max = 1;
    assert!(state.is_to_ask(1), "for a looper that the lane lacks");
    server.lose_channel(&mut state, &server_end, None);
    assert!(!state.is_to_ask(1), "for nobody");
    drop(state);
    client.close();
    server.close();
}

/// The client has announced an object, and goes without the message.
#[test]
fn tickets_go_back_with_the_last_channel_to_their_sender() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let server_end = other_end(&server, &channel);
    let third = Engine::open("binder", broker.socket()).unwrap();
    // The broker cannot tell who lies about this node: it is dead.
    let (owner, strength) = (third.identity.process, Strength::Strong);
    let object = HeldNode { owner, node: NodeId(77), strength, entry: None };
    let target = server.identity.process;
    client.broker.ask(&Request::Introduce { target, objects: vec![object] }).unwrap();
    // The broker has sent the ticket before its answer.
    server.take_events();
    drop(server.pass_barrier());
    let mut state = server.lock();
    assert!(!state.is_settled(), "the ticket waits for its message");
    server.lose_channel(&mut state, &server_end, None);
    assert!(state.is_settled());
    drop(state);
    third.close();
    client.close();
    server.close();
}

/// A real-time caller is told to wait for a looper of the program's as long as there may come one.
#[test]
fn callers_are_told_whether_lanes_get_loopers() {
    type Change = fn(&mut State);
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let changes: [(&str, Change, u32); 8] = [
        ("no looper", |_| {}, 0),
        ("one, which is the pool's", |state| state.enter_looper(1), 0),
        ("two", |state| state.enter_looper(2), 1),
        ("one of them has gone", |state| state.exit_looper(1), 0),
        ("the program may be asked for one more", |state| state.pool.max = 1, 1),
        ("it has been asked", |state| state.pool.requested = 1, 1),
        (
            "its only one has come, and gone",
            |state| (state.pool.requested, state.pool.started) = (0, 1),
            0,
        ),
        (
            "two more, and somebody polls",
            |state| {
                (3..5).for_each(|looper| state.enter_looper(looper));
                state.end_dedicated(9);
            },
            0,
        ),
    ];
    for (name, change, expected) in changes {
        let mut state = server.lock();
        change(&mut state);
        server.unlock(state);
        assert_eq!(channel.status_word(status::LANE_LOOPERS), expected, "{name}");
    }
    client.close();
    server.close();
}

/// Sends an empty one-way transaction to the manager.
fn send_one_way(client: &Engine) {
    let (data, sent) = (Payload::Bytes(&[]), Sent::default());
    let outgoing = Outgoing { code: 1, flags: TF_ONE_WAY, data, offsets: &[], sent };
    client.send(tid(), Target::Handle(0), TF_ONE_WAY, (0, 0), Ok(outgoing));
}

/// Waits until a process has a thread that waits in a close.
fn await_waiting_close(engine: &Engine, uid: u32) {
    while engine.closers.of(uid, &engine.accounts.of(uid)).is_idle() {
        std::thread::yield_now();
    }
}

/// The close of what a peer has sent takes as long as the peer likes: the descriptor of a
/// transaction that is refused, and one that nobody has read from a channel that ends.
#[test]
fn a_close_that_waits_holds_up_no_thread_of_the_engine() {
    // What its sender does with a message that has descriptors.
    type Attack = fn(&Engine, &Channel, &Message);
    let refused: Attack = |_, channel, message| {
        // The node accepts no descriptors.
        channel.lane(0).unwrap().post(message, |_| {});
        channel.set_ready(0);
        channel.socket.ring();
    };
    let unread: Attack = |client, _, _| client.close();
    let cancelled: Attack = |_, channel, message| channel.cancel_fds(message);
    for attack in [refused, unread, cancelled] {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let _ = other_end(&server, &channel);
        let other = Engine::open("binder", broker.socket()).unwrap();
        other.find_manager().unwrap();
        let others = other.channel_to(server.identity.process).unwrap();
        let (file, end) = lingering();
        let fds_number = channel.send_fds(&[file.as_fd()]).unwrap();
        drop(file);
        let (kind, node) = (Kind::Request as u32, server.lock().nodes.at(0x10).unwrap().0);
        attack(
            &client,
            &channel,
            &Message { kind, node, fds: 1, fds_number, ..Message::default() },
        );
        await_waiting_close(&server, client.identity.uid);
        // The control thread still hears of others, and the state's lock is free.
        other.close();
        while server.channel(others.id).is_some() {
            std::thread::yield_now();
        }
        let closer = server.closers.of(client.identity.uid, &server.accounts.of(0));
        assert!(!closer.is_idle(), "its close has not ended");
        drop(end);
        client.close();
        server.close();
    }
}

/// A client may post as fast as the server takes in, and others want the state as well.
#[test]
fn a_look_ends_however_much_there_is() {
    const POSTED: usize = MOST_AT_ONCE * 2 + 1;
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let _theirs = other_end(&server, &channel);
    let mut state = server.lock();
    state.buffers.map(MAX_PAYLOAD_BYTES);
    server.carry_out(&mut state);
    for _ in 0..POSTED {
        send_one_way(&client);
    }
    let look = server.accept(&mut state, ChannelSet::Watched);
    // Fewer, if the control thread waits for its turn.
    assert!(matches!(look, Look::Cut { taken: 1..=MOST_AT_ONCE, .. }), "{look:?}");
    server.unlock(state);
    let (state, later) = server.accept_posted(ChannelSet::Watched);
    assert_eq!((later, state.received as usize), (None, POSTED));
    drop(state);
    client.close();
    server.close();
}

/// A message whose ticket never comes, and that its sender rewrites while a thread waits for it.
#[test]
fn a_header_that_changes_keeps_no_looper() {
    type Rewrite = fn(&Engine, u64) -> Message;
    let request = Message { kind: Kind::Request as u32, ticket: 77, ..Message::default() };
    let older: Rewrite = |_, nth| Message { stamp: 1 + nth, ..Message::default() };
    let newer: Rewrite =
        |client, _| Message { stamp: stamp(client.broker.stamps), ..Message::default() };
    for (name, rewrite, ends) in [("older", older, true), ("newer", newer, false)] {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let theirs = other_end(&server, &channel);
        let node = server.lock().nodes.at(0x10).unwrap().0;
        let is_over = AtomicBool::new(false);
        let post = |nth| {
            let Message { stamp, .. } = rewrite(&client, nth);
            channel.lane(0).unwrap().post(&Message { stamp, node, ..request }, |_| {});
        };
        post(0);
        channel.set_ready(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(post);
            });
            let later = server.accept(&mut server.lock(), ChannelSet::Watched).later();
            drop(server.catch_up(later, None));
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(theirs.ends().dead || !ends, "{name}");
        client.close();
        server.close();
    }
}

/// A real-time sender waits for it.
#[test]
fn a_raised_thread_leaves_to_others_what_has_waited_for_room() {
    let broker = broker();
    for is_raised in [true, false] {
        let (server, client, channel) = channel(&broker);
        let theirs = other_end(&server, &channel);
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        server.carry_out(&mut state);
        send_one_way(&client);
        server.pool.channels.wait_for_room(theirs, None);
        let raise = Raise { from: (libc::SCHED_OTHER, 0), to: SchedPriority::fifo(1) };
        state.thread(tid()).raised = is_raised.then_some(raise);
        server.made_room(&mut state);
        assert_eq!(state.received == 0, is_raised);
        state.thread(tid()).raised = None;
        drop(state);
        client.close();
        server.close();
    }
}

/// A thread was raised for a transaction that it was to serve next. A more urgent one has taken
/// that over meanwhile.
#[test]
fn a_raised_thread_without_its_work_is_an_ordinary_looper_again() {
    let broker = broker();
    let (server, client, _channel) = channel(&broker);
    let mut state = server.lock();
    state.enter_looper(tid());
    let thread = state.thread(tid());
    thread.return_once = false;
    let from = (schedule::policy(0).unwrap(), schedule::priority(0).unwrap());
    thread.raised = Some(Raise { from, to: SchedPriority::fifo(1) });
    let mut state = server.await_work(state, tid(), false, Until::Now, None).unwrap();
    assert!(!state.has_work(tid(), true));
    assert_eq!(state.thread(tid()).raised, None);
    let as_looper = server.await_work(state, tid(), true, Until::Now, None);
    assert_eq!(as_looper.err(), Some(Errno::AGAIN));
    client.close();
    server.close();
}

/// The caller may still be about to sleep on the lane: another thread there would take its nudge.
#[test]
fn only_its_caller_frees_the_lane_of_an_answer() {
    let broker = broker();
    let (server, client, at_client) = channel(&broker);
    let at_server = other_end(&server, &at_client);
    for (last_words, free) in [(true, false), (false, true)] {
        let lane = at_client.take_lane().unwrap();
        let (via, peer, token) = (at_client.via(lane), at_client.peer, 1 + lane as u64);
        let (handle, owns_lane, dead) = (None, true, false);
        let mut state = client.lock();
        state.adopt_call(tid(), Calling { via, peer, handle, token, owns_lane, dead });
        let answer = Message { kind: Kind::Dead as u32, ..Message::default() };
        at_server.lane(lane).unwrap().post(&answer, |_| {});
        match last_words {
            true => client.accept_last_words(&mut state, peer),
            false => assert!(client.accept_answer(&mut state, tid())),
        }
        assert!(state.thread(tid()).calls_on().is_none(), "it is answered");
        client.unlock(state);
        assert_eq!(at_client.client_lanes.take_this(lane as u32), free, "last words: {last_words}");
    }
    client.close();
    server.close();
}

#[test]
fn a_reply_of_impossible_sizes_ends_its_channel() {
    type Change = fn(&mut Message);
    // An object that needs neither a reference nor a descriptor.
    let object = BufferObject { kind: BINDER_TYPE_PTR, ..BufferObject::zeroed() };
    let changes: [(&str, bool, Change); 12] = [
        ("nothing", true, |_| ()),
        ("the longest data", true, |it| it.data_bytes = MAX_PAYLOAD_BYTES as u32),
        ("longer data", false, |it| it.data_bytes = MAX_PAYLOAD_BYTES as u32 + 1),
        ("as many bytes as it can say", false, |it| it.data_bytes = u32::MAX),
        ("offsets beyond the area", false, |it| it.offsets_bytes = !7),
        ("an object", true, |it| (it.data_bytes, it.offsets_bytes) = (40, 8)),
        ("half an offset", false, |it| (it.data_bytes, it.offsets_bytes) = (40, 4)),
        ("half a word of buffers", false, |it| it.buffers_bytes = 4),
        ("a longer chain", false, |it| it.chain = MAX_CHAIN as u8 + 1),
        ("more descriptors", false, |it| it.fds = MAX_FDS as u8 + 1),
        ("descriptors that have not come", false, |it| (it.fds, it.fds_number) = (1, 1)),
        ("an offset without its object", false, |it| it.offsets_bytes = 8),
    ];
    let broker = broker();
    for (name, is_possible, change) in changes {
        let (server, client, at_client) = channel(&broker);
        let at_server = other_end(&server, &at_client);
        let (via, peer) = (at_client.via(at_client.take_lane().unwrap()), at_client.peer);
        let calling = Calling { via, peer, handle: None, token: 1, owns_lane: true, dead: false };
        let mut state = client.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        state.adopt_call(tid(), calling);
        let mut reply = Message { kind: Kind::Reply as u32, ..Message::default() };
        change(&mut reply);
        let body = |area: View<'_>| area.write(size_of::<Message>(), bytes_of(&object));
        at_server.lane(via.lane as usize).unwrap().post(&reply, body);
        assert!(client.accept_answer(&mut state, tid()), "{name}");
        assert!(state.thread(tid()).calls_on().is_none(), "{name}: the call has ended");
        assert_eq!(!at_client.ends().dead, is_possible, "{name}");
        drop(state);
        client.close();
        server.close();
    }
}

/// A client that has woken the thread to which a lane was dedicated tells no other.
#[test]
fn a_thread_that_is_relieved_looks_for_what_it_was_woken_for() {
    let broker = broker();
    for leaves in [false, true] {
        let (server, client, channel) = channel(&broker);
        let (tid, via) = (1, channel.via(0));
        let theirs = loop {
            server.take_events();
            let Some(theirs) = server.channel(channel.id) else { continue };
            break theirs;
        };
        let mut state = server.lock();
        for tid in 1..=2 {
            state.enter_looper(tid);
            state.thread(tid).return_once = false;
        }
        state.offer_lane(via);
        assert_eq!(state.become_dedicated(tid), Some(via));
        assert!(theirs.dedicate(theirs.lane(0).unwrap(), 0, tid));
        state.vacate(via);
        server.unlock(state);
        let request = Message { kind: Kind::Request as u32, ..Message::default() };
        assert_eq!(channel.lane(0).unwrap().post(&request, |_| {}), Reader::Elsewhere);
        assert_eq!(theirs.new_lanes().ok(), Some(0));
        let mut state = server.lock();
        match leaves {
            true => state.thread_exit(tid),
            false => server.end_dedication(&mut state, tid),
        }
        server.carry_out_effects(&mut state);
        assert_eq!(theirs.new_lanes().ok(), Some(1), "{leaves}");
        drop(state);
        server.close();
        client.close();
    }
}

/// A thread that serves the lane has called back by it, and sleeps there like the looper to which
/// the lane is dedicated by now. The client wakes one of them.
#[test]
fn a_dedicated_looper_passes_on_the_wake_up_for_an_answer() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let areas = theirs.lane(0).unwrap();
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let dedicated = server.dedicated(theirs.via(0)).unwrap();
    assert!(theirs.start_serving(0, Owner::Pool));
    assert!(theirs.dedicate(areas, 0, tid()));
    let answer = Message { kind: Kind::Reply as u32, ..Message::default() };
    channel.lane(0).unwrap().post(&answer, |_| {});
    drop(server.accept_own(server.lock(), &dedicated));
    assert!(!theirs.ends().dead && !areas.inbox().is_empty(), "it is not the looper's");
    areas.inbox().clear();
    assert_eq!(areas.inbox().look(), Seen::Nudge);
    client.close();
    server.close();
}

/// A sender of what is refused needs no room, and could go on for ever.
#[test]
fn a_look_at_a_real_time_ring_ends_after_so_many_transactions() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let node = server.with_state(|state| {
        state.buffers.map(MAX_PAYLOAD_BYTES);
        state.nodes.at(0x10).unwrap().0
    });
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let dedicated = server.dedicated(theirs.via(0)).unwrap();
    // The node accepts no descriptors.
    let refused = Message { kind: Kind::OneWay as u32, node, fds: 1, ..Message::default() };
    for _ in 0..=MOST_AT_ONCE {
        assert_eq!(channel.put_real_time(0, &refused, 0, |_, _| {}), Ok(true));
    }
    let look = || server.accept_own_ring(&mut server.lock(), &dedicated);
    assert_eq!((look(), look()), (OwnRing::Cut, OwnRing::Taken));
    client.close();
    server.close();
}

/// A peer relies on a node that it has given up since, if a message to it lies there.
#[test]
fn requests_rely_on_their_node_and_a_record_that_waits_for_room_on_all_of_them() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let relies_on = |node| {
        let mut relied_on = ReliedOn::default();
        theirs.find_relied_on(&mut relied_on);
        relied_on.has(NodeId(node))
    };
    assert!(!relies_on(7));
    let message = |kind, node| Message { kind: kind as u32, node, ..Message::default() };
    let inbox = theirs.lane(0).unwrap().inbox();
    channel.lane(0).unwrap().post(&message(Kind::Request, 7), |_| {});
    assert!(relies_on(7) && !relies_on(8));
    inbox.clear();
    assert!(!relies_on(7));
    theirs.wait_for_room(None);
    let record = message(Kind::OneWay, 7);
    assert_eq!(channel.put_one_way(&mut channel.ends(), &record, 0, |_, _| {}), Ok(true));
    assert!(relies_on(8));
    client.close();
    server.close();
}

/// A label lies behind the data in the receive buffer: of half of that, a bit is left for the data.
#[test]
fn a_one_way_transaction_has_to_leave_room_for_the_label_that_its_node_wants() {
    let broker = broker();
    let server = Engine::open("binder", broker.socket()).unwrap();
    server.become_manager(0x10, 0, FLAT_BINDER_FLAG_TXN_SECURITY_CTX).unwrap();
    let client = Engine::open("binder", broker.socket()).unwrap();
    client.find_manager().unwrap();
    const HALF: usize = 4096;
    server.with_state(|state| state.buffers.map(2 * HALF));
    let label = (client.identity.security_context.len() + 1).next_multiple_of(8);
    for (bytes, sends) in [(HALF, false), (HALF - label + 8, false), (HALF - label, true)] {
        let data = vec![0; bytes];
        let (data, sent) = (Payload::Bytes(&data), Sent::default());
        let outgoing = Outgoing { code: 1, flags: TF_ONE_WAY, data, offsets: &[], sent };
        client.send(tid(), Target::Handle(0), TF_ONE_WAY, (bytes as u64, 0), Ok(outgoing));
        let outcome = client.lock().next_return(tid(), false);
        let is_sent = matches!(outcome, Some(Return::Bare(BR_TRANSACTION_COMPLETE)));
        assert_eq!(is_sent, sends, "{bytes} bytes: {outcome:?}");
    }
    client.close();
    server.close();
}

/// The ticket of the second one comes later than the first one's, or never.
#[test]
fn each_one_way_transaction_of_a_lane_waits_for_its_own_ticket() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let mut state = server.lock();
    state.buffers.map(MAX_PAYLOAD_BYTES);
    let node = state.nodes.at(0x10).unwrap().0;
    server.unlock(state);
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let dedicated = server.dedicated(theirs.via(0)).unwrap();
    let events = server.broker.applying.lock();
    let third = Engine::open("binder", broker.socket()).unwrap();
    let (owner, strength) = (third.identity.process, Strength::Strong);
    let object = HeldNode { owner, node: NodeId(77), strength, entry: None };
    let introduce = Request::Introduce { target: server.identity.process, objects: vec![object] };
    let Ok(Reply::Ticket { ticket }) = client.broker.ask(&introduce) else { panic!("no ticket") };
    let handle = FlatObject { kind: BINDER_TYPE_HANDLE, ..FlatObject::zeroed() };
    let (data_bytes, offsets_bytes) = (size_of::<FlatObject>() as u32, size_of::<u64>() as u32);
    for ticket in [ticket.0, ticket.0 + 1] {
        let kind = Kind::OneWay as u32;
        let sizes = Message { data_bytes, offsets_bytes, objects: 1, ..Message::default() };
        let message = Message { kind, node, ticket, ..sizes };
        let parts = message.parts().unwrap();
        let write = |map: View<'_>, at: usize| {
            map.write(at + parts.objects_at, bytes_of(&Carried::of_third(Strength::Strong)));
            map.write(at + parts.data_at, bytes_of(&handle));
            map.write(at + parts.offsets_at, bytes_of(&0u64));
        };
        assert_eq!(channel.put_real_time(0, &message, 0, write), Ok(true));
    }
    let first = server.accept_own_ring(&mut server.lock(), &dedicated);
    assert_eq!(first, OwnRing::Waits(0));
    drop(events);
    let second = server.accept_own_ring(&mut server.pass_barrier(), &dedicated);
    assert!(matches!(second, OwnRing::Waits(at) if at > 0), "{second:?}");
    drop(server.accept_own(server.lock(), &dedicated));
    assert!(theirs.ends().dead, "the second ticket never comes");
    third.close();
    client.close();
    server.close();
}

/// The thread has not left the driver, and its next transaction is an ordinary caller's.
#[test]
fn a_thread_that_cannot_have_its_lane_yet_is_the_pools_at_once() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let tid = tid();
    {
        let mut state = server.lock();
        for looper in [tid, tid + 1] {
            state.enter_looper(looper);
            state.thread(looper).return_once = false;
        }
    }
    // Another looper of the pool stays at the lane.
    assert!(theirs.pin(theirs.lane(0).unwrap(), 0));
    server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
    let mut state = server.become_dedicated(server.lock(), tid);
    assert!(state.pool.wants_dedicated(), "the lane waits for a looper");
    assert!(state.thread(tid).was_dedicated, "it had one");
    assert_eq!(state.thread(tid).relieved_of, None);
    drop(state);
    client.close();
    server.close();
}

/// A thread has found the lane empty. Before it forgets the announcement, a request comes, and a
/// looper that watches the lane leaves it for the next look.
#[test]
fn a_request_that_comes_during_a_look_is_not_forgotten() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let ready = || theirs.ready_lanes(&mut theirs.ends()).0;
    let request = Message { kind: Kind::Request as u32, ..Message::default() };
    channel.lane(0).unwrap().post(&request, |_| {});
    theirs.leave_ready(0, true);
    assert_eq!((theirs.forget_ready(1), ready()), (0, 1));
    theirs.lane(0).unwrap().inbox().clear();
    assert_eq!((theirs.forget_ready(1), ready()), (1, 0));
    // The answer to a call back by the lane is for the thread that serves it.
    channel.lane(0).unwrap().post(&request, |_| {});
    assert!(theirs.start_serving(0, Owner::Pool));
    theirs.leave_ready(0, true);
    assert_eq!((theirs.forget_ready(1), ready()), (1, 0));
    client.close();
    server.close();
}

/// A look ends before it takes the record, as one does that finds only what is younger.
#[test]
fn a_record_of_an_owned_lane_is_found_until_it_is_taken() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    assert!(theirs.pin(theirs.lane(0).unwrap(), 0));
    let message = Message { kind: Kind::OneWay as u32, ..Message::default() };
    assert_eq!(channel.put_real_time(0, &message, 0, |_, _| {}), Ok(true));
    theirs.leave_ready(0, true);
    let look = || theirs.ready_lanes(&mut theirs.ends());
    assert_eq!((look(), look()), ((0, 1), (0, 1)));
    let (record, _) = theirs.first_real_time(0).unwrap().unwrap();
    theirs.release_real_time(0, &record);
    assert_eq!((look(), look()), ((0, 1), (0, 0)));
    theirs.unpin(theirs.lane(0).unwrap(), 0);
    client.close();
    server.close();
}

/// A server that lives and has not taken a channel up lacks descriptors; a dead one is just dead.
#[test]
fn a_channel_that_nobody_took_up_is_refused_by_a_living_peer_only() {
    let broker = broker();
    for is_dead in [false, true] {
        let server = Engine::open("binder", broker.socket()).unwrap();
        server.become_manager(0x10, 0, 0).unwrap();
        let client = Engine::open("binder", broker.socket()).unwrap();
        // The server takes no event. The channel comes with the manager.
        let applying = server.broker.applying.lock();
        client.find_manager().unwrap();
        let peer = server.identity.process;
        let channel = client.channel_to(peer).unwrap();
        if is_dead {
            client.lock().peers.remove(&peer);
        }
        client.end_after_hang_up(&channel);
        let refused = client.pool.channels.lists().refused.take();
        assert_eq!(refused, (!is_dead).then_some((peer, Errno::MFILE)));
        drop(applying);
        client.close();
        server.close();
    }
}

/// The channel of a server that ends goes before the broker has told of the end, and before it has
/// seen that itself.
#[test]
fn a_server_that_has_just_ended_refuses_nothing() {
    let broker = broker();
    for _ in 0..50 {
        let server = Engine::open("binder", broker.socket()).unwrap();
        // The context is free once the broker has seen the end of the last one.
        while server.become_manager(0x10, 0, 0) == Err(Errno::BUSY) {
            std::thread::yield_now();
        }
        let client = Engine::open("binder", broker.socket()).unwrap();
        // Neither takes an event from here on.
        let applying = server.broker.applying.lock();
        client.find_manager().unwrap();
        let channel = client.channel_to(server.identity.process).unwrap();
        let heard = client.broker.applying.lock();
        server.close();
        assert!(client.lock().peers.contains_key(&server.identity.process));
        assert_eq!(client.refusal_at_end(&channel), Refusal::dead());
        client.end_after_hang_up(&channel);
        assert_eq!(client.pool.channels.lists().refused.take(), None);
        drop((heard, applying));
        client.close();
    }
}

/// A broker may give a looper its caller's new priority before it hears of the relief, and die.
#[test]
fn a_relieved_looper_has_no_priority_of_a_broker_that_has_died() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let (tid, via) = (tid(), other_end(&server, &channel).via(0));
    // A priority of a broker's has the flag. Any user may have this policy.
    schedule::set(0, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK, 0).unwrap();
    let is_batch =
        || schedule::policy(0).unwrap() & !libc::SCHED_RESET_ON_FORK == libc::SCHED_BATCH;
    let mut state = server.lock();
    state.thread(tid).was_dedicated = true;
    state.thread(tid).dedicated_to = Some(via);
    server.take_priorities_back(&state);
    assert!(is_batch(), "it serves the lane yet");
    state.thread(tid).dedicated_to = None;
    server.take_priorities_back(&state);
    assert!(!is_batch());
    drop(state);
    client.close();
    server.close();
}

/// Says how often anything was logged by the thread that has it.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Where the log goes nobody may be reading, and any client can have something said.
#[test]
fn what_is_said_of_a_channel_that_ends_is_said_without_the_state() {
    let broker = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = other_end(&server, &channel);
    let log = Log::default();
    let said = tracing::subscriber::with_default(log.clone(), || {
        let mut state = server.lock();
        server.end_channel(&mut state, &theirs, "a test");
        server.unlock(state);
        log.0.load(Ordering::Relaxed)
    });
    assert_eq!(said, 0);
    client.close();
    server.close();
}

/// A thread that has been relieved in its sleep leaves the lane's request to the next dedicated
/// thread, which is with its program.
#[test]
fn only_the_owner_of_a_lane_takes_its_requests() {
    let broker = broker();
    const ANOTHER: Tid = (1 << 22) - 1;
    for owner in [tid(), ANOTHER] {
        let (server, client, channel) = channel(&broker);
        let theirs = other_end(&server, &channel);
        let (areas, via) = (theirs.lane(0).unwrap(), theirs.via(0));
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        for looper in [tid(), ANOTHER] {
            state.enter_looper(looper);
            state.thread(looper).return_once = false;
        }
        server.unlock(state);
        server.begin_dedicated(channel.id, 0, SchedPriority::fifo(1), 0);
        let dedicated = server.dedicated(via).unwrap();
        let mut state = server.lock();
        assert_eq!(state.become_dedicated(owner), Some(via));
        assert!(theirs.dedicate(areas, 0, owner));
        let (data, sent) = (Payload::Bytes(&[]), Sent::default());
        let outgoing = Outgoing { code: 1, flags: 0, data, offsets: &[], sent };
        client.send(tid(), Target::Handle(0), 0, (0, 0), Ok(outgoing));
        assert!(!areas.inbox().is_empty());
        state = server.accept_own(state, &dedicated);
        assert_eq!(areas.inbox().is_empty(), owner == tid());
        assert_eq!(state.has_work(owner, false), owner == tid());
        server.unlock(state);
        client.close();
        server.close();
    }
}

/// A thread that serves a lane calls back on it, and a call comes to it there, which is answered,
/// answered by an error, or not even taken in. Until the first request is answered nobody else
/// takes what lies on the lane.
#[test]
fn a_lane_is_served_until_its_first_request_is_answered() {
    let outgoing = || {
        let (data, sent) = (Payload::Bytes(&[]), Sent::default());
        Ok(Outgoing { code: 1, flags: 0, data, offsets: &[], sent })
    };
    let serve = |state: &mut State| {
        let served = state.thread(tid()).served();
        while state.next_return(tid(), true).is_some() {}
        state.thread(tid()).served() - served
    };
    for (bytes, nested_answer) in
        [(0, Some(outgoing())), (0, Some(Err(Errno::FAULT))), (MAX_PAYLOAD_BYTES / 2, None)]
    {
        let case = nested_answer.as_ref().map(Result::is_ok);
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let theirs = other_end(&server, &channel);
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES / 4);
        state.enter_looper(tid());
        state.thread(tid()).return_once = false;
        server.unlock(state);
        client.send(tid(), Target::Handle(0), 0, (0, 0), outgoing());
        let lane = client.lock().thread(tid()).calls_on().unwrap().via.lane;
        let (ours, via) = (channel.lane(lane as usize).unwrap(), theirs.via(lane as usize));
        let mut request = theirs.lane(lane as usize).unwrap().header();
        let mut state = server.lock();
        server.accept_first(&mut state);
        assert_eq!(serve(&mut state), 1);
        let (peer, handle, token, owns_lane) = (theirs.peer, None, 1, false);
        state.adopt_call(tid(), Calling { via, peer, handle, token, owns_lane, dead: false });
        let caller = ChainEntry { process: peer.0, token: 2 };
        request.data_bytes = bytes as u32;
        let chain_at = request.parts().unwrap().chain_at;
        ours.post(&request, |area| area.write(chain_at, bytes_of(&caller)));
        assert!(server.accept_answer(&mut state, tid()));
        assert_eq!(serve(&mut state), usize::from(nested_answer.is_some()), "{case:?}");
        server.unlock(state);
        if let Some(answer) = nested_answer {
            server.send(tid(), Target::Reply, 0, (0, 0), answer);
        }
        assert!(!ours.inbox().is_empty(), "{case:?}: it is answered");
        assert!(theirs.is_served(lane), "{case:?}");
        ours.inbox().clear();
        let mut state = server.lock();
        ours.post(&Message { kind: Kind::Reply as u32, ..Message::default() }, |_| {});
        assert!(server.accept_answer(&mut state, tid()));
        assert_eq!(serve(&mut state), 0);
        server.unlock(state);
        server.send(tid(), Target::Reply, 0, (0, 0), outgoing());
        assert!(!theirs.is_served(lane), "{case:?}");
        client.close();
        server.close();
    }
}

/// The pool's other looper is with its program while work waits: it lacks a processor, or waits for
/// what that brings.
#[test]
fn a_dedicated_looper_is_relieved_if_the_pool_waits_and_not_if_it_runs() {
    for (waits, stays) in [(false, true), (true, false)] {
        let broker = broker();
        let server = Engine::open("binder", broker.socket()).unwrap();
        let (is_over, other) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                other.store(tid(), Ordering::Release);
                while waits && !is_over.load(Ordering::Acquire) {
                    std::thread::park();
                }
                while !is_over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            let other = loop {
                match other.load(Ordering::Acquire) {
                    0 => std::thread::yield_now(),
                    other if waits && is_running(other) => std::thread::yield_now(),
                    other => break other,
                }
            };
            let via = LaneId { channel: ChannelId(1), lane: 0 };
            let mut state = server.lock();
            for looper in [tid(), other] {
                state.enter_looper(looper);
                state.thread(looper).return_once = false;
            }
            state.offer_lane(via);
            assert_eq!(state.become_dedicated(tid()), Some(via));
            state.set_waiting(tid(), Waiting::Lane(via));
            // The pool takes over the lane of a thread that leaves.
            const GONE: Tid = 1;
            state.thread(GONE).todo.push(Work::DeathCleared(1));
            state.thread_exit(GONE);
            server.unlock(state);
            (0..3).for_each(|_| server.watchdog());
            let still = server.lock().dedicated_to(tid()).is_some();
            is_over.store(true, Ordering::Release);
            thread.thread().unpark();
            assert_eq!(still, stays, "it waits: {waits}");
        });
        server.close();
    }
}

#[test]
fn a_short_transaction_to_a_frozen_process_says_that_it_waits() {
    let broker = broker();
    let (server, client, _channel) = channel(&broker);
    server.with_state(|state| state.buffers.map(MAX_PAYLOAD_BYTES));
    for (is_frozen, expected) in [(false, Completion::Taken), (true, Completion::PendingFrozen)] {
        server.page.set_frozen(is_frozen);
        let (data, sent) = (Payload::Bytes(&[]), Sent::default());
        let outgoing = Outgoing { code: 1, flags: TF_ONE_WAY, data, offsets: &[], sent };
        client.send(tid(), Target::Handle(0), TF_ONE_WAY, (0, 0), Ok(outgoing));
        let completed = client.lock().thread(tid()).todo.pop();
        assert!(matches!(completed, Some(Work::Complete(it)) if it == expected), "{is_frozen}");
    }
    client.close();
    server.close();
}
