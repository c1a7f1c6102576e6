//! What two processes share, without memory: lanes and rings as queues of letters.

use baton_abi::control::{ChannelId, End, NodeId, ProcessId, Strength};
use baton_abi::lane::{ChainEntry, Message};
use baton_state::transaction::LaneId;
use std::collections::VecDeque;

/// Few, so that histories come to open further channels.
pub const LANES: usize = 3;

/// Who is meant by an object that travels, whatever it is called on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub owner: ProcessId,
    pub node: NodeId,
    pub strength: Strength,
}

/// A posted message, with what a checker knows of it.
#[derive(Clone, Debug, Default)]
pub struct Letter {
    pub message: Message,
    pub chain: Vec<ChainEntry>,
    pub objects: Vec<Subject>,
}

#[derive(Clone, Debug, Default)]
pub struct Inbox {
    pub letter: Option<Letter>,
    pub closed: bool,
    pub given_back: bool,
}

/// What one end keeps for itself; see the driver's channels.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The end's engine has been told of the channel.
    pub known: bool,
    pub dead: bool,
    pub rung: bool,
    pub free: u64,
    pub abandoned: u64,
    pub ready: u64,
    pub serving: u64,
    /// Its first one-way transaction waits for room.
    pub full: bool,
}

impl Ends {
    fn new() -> Ends {
        let free = (1 << LANES) - 1;
        Ends {
            known: false,
            dead: false,
            rung: false,
            free,
            abandoned: 0,
            ready: 0,
            serving: 0,
            full: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Channel {
    pub id: ChannelId,
    pub client: ProcessId,
    pub server: ProcessId,
    /// The header's word of lanes with a new request.
    pub ready: u64,
    pub ring: VecDeque<Letter>,
    to_server: [Inbox; LANES],
    to_client: [Inbox; LANES],
    client_ends: Ends,
    server_ends: Ends,
}

impl Channel {
    pub fn new(id: ChannelId, client: ProcessId, server: ProcessId) -> Channel {
        Channel {
            id,
            client,
            server,
            ready: 0,
            ring: VecDeque::new(),
            to_server: Default::default(),
            to_client: Default::default(),
            client_ends: Ends::new(),
            server_ends: Ends::new(),
        }
    }

    pub fn via(&self, lane: usize) -> LaneId {
        LaneId { channel: self.id, lane: lane as u32 }
    }

    pub fn end_of(&self, process: ProcessId) -> End {
        if process == self.client { End::Client } else { End::Server }
    }

    pub fn peer_of(&self, process: ProcessId) -> ProcessId {
        if process == self.client { self.server } else { self.client }
    }

    pub fn ends(&mut self, end: End) -> &mut Ends {
        match end {
            End::Client => &mut self.client_ends,
            End::Server => &mut self.server_ends,
        }
    }

    pub fn end(&self, end: End) -> &Ends {
        match end {
            End::Client => &self.client_ends,
            End::Server => &self.server_ends,
        }
    }

    pub fn is_open(&self, end: End) -> bool {
        let ends = self.end(end);
        ends.known && !ends.dead
    }

    pub fn inbox(&mut self, end: End, lane: usize) -> &mut Inbox {
        match end {
            End::Client => &mut self.to_client[lane],
            End::Server => &mut self.to_server[lane],
        }
    }

    /// Whether a looper that is about to sleep has to look again.
    pub fn has_news(&self) -> bool {
        self.ready != 0 || !self.ring.is_empty() && !self.server_ends.full
    }

    pub fn ready_lanes(&mut self) -> u64 {
        self.server_ends.ready |= std::mem::take(&mut self.ready);
        self.server_ends.ready
    }

    /// Neither end's thread has anything open on this lane any more.
    pub fn renew_lane(&mut self, lane: usize) {
        self.to_client[lane] = Inbox::default();
        self.to_server[lane] = Inbox::default();
        self.client_ends.abandoned &= !(1 << lane);
        self.client_ends.free |= 1 << lane;
    }

    pub fn take_lane(&mut self) -> Option<usize> {
        for lane in 0..LANES {
            if self.client_ends.abandoned & 1 << lane != 0 && self.to_client[lane].given_back {
                self.renew_lane(lane);
            }
        }
        let lane = self.client_ends.free.trailing_zeros() as usize;
        (lane < LANES).then(|| {
            self.client_ends.free &= !(1 << lane);
            lane
        })
    }
}

pub fn other(end: End) -> End {
    match end {
        End::Client => End::Server,
        End::Server => End::Client,
    }
}
