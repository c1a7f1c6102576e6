//! The laws of the workspace: which crate may depend on which, and which files may contain
//! `unsafe`.
//!
//! A missing dependency is a law (docs/invariants.md). Dev-dependencies are free, because
//! a test may combine any crates.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All normal and build dependencies that crates of the workspace may have on each other.
const ALLOWED: &[(&str, &[&str])] = &[
    ("baton-abi", &[]),
    ("baton-shm", &[]),
    // Pure: uses the wire format, and flags that it shares with threads.
    ("baton-state", &["baton-abi", "baton-shm"]),
    // Broker and driver share only bytes.
    ("baton-driver", &["baton-abi", "baton-shm", "baton-state"]),
    ("baton-broker", &["baton-abi", "baton-shm"]),
    // The typed API: the one who knows what the driver is made of.
    ("baton", &["baton-abi", "baton-driver", "baton-shm", "baton-state"]),
    ("baton-rt", &["baton-abi"]),
    // Knows no Binder: programs log whether they use Baton otherwise or not.
    ("baton-log", &["baton-shm"]),
    // Knows no machine that runs its code.
    ("baton-dex", &[]),
    ("baton-nucleus", &[]),
    ("baton-host", &["baton", "baton-abi", "baton-nucleus", "baton-shm"]),
    // Knows no Binder.
    ("baton-vm", &["baton-dex"]),
    // The seam: Java's Binder classes.
    ("baton-vm-binder", &["baton", "baton-abi", "baton-driver", "baton-vm"]),
    // The seam: libraries that Java programs load.
    ("baton-vm-jni", &["baton-dex", "baton-vm"]),
    ("baton-vm-real-time", &["baton-rt", "baton-vm"]),
    ("baton-preload", &["baton-abi", "baton-driver", "baton-log"]),
    ("baton-binderfs", &["baton-abi", "baton-driver", "baton-shm"]),
    ("baton-capi", &["baton"]),
    ("baton-example-rust", &["baton"]),
    ("baton-manager", &["baton"]),
    ("baton-services", &["baton", "baton-rt", "baton-shm"]),
    ("baton-logcat", &["baton-log"]),
    ("baton-liblog", &["baton-log", "baton-logcat"]),
    (
        "baton-cli",
        &[
            "baton",
            "baton-abi",
            "baton-binderfs",
            "baton-broker",
            "baton-driver",
            "baton-host",
            "baton-log",
            "baton-logcat",
            "baton-manager",
            "baton-rt",
            "baton-services",
            // The limit of its descriptors, for a service manager.
            "baton-shm",
            "baton-vm",
            "baton-vm-binder",
            "baton-vm-jni",
            "baton-vm-real-time",
        ],
    ),
    ("baton-conformance", &["baton-abi"]),
    // Attackers speak the wire format, honest parties the typed API, both to a broker.
    (
        "baton-hostile",
        &["baton", "baton-abi", "baton-shm", "baton-broker", "baton-driver", "baton-bench"],
    ),
    (
        "baton-bench",
        &[
            "baton",
            "baton-abi",
            "baton-binderfs",
            "baton-shm",
            "baton-broker",
            "baton-driver",
            "baton-host",
            "baton-rt",
            "baton-log",
            "baton-manager",
            "baton-nucleus",
            "baton-services",
        ],
    ),
];

/// Files that may contain `unsafe`, with the reason. A name with a slash at its end is a directory.
const UNSAFE: &[(&str, &str)] = &[
    ("binder/shm/src/simulation/mod.rs", "polls descriptors that waiting threads have borrowed"),
    ("binder/shm/src/mapping.rs", "maps memory that others write"),
    ("binder/shm/src/lock.rs", "lends what it guards"),
    ("binder/shm/src/thread.rs", "a handler for children of fork"),
    ("binder/shm/src/schedule.rs", "threads' policies and priorities, which rustix lacks"),
    ("binder/shm/src/forks.rs", "a handler for children of fork"),
    ("binder/shm/src/held.rs", "keeps a reference with the share that keeps it true"),
    ("binder/shm/src/own.rs", "maps memory that others read"),
    ("binder/shm/src/wiped.rs", "maps memory that a child of fork finds zero"),
    ("binder/shm/src/socket.rs", "socket options and SIOCOUTQ, which rustix lacks"),
    ("binder/shm/src/clock.rs", "reads the processor's counter"),
    ("log/log/src/files/lock.rs", "locks of parts of files, which rustix lacks"),
    ("log/log/src/files/fork.rs", "closes descriptors in a child of fork, by number"),
    ("log/log/src/files/watch.rs", "System V segments, which rustix lacks"),
    ("binder/driver/src/sys/user.rs", "reads and writes the program's memory by address"),
    ("binder/driver/src/sys/thread.rs", "signal masks, and what a child of fork does"),
    ("binder/driver/src/sys/token.rs", "a test that forks"),
    ("binder/driver/src/device/tests.rs", "a test at a real-time priority"),
    ("binder/driver/src/fast/tests.rs", "a test that sends signals"),
    ("binder/baton/src/received.rs", "lends the receive buffer, and descriptors named in it"),
    ("binder/driver/src/fast/own_lane.rs", "uses a channel that nobody keeps for it"),
    ("binder/driver/src/runner/effects.rs", "closes descriptors that it has installed, by number"),
    ("binder/driver/src/sys/packet.rs", "sends the program's descriptors, by number"),
    ("binder/broker/src/client_thread.rs", "a process's limits, which rustix lacks"),
    ("binder/broker/src/interrupt.rs", "a timer that signals one thread, which rustix lacks"),
    ("binder/broker/src/trim.rs", "asks the allocator to give memory back"),
    ("conformance/src/", "speaks the raw interface, and maps what its processes share"),
    ("binder/preload/src/", "stands in for functions of the C library"),
    ("binder/binderfs/src/connection.rs", "mount and ioctls of /dev/fuse, which rustix lacks"),
    ("binder/binderfs/src/client_memory.rs", "memory of other processes, which rustix lacks"),
    ("binder/binderfs/src/injection.rs", "ptrace, and descriptors by number"),
    ("binder/binderfs/src/interrupt.rs", "a handler of a signal, and signals of one thread"),
    ("binder/binderfs/src/mounted.rs", "unshare, which rustix has no safe form of"),
    ("binder/capi/src/", "pointers from C"),
    ("services/src/broadcast/journal.rs", "words of a mapped file"),
    ("services/src/broadcast/queue.rs", "a stack of nodes, without a lock"),
    ("nucleus/nucleus/src/trusted.rs", "copies what threads grant, by address"),
    ("nucleus/nucleus/src/revocable.rs", "follows pointers that their owners revoke"),
    ("nucleus/nucleus/src/cluster/models.rs", "shares what the model checker watches"),
    ("nucleus/nucleus/src/interrupt_line.rs", "signals one thread, which rustix lacks"),
    ("nucleus/nucleus/src/entry_points.rs", "reads the current thread's TCB"),
    ("nucleus/nucleus/src/switch/", "assembly: the ways into the kernel and out of it"),
    ("nucleus/nucleus/src/kernel.rs", "shares its state with assembly, and stacks with threads"),
    ("nucleus/nucleus/src/current_thread/", "its own TCB and UTCB as well, and others'"),
    (
        "nucleus/nucleus/src/current_thread.rs",
        "a thread's own TCB and UTCB, which the kernel writes too",
    ),
    ("nucleus/nucleus/src/signals.rs", "signal handlers"),
    ("nucleus/nucleus/src/stack.rs", "maps stacks"),
    ("nucleus/nucleus/src/timer.rs", "a timer that signals one thread, which rustix lacks"),
    ("nucleus/host/src/plugin.rs", "functions and bytes of shared objects"),
    ("nucleus/host/src/host.rs", "says that OS threads may run its kernel in turn"),
    ("nucleus/host/src/slot.rs", "lends a call that waits to another thread"),
    ("nucleus/host/src/messages.rs", "copies from a thread that waits, by address"),
    ("nucleus/host/src/threads.rs", "uses the calls in slots"),
    (
        "nucleus/host/src/host_context.rs",
        "uses the calls in slots, and addresses of a waiting thread",
    ),
    ("nucleus/host/src/directory.rs", "lends a call while it waits"),
    ("log/liblog/src/", "pointers from C, and jumps to C's variadic functions"),
    ("services/src/process/fork.rs", "fork, and functions of a shared object, which rustix lacks"),
    ("vm/vm/src/memory.rs", "memory below 4 GiB, and its words"),
    ("vm/vm/src/cards.rs", "words of the heap, and the calling thread's side of the barrier"),
    ("vm/vm/src/models.rs", "looks at views, as the collector does"),
    ("vm/vm/src/model_memory.rs", "has a function that is unsafe with other memory"),
    ("vm/vm/src/lock.rs", "a value that one thread at a time uses"),
    ("vm/vm/src/collector.rs", "frees what no root reaches"),
    ("vm/vm/src/dex_cache.rs", "files in memory that only their owner can change"),
    ("vm/vm/src/object.rs", "headers, fields and elements of objects"),
    ("vm/vm/src/heap/", "cells that are free, and objects that nothing reaches"),
    ("vm/vm/src/class.rs", "the class of an object, by its header"),
    ("vm/vm/src/resolved.rs", "a reference in an atomic word"),
    ("vm/vm/src/stack.rs", "registers of verified code, without a check of their number"),
    ("vm/vm/src/safepoint.rs", "references in words that a collector reads"),
    ("vm/vm/src/vm.rs", "references in words that a collector reads"),
    ("vm/vm/src/field_access.rs", "words of fields"),
    ("vm/vm/src/linker.rs", "mirrors of classes"),
    ("vm/vm/src/resolution.rs", "strings in words"),
    ("vm/vm/src/exception.rs", "methods by their address, in a hidden field"),
    ("vm/vm/src/reference.rs", "referents, which hold no object"),
    ("vm/vm/src/natives/unsafe_.rs", "words of objects by their offset"),
    ("vm/vm/src/natives/memory.rs", "addresses that Java's buffers have"),
    ("vm/vm/src/natives/addresses.rs", "the resolver, which rustix lacks"),
    ("vm/vm/src/natives/interfaces.rs", "the list of interfaces, which rustix lacks"),
    ("vm/vm/src/natives/socket_options.rs", "options of sockets by their number"),
    ("vm/vm/src/natives/posix.rs", "descriptors and mappings that Java objects own"),
    ("vm/vm/src/interpreter/", "units of verified code, and results in words"),
    ("vm/vm/src/globals.rs", "references in words that a collector reads"),
    ("vm/jni/src/", "pointers from C, and calls of its functions"),
    ("vm/binder/src/driver.rs", "maps the receive buffer, and descriptors that come by number"),
    ("rt/src/inject.rs", "traces a program, to lock its memory"),
    ("rt/src/schedule.rs", "asks for priorities, which rustix lacks"),
    ("cli/src/demo/processes.rs", "has a child ask for its death signal before it is executed"),
    ("cli/src/inherited.rs", "takes over descriptors by the numbers that the starter has told"),
    ("cli/src/stop.rs", "ignores a signal, which rustix lacks"),
    ("bench/src/memory.rs", "memory on superpages, which it aligns and asks for"),
    ("bench/src/log/messages.rs", "calls strlen, as whoever logs does"),
    ("bench/src/log/paper.rs", "a semaphore that processes share, which rustix lacks"),
    ("bench/src/rt/misuse.rs", "writes what no peer of good will writes"),
    ("bench/src/nucleus/sampler.rs", "a handler that reads what it has interrupted"),
    ("bench/src/nucleus/signalled.rs", "a handler before the kernel's"),
    ("bench/src/nucleus/switching.rs", "switches stacks by hand"),
    ("hostile/src/attack/moved_sleepers.rs", "words of shared memory as the kernel has them"),
    ("hostile/src/fork.rs", "fork, which rustix lacks"),
    ("bench/src/systems/uapi/device.rs", "speaks the raw interface as a program would"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Dependencies between packages of the workspace that `allowed` does not contain.
fn forbidden(metadata: &Value, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = allowed.iter().copied().collect();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in packages {
        let from = name(package);
        let Some(may) = allowed.get(from.as_str()) else {
            found.push(format!("{from} has no place in the layers: give it one"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = name(dependency);
            let counts = dependency["kind"] != "dev" && ours.contains(&to);
            if counts && !may.contains(&to.as_str()) {
                found.push(format!("{from} -> {to}"));
            }
        }
    }
    found
}

#[test]
fn no_crate_has_a_forbidden_dependency() {
    assert_eq!(forbidden(&metadata(), ALLOWED), [""; 0]);
}

#[test]
fn forbidden_dependencies_are_found() {
    let metadata = serde_json::json!({ "packages": [
        { "name": "one", "dependencies": [
            { "name": "two", "kind": null },
            { "name": "three", "kind": "dev" },
            { "name": "four", "kind": "build" },
            { "name": "published", "kind": null },
        ] },
        { "name": "two", "dependencies": [] },
        { "name": "three", "dependencies": [] },
        { "name": "four", "dependencies": [] },
    ] });
    let check = |allowed: &[(&str, &[&str])], expected: &[&str]| {
        assert_eq!(forbidden(&metadata, allowed), expected);
    };
    check(&[("one", &["two", "four"]), ("two", &[]), ("three", &[]), ("four", &[])], &[]);
    check(&[("one", &["two"]), ("two", &[]), ("three", &[]), ("four", &[])], &["one -> four"]);
    check(
        &[("one", &["two", "four"]), ("two", &[]), ("three", &[])],
        &["four has no place in the layers: give it one"],
    );
}

/// Every Rust file of the workspace with its text, by its path under `crates`.
fn sources() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut found = Vec::new();
    let mut open = vec![crates.clone()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// The code of each line, without comments and the contents of strings.
fn code(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let mut code = String::new();
        let mut quoted = false;
        let mut before = ' ';
        for character in line.chars() {
            match character {
                // A quoted quote character ends no string: '"'.
                '"' if before != '\\' && before != '\'' => quoted = !quoted,
                '/' if before == '/' && !quoted => break,
                _ if !quoted => code.push(character),
                _ => {}
            }
            before = character;
        }
        code
    };
    text.lines().map(plain).collect()
}

/// Whether a line of code contains a word, not as part of another word.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// Whether a line opens an unsafe block or impl. An `unsafe fn` is its caller's promise, and an
/// attribute is none.
fn is_promise(line: &str) -> bool {
    ["unsafe {", "unsafe impl"].iter().any(|form| line.contains(form))
}

/// Lines with an unsafe block or impl that no SAFETY comment within three lines above explains.
fn unexplained(text: &str) -> Vec<usize> {
    let comments: Vec<&str> = text.lines().collect();
    let says = |line: &str| line.contains("SAFETY:");
    let mut found = Vec::new();
    for (index, line) in code(text).iter().enumerate().filter(|(_, line)| is_promise(line)) {
        // A comment of several lines counts from its last line.
        let near = (index.saturating_sub(3)..=index).rev().any(|at| {
            let mut first = at;
            while first > 0 && comments[first].trim_start().starts_with("//") {
                if says(comments[first]) {
                    return true;
                }
                first -= 1;
            }
            says(comments[at])
        });
        if !near && !line.trim_start().starts_with("#[") {
            found.push(index + 1);
        }
    }
    found
}

#[test]
fn only_listed_files_contain_unsafe() {
    let may = |name: &str| {
        UNSAFE.iter().any(|(place, _)| match place.strip_suffix('/') {
            Some(_) => name.starts_with(place),
            None => name == *place,
        })
    };
    let strays: Vec<String> = sources()
        .into_iter()
        .filter(|(name, _)| name.contains("/src/") && !may(name))
        .filter(|(_, text)| code(text).iter().any(|line| has_word(line, "unsafe")))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(strays, [""; 0], "files with unsafe that is not theirs to use");
}

/// What the driver shows to the typed API is nobody else's.
#[test]
fn the_typed_apis_lower_layer_is_used_by_it_alone() {
    let users: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(_, text)| code(text).iter().any(|line| line.contains("baton_driver::typed")))
        .filter_map(|(name, _)| Some(name.split_once("/src/")?.0.to_owned()))
        .collect();
    assert_eq!(users, BTreeSet::from(["binder/baton".to_owned()]));
}

/// A real-time thread may meet any lock of its process's driver: see ADR 0021.
#[test]
fn the_driver_uses_only_locks_that_inherit_priority() {
    let may_not = |line: &String| ["Mutex", "RwLock", "Condvar"].iter().any(|w| has_word(line, w));
    let strays: Vec<String> = sources()
        .into_iter()
        .filter(|(name, _)| {
            ["binder/driver/src/", "binder/state/src/", "binder/baton/src/"]
                .iter()
                .any(|of| name.starts_with(of))
        })
        .filter(|(_, text)| code(text).iter().any(may_not))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(strays, [""; 0], "files with locks whose holder keeps its own priority");
}

#[test]
fn every_listed_file_contains_unsafe() {
    let sources = sources();
    for (place, reason) in UNSAFE {
        let used = sources
            .iter()
            .filter(|(name, _)| name.starts_with(place))
            .any(|(_, text)| code(text).iter().any(|line| has_word(line, "unsafe")));
        assert!(used, "{place} ({reason}) needs no unsafe any more: take it off the list");
    }
}

#[test]
fn every_unsafe_block_has_a_safety_comment() {
    let silent: Vec<String> = sources()
        .iter()
        .flat_map(|(name, text)| {
            unexplained(text).into_iter().map(move |line| format!("{name}:{line}"))
        })
        .collect();
    assert_eq!(silent, [""; 0], "unsafe without a SAFETY comment above it");
}

/// docs/invariants.md names what holds each invariant: `crate::test`, a path, or a command.
#[test]
fn the_tests_named_for_invariants_exist() {
    let text = std::fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let names: Vec<&str> = quoted.filter(|name| !name.contains(' ')).collect();
    assert!(names.len() > 100, "{names:?}");
    let sources = sources();
    let exists = |name: &str| match name.split_once("::") {
        Some((owner, test)) => sources.iter().any(|(file, text)| {
            let is_of_owner = format!("/{file}").contains(&format!("/{owner}/"));
            let of_file = text.contains(&format!("#[test]\nfn {test}("));
            is_of_owner && (of_file || text.contains(&format!("#[test]\n    fn {test}(")))
        }),
        None => {
            let end = format!("/{name}");
            let is_source = sources.iter().any(|(file, _)| format!("/{file}").ends_with(&end));
            is_source || root().join(name).exists()
        }
    };
    let gone: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
    assert_eq!(gone, [""; 0], "no such tests");
}

/// A test of the uapi that is skipped on Baton names a rule in docs/differences.md.
#[test]
fn every_difference_that_a_test_skips_is_documented() {
    let told = std::fs::read_to_string(root().join("docs/differences.md")).unwrap();
    let mut silent = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("tests/uapi")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let text = std::fs::read_to_string(path).unwrap();
            let rules = text.split("differs(\"").skip(1).filter_map(|rest| rest.split('"').next());
            silent.extend(
                rules.filter(|rule| !told.contains(&format!("**{rule}**"))).map(str::to_owned),
            );
        }
    }
    assert_eq!(silent, BTreeSet::new(), "rules that docs/differences.md does not have");
}

#[test]
fn the_scan_ignores_comments_and_strings() {
    let check = |text: &str, expected: &[usize]| assert_eq!(unexplained(text), expected, "{text}");
    check("// SAFETY: fine\nlet a = unsafe { f() };", &[]);
    check("// SAFETY: a comment\n// of two lines\nlet a =\n    unsafe { f() };", &[]);
    check("let a = unsafe { f() };", &[1]);
    check("// SAFETY: too far\n\n\n\nunsafe { f() }", &[5]);
    check("// unsafe { f() }\nlet a = \"unsafe { f() }\";", &[]);
    check("unsafe fn f() {}", &[]);
    assert!(has_word("unsafe {", "unsafe") && has_word("pub unsafe fn", "unsafe"));
    assert!(!has_word("#![forbid(unsafe_code)]", "unsafe") && !has_word("is_unsafe", "unsafe"));
}
