//! `baton bench pages`: what superpages would gain.
//!
//! The experiment of Hills, *Native OKL4 Android Stack* (UNSW 2009), sections 5.3.2 and 5.4.2: a
//! game's frame is drawn with its two large buffers of 300 KiB on small pages and on large ones.
//! Beside it a large parcel: written into shared memory, announced by a typed call, and copied out
//! by who serves that, which is what a loan does. Everything runs on one processor, in turns.

use crate::drawing::{self, WINDOW_BYTES};
use crate::form::{self, BenchError, Finding, FormArgs};
use crate::memory::{Memory, Pages};
use crate::payload;
use crate::processors::{self, Placement};
use crate::report::{Keys, RowKey};
use crate::results::{P50, Results, ratio};
use crate::service::{Service, now_ns};
use crate::systems::typed;
use crate::testbed::{Setting, Testbed};
use crate::turns::each_step;
use baton::{Handle, Parcel, Process};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How the experiment is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Superpages are asked for by MADV_COLLAPSE \
(Linux \
6.1), which needs no setting; a row says why if the system does not grant them.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct PagesArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "7", value_parser = form::positive())]
    pub rounds: u32,
    /// Frames or parcels of a round [default: 1000, quick 200]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub calls: Option<u32>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Draw,
    Parcel(usize),
}

const CASES: [Case; 3] = [Case::Draw, Case::Parcel(1 << 20), Case::Parcel(4 << 20)];
const MOST_BYTES: usize = 4 << 20;
/// The thesis's table 5.2: a frame's mean with 4 KiB pages, and with 64 KiB for the two buffers.
const THESIS: [(&str, f64); 2] = [("thesis-4k", 4_255_000.0), ("thesis-64k", 4_153_000.0)];
const SOURCE: &str = "Hills, Native OKL4 Android Stack, 2009, table 5.2";
const READ: u32 = 1;

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Draw => "draw",
            Case::Parcel(_) => "parcel",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Case::Draw => WINDOW_BYTES,
            Case::Parcel(bytes) => bytes,
        }
    }

    fn key(self, system: &'static str) -> RowKey {
        let title = format!("{}, {} bytes", self.name(), self.bytes());
        RowKey::new(system, self.name()).bytes(self.bytes()).at(Placement::Same).heading(title)
    }

    fn ratio(self) -> String {
        match self {
            Case::Draw => "draw_4k_over_2m".to_owned(),
            Case::Parcel(bytes) => format!("parcel_{}m_4k_over_2m", bytes >> 20),
        }
    }
}

/// A drawing program, whose large buffers are on pages of one size.
struct Drawing {
    background: Memory,
    window: Memory,
    screen: Vec<u8>,
    ship: Vec<u8>,
}

impl Drawing {
    fn new(pages: Pages) -> Result<Drawing, Errno> {
        let (mut background, window) =
            (Memory::new(WINDOW_BYTES, pages)?, Memory::new(WINDOW_BYTES, pages)?);
        payload::fill(&mut background.bytes()[..WINDOW_BYTES], 1);
        Ok(Drawing { background, window, screen: vec![0; WINDOW_BYTES], ship: drawing::ship() })
    }

    fn frame(&mut self, number: u32) -> u64 {
        let (background, window) = (self.background.bytes(), self.window.bytes());
        let start_ns = now_ns();
        drawing::draw(background, window, &self.ship, number as usize);
        let time_ns = now_ns() - start_ns;
        // As in the thesis, the window is shown between measurements.
        self.screen.copy_from_slice(&window[..WINDOW_BYTES]);
        time_ns
    }
}

/// Two programs of one process, with memory between them on pages of one size.
struct ParcelPair {
    object: Handle,
    shared: Arc<Mutex<Memory>>,
    request: Vec<u8>,
    _owner: Process,
}

fn receive(request: &[u8], shared: &Mutex<Memory>, copy: &Mutex<Memory>) -> Result<Parcel, Errno> {
    let bytes = request.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::BADMSG)? as usize;
    let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = copy.bytes().get_mut(..bytes).ok_or(Errno::BADMSG)?;
    copy.copy_from_slice(&shared.bytes()[..bytes]);
    typed::reply(Service::Number, copy)
}

impl ParcelPair {
    fn new(pages: Pages, broker: &Path) -> io::Result<ParcelPair> {
        let shared = Arc::new(Mutex::new(Memory::new(MOST_BYTES, pages)?));
        let copy = Mutex::new(Memory::new(MOST_BYTES, pages)?);
        let server = Process::open(typed::CONTEXT, broker).map_err(typed::opened)?;
        let theirs = Arc::clone(&shared);
        let object = server.object(move |request| receive(request.data(), &theirs, &copy)).add();
        let owner = typed::manage(server, object, 1)?;
        let (_, object) = typed::reach(broker, typed::CONTEXT)?;
        Ok(ParcelPair { object, shared, request: vec![0; MOST_BYTES], _owner: owner })
    }

    fn send(&mut self, bytes: usize, number: u32) -> io::Result<u64> {
        let request = &mut self.request[..bytes];
        payload::fill(request, number);
        let start_ns = now_ns();
        {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.bytes()[..bytes].copy_from_slice(request);
        }
        let length = (bytes as u32).to_ne_bytes();
        let reply = self.object.call(READ, &Parcel::from(&length[..]));
        let reply = reply.map_err(io::Error::other)?;
        let time_ns = now_ns() - start_ns;
        match Service::Number.read(number, request, reply.data()) {
            Some(_) => Ok(time_ns),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// All that is done with pages of one size.
struct OnPages {
    drawing: Drawing,
    parcels: ParcelPair,
    _testbed: Testbed,
}

impl OnPages {
    fn new(pages: Pages) -> io::Result<OnPages> {
        let testbed = Testbed::start()?;
        let parcels = ParcelPair::new(pages, testbed.place(Service::Number).broker)?;
        Ok(OnPages { drawing: Drawing::new(pages)?, parcels, _testbed: testbed })
    }

    fn measure(&mut self, case: Case, n_times: u32) -> io::Result<Vec<u64>> {
        let once = |number| match case {
            Case::Draw => Ok(self.drawing.frame(number)),
            Case::Parcel(bytes) => self.parcels.send(bytes, number),
        };
        let mut times_ns = (0..n_times + n_times / 10).map(once).collect::<io::Result<Vec<_>>>()?;
        Ok(times_ns.split_off(n_times as usize / 10))
    }
}

pub(crate) fn run(args: &PagesArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let n_times = args.calls.unwrap_or(if args.form.quick { 200 } else { 1000 });
    let mut found = Results::default();
    let mut all = BTreeMap::new();
    for pages in Pages::ALL {
        let on_pages = OnPages::new(pages).map_err(|why| format!("not granted: {why}"));
        let key = RowKey::new(pages.name(), "all").at(Placement::Same);
        all.extend(found.ok(key, on_pages).map(|it| (pages, it)));
    }
    processors::go_to(Some(setting.processors.client)).map_err(BenchError::Processors)?;
    let title = |case: &Case| case.name();
    each_step(args.rounds, &CASES, title, |&case| {
        all.retain(|&pages, it| found.add_times(case.key(pages.name()), it.measure(case, n_times)));
    });
    for (system, mean_ns) in THESIS {
        found.quote(Case::Draw.key(system), SOURCE, [None, Some(mean_ns), None]);
    }
    let ratios = CASES.map(|case| {
        let [small, large] = Pages::ALL.map(|pages| found.find(&case.key(pages.name())));
        ratio(case.ratio(), small, large, P50, None)
    });
    let lead = "Time to draw a frame, and to send a parcel, with the large buffers on pages of 4 \
                KiB and of 2 MiB: how many are not longer.";
    let rows = found.rows(|_, _| Keys::new());
    let report = setting.report("pages", args.rounds, rows, ratios.into());
    let notes = "\nthesis: ARM11 at 384 MHz, 64 KiB instead of 2 MiB, mean of 128 frames, TLB \
                 misses 489 and 297\n";
    Ok(Finding { notes: notes.to_owned(), ..Finding::new(report, found.charts(), lead) })
}
