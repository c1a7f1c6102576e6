//! Writers of one system, and what is measured of them: many records in a row, and single ones.
//!
//! What a record is, its writer knows: for most it is a closure that writes one. Some are programs
//! of their own.

use crate::child::{self, ChildProcess, PATIENCE, say};
use crate::log::messages::{MESSAGES, message};
use crate::service::now_ns;
use baton_rt::schedule::Pinned;
use baton_shm::clock;
use std::io;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Long enough that reading clocks is nothing beside it.
const CALIBRATION: Duration = Duration::from_millis(20);

/// One thread's way to write.
pub trait LogWriter: Send {
    /// Writes so many records.
    fn many(&mut self, n_records: usize);
    /// Writes so many records, and says what each took, the reading of the clock included, in
    /// nanoseconds.
    fn singles(&mut self, n_records: usize) -> Vec<u64>;
}

/// What writes one record. Where that takes nanoseconds it is compiled into the loop that measures
/// it, as a program's own calls are: else one way would cost a call more than another, by the
/// compiler's choice.
pub trait RecordFn: Send {
    /// Writes a text.
    fn write(&mut self, text: &'static [u8]);
}

impl<W: FnMut(&'static [u8]) + Send> RecordFn for W {
    #[inline]
    fn write(&mut self, text: &'static [u8]) {
        self(text);
    }
}

impl<P: RecordFn> LogWriter for P {
    fn many(&mut self, n_records: usize) {
        for number in 0..n_records {
            self.write(message(number));
        }
    }

    fn singles(&mut self, n_records: usize) -> Vec<u64> {
        let mut times = Vec::with_capacity(n_records);
        let counts = clock::counter_is_the_kernels();
        for number in 0..n_records {
            let words = message(number);
            let before = if counts { clock::counter_in_order() } else { now_ns() };
            self.write(words);
            let after = if counts { clock::counter_in_order() } else { now_ns() };
            times.push(after - before);
        }
        if counts {
            let tick_ns = tick_ns();
            times.iter_mut().for_each(|time| *time = (*time as f64 * tick_ns) as u64);
        }
        times
    }
}

/// How long a tick of the processor's counter is, in nanoseconds.
fn tick_ns() -> f64 {
    static TICK_NS: OnceLock<f64> = OnceLock::new();
    *TICK_NS.get_or_init(|| {
        let (start, start_ns) = (clock::counter_in_order(), now_ns());
        thread::sleep(CALIBRATION);
        (now_ns() - start_ns) as f64 / (clock::counter_in_order() - start) as f64
    })
}

/// How many records each writer writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub n_records: usize,
    /// Before those that are measured. A program practises as long as it thinks fit.
    pub n_practice: usize,
}

impl Length {
    pub fn with_practice(n_records: usize) -> Length {
        Length { n_records, n_practice: n_records / 10 }
    }
}

/// The writers of a system: of them write as many as there are `places`, each on one of these
/// processors.
pub(crate) enum Writers {
    /// Threads of this process.
    Threads(Vec<Box<dyn LogWriter>>),
    /// Threads of a program that is told in lines what to do.
    Program(ChildProcess),
}

impl Writers {
    /// Starts a program, which is told the messages.
    pub fn start(command: &mut Command) -> io::Result<Writers> {
        let mut child = ChildProcess::start("log", command)?;
        for message in MESSAGES {
            child.tell(message.to_str().expect("plain text").trim_end_matches('\n'))?;
        }
        child.is_ready()?;
        Ok(Writers::Program(child))
    }

    /// Each writer writes so many records. How long that took, from the first one's beginning to
    /// the last one's end.
    pub fn many(&mut self, places: &[usize], length: Length) -> io::Result<u64> {
        match self {
            Writers::Threads(writers) => {
                let write = |log_writer: &mut dyn LogWriter| {
                    let start_ns = now_ns();
                    log_writer.many(length.n_records);
                    (start_ns, now_ns())
                };
                let times = together(writers, places, length.n_practice, write)?;
                let start_ns = times.iter().map(|time| time.0).min().unwrap_or(0);
                Ok(times.iter().map(|time| time.1).max().unwrap_or(0) - start_ns)
            }
            Writers::Program(child) => {
                Ok(ask(child, "many", places, length.n_records)?.iter().sum())
            }
        }
    }

    /// Each writer writes so many records. What each of them took.
    pub fn singles(&mut self, places: &[usize], length: Length) -> io::Result<Vec<u64>> {
        match self {
            Writers::Threads(writers) => {
                let write = |log_writer: &mut dyn LogWriter| log_writer.singles(length.n_records);
                Ok(together(writers, places, length.n_practice, write)?.concat())
            }
            Writers::Program(child) => ask(child, "singles", places, length.n_records),
        }
    }
}

/// Does what it is told by lines, as a program that a [`Writers`] has started. It writes its own
/// messages, which are the same. There are as many `threads`
/// as there can be writers.
pub fn serve(threads: Vec<Box<dyn LogWriter>>) -> io::Result<()> {
    let mut writers = Writers::Threads(threads);
    let mut lines = child::orders().skip(MESSAGES.len());
    say("ready")?;
    lines.try_for_each(|line| {
        let line = line?;
        let mut words = line.split_whitespace();
        let what = words.next().unwrap_or_default();
        let numbers: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
        let (n_records, cpus) = match numbers.as_deref() {
            Some([n_records, n_writers, cpus @ ..]) if cpus.len() == *n_writers => {
                (*n_records, cpus)
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let length = Length::with_practice(n_records);
        let found = match what {
            "singles" => writers.singles(cpus, length)?,
            _ => vec![writers.many(cpus, length)?],
        };
        let words: Vec<String> = found.iter().map(u64::to_string).collect();
        say(&words.join(" "))
    })
}

fn ask(
    child: &mut ChildProcess,
    what: &str,
    places: &[usize],
    n_records: usize,
) -> io::Result<Vec<u64>> {
    let cpus: String = places.iter().map(|cpu| format!(" {cpu}")).collect();
    child.tell(&format!("{what} {n_records} {}{cpus}", places.len()))?;
    let line = child.hear(PATIENCE)?;
    let number = |word: &str| word.parse().map_err(|_| io::Error::other(line.clone()));
    line.split_whitespace().map(number).collect()
}

/// Has each writer do something on its processor, after so many records for practice, and all begin
/// at once.
fn together<T: Send>(
    writers: &mut [Box<dyn LogWriter>],
    places: &[usize],
    n_practice: usize,
    write: impl Fn(&mut dyn LogWriter) -> T + Sync,
) -> io::Result<Vec<T>> {
    let n_ready = AtomicUsize::new(0);
    let (n_ready, write, n_writers) = (&n_ready, &write, places.len());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (log_writer, &cpu) in writers.iter_mut().zip(places) {
            threads.push(scope.spawn(move || {
                let pinned = Pinned::new(&[cpu]);
                log_writer.many(n_practice);
                // Who waits asleep begins late. AcqRel: all that is measured comes after.
                n_ready.fetch_add(1, Ordering::AcqRel);
                while n_ready.load(Ordering::Acquire) < n_writers {
                    thread::yield_now();
                }
                pinned.map(|_pinned| write(log_writer.as_mut())).map_err(io::Error::other)
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("a writer ends")).collect()
    })
}
