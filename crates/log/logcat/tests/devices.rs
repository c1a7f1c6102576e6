//! Lines that devices have printed, from public sources.

use baton_logcat::divider::{Dividers, Which};
use baton_logcat::entry::{Body, Buffer, Entry, Level};
use baton_logcat::event::Style;
use baton_logcat::format::{Format, Verb};
use baton_logcat::tags::Tags;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::time::Duration;

fn since_1970(time: &str) -> Duration {
    let time: DateTime = time.parse().unwrap();
    let time = TimeZone::UTC.to_timestamp(time).unwrap();
    Duration::new(time.as_second() as u64, time.subsec_nanosecond() as u32)
}

fn entry(time: &str, pid: u32, tid: u32, body: Body) -> Entry {
    let buffer = if matches!(body, Body::Event { .. }) { Buffer::Events } else { Buffer::Main };
    let (wall, monotonic) = (since_1970(time), Duration::new(6, 494_000_000));
    Entry { buffer, wall, monotonic, uid: 1000, pid, tid, body }
}

fn words(letter: char, tag: &str, message: &str) -> Body {
    let level = Level::lettered(letter).unwrap();
    Body::Text { level, tag: tag.into(), message: message.into() }
}

fn print(entry: &Entry, spec: &str, tags: &Tags) -> String {
    let mut format = Format::new(Verb::ThreadTime, TimeZone::UTC);
    format.add(spec).unwrap();
    let style = if spec.contains("descriptive") { Style::Descriptive } else { Style::Plain };
    let shown = entry.shown(tags, style).unwrap();
    let name = |uid| (uid == 0).then(|| "root".to_owned());
    String::from_utf8(format.lines(entry, &shown, &name)).unwrap()
}

fn check(entry: &Entry, spec: &str, expected: &str) {
    assert_eq!(print(entry, spec, &Tags::default()), expected);
}

/// A Nexus 6, from the logs of thaliproject's test runs.
#[test]
fn threadtime() {
    let body = words(
        'D',
        "ICU",
        "No timezone override file found: /data/misc/zoneinfo/current/icu/icu_tzdata.dat",
    );
    check(
        &entry("2016-09-02T19:06:37.943", 3813, 3813, body),
        "threadtime",
        "09-02 19:06:37.943  3813  3813 D ICU     : No timezone override file found: \
         /data/misc/zoneinfo/current/icu/icu_tzdata.dat\n",
    );
    let body = words('W', "chromium", "[WARNING:resource_bundle.cc(285)] locale_file_path.empty()");
    check(
        &entry("2016-09-02T19:06:38.264", 376, 2341, body),
        "threadtime",
        "09-02 19:06:38.264   376  2341 W chromium: [WARNING:resource_bundle.cc(285)] \
         locale_file_path.empty()\n",
    );
}

/// A tablet with a failing card, from a public forum: one entry of three lines.
#[test]
fn lines_of_one_entry_all_have_its_prefix() {
    let body = words('D', "vold", "    --zap-all\n    /dev/block/vold/disk:179,64");
    check(
        &entry("2020-05-26T16:11:20.016240", 1806, 1819, body),
        "threadtime,usec",
        "05-26 16:11:20.016240  1806  1819 D vold    :     --zap-all\n\
         05-26 16:11:20.016240  1806  1819 D vold    :     /dev/block/vold/disk:179,64\n",
    );
}

/// An SM-A500FU, from the logs of thaliproject's test runs, and Android's own documentation of
/// logcat.
#[test]
fn brief() {
    let body = words('E', "Zygote", "MountEmulatedStorage()");
    check(
        &entry("2016-01-01T00:00:00", 5143, 5143, body),
        "brief",
        "E/Zygote  ( 5143): MountEmulatedStorage()\n",
    );
    let body = words(
        'I',
        "ActivityManager",
        "Starting activity: Intent { action=android.intent.action...}",
    );
    check(
        &entry("2016-01-01T00:00:00", 585, 585, body),
        "brief",
        "I/ActivityManager(  585): Starting activity: Intent { action=android.intent.action...}\n",
    );
}

/// A Huawei telephone, from a report of a crash.
#[test]
fn time() {
    let body = words('E', "WifiHAL", "enter wifi_get_link_stats");
    check(
        &entry("2019-04-10T17:01:30.128", 647, 647, body),
        "time",
        "04-10 17:01:30.128 E/WifiHAL (  647): enter wifi_get_link_stats\n",
    );
    let body =
        words('D', "ZrHung.AppEyeTransparentWindow", "handleMessage CHECK_TRANS_WINDOW_ERROR_MSG");
    check(
        &entry("2019-04-10T17:01:29.871", 16247, 16247, body),
        "time",
        "04-10 17:01:29.871 D/ZrHung.AppEyeTransparentWindow(16247): handleMessage \
         CHECK_TRANS_WINDOW_ERROR_MSG\n",
    );
}

/// A telephone's log with users and divisions, from the tests of AOSP's tool memtrack.
#[test]
fn long_with_users_between_dividers() {
    let body = words('I', "PackageManager", "/system/app/HiddenMenu changed; collecting certs");
    let system = entry("2014-03-29T00:46:58.872", 1815, 1816, body);
    let text = print(&system, "long,uid", &Tags::default());
    let mut dividers = Dividers::new(Which::Switches);
    let mut log = String::new();
    for buffer in [Buffer::System, Buffer::System, Buffer::Main, Buffer::System] {
        log += &dividers.before(buffer).unwrap_or_default();
        log += &text;
    }
    let piece = "[ 03-29 00:46:58.872  1000: 1815: 1816 I/PackageManager ]\n\
                 /system/app/HiddenMenu changed; collecting certs\n\n";
    assert_eq!(
        log,
        format!(
            "--------- beginning of system\n{piece}{piece}--------- beginning of main\n{piece}\
             --------- switch to system\n{piece}"
        )
    );
    let mut dividers = Dividers::new(Which::Beginnings);
    let seen = [Buffer::Main, Buffer::Crash, Buffer::Main].map(|buffer| dividers.before(buffer));
    assert_eq!(seen.map(|line| line.is_some()), [true, true, false]);
}

/// A user with a short name is shown by name. The form is that of the logs that Memfault's agent
/// reads.
#[test]
fn users_by_name() {
    let body = words('I', "chatty", "uid=0(root) logd identical 11 lines");
    let root = Entry { uid: 0, ..entry("2021-01-18T12:33:17.718860224", 9, 9, body) };
    check(
        &root,
        "threadtime,nsec,UTC,year,uid",
        "2021-01-18 12:33:17.718860224 +0000  root     9     9 I chatty  : uid=0(root) logd \
         identical 11 lines\n",
    );
    check(&root, "brief,uid", "I/chatty  ( root:    9): uid=0(root) logd identical 11 lines\n");
}

/// `-v monotonic`, from the tests of a reader of Android's logs.
#[test]
fn monotonic() {
    let body = words('D', "OpenGLRenderer", "Enabling debug mode 0");
    check(
        &entry("2016-01-01T00:00:00", 1810, 1820, body),
        "monotonic",
        "     6.494  1810  1820 D OpenGLRenderer: Enabling debug mode 0\n",
    );
}

/// The colours of Android's liblog since it uses the terminal's own eight.
#[test]
fn colors() {
    for (letter, color) in [('V', 39), ('D', 34), ('I', 32), ('W', 33), ('E', 31), ('F', 31)] {
        let entry = entry("2016-01-01T00:00:00", 9, 9, words(letter, "Tag", "one\ntwo"));
        let line = |words| format!("\x1b[{color}m{letter}/Tag     : {words}\x1b[0m\n");
        check(&entry, "tag,color", &(line("one") + &line("two")));
        check(&entry, "raw,color", &format!("\x1b[{color}mone\x1b[0m\n\x1b[{color}mtwo\x1b[0m\n"));
        let process = |words| format!("\x1b[{color}m{letter}(    9) {words}\x1b[0m  (Tag)\n");
        check(&entry, "process,color", &(process("one") + &process("two")));
    }
}

#[test]
fn printable() {
    let entry = entry("2016-01-01T00:00:00", 9, 9, words('I', "Tag", "a\x1b[1mb\r\nc\\"));
    check(&entry, "tag,printable", "I/Tag     : a\\x1B[1mb\\r\nI/Tag     : c\\\\\n");
    check(
        &entry,
        "long,printable",
        "[ 01-01 00:00:00.000     9:    9 I/Tag      ]\na\\x1B[1mb\\r\\nc\\\\\n\n",
    );
}

/// A Qualcomm telephone, from an article on its event log, and lines of AOSP's tags file.
#[test]
fn events() {
    let tags = "30014 am_proc_start (User|1|5),(PID|1|5),(UID|1|5),(Process \
        Name|3),(Type|3),(Component|3)\n\
                30047 am_pss (Pid|1|5),(UID|1|5),(Process \
                Name|3),(Pss|2|2),(Uss|2|2),(SwapPss|2|2)\n";
    let tags = Tags::parse(tags).unwrap();
    let int = |number: i32| [&[0][..], &number.to_le_bytes()].concat();
    let long = |number: i64| [&[1][..], &number.to_le_bytes()].concat();
    let string =
        |words: &str| [&[2][..], &(words.len() as u32).to_le_bytes(), words.as_bytes()].concat();
    let list = |values: &[Vec<u8>]| [&[3, values.len() as u8][..], &values.concat()].concat();
    let service = "com.qualcomm.qti.callenhancement/.CallEnhancementService";
    let payload = list(&[
        int(0),
        int(21756),
        int(1000),
        string("com.qualcomm.qti.callenhancement"),
        string("service"),
        string(service),
    ]);
    let started = entry("2019-06-27T18:08:58.085", 1144, 1470, Body::Event { tag: 30014, payload });
    assert_eq!(
        print(&started, "threadtime", &tags),
        format!(
            "06-27 18:08:58.085  1144  1470 I am_proc_start: \
             [0,21756,1000,com.qualcomm.qti.callenhancement,service,{service}]\n"
        )
    );
    assert_eq!(
        print(&started, "raw,descriptive", &tags),
        format!(
            "[User=0,PID=21756,UID=1000,Process Name=com.qualcomm.qti.callenhancement,Type=service,\
             Component={service}]\n"
        )
    );
    let payload = list(&[
        int(21625),
        int(1000),
        string("com.qti.csm"),
        long(4_843_520),
        long(3_465_216),
        long(101_376),
    ]);
    let size = entry("2019-06-27T18:08:58.175", 1144, 1469, Body::Event { tag: 30047, payload });
    assert_eq!(
        print(&size, "threadtime", &tags),
        "06-27 18:08:58.175  1144  1469 I am_pss  : \
         [21625,1000,com.qti.csm,4843520,3465216,101376]\n"
    );
    assert_eq!(
        print(&size, "tag,descriptive", &tags),
        "I/am_pss  : [Pid=21625,UID=1000,Process \
         Name=com.qti.csm,Pss=4730KB,Uss=3384KB,SwapPss=99KB]\n"
    );
}
