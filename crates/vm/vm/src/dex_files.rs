//! Dex files of loaders: bare ones, archives, and files in memory. They live until the process
//! ends.

use crate::class::{LoadedDex, Loader};
use crate::dex_cache;
use crate::resolved::Resolved;
use crate::vm::Vm;
use baton_dex::{DexFile, Mutf8};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicU32;

/// Text of a dex file that lives as long as the file: for ever.
pub(crate) fn text(of: Mutf8<'static>) -> &'static str {
    of.to_str().unwrap_or_else(|| of.to_string().leak())
}

/// Opens dex files for a loader: bare ones, and archives with classes.dex, classes2.dex, ...
///
/// # Errors
/// What is wrong with the file, as a text for people.
pub fn open(vm: &Vm, loader: Loader, path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let cache = vm.dex_cache.as_ref();
    let opened = dex_cache::read(cache, &mut file).map_err(|error| error.to_string())?;
    let read = if opened.is_checked { DexFile::open_checked } else { DexFile::open };
    for bytes in parts(opened.bytes)? {
        let dex = read(bytes).map_err(|error| error.to_string())?;
        let dex = place_file(loader, &path.display().to_string(), dex);
        let mut dexes = vm.dexes.write().expect("no holder panics");
        dexes.entry(loader).or_default().push(dex);
    }
    if let Some(cache) = cache.filter(|_| !opened.is_checked) {
        cache.insert(&file, &opened);
    }
    Ok(())
}

/// The dex files in a file: itself, or those of an archive.
fn parts(bytes: &'static [u8]) -> Result<Vec<&'static [u8]>, String> {
    if !bytes.starts_with(b"PK") {
        return Ok(vec![bytes]);
    }
    let mut archive =
        zip::ZipArchive::new(std::io::Cursor::new(bytes)).map_err(|it| it.to_string())?;
    let mut files: Vec<&'static [u8]> = Vec::new();
    for number in 1.. {
        let name = match number {
            1 => "classes.dex".to_owned(),
            _ => format!("classes{number}.dex"),
        };
        let Ok(mut entry) = archive.by_name(&name) else { break };
        let mut file = Vec::new();
        entry.read_to_end(&mut file).map_err(|error| error.to_string())?;
        files.push(file.leak());
    }
    Ok(files)
}

/// A dex file in memory, for ever. Its loader does not look for classes in it.
///
/// # Errors
/// What is wrong with the file, as a text for people.
pub fn load(loader: Loader, path: &str, bytes: Vec<u8>) -> Result<&'static LoadedDex, String> {
    let file = DexFile::open(bytes.leak()).map_err(|error| error.to_string())?;
    Ok(place_file(loader, path, file))
}

fn place_file(loader: Loader, path: &str, file: DexFile<'static>) -> &'static LoadedDex {
    let words = |n: u32| (0..n).map(|_| AtomicU32::new(0)).collect();
    Box::leak(Box::new(LoadedDex {
        types: Resolved::table(file.n_types() as usize),
        fields: Resolved::table(file.n_fields() as usize),
        methods: Resolved::table(file.n_methods() as usize),
        strings: words(file.n_strings()),
        lambdas: Resolved::table(file.n_call_sites() as usize),
        path: path.to_owned(),
        loader,
        file,
    }))
}
