//! Filters against intents, by Android's rules; and the index against a scan of all filters.

#[path = "../../binder/driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use baton_services::intent::{
    ComponentName, Entry, FilterError, Intent, IntentFilter, Key, Match, Mismatch, Owner, Pattern,
    Resolver, SharedResolver, Uri,
};
use rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ACTION: &str = "org.example.ACTION";

fn filter() -> IntentFilter {
    IntentFilter::new(ACTION)
}

/// An intent of a URI and a type, each of which may be empty for none.
fn intent(uri: &str, mime_type: &str) -> Intent {
    let mut intent = Intent::new(ACTION);
    intent.data = (!uri.is_empty()).then(|| Uri::from(uri));
    intent.mime_type = (!mime_type.is_empty()).then(|| mime_type.to_owned());
    intent
}

fn check(filter: &IntentFilter, intent: &Intent, expected: Result<Match, Mismatch>) {
    let found = filter.matches(intent).map(Match::category);
    assert_eq!(found, expected, "{intent} and {filter:?}");
}

#[test]
fn actions() {
    let two = filter().action("other");
    for (action, expected) in [
        (Some(ACTION), Ok(Match::EMPTY)),
        (Some("other"), Ok(Match::EMPTY)),
        // A name is compared as a whole, and letter by letter.
        (Some("org.example.action"), Err(Mismatch::Action)),
        (Some("org.example"), Err(Mismatch::Action)),
        (Some(""), Err(Mismatch::Action)),
        // An intent without an action passes.
        (None, Ok(Match::EMPTY)),
    ] {
        let action = action.map(str::to_owned);
        check(&two, &Intent { action, ..Intent::default() }, expected);
    }
    // A filter without actions matches intents without an action only.
    check(&IntentFilter::default(), &Intent::default(), Ok(Match::EMPTY));
    check(&IntentFilter::default(), &Intent::new(ACTION), Err(Mismatch::Action));
}

#[test]
fn categories() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (of_filter, of_intent, expected) in [
        (&[][..], &[][..], Ok(Match::EMPTY)),
        (&["a", "b"], &[], Ok(Match::EMPTY)),
        (&["a", "b"], &["a"], Ok(Match::EMPTY)),
        (&["a", "b"], &["a", "b"], Ok(Match::EMPTY)),
        (&["a"], &["a", "b"], Err(Mismatch::Category)),
        (&[], &["a"], Err(Mismatch::Category)),
    ] {
        let filter = IntentFilter { categories: names(of_filter), ..filter() };
        check(&filter, &Intent { categories: names(of_intent), ..intent("", "") }, expected);
    }
}

#[test]
fn action_data_and_category_are_tested_in_this_order() {
    let filter = filter().scheme("http");
    let mut wrong = intent("ftp://h", "");
    wrong.action = Some("other".to_owned());
    wrong.categories.insert("a".to_owned());
    check(&filter, &wrong, Err(Mismatch::Action));
    wrong.action = None;
    check(&filter, &wrong, Err(Mismatch::Data));
    wrong.data = Some(Uri::from("http://h"));
    check(&filter, &wrong, Err(Mismatch::Category));
    let numbers = [Mismatch::Type, Mismatch::Data, Mismatch::Action, Mismatch::Category];
    assert_eq!(numbers.map(|it| it as i32), [-1, -2, -3, -4]);
}

#[test]
fn uris() {
    let http = filter().scheme("http");
    let host = http.clone().authority("example.org", None);
    let port = http.clone().authority("example.org", Some(8080));
    let wild = http.clone().authority("*.example.org", None);
    let any_host = http.clone().authority("*", None);
    let path = host.clone().path(Pattern::literal("/a b"));
    let prefix = host.clone().path(Pattern::prefix("/docs"));
    let glob = host.clone().path(Pattern::glob(r"/.*\.png"));
    let path_only = http.clone().path(Pattern::literal("/x"));
    let part = filter().scheme("package").scheme_specific_part(Pattern::literal("org.a"));
    let part_or_host = host.clone().scheme_specific_part(Pattern::prefix("//other/"));
    let two = http.clone().scheme("tel");
    let plain = filter();
    let (no, scheme) = (Err(Mismatch::Data), Ok(Match::SCHEME));
    for (filter, uri, expected) in [
        (&plain, "", Ok(Match::EMPTY)),
        (&plain, "http://h", no),
        (&plain, "content://h", no),
        (&http, "", no),
        (&http, "http://h/p", scheme),
        (&http, "http:", scheme),
        (&http, "https://h", no),
        (&http, "HTTP://h", no),
        (&http, "h", no),
        (&two, "tel:123", scheme),
        (&host, "http://example.org/p", Ok(Match::HOST)),
        (&host, "http://u@EXAMPLE.org:80/p", Ok(Match::HOST)),
        (&host, "http://www.example.org/p", no),
        (&host, "http://example.org.x/", no),
        (&host, "http:opaque", no),
        (&host, "http:/no/authority", no),
        (&port, "http://example.org:8080", Ok(Match::PORT)),
        (&port, "http://example.org:80", no),
        (&port, "http://example.org", no),
        (&wild, "http://www.Example.org", Ok(Match::HOST)),
        (&wild, "http://a.b.example.org", Ok(Match::HOST)),
        (&wild, "http://.example.org", Ok(Match::HOST)),
        (&wild, "http://example.org", no),
        (&wild, "http://\u{e4}.example.org", Ok(Match::HOST)),
        (&wild, "http://\u{20ac}", no),
        (&any_host, "http://h", Ok(Match::HOST)),
        (&any_host, "http:///p", Ok(Match::HOST)),
        (&any_host, "http:p", no),
        (&path, "http://example.org/a%20b?q#f", Ok(Match::PATH)),
        (&path, "http://example.org/a", no),
        (&path, "http://example.org/A%20b", no),
        (&prefix, "http://example.org/docs/1", Ok(Match::PATH)),
        (&prefix, "http://example.org/doc", no),
        (&glob, "http://example.org/x/y.png", Ok(Match::PATH)),
        (&glob, "http://example.org/x/y.jpg", no),
        // A path counts beside an authority only.
        (&path_only, "http://h/y", scheme),
        (&part, "package:org.a", Ok(Match::SCHEME_SPECIFIC_PART)),
        (&part, "package:org.a#f", Ok(Match::SCHEME_SPECIFIC_PART)),
        (&part, "package:org.b", no),
        // A scheme-specific part or an authority is enough.
        (&part_or_host, "http://other/p", Ok(Match::SCHEME_SPECIFIC_PART)),
        (&part_or_host, "http://example.org/p", Ok(Match::HOST)),
        (&part_or_host, "http://third/p", no),
    ] {
        check(filter, &intent(uri, ""), expected);
    }
    // Any of several authorities and paths will do.
    let several = host.authority("b.org", Some(1)).path(Pattern::literal("/x"));
    let several = several.path(Pattern::literal("/y"));
    check(&several, &intent("http://b.org:1/y", ""), Ok(Match::PATH));
    check(&several, &intent("http://b.org:2/y", ""), no);
    assert_eq!(several.matches(&intent("http://b.org:1/y", "")).unwrap().code(), 0x0050_8000);
}

#[test]
fn mime_types() {
    let png = filter().mime_type("image/png");
    let image = filter().mime_type("image/*");
    let any = filter().mime_type("*/*");
    let both = png.clone().scheme("http");
    let http = filter().scheme("http");
    let (yes, no_type, no_data) = (Ok(Match::TYPE), Err(Mismatch::Type), Err(Mismatch::Data));
    for (filter, uri, mime_type, expected) in [
        (&png, "", "image/png", yes),
        (&png, "", "image/PNG", no_type),
        (&png, "", "image/jpeg", no_type),
        (&png, "", "image/*", yes),
        (&png, "", "text/*", no_type),
        (&png, "", "*/*", yes),
        (&png, "", "image/pngx", no_type),
        (&png, "", "", no_type),
        (&image, "", "image/png", yes),
        (&image, "", "image/*", yes),
        (&image, "", "*/*", yes),
        (&image, "", "images/png", no_type),
        (&image, "", "text/plain", no_type),
        (&any, "", "a/b", yes),
        (&any, "", "*/*", yes),
        (&any, "", "nonsense", yes),
        (&any, "", "", no_type),
        // A filter without schemes takes local data.
        (&png, "content://h/1", "image/png", yes),
        (&png, "file:///1.png", "image/png", yes),
        (&png, "relative.png", "image/png", yes),
        (&png, "http://h/1.png", "image/png", no_data),
        (&png, "content://h/1", "", no_type),
        // With schemes it takes these alone, and no intent without a URI.
        (&both, "http://h/1.png", "image/png", yes),
        (&both, "content://h/1", "image/png", no_data),
        (&both, "", "image/png", no_data),
        (&both, "http://h/1.png", "", no_type),
        (&both, "http://h/1.png", "text/plain", no_type),
        (&http, "http://h/1.png", "image/png", no_type),
        (&filter(), "", "image/png", no_data),
    ] {
        check(filter, &intent(uri, mime_type), expected);
    }
    assert_eq!(png.matches(&intent("", "image/png")).unwrap().code(), 0x0060_8000);
}

#[test]
fn filters_that_nobody_can_register() {
    let many = |n: usize| (0..n).map(|index| index.to_string()).collect::<BTreeSet<_>>();
    for (filter, expected) in [
        (IntentFilter::default(), FilterError::NoAction),
        (filter().priority(1001), FilterError::Priority(1001)),
        (filter().priority(-1001), FilterError::Priority(-1001)),
        (filter().mime_type("image"), FilterError::MimeType("image".to_owned())),
        (filter().mime_type("/png"), FilterError::MimeType("/png".to_owned())),
        (filter().mime_type("image/"), FilterError::MimeType("image/".to_owned())),
        (IntentFilter { categories: many(513), ..filter() }, FilterError::TooLarge("categories")),
        (
            IntentFilter { actions: many(100), schemes: many(100), ..filter() },
            FilterError::TooManyCombinations(10_000),
        ),
    ] {
        let mut resolver = Resolver::default();
        assert_eq!(resolver.insert(Owner::Process, filter, ()), Err(expected));
        assert!(resolver.is_empty());
    }
    for priority in [-1000, 0, 1000] {
        assert_eq!(filter().priority(priority).check(), Ok(()));
    }
}

fn values<'a, T>(found: &[&'a Entry<T>]) -> Vec<&'a T> {
    found.iter().map(|entry| &entry.value).collect()
}

#[test]
fn receivers_come_by_priority_and_then_by_age() {
    let mut resolver = Resolver::default();
    for (name, priority) in [("a", 0), ("b", 10), ("c", -5), ("d", 10), ("e", 0)] {
        let filter = filter().priority(priority).mime_type("a/b").mime_type("*/*");
        resolver.insert(Owner::Process, filter, name).unwrap();
    }
    let found = resolver.query(&intent("", "a/b"));
    assert_eq!(values(&found), [&"b", &"d", &"a", &"e", &"c"]);
    assert_eq!(values(&resolver.query(&intent("", "a/*"))), values(&found));
    assert_eq!(values(&resolver.query(&intent("", "*/*"))), values(&found));
}

#[test]
fn an_intent_that_says_nothing_reaches_nobody() {
    let mut resolver = Resolver::default();
    resolver.insert(Owner::Process, filter(), "without data").unwrap();
    resolver.insert(Owner::Process, filter().mime_type("a/b"), "typed").unwrap();
    assert_eq!(resolver.query(&Intent::default()).len(), 0);
    let typed = Intent { mime_type: Some("a/b".to_owned()), ..Intent::default() };
    assert_eq!(values(&resolver.query(&typed)), [&"typed"]);
}

#[test]
fn packages_and_components_are_honoured() {
    let component = |class| ComponentName::new("org.a", class);
    let mut resolver = Resolver::default();
    for (owner, name) in [
        (Owner::Process, "process"),
        (Owner::Package("org.a".to_owned()), "a"),
        (Owner::Package("org.b".to_owned()), "b"),
        (Owner::Component(component(".One")), "one"),
        (Owner::Component(component(".Two")), "two"),
        (Owner::Component(component(".Two")), "two again"),
    ] {
        resolver.insert(owner, filter(), name).unwrap();
    }
    let mut intent = intent("", "");
    assert_eq!(resolver.query(&intent).len(), 6);
    intent.package = Some("org.a".to_owned());
    assert_eq!(values(&resolver.query(&intent)), [&"a", &"one", &"two", &"two again"]);
    intent.package = Some("org.c".to_owned());
    assert_eq!(resolver.query(&intent).len(), 0);
    // An explicit intent needs no filter that matches, and comes once.
    intent.action = Some("other".to_owned());
    intent.component = Some(component(".Two"));
    assert_eq!(values(&resolver.query(&intent)), [&"two"]);
    intent.component = Some(component(".Three"));
    assert_eq!(resolver.query(&intent).len(), 0);
}

#[test]
fn a_clone_does_not_see_later_changes() {
    let mut resolver = Resolver::default();
    let first = resolver.insert(Owner::Process, filter(), 1).unwrap();
    let before = resolver.clone();
    resolver.insert(Owner::Process, filter(), 2).unwrap();
    assert!(resolver.remove(first));
    assert!(!resolver.remove(first));
    assert_eq!(values(&before.query(&intent("", ""))), [&1]);
    assert_eq!(values(&resolver.query(&intent("", ""))), [&2]);
    assert_eq!((before.len(), resolver.len(), resolver.get(first).is_none()), (1, 1, true));
}

/// A value that counts how many there are.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_frees_nothing_and_the_next_writer_does() {
    let shared = SharedResolver::new();
    let n = Arc::new(AtomicUsize::new(1));
    let count = || n.load(Ordering::Relaxed);
    let value = Counted(n.clone());
    let key = shared.update(|it| it.insert(Owner::Process, filter(), value)).unwrap();
    let snapshot = shared.snapshot();
    assert!(shared.update(|it| it.remove(key)));
    assert_eq!(snapshot.query(&intent("", "")).len(), 1);
    assert!(shared.snapshot().is_empty());
    drop(snapshot);
    assert_eq!(count(), 1, "freed by its reader");
    shared.update(|_| ());
    assert_eq!(count(), 0, "freed by nobody");
}

#[test]
fn a_change_that_panics_changes_nothing() {
    let shared = SharedResolver::new();
    let change = || {
        shared.update(|resolver: &mut Resolver<()>| {
            resolver.insert(Owner::Process, filter(), ()).unwrap();
            panic!("as it shall");
        })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(change)).is_err());
    assert!(shared.snapshot().is_empty());
    shared.update(|resolver| resolver.insert(Owner::Process, filter(), ()).unwrap());
    assert_eq!(shared.snapshot().len(), 1);
}

/// Readers and writers at once: a snapshot has the two filters of each change, or neither.
#[test]
fn readers_see_whole_changes() {
    const ROUNDS: usize = 300;
    let shared = SharedResolver::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let snapshot = shared.snapshot();
                    assert_eq!(snapshot.query(&intent("", "")).len() % 2, 0);
                    assert_eq!(snapshot.len() % 2, 0);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let insert = |it: &mut Resolver<()>| {
                            [(); 2].map(|()| it.insert(Owner::Process, filter(), ()).unwrap())
                        };
                        let keys = shared.update(insert);
                        shared.update(|it| assert!(keys.iter().all(|key| it.remove(*key))));
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(shared.snapshot().is_empty());
}

const ACTIONS: [&str; 3] = ["a", "b", "c"];
const SCHEMES: [&str; 4] = ["http", "content", "file", "tel"];
const TYPES: [&str; 6] = ["image/png", "image/*", "text/plain", "text/*", "*/*", "image/jpeg"];
const PACKAGES: [&str; 2] = ["p", "q"];
const URIS: [&str; 8] = [
    "http://h/a",
    "http://i:1/b",
    "content://h/a",
    "file:///a",
    "tel:1",
    "ftp://h/a",
    "relative",
    "tel:2",
];

fn random_filter(rng: &mut Rng) -> IntentFilter {
    let mut filter = IntentFilter::new(rng.pick(&ACTIONS).unwrap());
    let times = |rng: &mut Rng| if rng.percent(50) { 0 } else { rng.below(3) };
    for _ in 0..times(rng) {
        filter = filter.action(rng.pick(&ACTIONS).unwrap());
    }
    for _ in 0..times(rng) {
        filter = filter.category(rng.pick(&["x", "y"]).unwrap());
    }
    for _ in 0..times(rng) {
        filter = filter.scheme(rng.pick(&SCHEMES).unwrap());
    }
    for _ in 0..times(rng) {
        filter = filter.mime_type(rng.pick(&TYPES).unwrap());
    }
    if rng.percent(20) {
        filter = filter
            .authority(rng.pick(&["h", "*", "i"]).unwrap(), rng.pick(&[None, Some(1)]).unwrap());
    }
    if rng.percent(20) {
        filter = filter.path(Pattern::prefix(rng.pick(&["/a", "/"]).unwrap()));
    }
    if rng.percent(20) {
        filter = filter.scheme_specific_part(Pattern::literal("1"));
    }
    filter.priority(rng.below(5) as i32 - 2)
}

fn random_owner(rng: &mut Rng) -> Owner {
    let package = rng.pick(&PACKAGES).unwrap();
    match rng.below(3) {
        0 => Owner::Process,
        1 => Owner::Package(package.to_owned()),
        _ => Owner::Component(ComponentName::new(package, rng.pick(&[".A", ".B"]).unwrap())),
    }
}

fn random_intent(rng: &mut Rng) -> Intent {
    let mut intent = Intent::default();
    if rng.percent(90) {
        intent.action = rng.pick(&ACTIONS).map(str::to_owned);
    }
    if rng.percent(60) {
        intent.data = rng.pick(&URIS).map(Uri::from);
    }
    if rng.percent(50) {
        intent.mime_type = rng.pick(&TYPES).map(str::to_owned);
    }
    if rng.percent(20) {
        intent.categories.insert("x".to_owned());
    }
    if rng.percent(20) {
        intent.package = rng.pick(&PACKAGES).map(str::to_owned);
    }
    if rng.percent(10) {
        intent.component = Some(ComponentName::new("p", ".A"));
    }
    intent
}

type Registered = (Key, Owner, IntentFilter);

/// All filters, each compared with the intent.
fn scan(registered: &[Registered], intent: &Intent) -> Vec<Key> {
    let package = |owner: &Owner| match owner {
        Owner::Process => None,
        Owner::Package(package) => Some(package.clone()),
        Owner::Component(component) => Some(component.package.clone()),
    };
    let mut found: Vec<&Registered> = match &intent.component {
        Some(component) => {
            let is_it = |it: &&Registered| it.1 == Owner::Component(component.clone());
            registered.iter().filter(is_it).collect()
        }
        None => {
            let is_package =
                |it: &&Registered| intent.package.is_none() || package(&it.1) == intent.package;
            let matching = |it: &&Registered| it.2.matches(intent).is_ok();
            let is_empty =
                intent.action.is_none() && intent.scheme().is_none() && intent.mime_type.is_none();
            let registered = if is_empty { &[] } else { registered };
            registered.iter().filter(is_package).filter(matching).collect()
        }
    };
    found.sort_by_key(|it| (-it.2.priority, it.0));
    found.truncate(if intent.component.is_some() { 1 } else { usize::MAX });
    found.into_iter().map(|it| it.0).collect()
}

#[test]
fn the_index_finds_what_a_scan_finds() {
    let mut n_found = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (mut resolver, mut registered) = (Resolver::default(), Vec::<Registered>::new());
        for _ in 0..150 {
            if rng.percent(30) && !registered.is_empty() {
                let (key, ..) = registered.remove(rng.below(registered.len()));
                assert!(resolver.remove(key), "seed {seed}");
            } else {
                let (owner, filter) = (random_owner(&mut rng), random_filter(&mut rng));
                let key = resolver.insert(owner.clone(), filter.clone(), ()).unwrap();
                registered.push((key, owner, filter));
            }
            let intent = random_intent(&mut rng);
            let found: Vec<Key> = resolver.query(&intent).iter().map(|entry| entry.key).collect();
            n_found += found.len();
            assert_eq!(found, scan(&registered, &intent), "seed {seed}: {intent}");
        }
        assert!(registered.iter().all(|it| resolver.remove(it.0)));
        assert!(resolver.is_empty());
        assert_eq!(resolver.query(&Intent::default()).len(), 0, "seed {seed}");
    }
    assert!(n_found > 10_000, "intents that match nothing prove little: {n_found}");
}
