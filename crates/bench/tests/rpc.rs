//! The benchmark itself, with a few calls only: that it runs and says what it should, not how
//! fast.

use baton_rt::SchedPriority;
use baton_rt::schedule::Prioritized;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Runs a benchmark, and no other beside it: each has threads that take a processor for themselves.
fn bench(name: &str, words: &[&str], html: Option<&Path>) -> Output {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = program();
    command.arg(name).args(words);
    if let Some(file) = html {
        command.arg("--html").arg(file);
    }
    command.output().unwrap()
}

/// The test of a workspace leaves the library among the others' parts.
const LIBRARY: &str = "deps/libbaton_preload.so";

fn program() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_baton-bench"));
    let mut command = Command::new(program);
    command.env("BATON_PRELOAD_LIB", program.with_file_name(LIBRARY));
    command
}

#[test]
fn records_are_written_in_every_way() {
    let few = ["--quick", "--rounds", "2", "--records", "64", "--peers", "lttng-ust", "--json"];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log.html");
    let output = bench("log", &few, Some(&file));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let find = |system: &str, case: &str| {
        let found = rows.iter().find(|row| row["system"] == system && row["case"] == case);
        found.unwrap_or_else(|| panic!("no {case} of {system}"))
    };
    for system in
        ["baton-vdso", "floor-vdso", "paper-vdso", "datagram", "pipe-writev", "null-writev"]
    {
        for case in ["one-writer", "all-processors"] {
            assert!(find(system, case)["bytes_per_second"].as_f64().unwrap() > 0.0);
        }
    }
    // Few machines have it built.
    let lttng = rows.iter().find(|row| row["system"] == "lttng-ust").unwrap();
    assert!(lttng["why"].is_string() || lttng["bytes_per_second"].is_f64(), "{lttng}");
    assert!(rows.iter().all(|row| row["system"] != "spdlog-async"));
    let storm = rows.iter().find(|row| row["case"] == "killed-writers").unwrap();
    assert!(storm["seen"].as_u64().unwrap() > 0, "{storm}");
    assert_eq!((&storm["torn"], &storm["uncounted"]), (&json!(0), &json!(0)), "{storm}");
    let names: Vec<_> =
        report["ratios"].as_array().unwrap().iter().map(|ratio| &ratio["name"]).collect();
    for name in [
        "bytes_over_paper_one_vdso",
        "bytes_over_paper_one_tsc",
        "bytes_over_paper_all",
        "lttng_over_ours",
        "dgram_over_ours",
        "ours_over_floor",
        "rt_p999_over_p50",
        "torn_or_uncounted",
    ] {
        assert_eq!(names.iter().filter(|found| **found == name).count(), 1, "{name}");
    }
    assert!(std::fs::read_to_string(&file).unwrap().contains("baton-vdso"));
}

#[test]
fn threads_wake_up_and_calls_go_there_and_back() {
    let few =
        ["--loops", "20", "--rounds", "2", "--load", "1", "--interval", "200", "-a", "--json"];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("latency.html");
    let output = bench("latency", &few, Some(&file));
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let cpus = report["machine"]["cpus"].as_u64().unwrap() as usize;
    let rows = report["rows"].as_array().unwrap();
    let of =
        |case: &str| rows.iter().filter(|row| row["case"] == case && row["n"].is_u64()).count();
    assert_eq!(of("wake-up"), 2 * cpus, "with and without load");
    let n_placements = if report["pinning"]["other"].is_u64() { 3 } else { 2 };
    assert_eq!((of("call"), of("return")), (2 * n_placements, 2 * n_placements));
    for row in rows.iter().filter(|row| row["n"].is_u64()) {
        assert_eq!(row["n"], 20, "{row}");
        let [least, greatest] = [&row["min_ns"], &row["max_ns"]].map(|ns| ns.as_u64().unwrap());
        let quartile = |at: usize| row["quartiles_ns"][at].as_u64().unwrap();
        assert!(least > 0 && least <= quartile(1) && quartile(0) <= quartile(1), "{row}");
        assert!(row["p50_ns"].as_f64().unwrap() <= greatest as f64, "{row}");
    }
    let page = std::fs::read_to_string(file).unwrap();
    assert_eq!(charts(&page).len(), 2 * (cpus + n_placements));
}

/// Twice twenty calls.
fn run(name: &str, words: &[&str]) -> Output {
    bench(name, &[&["--calls", "20", "--rounds", "2"], words].concat(), None)
}

/// The data of a page's charts.
fn charts(page: &str) -> Vec<Value> {
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// The names of all curves and lines of a page's charts.
fn curves(page: &str) -> Vec<String> {
    let curves = |chart: &Value| {
        let curves = [&chart["curves"], &chart["lines"]].map(|it| it.as_array().cloned());
        curves.into_iter().flatten().flatten().map(|curve| curve[0].as_str().unwrap().to_owned())
    };
    charts(page).iter().flat_map(curves).collect()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|wrong| panic!("{wrong}: {error}"))
}

#[test]
fn a_run_in_json_and_as_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rpc.html");
    let output = run("rpc", &["--json", "--clients", "1,3", "--html", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["bench"], "rpc");
    assert!(report["machine"]["cpus"].as_u64() > Some(0));
    let apart = report["pinning"]["other"].is_u64();
    let rows = report["rows"].as_array().unwrap();
    for system in ["baton-typed", "futex", "pipe", "unix", "unix-seqpacket"] {
        let of_system = || rows.iter().filter(|row| row["system"] == system);
        let calls = || of_system().filter(|row| row["case"] == "call" && row["why"].is_null());
        let n_payloads = if ["baton-typed", "unix-seqpacket"].contains(&system) { 4 } else { 5 };
        assert_eq!(calls().count(), n_payloads * if apart { 2 } else { 1 }, "{system}");
        for row in calls() {
            let n = match row["payload_bytes"].as_u64().unwrap() {
                ..65536 => 40,
                65536 => 10,
                _ => 2,
            };
            assert_eq!(row["n"], n, "{row}");
            let time = |key: &str| row[key].as_f64().unwrap();
            assert!(0.0 < time("p50_ns") && time("p50_ns") <= time("max_ns"), "{row}");
        }
    }
    clients_are_counted(rows);
    assert!(rows.iter().all(|row| row["case"] != "object_known"), "nobody has asked for objects");
    for (system, case) in [("baton-typed", "loan"), ("memcpy", "floor")] {
        let of_case = rows.iter().filter(|row| row["system"] == system && row["case"] == case);
        assert_eq!(of_case.count(), if apart { 4 } else { 2 }, "{case}");
    }
    let spinning = rows.iter().find(|row| row["system"] == "futex-spin");
    assert!(spinning.is_none_or(|row| row["placement"] == "different"));
    let ratios = report["ratios"].as_array().unwrap();
    let over_futex = ratios.iter().find(|ratio| ratio["name"] == "typed_same_over_futex").unwrap();
    assert!(over_futex["value"].is_f64() && over_futex["holds"].is_boolean(), "{over_futex}");
    let kernel =
        ratios.iter().find(|ratio| ratio["name"] == "kernel_binder_same_over_typed").unwrap();
    if !std::path::Path::new("/dev/binder").exists() {
        assert!(kernel["holds"].is_null() && kernel["why"].is_string(), "{kernel}");
    }
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(curves(&page).iter().any(|name| name == "baton-typed"));
    assert!(curves(&page).iter().any(|name| name == "lanes-256"));
    assert!(charts(&page).iter().any(|chart| chart["kind"] == "by-number"));
}

#[test]
fn objects_and_descriptors_are_carried() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.html");
    let words = ["--cases", "objects", "--peers", "unix", "--json", "--html"];
    let output = run("rpc", &[&words[..], &[file.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let n_placements = if report["pinning"]["other"].is_u64() { 2 } else { 1 };
    let rows = report["rows"].as_array().unwrap();
    let of = |system: &str, case: &str| -> Vec<&Value> {
        let is_it = |row: &&Value| row["system"] == system && row["case"] == case;
        rows.iter().filter(is_it).filter(|row| row["clients"].is_null()).collect()
    };
    let mut systems = vec!["baton-typed", "baton-uapi-libc", "baton-uapi-trap"];
    if !Path::new(env!("CARGO_BIN_EXE_baton-bench")).with_file_name(LIBRARY).exists() {
        println!("skipped: interposed programs ({LIBRARY} is not built)");
        systems.truncate(1);
    }
    for &system in &systems {
        for (case, n) in [
            ("plain", 40),
            ("object_known", 40),
            ("object_dropped", 40),
            ("object_new", 40),
            ("object_in_reply", 40),
            ("handle_home", 40),
            ("introduction", 40),
            ("get_service", 40),
            ("descriptor", 40),
            ("link_unlink", 40),
            ("first_contact", 2),
        ] {
            let found = of(system, case);
            assert_eq!(found.len(), n_placements, "{system} {case}");
            for row in found {
                assert_eq!(row["n"], n, "{row}");
                assert!(row["p50_ns"].as_f64() > Some(0.0), "{row}");
                let has_bytes = case != "link_unlink";
                assert_eq!(row["payload_bytes"], json!(has_bytes.then_some(4)), "{row}");
            }
        }
    }
    assert_eq!(of("unix", "descriptor").len(), n_placements);
    assert_eq!(of("unix", "object_known").len(), 0);
    let crowds = rows.iter().filter(|row| row["clients"] == 8 && row["system"] == "baton-typed");
    let cases: Vec<_> = crowds.map(|row| (&row["case"], &row["n"])).collect();
    assert_eq!(json!(cases), json!([("plain", 64), ("object_known", 64)]));
    let ratios = report["ratios"].as_array().unwrap();
    for (name, bar) in [
        ("typed_object_known_same_over_plain", 1.5),
        ("typed_descriptor_same_over_unix", 1.2),
        ("typed_object_known_8_clients_over_plain", 0.5),
    ] {
        let ratio = ratios.iter().find(|ratio| ratio["name"] == name).unwrap();
        assert!(ratio["value"].is_f64() && ratio["bar"] == bar, "{ratio}");
    }
    assert!(ratios.iter().all(|ratio| ratio["name"] != "typed_same_over_futex"));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(charts(&page).iter().any(|chart| chart["title"] == "object_new, same processor"));
}

fn clients_are_counted(rows: &[Value]) {
    for system in ["baton-typed", "futex", "pipe", "unix", "unix-seqpacket"] {
        for (clients, n) in [(1, 40), (3, 36)] {
            let is_it = |row: &&Value| row["system"] == system && row["clients"] == clients;
            let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{system} {clients}"));
            assert_eq!((&row["case"], &row["n"]), (&"throughput".into(), &n.into()), "{row}");
            assert_eq!(row["placement"], "any");
            assert!(row["calls_per_second"].as_f64() > Some(0.0), "{row}");
        }
    }
    for lanes in [2, 256] {
        let row = rows.iter().find(|row| row["lanes"] == lanes).unwrap();
        assert_eq!((&row["case"], &row["n"]), (&"idle-lanes".into(), &40.into()), "{row}");
    }
    let following = rows.iter().filter(|row| row["case"] == "follow");
    let figures = following.filter(|row| row["n"].is_u64());
    let cases: Vec<_> = figures.map(|row| (&row["delay_us"], &row["follows"], &row["n"])).collect();
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        let all = [(0, false, 40), (0, true, 40), (200, false, 8), (200, true, 8)];
        assert_eq!(json!(cases), json!(all));
    }
}

#[test]
fn a_bar_that_was_not_measured_fails_a_check() {
    let output = run("rpc", &["--json", "--peers", "none", "--clients", "none", "--check"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    let ratios = report["ratios"].as_array().unwrap();
    let over_futex = ratios.iter().find(|ratio| ratio["name"] == "typed_same_over_futex").unwrap();
    assert!(over_futex["value"].is_null() && over_futex["why"].is_string(), "{over_futex}");
    let table = run("rpc", &["--peers", "none", "--clients", "none"]);
    assert!(table.status.success());
    assert!(String::from_utf8(table.stdout).unwrap().contains("not measured"));
}

#[test]
fn instructions_are_of_few_bytes() {
    let report = json(&run("rpc", &["--json", "--instructions", "--peers", "futex"]));
    assert!(report["machine"]["clock"].as_str().unwrap().contains("instruction"));
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["payload_bytes"].as_u64().is_none_or(|bytes| bytes <= 124)));
    let ratios = report["ratios"].as_array().unwrap();
    assert_eq!(ratios[0]["name"], "guest_instructions_over_futex");
    assert!(ratios[0]["value"].is_f64(), "{}", ratios[0]);
}

#[test]
fn single_cases_are_measured_beside_plain_calls() {
    let words = ["--json", "--instructions", "--peers", "unix", "--cases", "get_service"];
    let report = json(&run("rpc", &words));
    let rows = report["rows"].as_array().unwrap();
    let of_typed = rows.iter().filter(|row| row["system"] == "baton-typed");
    let of_typed = of_typed.filter(|row| row["placement"] == "same");
    let cases: Vec<_> = of_typed.map(|row| &row["case"]).collect();
    assert_eq!(cases, ["plain", "get_service"]);
    // Of objects, sockets carry descriptors alone.
    assert!(rows.iter().all(|row| row["system"] != "unix"));
    let ratios = report["ratios"].as_array().unwrap();
    let of_others = |ratio: &&Value| !ratio["name"].as_str().unwrap().contains("get_service");
    assert_eq!(ratios.iter().find(of_others), None);
}

#[test]
fn a_message_is_at_each_point_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tester.html");
    let output = run("tester", &["--json", "--html", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["bench"], "tester");
    let rows = report["rows"].as_array().unwrap();
    let mean = |system: &str, point: &str| {
        let is_it = |row: &&Value| row["system"] == system && row["point"] == point;
        let row = rows.iter().filter(is_it).find(|row| row["placement"] == "any");
        row.unwrap_or_else(|| panic!("{system} {point}"))["mean_ns"].as_f64().unwrap()
    };
    let points = |system| ["S_RECV", "S_REPLY", "C_RECV"].map(|point| mean(system, point));
    let [received, replied, back] = points("baton-typed");
    assert!(0.0 < received && received <= replied && replied < back);
    assert_eq!(points("readme-old-driver"), [7e3, 10e3, 17e3]);
    assert_eq!(points("readme-new-driver"), [7e3, 9e3, 16e3]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(curves(&page).iter().any(|name| name == "baton-typed"));
    let table = run("tester", &["--peers", "none"]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("C_SEND"));
}

#[test]
fn ints_are_added_with_and_without_a_delay() {
    let report = json(&run("add-ints", &["--json"]));
    let rows = report["rows"].as_array().unwrap();
    for (delay_us, readme_ns) in [(0, 258_004), (1000, 181_443)] {
        let find = |system: &str| {
            let is_it = |row: &&Value| row["system"] == system && row["delay_us"] == delay_us;
            rows.iter().filter(is_it).find(|row| row["placement"] == "any").unwrap()
        };
        assert_eq!(find("baton-typed")["n"], 20);
        assert!(find("baton-typed")["min_ns"].as_u64() > Some(0));
        assert_eq!(find("readme-old-driver")["mean_ns"].as_f64(), Some(f64::from(readme_ns)));
    }
}

#[test]
fn a_party_ends_with_its_starter() {
    let directory = tempfile::tempdir().unwrap();
    let party = |starter: u32| {
        let role = json!({
            "system": "Pipe", "side": "Server", "directory": directory.path(), "broker": "none",
            "service": "Echo", "priority": null, "n_clients": 1,
        });
        let words = ["endpoint", &role.to_string(), &starter.to_string()];
        program().args(words).output().unwrap().status.code()
    };
    assert_eq!(party(1), Some(1), "its starter is gone");
    // Its input is empty: it has nothing to do.
    assert_eq!(party(std::process::id()), Some(0));
}

#[test]
fn pages_of_two_sizes_are_measured_or_refused() {
    let report = json(&bench("pages", &["--json", "--calls", "5", "--rounds", "2"], None));
    let rows = report["rows"].as_array().unwrap();
    let of = |system: &str| rows.iter().filter(|row| row["system"] == system).collect::<Vec<_>>();
    assert_eq!(of("pages-4k").len(), 3);
    assert!(of("pages-4k").iter().all(|row| row["n"] == 10));
    let large = of("pages-2m");
    assert!(large.len() == 3 || large.len() == 1 && large[0]["why"].is_string(), "{large:?}");
    assert_eq!(of("thesis-64k")[0]["mean_ns"], 4_153_000.0);
    let ratios = report["ratios"].as_array().unwrap();
    assert!(ratios.iter().any(|ratio| ratio["name"] == "draw_4k_over_2m"));
}

#[test]
fn real_time_callers_are_served() {
    if Prioritized::new(SchedPriority::fifo(30)).is_err() {
        println!("skipped: real_time_callers_are_served (no real-time priority here)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rt.html");
    let words = ["--json", "--calls", "5", "--rounds", "1", "--priorities", "30,20"];
    let others = [
        "--parts",
        "calls,scaling,inversion,steady,misuse",
        "--callers",
        "0,2",
        "--real-time-callers",
        "1,3",
    ];
    let output = bench("rt", &[&words[..], &others[..]].concat(), Some(&file));
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    assert!(output.status.success(), "{output:?}");
    let n = |system: &str, case: &str, priority: &str, callers: [usize; 2], bound: &str| {
        let is_it = |row: &&Value| {
            let numbers = [&row["real_time_callers"], &row["callers"]];
            (row["system"] == system && row["case"] == case && row["priority"] == priority)
                && numbers == [callers[0], callers[1]]
                && (row["bound"] == bound && row["misuse"].is_null())
        };
        let found = rows.iter().find(is_it);
        found.unwrap_or_else(|| panic!("{system} {case} {callers:?} {bound}"))["n"].clone()
    };
    for case in ["t-call", "t-return", "call"] {
        for callers in [0, 2] {
            for bound in ["nobody", "caller"] {
                assert_eq!(n("unix", case, "fifo:30", [1, callers], bound), 5);
                assert_eq!(n("mqueue", case, "fifo:30", [1, callers], bound), 5);
                assert_eq!(n("baton-typed", case, "fifo:20", [1, callers], bound), 5);
            }
            assert_eq!(n("mqueue", case, "fifo:30", [1, callers], "both"), 5);
        }
        assert_eq!(n("baton-typed", case, "fifo:30", [3, 2], "nobody"), 15);
    }
    for misuse in ["priority", "garbage", "oneway", "channels"] {
        for aim in ["", " elsewhere"] {
            let beside = rows.iter().filter(|row| row["misuse"] == format!("{misuse}{aim}"));
            assert!(beside.clone().all(|row| row["n"] == 5), "{misuse}{aim}");
            let typed = beside.filter(|row| row["system"] == "baton-typed");
            assert_eq!(typed.count(), 3, "{misuse}{aim}");
        }
    }
    let delayed = rows.iter().filter(|row| row["case"] == "inversion" && row["n"] == 5);
    let delayed: Vec<_> = delayed.map(|row| (&row["system"], &row["served_at"])).collect();
    let all = [
        ("baton-typed", "other"),
        ("baton-typed", "fifo:30"),
        ("unix", "other"),
        ("mqueue", "fifo:30"),
    ];
    assert_eq!(json!(delayed), json!(all));
    let ratios = report["ratios"].as_array().unwrap();
    let ratio = |name: &str| ratios.iter().find(|ratio| ratio["name"] == name).unwrap();
    assert!(ratio("loaded_p99_over_idle")["value"].is_f64());
    assert!(ratio("misuse_oneway_p99_over_elsewhere")["value"].is_f64());
    for name in ["steady_call_allocations", "steady_call_syscalls"] {
        // This user may not count, or it is the promise.
        let steady = ratio(name);
        assert!(steady["why"].is_string() || steady["holds"] == true, "{steady}");
    }
    assert!(ratio("seven_callers_over_one")["why"].is_string(), "there were three");
    page_of_real_time_callers(&std::fs::read_to_string(file).unwrap());
}

fn page_of_real_time_callers(page: &str) {
    // Three legs for each of two priorities and two numbers of callers, bound and not, of three
    // callers at once, and beside each misuse, here and elsewhere; inversion; and the means.
    assert_eq!(charts(page).len(), 3 * (2 * 2 * 2 + 1 + 2 * 4) + 2);
    for name in
        ["baton-typed", "mqueue", "mqueue-bound", "baton-typed-without", "thesis-inheriting"]
    {
        assert!(curves(page).iter().any(|curve| curve == name), "{name}");
    }
}
