//! Command lines and their meaning.

use super::*;
use baton_logcat::entry::Level;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: LogcatArgs,
}

fn args(line: &str) -> LogcatArgs {
    let words = std::iter::once("logcat").chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args
}

fn refused(line: &str) {
    let words = std::iter::once("logcat").chain(line.split_whitespace());
    assert!(Line::try_parse_from(words).is_err(), "{line}");
}

#[test]
fn common_command_lines_are_understood() {
    let typed = args("-d -v time -v color -s ActivityManager:I *:E");
    assert!(typed.ends() && typed.silent);
    let format = typed.format(TimeZone::UTC, &|_| None).unwrap();
    assert_eq!((format.verb, format.color), (Verb::Time, true));
    let shows = |tag: &str, priority| {
        typed.selection(&|_| None).unwrap().filter.shows(tag.as_bytes(), priority)
    };
    assert!(shows("ActivityManager", Level::INFO) && shows("Other", Level::ERROR));
    assert!(!shows("ActivityManager", Level::DEBUG) && !shows("Other", Level::WARN));
}

#[test]
fn buffers() {
    let buffers = |line| args(line).buffers().map_err(drop);
    assert_eq!(buffers(""), Ok(vec![Buffer::Main, Buffer::System, Buffer::Crash]));
    assert_eq!(buffers("-b main,system"), Ok(vec![Buffer::Main, Buffer::System]));
    assert_eq!(buffers("-b events -b main"), Ok(vec![Buffer::Main, Buffer::Events]));
    assert_eq!(buffers("-b all -b main"), Ok(Buffer::ALL.to_vec()));
    assert_eq!(buffers("-bradio"), Ok(vec![Buffer::Radio]));
    assert_eq!(buffers("-b kernel"), Err(()));
}

#[test]
fn beginnings() {
    let from = |words: &[&str]| {
        let words = std::iter::once(&"logcat").chain(words);
        let args = Line::try_parse_from(words).unwrap().args;
        let from = args.from(Duration::from_secs(1_710_028_800), &TimeZone::UTC);
        (from.map_err(drop), args.ends())
    };
    let time = Duration::new(1_709_985_600, 123_000_000);
    assert_eq!(from(&["-t", "5"]), (Ok(Some(From::Last(5))), true));
    assert_eq!(from(&["-t5"]), (Ok(Some(From::Last(5))), true));
    assert_eq!(from(&["-T", "0"]), (Ok(Some(From::Last(1))), false));
    assert_eq!(from(&["-T", "03-09 12:00:00.123"]), (Ok(Some(From::Time(time))), false));
    assert_eq!(from(&["-t", "1709985600.123"]), (Ok(Some(From::Time(time))), true));
    assert_eq!(from(&["-t", "yesterday"]).0, Err(()));
    assert_eq!(from(&["-t", "03-09 12:00:00.123 or so"]).0, Err(()));
    assert_eq!(from(&[]), (Ok(None), false));
}

#[test]
fn the_environment_gives_only_defaults() {
    let variable = |name: &str| {
        let value = match name {
            TAGS_VARIABLE => "*:E",
            FORMAT_VARIABLE => "brief",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let shows = |line| args(line).selection(&variable).unwrap().filter.shows(b"Tag", Level::INFO);
    assert!(!shows("") && shows("Tag:I"));
    let verb = |line| args(line).format(TimeZone::UTC, &variable).unwrap().verb;
    assert_eq!(
        (verb(""), verb("-v color"), verb("-v long")),
        (Verb::Brief, Verb::Brief, Verb::Long)
    );
}

#[test]
fn sizes() {
    for (line, shown, set) in [
        ("-g", true, None),
        ("--buffer-size", true, None),
        ("-G 1M", false, Some(1 << 20)),
        ("--buffer-size=64K", false, Some(65536)),
        ("-G 64K -g", true, Some(65536)),
        ("", false, None),
    ] {
        let args = args(line);
        assert_eq!((args.shows_size(), args.new_size()), (shown, set), "{line}");
    }
}

#[test]
fn prune_lists() {
    let set = |list: &str| Some(Prune::Set(list.to_owned()));
    assert_eq!(
        (args("-p").prune(), args("--prune").prune()),
        (Some(Prune::Show), Some(Prune::Show))
    );
    assert_eq!((args("-P ~!").prune(), args("--prune=~!").prune()), (set("~!"), set("~!")));
    assert_eq!(args("-d").prune(), None);
}

#[test]
fn meaningless_command_lines_are_refused() {
    for line in [
        "-r 5",
        "-m 0",
        "-t 5 -m 5",
        "-G 0",
        "-G x",
        "--pid x",
        "-n 0",
        "--print",
        "-B --json",
        "--proto -B",
        "--id 5",
        "-p -f x",
        "-P",
    ] {
        refused(line);
    }
    assert!(args("Tag:x").selection(&|_| None).is_err());
    assert!(args("-e (").selection(&|_| None).is_err());
    assert!(args("-v nonsense/words").format(TimeZone::UTC, &|_| None).is_err());
}
