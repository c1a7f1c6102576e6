//! An allocation profile: which code makes how many objects of which class, and of what size
//! together. It is exact: every object counts.

use crate::class::{Class, Method};
use crate::object::Ref;
use crate::stack::Stack;
use rustc_hash::FxHashMap;
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Sites that the text shows.
const MOST_LINES: usize = 50;

/// An instruction that makes objects of a class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Site {
    /// The address of the class
    class: u32,
    /// The address of the method, 0 if no Java code runs
    method: usize,
    unit: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Amount {
    n_bytes: u64,
    n_objects: u64,
}

/// What one thread has made.
#[derive(Debug, Default)]
struct Table {
    sites: FxHashMap<Site, (Amount, Names)>,
}

/// What a site is called: what has the addresses lives for ever.
#[derive(Clone, Copy, Debug)]
struct Names {
    class: &'static Class,
    method: Option<&'static Method>,
}

/// The profile of a VM.
#[derive(Debug)]
pub(crate) struct Profile {
    path: PathBuf,
    tables: Mutex<Vec<Arc<Mutex<Table>>>>,
}

/// A thread's part of it.
#[derive(Debug)]
pub(crate) struct Account(Arc<Mutex<Table>>);

impl Profile {
    /// A profile that is to be written to a file: as JSON if its name ends in `.json`, otherwise as
    /// text with the sites that have made most.
    pub fn new(path: &Path) -> Profile {
        Profile { path: path.to_owned(), tables: Mutex::default() }
    }

    /// Opens the calling thread's part, which stays when the thread ends.
    pub fn open(&self) -> Account {
        let table = Arc::<Mutex<Table>>::default();
        self.tables.lock().expect("no holder panics").push(table.clone());
        Account(table)
    }

    /// All sites, those with most bytes first.
    fn sites(&self) -> Vec<(Site, Amount, Names)> {
        let mut all: FxHashMap<Site, (Amount, Names)> = FxHashMap::default();
        for table in self.tables.lock().expect("no holder panics").iter() {
            for (site, (amount, names)) in &table.lock().expect("no holder panics").sites {
                let (sum, _) = all.entry(*site).or_insert((Amount::default(), *names));
                sum.n_bytes += amount.n_bytes;
                sum.n_objects += amount.n_objects;
            }
        }
        let mut sites: Vec<_> =
            all.into_iter().map(|(site, (amount, names))| (site, amount, names)).collect();
        sites.sort_by_key(|(site, amount, _)| (u64::MAX - amount.n_bytes, site.method, site.unit));
        sites
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self) -> std::io::Result<()> {
        let sites = self.sites();
        let is_json = self.path.extension().is_some_and(|extension| extension == "json");
        std::fs::write(&self.path, if is_json { to_json(&sites) } else { to_text(&sites) })
    }
}

/// The method and its line.
fn place(site: &Site, names: &Names) -> (String, String) {
    let Some(method) = names.method else { return ("(no Java code)".into(), String::new()) };
    let line = method.line(site.unit);
    let file = method.class().source_file().unwrap_or_else(|| "?".to_owned());
    let at = if line > 0 { format!("{file}:{line}") } else { file };
    (method.to_string(), at)
}

fn to_json(sites: &[(Site, Amount, Names)]) -> String {
    let sites: Vec<_> = sites
        .iter()
        .map(|(site, amount, names)| {
            let (method, at) = place(site, names);
            json!({
                "bytes": amount.n_bytes,
                "objects": amount.n_objects,
                "class": names.class.java_name(),
                "method": method,
                "at": at,
            })
        })
        .collect();
    json!({ "sites": sites }).to_string() + "\n"
}

fn to_text(sites: &[(Site, Amount, Names)]) -> String {
    let all: u64 = sites.iter().map(|(_, amount, _)| amount.n_bytes).sum();
    let n_objects: u64 = sites.iter().map(|(_, amount, _)| amount.n_objects).sum();
    let mut text = format!("{all} bytes in {n_objects} objects, at {} sites\n\n", sites.len());
    text += "       bytes     %    objects  class, and the code that makes it\n";
    for (site, amount, names) in sites.iter().take(MOST_LINES) {
        let (method, at) = place(site, names);
        let share = 100.0 * amount.n_bytes as f64 / all as f64;
        let class = names.class.java_name();
        let Amount { n_bytes, n_objects } = amount;
        // A string takes all.
        let _ = writeln!(text, "{n_bytes:12} {share:5.1} {n_objects:10}  {class}  {method} ({at})");
    }
    text
}

impl Account {
    /// Counts an object that the thread has just made.
    pub fn add(&self, stack: &Stack, object: Ref, n_bytes: u64) {
        let frame = stack.depth().checked_sub(1).map(|depth| stack.frame(depth));
        let method = frame.and_then(|frame| frame.method.get());
        let unit = frame.map_or(0, |frame| frame.pc.load(Relaxed));
        let address = method.map_or(0, |method| std::ptr::from_ref(method).addr());
        let site = Site { class: object.class_word(), method: address, unit };
        let names = || Names { class: Class::of(object), method };
        let mut table = self.0.lock().expect("no holder panics");
        let (amount, _) = table.sites.entry(site).or_insert_with(|| (Amount::default(), names()));
        amount.n_bytes += n_bytes;
        amount.n_objects += 1;
    }
}
