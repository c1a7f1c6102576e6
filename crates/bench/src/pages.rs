//! `baton bench pages`: what superpages would gain.
//!
//! The experiment of Hills, *Native OKL4 Android Stack* (UNSW 2009), sections 5.3.2 and 5.4.2: a
//! game's frame is drawn with its two large buffers of 300 KiB on small pages and on large ones.
//! Beside it a large parcel: written into shared memory, announced by a typed call, and copied out
//! by who serves that, which is what a loan does. Everything runs on one processor, in turns.

use crate::distribution::Distribution;
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::html;
use crate::memory::{Memory, Pages};
use crate::payload;
use crate::processors::{self, Placement};
use crate::report::{Figures, Outcome, Quoted, Ratio, Row};
use crate::scene::{self, WINDOW_BYTES};
use crate::service::{Service, now_ns};
use crate::stage::{Setting, Stage};
use crate::systems::typed::{self, Owner};
use crate::table;
use baton::{Handle, Parcel, Process};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;
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
    #[arg(
        long, value_name = "N", default_value = "7",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,
    /// Frames or parcels of a round [default: 1000, quick 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls: Option<u32>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    /// A frame is drawn.
    Draw,
    /// So many bytes are sent.
    Parcel(usize),
}

const CASES: [Case; 3] = [Case::Draw, Case::Parcel(1 << 20), Case::Parcel(4 << 20)];
/// The largest of them.
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
        Ok(Drawing { background, window, screen: vec![0; WINDOW_BYTES], ship: scene::ship() })
    }

    fn frame(&mut self, number: u32) -> u64 {
        let (background, window) = (self.background.bytes(), self.window.bytes());
        let start_ns = now_ns();
        scene::draw(background, window, &self.ship, number as usize);
        let time_ns = now_ns() - start_ns;
        // As in the thesis, the window is shown between measurements.
        self.screen.copy_from_slice(&window[..WINDOW_BYTES]);
        time_ns
    }
}

/// Two programs of one process, with memory between them on pages of one size.
struct Mail {
    object: Handle,
    shared: Arc<Mutex<Memory>>,
    request: Vec<u8>,
    _owner: Owner,
}

fn receive(request: &[u8], shared: &Mutex<Memory>, copy: &Mutex<Memory>) -> Result<Parcel, Errno> {
    let bytes = request.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::BADMSG)? as usize;
    let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = copy.bytes().get_mut(..bytes).ok_or(Errno::BADMSG)?;
    copy.copy_from_slice(&shared.bytes()[..bytes]);
    let number = Service::Number.answer(copy).ok_or(Errno::BADMSG)?;
    Ok(Parcel::from(&*number))
}

impl Mail {
    fn new(pages: Pages, broker: &Path) -> io::Result<Mail> {
        let shared = Arc::new(Mutex::new(Memory::new(MOST_BYTES, pages)?));
        let copy = Mutex::new(Memory::new(MOST_BYTES, pages)?);
        let server = Process::open(typed::CONTEXT, broker).map_err(typed::opened)?;
        let theirs = Arc::clone(&shared);
        let object = server.object(move |request| receive(request.data(), &theirs, &copy)).add();
        let owner = typed::serve(server, object, 1)?;
        let (_, object) = typed::reach(broker, typed::CONTEXT)?;
        Ok(Mail { object, shared, request: vec![0; MOST_BYTES], _owner: owner })
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
        let reply = reply.map_err(typed::failed)?;
        let time_ns = now_ns() - start_ns;
        match Service::Number.read(number, request, reply.data()) {
            Some(_) => Ok(time_ns),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// All that is done with pages of one size.
struct Player {
    drawing: Drawing,
    mail: Mail,
    _stage: Stage,
}

impl Player {
    fn new(pages: Pages) -> Result<io::Result<Player>, BenchError> {
        let stage = Stage::set()?;
        let mail = Mail::new(pages, stage.place(Service::Number).broker);
        let drawing = Drawing::new(pages).map_err(io::Error::from);
        let player = |(mail, drawing)| Player { drawing, mail, _stage: stage };
        Ok(mail.and_then(|mail| Ok((mail, drawing?))).map(player))
    }

    fn play(&mut self, case: Case, n_times: u32) -> io::Result<Vec<u64>> {
        let once = |number| match case {
            Case::Draw => Ok(self.drawing.frame(number)),
            Case::Parcel(bytes) => self.mail.send(bytes, number),
        };
        let mut times_ns = (0..n_times + n_times / 10).map(once).collect::<io::Result<Vec<_>>>()?;
        Ok(times_ns.split_off(n_times as usize / 10))
    }
}

#[derive(Default)]
struct Results {
    measured: BTreeMap<(Case, Pages), Distribution>,
    missing: BTreeMap<Pages, String>,
}

/// Runs it and prints what it found.
pub fn pages(args: &PagesArgs) -> ExitCode {
    form::finish("pages", &args.form, run(args))
}

fn run(args: &PagesArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let n_times = args.calls.unwrap_or(if args.form.quick { 200 } else { 1000 });
    let mut results = Results::default();
    let mut players = BTreeMap::new();
    for pages in Pages::ALL {
        match Player::new(pages)? {
            Ok(player) => drop(players.insert(pages, player)),
            Err(why) => drop(results.missing.insert(pages, format!("not granted: {why}"))),
        }
    }
    processors::go_to(Some(setting.processors.client)).map_err(BenchError::Processors)?;
    let progress = progress(CASES.len() * args.rounds as usize);
    for case in CASES {
        for _ in 0..args.rounds {
            players.retain(|&pages, player| {
                results.add_round(case, pages, player.play(case, n_times))
            });
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(finding(setting, args.rounds, &results))
}

impl Results {
    fn add_round(&mut self, case: Case, pages: Pages, round: io::Result<Vec<u64>>) -> bool {
        match round {
            Ok(times_ns) => {
                self.measured.entry((case, pages)).or_default().add_round(&times_ns);
                true
            }
            Err(why) => {
                self.missing.insert(pages, why.to_string());
                false
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |system, case: &'static str, payload_bytes, outcome| Row {
            system,
            case,
            payload_bytes,
            placement: Some(Placement::Same),
            detail: None,
            outcome,
        };
        let measured = self.measured.iter().filter_map(|(&(case, pages), distribution)| {
            let outcome = Outcome::Measured(Figures::of(distribution)?);
            Some(row(pages.name(), case.name(), Some(case.bytes()), outcome))
        });
        let missing = self.missing.iter().map(|(pages, why)| {
            row(pages.name(), "all", None, Outcome::Missing { why: why.clone() })
        });
        let quoted = THESIS.iter().map(|&(system, mean_ns)| {
            let quoted =
                Quoted { source: SOURCE, mean_ns: Some(mean_ns), min_ns: None, max_ns: None };
            row(system, Case::Draw.name(), Some(WINDOW_BYTES), Outcome::Quoted(quoted))
        });
        measured.chain(missing).chain(quoted).collect()
    }

    fn ratio(&self, case: Case) -> Ratio {
        let find = |pages: Pages| {
            let why = || self.missing.get(&pages).cloned().unwrap_or_else(|| "not measured".into());
            self.measured.get(&(case, pages)).ok_or_else(why)
        };
        let value = find(Pages::Small)
            .and_then(|small| Ok(Distribution::ratio(small, find(Pages::Super)?)));
        Ratio::new(case.ratio(), value, None)
    }
}

fn finding(setting: Setting, rounds: u32, results: &Results) -> Finding {
    let mut report = setting.report("pages", rounds, results.rows());
    report.ratios = CASES.map(|case| results.ratio(case)).into();
    let tables = table::of_calls(&report) + &of_thesis();
    let lead = "Time to draw a frame, and to send a parcel, with the large buffers on pages of 4 \
        KiB and \
                of 2 MiB: how many are not longer.";
    let charts = CASES.map(|case| {
        let of_case = results.measured.iter().filter(|((other, _), _)| *other == case);
        let title = format!("{}, {} bytes", case.name(), case.bytes());
        html::chart(&title, of_case.map(|(&(_, pages), times)| (pages.name(), times)))
    });
    let names = Pages::ALL.map(Pages::name);
    let page = html::frame(&report, lead, &names, &charts.concat(), &tables);
    Finding { report, tables, page }
}

fn of_thesis() -> String {
    let line = |(system, mean_ns): &(&str, f64)| {
        format!(
            "{:<18}{:>10}  mean of 128 frames, TLB misses {}\n",
            format!("{system} draw"),
            table::us(*mean_ns),
            if *system == "thesis-4k" { 489 } else { 297 }
        )
    };
    let lines: String = THESIS.iter().map(line).collect();
    format!("\nARM11 at 384 MHz, 64 KiB instead of 2 MiB\n{lines}({SOURCE})\n")
}
