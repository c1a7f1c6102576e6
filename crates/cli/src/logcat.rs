//! `baton logcat`: Android's logcat, over the log in shared memory.
//!
//! - [`args`]: the command line. [`mod@session`]: the handling of each entry. [`output`]: the
//!   destination of entries.
//! - [`reading`]: the log, and why it cannot be read. [`beginning`]: the entries that are there.
//! - `last`: the entries that `-L` shows.
//! - [`sizes`], [`statistics`]: `-g`, `-G` and `-S`.
//!
//! The crate `baton-logcat` formats the text.

mod args;
mod beginning;
mod json;
mod last;
mod output;
mod reading;
mod session;
mod sizes;
mod statistics;

use crate::failure::{Failure, Kind};
use crate::stderr::say;
use crate::stdout::show;
pub use args::LogcatArgs;
use args::{From, Prune};
use baton_log::{Item, Loss, Reader};
use baton_logcat::divider::{Dividers, Which};
use baton_logcat::entry::{Buffer, Entry};
use baton_logcat::resume::Resume;
use baton_logcat::tags::Tags;
use beginning::Beginning;
use jiff::tz::TimeZone;
use output::{Output, Rotation};
use reading::{open, told, unreadable};
use rustix::io::Errno;
use session::{Ended, Form, Session, Wanted};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait of `--wrap`.
const LONGEST_WRAP: Duration = Duration::from_secs(2 * 60 * 60);
/// Time between two looks for a signal that ends a trace.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(100);
/// Bytes at the end of a file in which its newest entry is looked for.
const RESUME_BYTES: u64 = 1 << 20;
/// Places of a system's own tags.
const TAGS_FILES: [&str; 2] = ["/etc/event-log-tags", "/system/etc/event-log-tags"];

/// Shows the log, or does what the arguments request.
pub fn logcat(args: &LogcatArgs) -> Result<(), Failure> {
    let buffers = args.buffers()?;
    if act(args, &buffers)? {
        return Ok(());
    }
    if let (Some(path), Some(id)) = (&args.file, &args.id) {
        clear_if_other_id(path, id)?;
    }
    let zone = TimeZone::system();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut session = session(args, &zone)?;
    let from = match (args.from(now, &zone)?, &args.file) {
        (None, Some(path)) => resume(path, now, &zone).map_or(From::Beginning, From::Time),
        (from, _) => from.unwrap_or(From::Beginning),
    };
    let shown = match args.last {
        true => last::last(args, &buffers, from, &mut session)?,
        false => {
            if args.wrap {
                wait_for_wrap(args, &buffers)?;
            }
            let reader = open_or_make(args, &buffers)?;
            follow(args, reader, from, &mut session)
        }
    };
    match shown {
        // The reader of the output has closed it.
        Err(Ended::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(Ended::Output(error)) => Err(unwritten(args, error)),
        Err(Ended::Log(errno)) => Err(Failure::new("follow the log", errno)),
        Ok(()) => Ok(()),
    }
}

/// Carries out all actions other than showing entries. False if there are none.
fn act(args: &LogcatArgs, buffers: &[Buffer]) -> Result<bool, Failure> {
    let (new_size, prune) = (args.new_size(), args.prune());
    if args.clear {
        clear(args, buffers)?;
    }
    if let Some(bytes) = new_size {
        sizes::set(&args.directory(), buffers, bytes)?;
    }
    if args.shows_size() {
        sizes::show(args, buffers)?;
    }
    if args.statistics {
        statistics::show(args, buffers)?;
    }
    match &prune {
        Some(Prune::Show) => show("\n")?,
        Some(Prune::Set(list)) => set_prune(list)?,
        None => {}
    }
    let shows = args.shows_size() || args.statistics;
    Ok(args.clear || new_size.is_some() || shows || prune.is_some())
}

fn session(args: &LogcatArgs, zone: &TimeZone) -> Result<Session, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let format = args.format(zone.clone(), &variable)?;
    let selection = args.selection(&variable)?;
    let output = match (&args.file, &args.trace) {
        (_, Some(path)) => {
            // A trace replaces an earlier one.
            File::create(path)
                .and_then(|_| Output::file(path, None))
                .map_err(|error| unwritten(args, error))?
        }
        (Some(path), None) => {
            let count = args.rotate_count;
            let rotation = args.rotate_kbytes.map(|kibibytes| Rotation { kibibytes, count });
            Output::file(path, rotation).map_err(|error| unwritten(args, error))?
        }
        (None, None) => Output::standard(),
    };
    let users = if format.uid { users() } else { HashMap::new() };
    let which = if args.dividers { Which::Switches } else { Which::Beginnings };
    let form = match &args.trace {
        Some(_) => Form::Trace(BTreeSet::new()),
        None if args.binary => Form::Binary,
        None if args.proto => Form::Proto,
        None if args.json => Form::Json,
        None => Form::Text(format, Dividers::new(which)),
    };
    let tags = tags(args.event_log_tags.as_deref())?;
    let mut session = Session::new(selection, form, tags, output);
    session.names.users = users;
    Ok(session)
}

/// Like [`open`], but makes a log if there is none: a reader may wait before the first entry is
/// written.
fn open_or_make(args: &LogcatArgs, buffers: &[Buffer]) -> Result<Reader, Failure> {
    let directory = args.directory();
    if (!args.ends() || args.wrap) && !directory.exists() {
        baton_log::make_directory(&directory)
            .map_err(|errno| unreadable("make a log", &directory, errno))?;
    }
    open(&directory, buffers)
}

/// Sleeps until new entries would overwrite those that came since the start.
fn wait_for_wrap(args: &LogcatArgs, buffers: &[Buffer]) -> Result<(), Failure> {
    let directory = args.directory();
    // The log exists from here on.
    drop(open_or_make(args, buffers)?);
    Reader::open_from(&directory, buffers, baton_log::Start::Newest)
        .and_then(|mut reader| reader.wait_for_wrap(LONGEST_WRAP))
        .map_err(|errno| unreadable("wait for the log", &directory, errno))?;
    Ok(())
}

fn unwritten(args: &LogcatArgs, error: io::Error) -> Failure {
    let Some(path) = args.file.as_ref().or(args.trace.as_ref()) else {
        return Failure::new("write to standard output", error);
    };
    let failure = Failure::new(format!("write the log to {}", path.display()), &error);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.advice(
            "the last entry in the file is whole; make room and run this again, which goes on from \
             there, or bound the \
             files with -r and -n",
        ),
        _ => failure,
    }
}

/// Shows the existing entries and, if requested, new ones.
fn follow(
    args: &LogcatArgs,
    mut reader: Reader,
    from: From,
    session: &mut Session,
) -> Result<(), Ended> {
    // A trace is one JSON document, which a signal ends.
    let signalled = args.trace.is_some().then(signalled).transpose()?;
    let (is_over, pause) = match &signalled {
        Some(signalled) => (&**signalled, Some(LOOK_FOR_SIGNALS)),
        None => (&AtomicBool::new(false), None),
    };
    let mut taken = show_existing(args, &mut reader, from, session)?;
    while taken == Wanted::More && !args.ends() && !is_over.load(Ordering::Relaxed) {
        session.output.flush()?;
        match reader.wait(pause) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Ended::Log(errno)),
        }
        taken = show_new(args, &mut reader, session)?;
    }
    session.end()?;
    Ok(())
}

/// A flag that SIGINT or SIGTERM sets.
fn signalled() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Shows the entries at the beginning. Overwritten entries are normal and not reported; files that
/// are not read are.
fn show_existing(
    args: &LogcatArgs,
    reader: &mut Reader,
    from: From,
    session: &mut Session,
) -> io::Result<Wanted> {
    let mut beginning = Beginning::new(args, from);
    while let Some(item) = reader.next_item() {
        let record = match item {
            Item::Record(record) => record,
            Item::Lost(lost) => {
                if lost.loss == Loss::Unread {
                    say(format_args!("baton: {}", told(&lost)));
                }
                continue;
            }
        };
        session.add_program(record.origin.process, &record.origin.program);
        if beginning.take(Entry::from(&record), session)? == Wanted::Nothing {
            return Ok(Wanted::Nothing);
        }
    }
    beginning.end(session)
}

/// Shows new entries. Reports entries that this reader was too slow for.
fn show_new(args: &LogcatArgs, reader: &mut Reader, session: &mut Session) -> io::Result<Wanted> {
    while let Some(item) = reader.next_item() {
        let entry = match item {
            Item::Record(record) => {
                session.add_program(record.origin.process, &record.origin.program);
                Entry::from(&record)
            }
            Item::Lost(lost) => {
                say(format_args!("baton: {}", told(&lost)));
                continue;
            }
        };
        if args.wants(&entry) && session.take(&entry)? == Wanted::Nothing {
            return Ok(Wanted::Nothing);
        }
    }
    Ok(Wanted::More)
}

fn tags(path: Option<&Path>) -> Result<Tags, Failure> {
    let known = || TAGS_FILES.iter().map(Path::new).find(|path| path.exists());
    let Some(path) = path.or_else(known) else { return Ok(Tags::default()) };
    let failed = |wrong: &dyn Display| {
        Failure::new(format!("read what events mean from {}", path.display()), wrong)
            .kind(Kind::Usage)
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    Tags::parse(&text).map_err(|error| failed(&error))
}

/// Names of users, from the machine's own file.
fn users() -> HashMap<u32, String> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    text.lines().rev().filter_map(parse).collect()
}

/// Time of the newest entry in the file, or in the newest older file that has one: later entries
/// are still to be written. `None` of a device or a pipe, whose reader gets all entries.
fn resume(path: &Path, now: Duration, zone: &TimeZone) -> Option<Duration> {
    output::files(path).ok()?.iter().take(2).find_map(|path| {
        let text = output::tail(path, RESUME_BYTES).ok()??;
        let mut resume = Resume::new(now, zone);
        String::from_utf8_lossy(&text).lines().for_each(|line| resume.line(line));
        resume.from()
    })
}

/// Empties the files, or the buffers.
fn clear(args: &LogcatArgs, buffers: &[Buffer]) -> Result<(), Failure> {
    let Some(path) = &args.file else { return sizes::clear(&args.directory(), buffers) };
    remove(path)
}

fn remove(path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("clear {}", path.display()), error);
    output::check_replaceable(path).map_err(failed)?;
    output::files(path).map_err(failed)?.iter().try_for_each(std::fs::remove_file).map_err(failed)
}

/// Empties the files if they belong to another id.
fn clear_if_other_id(path: &Path, id: &str) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".id");
    let failed =
        |error: io::Error| Failure::new(format!("keep the id of {}", path.display()), error);
    let last = std::fs::read_to_string(&name);
    if last.is_ok_and(|last| last != id) {
        remove(path)?;
    }
    std::fs::write(&name, id).map_err(failed)
}

/// Only the empty prune list exists: a thread's entries never overwrite another thread's.
fn set_prune(list: &str) -> Result<(), Failure> {
    match list.trim() {
        "" => Ok(()),
        _ => Err(Failure::new(
            "set the prune list",
            "each thread has its own ring, so nobody's entries are pruned for another's",
        )
        .advice("-S shows who logs how much, -G sets the size of rings")
        .kind(Kind::Usage)),
    }
}
