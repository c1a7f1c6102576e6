//! The rules of real-time lanes: which callers get a looper at their priority, which threads may be
//! one, and what false requests achieve.

mod test_engine;
mod test_state;

use baton_abi::control::*;
use baton_abi::lane::LANES;
use baton_abi::sched_priority::SchedPriority;
use baton_broker::limits::Limits;
use baton_broker::state::{Effect, Thread};
use baton_shm::schedule;
use rustix::io::Errno;
use std::sync::mpsc;
use std::thread;
use test_engine::*;
use test_state::{OWNER, TestState};

const PRIORITY: SchedPriority = SchedPriority::fifo(20);

/// Policy and priority of a thread, with its reset-on-fork flag.
fn scheduled(tid: u32) -> (i32, i32) {
    (schedule::policy(tid).unwrap(), schedule::priority(tid).unwrap())
}

/// A thread that waits until this value is dropped.
struct WaitingThread {
    tid: u32,
    _end: mpsc::Sender<()>,
}

impl WaitingThread {
    /// A waiting thread with a real-time priority. `None` where this process may not have one.
    fn at(policy: i32, priority: i32) -> Option<WaitingThread> {
        let (told, tid) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        thread::spawn(move || {
            let is_set = schedule::set(0, policy, priority).is_ok();
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            told.send(is_set.then_some(tid)).unwrap();
            let _: Result<(), _> = ends.recv();
        });
        let tid = tid.recv().unwrap();
        if tid.is_none() {
            println!(
                "skipped: {} (no real-time priority here)",
                std::thread::current().name().unwrap_or_default()
            );
        }
        Some(WaitingThread { tid: tid?, _end: end })
    }

    fn ordinary() -> WaitingThread {
        WaitingThread::at(libc::SCHED_OTHER, 0).expect("anybody may")
    }
}

fn channel_of(client: &TestEngine) -> ChannelId {
    let Some(Reply::Report { page: report, .. }) = client.ask(REPORT) else { panic!("no report") };
    let mut processes = report.contexts.iter().flat_map(|context| &context.processes);
    let ours = processes.find(|process| process.process == client.id().0).unwrap();
    ChannelId(ours.channels[0].0)
}

fn refused(errno: Errno) -> Option<Reply> {
    Some(Reply::Refused { errno: errno.raw_os_error() })
}

#[test]
fn false_requests_are_refused_and_cause_no_event() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    let channel = channel_of(&client);
    let ordinary = WaitingThread::ordinary();
    let Some(caller) = WaitingThread::at(libc::SCHED_FIFO, 20) else { return };
    let lanes = LANES as u32;
    for (channel, lane, tid, errno) in [
        (channel, 0, ordinary.tid, Errno::INVAL),
        (channel, 0, 1, Errno::SRCH),
        (channel, 0, 0, Errno::SRCH),
        (channel, lanes, caller.tid, Errno::INVAL),
        (ChannelId(channel.0 + 1), 0, caller.tid, Errno::NOENT),
    ] {
        let lie = Request::RealTime { channel, lane, tid };
        assert_eq!(client.ask(lie.clone()), refused(errno), "{lie:?}");
    }
    // The server is not the client of its own channel.
    let lie = Request::RealTime { channel, lane: 0, tid: caller.tid };
    assert_eq!(manager.ask(lie), refused(Errno::NOENT));
    // No lane has been granted yet.
    let lie = Request::RealTimeLooper { channel, lane: 0, tid: ordinary.tid };
    assert_eq!(manager.ask(lie), refused(Errno::SRCH));
    assert_eq!(manager.events(), []);
    assert_eq!(scheduled(ordinary.tid), (libc::SCHED_OTHER, 0));
}

#[test]
fn a_looper_keeps_its_callers_rank_while_the_lane_is_a_real_time_lane() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    let channel = channel_of(&client);
    let Some(caller) = WaitingThread::at(libc::SCHED_FIFO, 20) else { return };
    let looper = WaitingThread::ordinary();
    let promote = |tid| manager.ask(Request::RealTimeLooper { channel, lane: 3, tid });
    let ask = || client.ask(Request::RealTime { channel, lane: 3, tid: caller.tid });
    assert_eq!(ask(), Some(Reply::Done));
    assert_eq!(
        manager.events(),
        [Event::RealTimeLane { channel, lane: 3, priority: PRIORITY, looper: 0 }]
    );
    assert_eq!(promote(1), refused(Errno::SRCH), "no thread of its own");
    let other = manager.ask(Request::RealTimeLooper { channel, lane: 4, tid: looper.tid });
    assert_eq!(other, refused(Errno::SRCH), "no such lane");
    let stranger = client.ask(Request::RealTimeLooper { channel, lane: 3, tid: looper.tid });
    assert_eq!(stranger, refused(Errno::SRCH), "not its server");
    assert_eq!(promote(looper.tid), Some(Reply::Done));
    let promoted = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 20);
    assert_eq!(scheduled(looper.tid), promoted);
    // Another thread becomes the looper.
    let next = WaitingThread::ordinary();
    assert_eq!(promote(next.tid), Some(Reply::Done));
    assert_eq!(scheduled(looper.tid).1, 0, "it is no looper any more");
    assert_eq!(scheduled(next.tid), promoted);
    client.tell(Request::Ordinary { channel, lane: 3 });
    assert_eq!(client.events(), []);
    assert_eq!(manager.events(), [Event::OrdinaryLane { channel, lane: 3 }]);
    assert_eq!(scheduled(next.tid).1, 0);
    // The client's end of the channel ends the priority too.
    assert_eq!(ask(), Some(Reply::Done));
    assert_eq!(promote(next.tid), Some(Reply::Done));
    assert_eq!(scheduled(next.tid), promoted);
    let process = client.id();
    drop(client);
    while !manager.events().contains(&Event::Dead { process }) {}
    assert_eq!(scheduled(next.tid).1, 0);
}

#[test]
fn a_standby_looper_has_the_rank_before_the_event_about_its_lane() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    let channel = channel_of(&client);
    let Some(caller) = WaitingThread::at(libc::SCHED_FIFO, 20) else { return };
    let (spare, other) = (WaitingThread::ordinary(), WaitingThread::ordinary());
    assert_eq!(manager.ask(Request::StandbyLooper { tid: 1 }), refused(Errno::SRCH));
    for spare in [&other, &spare] {
        assert_eq!(manager.ask(Request::StandbyLooper { tid: spare.tid }), Some(Reply::Done));
    }
    let ask = |lane| client.ask(Request::RealTime { channel, lane, tid: caller.tid });
    let told =
        |lane, looper| vec![Event::RealTimeLane { channel, lane, priority: PRIORITY, looper }];
    let promoted = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 20);
    assert_eq!(ask(0), Some(Reply::Done));
    assert_eq!(scheduled(spare.tid), promoted);
    assert_eq!(manager.events(), told(0, spare.tid));
    assert_eq!(scheduled(other.tid).1, 0, "one waits at a time");
    // The thread is no longer the standby looper.
    assert_eq!(ask(1), Some(Reply::Done));
    assert_eq!(manager.events(), told(1, 0));
    // Its engine gives the thread another lane. The thread keeps its priority when another thread
    // takes the first lane.
    let register = |lane, tid| manager.ask(Request::RealTimeLooper { channel, lane, tid });
    assert_eq!(register(1, spare.tid), Some(Reply::Done));
    assert_eq!(register(0, other.tid), Some(Reply::Done));
    assert_eq!((scheduled(spare.tid), scheduled(other.tid)), (promoted, promoted));
    for (lane, looper) in [(1, &spare), (0, &other)] {
        client.tell(Request::Ordinary { channel, lane });
        assert_eq!(client.events(), []);
        assert_eq!(manager.events(), [Event::OrdinaryLane { channel, lane }]);
        assert_eq!(scheduled(looper.tid).1, 0);
    }
}

#[test]
fn loopers_of_a_dead_server_lose_their_rank() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    let channel = channel_of(&client);
    let Some(caller) = WaitingThread::at(libc::SCHED_RR, 7) else { return };
    let looper = WaitingThread::ordinary();
    let ask = Request::RealTime { channel, lane: 0, tid: caller.tid };
    assert_eq!(client.ask(ask), Some(Reply::Done));
    let register = Request::RealTimeLooper { channel, lane: 0, tid: looper.tid };
    assert_eq!(manager.ask(register), Some(Reply::Done));
    assert_eq!(scheduled(looper.tid).1, 7);
    let process = manager.id();
    drop(manager);
    while !client.events().contains(&Event::Dead { process }) {}
    assert_eq!(scheduled(looper.tid).1, 0);
}

#[test]
fn the_configuration_limits_a_users_priority() {
    let uid = rustix::process::geteuid().as_raw();
    for (limit, granted) in [(10, Some(10)), (99, Some(20)), (0, None)] {
        let directory = Directory::new();
        let mut config = Config::at(directory.socket());
        config.real_time_limits = [(uid, limit)].into();
        let daemon = Running::start(config).unwrap();
        let (manager, client) = manager_and_client(daemon.socket());
        let channel = channel_of(&client);
        let Some(caller) = WaitingThread::at(libc::SCHED_FIFO, 20) else { return };
        let reply = client.ask(Request::RealTime { channel, lane: 0, tid: caller.tid });
        let expected = if granted.is_some() { Some(Reply::Done) } else { refused(Errno::PERM) };
        assert_eq!(reply, expected, "limit {limit}");
        let event = |priority| {
            let priority = SchedPriority::fifo(priority);
            Event::RealTimeLane { channel, lane: 0, priority, looper: 0 }
        };
        let expected: Vec<Event> = granted.map(event).into_iter().collect();
        assert_eq!(manager.events(), expected, "limit {limit}");
    }
}

#[test]
fn an_engine_that_asks_too_often_has_to_wait() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (_manager, client) = manager_and_client(daemon.socket());
    let channel = channel_of(&client);
    let ask = Request::RealTime { channel, lane: 0, tid: 1 };
    let replies: Vec<_> = (0..2000).map(|_| client.ask(ask.clone())).collect();
    assert!(replies.contains(&refused(Errno::AGAIN)));
}

#[test]
fn lanes_are_limited_by_server_and_user() {
    let limits =
        Limits { real_time_lanes_per_server: 3, real_time_lanes_per_user: 2, ..Limits::default() };
    let mut core = TestState::with(limits);
    let manager = core.admit(10, OWNER);
    let flags = 0;
    core.ask(manager, Request::BecomeContextManager { node: NodeId(1), flags });
    let [one, two] = [1, 2].map(|uid| {
        let client = core.admit(11, uid);
        core.connect_to_manager(client, manager);
        client
    });
    core.effects();
    let mut grant = |from, channel, lane| {
        let mut effects = Vec::new();
        let granted =
            core.state.grant_lane(from, (ChannelId(channel), lane), PRIORITY, &mut effects);
        assert_eq!(effects.len(), usize::from(granted.is_ok()));
        granted
    };
    assert_eq!(grant(one, 1, 0), Ok(()));
    assert_eq!(grant(one, 1, 1), Ok(()));
    assert_eq!(grant(one, 1, 2), Err(Errno::DQUOT));
    assert_eq!(grant(one, 1, 1), Ok(()), "it has it");
    assert_eq!(grant(one, 2, 3), Err(Errno::NOENT), "not its channel");
    assert_eq!(grant(two, 2, 0), Ok(()));
    assert_eq!(grant(two, 2, 1), Err(Errno::MFILE));
    // A lane that was given up makes room for another.
    core.ask(one, Request::Ordinary { channel: ChannelId(1), lane: 0 });
    let mut effects = Vec::new();
    assert_eq!(core.state.grant_lane(two, (ChannelId(2), 1), PRIORITY, &mut effects), Ok(()));
    let thread = Thread { pid: 10, tid: 12, started: 5 };
    core.state.set_looper((ChannelId(2), 1), thread, true, &mut effects);
    core.effects();
    core.gone(two);
    assert!(core.effects().contains(&Effect::SetPriority { thread, priority: None }));
    core.gone(one);
    core.gone(manager);
    assert!(core.state.is_empty(), "{:?}", core.state);
}

#[test]
fn a_looper_follows_its_callers_new_rank() {
    let (mut core, manager, [client]) = TestState::with_manager();
    let place = (ChannelId(1), 0);
    let thread = Thread { pid: 10, tid: 12, started: 5 };
    let mut effects = Vec::new();
    core.state.grant_lane(client, place, PRIORITY, &mut effects).unwrap();
    assert_eq!(core.state.priority_of_lane(manager, place), Ok(PRIORITY));
    core.state.set_looper(place, thread, true, &mut effects);
    effects.clear();
    let lower = SchedPriority::fifo(3);
    core.state.grant_lane(client, place, lower, &mut effects).unwrap();
    assert_eq!(effects[0], Effect::SetPriority { thread, priority: Some(lower) });
    // A looper that could not be promoted again is still demoted at the end.
    core.state.set_looper(place, thread, false, &mut effects);
    effects.clear();
    core.ask(client, Request::Ordinary { channel: place.0, lane: 0 });
    assert!(core.effects().contains(&Effect::SetPriority { thread, priority: None }));
}
