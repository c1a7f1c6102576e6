//! Three workloads in the image of Re-aim's `complete`, `database` and `udpserver` (Greenaway 2007,
//! table
//! 4.2): five workers, and the servers that do for them what a system does.
//!
//! ```text
//!  workers --call--> store: keys and values, with a log in a file
//!          --call--> network --UDP--> driver --call--> resolvers: names
//!                       ^---------UDP---'
//! ```

use super::service::{self, Services};
use crate::random;
use crate::service::now_ns;
use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{CurrentThread, Kernel, Options, ThreadId};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// What the workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Workload {
    Complete,
    /// Transactions, and what a program computes between them.
    Database,
    Udpserver,
}

pub const WORKLOADS: [Workload; 3] = [Workload::Complete, Workload::Database, Workload::Udpserver];

/// What a worker does at once.
#[derive(Clone, Copy)]
enum Task {
    Compute,
    Get,
    Change,
    Query,
    File,
    Pipe,
}

/// Who calls; as many processes as Re-aim was run with.
const WORKERS: usize = 5;
const WORKER: u8 = 100;

impl Workload {
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Each as often as it stands here.
    fn tasks(self) -> &'static [Task] {
        use Task::{Change, Compute, File, Get, Pipe, Query};
        match self {
            Workload::Complete => &[Compute, Compute, Compute, Get, Change, Query, File, Pipe],
            Workload::Database => &[Compute, Compute, Get, Get, Change],
            Workload::Udpserver => &[Query, Query, Query, Query, Query, Query, Query, Compute],
        }
    }

    /// Each worker does so many tasks. How long it took, in nanoseconds, and what the kernel has
    /// counted.
    pub fn run<K: Variant>(self, n_tasks: u64) -> io::Result<(u64, K::Statistics)> {
        let mut kernel = Kernel::<K>::new(Options { n_threads: 32, ..Options::default() })?;
        let services = Rc::new(service::start(&mut kernel, WORKERS)?);
        let (n_left, n_failed) = (Rc::new(Cell::new(WORKERS)), Rc::new(Cell::new(0)));
        for number in 0..WORKERS {
            let (services, n_left) = (Rc::clone(&services), Rc::clone(&n_left));
            let n_failed = Rc::clone(&n_failed);
            kernel.spawn(WORKER, move |mut here| {
                if work(&mut here, self, number, n_tasks, &services).is_err() {
                    n_failed.set(n_failed.get() + 1);
                }
                n_left.set(n_left.get() - 1);
                if n_left.get() == 0 {
                    end(&mut here, &services.threads);
                }
            })?;
        }
        let start_ns = now_ns();
        let summary = kernel.run();
        let took_ns = now_ns() - start_ns;
        if n_failed.get() > 0 || !summary.failures.is_empty() {
            return Err(io::Error::other(format!("{}: a thread has failed", self.name())));
        }
        Ok((took_ns, kernel.state().statistics().clone()))
    }
}

/// Servers that nobody calls any more.
fn end(here: &mut CurrentThread, threads: &[ThreadId]) {
    for &thread in threads {
        here.request(Request::Abort(thread));
    }
}

struct Worker {
    random: u64,
    numbers: Vec<u64>,
    file: std::fs::File,
    pipe: (io::PipeReader, io::PipeWriter),
}

impl Worker {
    fn new(number: usize) -> io::Result<Worker> {
        let (file, pipe) = (tempfile::tempfile()?, io::pipe()?);
        Ok(Worker { random: number as u64 + 1, numbers: vec![0; 512], file, pipe })
    }

    fn random(&mut self) -> u64 {
        self.random = random::next(self.random, 1);
        self.random >> 20
    }

    /// A sum of what was sorted.
    fn compute(&mut self) -> u64 {
        for index in 0..self.numbers.len() {
            self.numbers[index] = self.random();
        }
        self.numbers.sort_unstable();
        self.numbers.iter().fold(0, |sum: u64, number| sum.rotate_left(5) ^ number)
    }
}

fn work(
    here: &mut CurrentThread,
    workload: Workload,
    number: usize,
    n_tasks: u64,
    services: &Services,
) -> io::Result<()> {
    let mut worker = Worker::new(number)?;
    let tasks = workload.tasks();
    for _ in 0..n_tasks {
        let key = worker.random() % service::N_KEYS;
        match tasks[worker.random() as usize % tasks.len()] {
            Task::Compute => drop(std::hint::black_box(worker.compute())),
            Task::Get => drop(services.get(here, key)?),
            Task::Change => {
                let mut value = services.get(here, key)?;
                value.iter_mut().for_each(|word| *word = word.wrapping_add(1));
                services.put(here, key, &value)?;
            }
            Task::Query => services.query(here, number, key)?,
            Task::File => {
                let mut bytes = [7; 4096];
                worker.file.write_all_at(&bytes, key % 16 * 4096)?;
                worker.file.read_exact_at(&mut bytes, key % 16 * 4096)?;
            }
            Task::Pipe => {
                let mut bytes = [9; 512];
                worker.pipe.1.write_all(&bytes)?;
                worker.pipe.0.read_exact(&mut bytes)?;
            }
        }
    }
    Ok(())
}
