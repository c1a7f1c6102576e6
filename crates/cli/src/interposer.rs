//! The interposer's library, which `baton run` has the dynamic loader load into programs: beside
//! the executable or in `../lib`, else the one that the executable contains.
//!
//! A contained library is unpacked into the user's cache, because children of the program load it
//! again by its path. Its name has a hash, so that versions lie beside each other. **Invariant**:
//! what is returned is the user's own file, nobody else can write it or rename it, and it has the
//! contained bytes.

use crate::failure::Failure;
use rustix::fs::{Mode, OFlags};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libbaton_preload.so";
/// The permissions of writing for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A library that the executable contains.
struct Embedded {
    bytes: &'static [u8],
    name: &'static str,
}

#[cfg(embedded_interposer)]
const EMBEDDED: Option<Embedded> = Some(Embedded {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/libbaton_preload.so")),
    name: concat!("libbaton_preload-", env!("INTERPOSER_HASH"), ".so"),
});
#[cfg(not(embedded_interposer))]
const EMBEDDED: Option<Embedded> = None;

/// The path of the library, for LD_PRELOAD. `tried` is what it is for.
pub fn find(tried: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("BATON_PRELOAD_LIB").map(PathBuf::from) {
        return loadable(tried, std::fs::canonicalize(&path)).map_err(|failure| {
            failure.advice("BATON_PRELOAD_LIB is to name the file libbaton_preload.so")
        });
    }
    let own = std::env::current_exe().map_err(|error| Failure::new(tried, error))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let places = [directory.join(LIBRARY), directory.join("../lib").join(LIBRARY)];
    if let Some(path) = places.iter().find(|path| path.is_file()) {
        return loadable(tried, std::fs::canonicalize(path));
    }
    let Some(embedded) = EMBEDDED else {
        return Err(Failure::new(
            tried,
            format!("{LIBRARY} is neither beside baton nor in ../lib"),
        )
        .advice("install it there, or name it in BATON_PRELOAD_LIB"));
    };
    let Some(cache) = cache() else {
        let wrong = "there is no directory to unpack the interposer into";
        return Err(Failure::new(tried, wrong).advice("set HOME or XDG_CACHE_HOME"));
    };
    loadable(tried, embedded.unpack(&cache)).map_err(|failure| {
        failure.advice("set XDG_CACHE_HOME to a directory that you alone can write to")
    })
}

/// The directory for unpacked libraries.
fn cache() -> Option<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty());
    let parent = named("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::home_dir().filter(|path| !path.as_os_str().is_empty());
        home.map(|home| home.join(".cache"))
    });
    // The XDG specification has relative paths ignored.
    parent
        .filter(|path| path.is_absolute())
        .or_else(|| named("XDG_RUNTIME_DIR").map(PathBuf::from))
        .map(|path| path.join("baton"))
}

impl Embedded {
    /// Writes the library into the directory, unless it is there.
    fn unpack(&self, directory: &Path) -> io::Result<PathBuf> {
        let context = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} {}: {error}", directory.display()))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| context("cannot make", error))?;
        if !is_only_ours(&directory.metadata()?) {
            let wrong = format!("others can write to {}", directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, wrong));
        }
        let path = directory.join(self.name);
        if !self.is_at(&path) {
            self.write(directory, &path).map_err(|error| context("cannot write to", error))?;
        }
        Ok(path)
    }

    fn write(&self, directory: &Path, path: &Path) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(self.bytes)?;
        file.as_file().set_permissions(Permissions::from_mode(0o755))?;
        file.persist(path)?;
        Ok(())
    }

    /// Whether the path is a file of this user with the contained bytes.
    fn is_at(&self, path: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
            return false;
        };
        let is_file = |file: &File| {
            let metadata = file.metadata()?;
            let fits = metadata.len() == self.bytes.len() as u64;
            io::Result::Ok(metadata.is_file() && fits && is_only_ours(&metadata))
        };
        let mut bytes = Vec::new();
        is_file(&file).unwrap_or(false)
            && (&file).read_to_end(&mut bytes).is_ok()
            && bytes == self.bytes
    }
}

fn is_only_ours(metadata: &std::fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

/// Checks a path: LD_PRELOAD cannot express some characters.
fn loadable(tried: &str, path: Result<PathBuf, io::Error>) -> Result<PathBuf, Failure> {
    let path = path.map_err(|error| Failure::new(tried, format!("{LIBRARY}: {error}")))?;
    if path.is_dir() {
        return Err(Failure::new(tried, format!("{} is a directory", path.display())));
    }
    if path.as_os_str().as_bytes().iter().any(|byte| b": $".contains(byte)) {
        let wrong = format!("{} has a colon, space or dollar in its path", path.display());
        return Err(Failure::new(tried, wrong).advice("install it elsewhere"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: Embedded = Embedded { bytes: b"a library", name: "library.so" };

    fn inode(path: &Path) -> u64 {
        path.symlink_metadata().unwrap().ino()
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_library_is_unpacked_once() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("not/there/yet");
        let path = LIBRARY.unpack(&directory).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), LIBRARY.bytes);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o755);
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        let before = inode(&path);
        assert_eq!(LIBRARY.unpack(&directory).unwrap(), path);
        assert_eq!(inode(&path), before);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_as_it_should_be_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LIBRARY.name);
        let elsewhere = directory.path().join("elsewhere");
        let harms: [&dyn Fn(); 5] = [
            &|| std::fs::write(&path, b"A library").unwrap(),
            &|| std::fs::write(&path, b"a library and more").unwrap(),
            &|| std::fs::write(&path, b"").unwrap(),
            &|| chmod(&path, 0o757),
            &|| {
                std::fs::rename(&path, &elsewhere).unwrap();
                std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
            },
        ];
        for (number, harm) in harms.iter().enumerate() {
            LIBRARY.unpack(directory.path()).unwrap();
            harm();
            let before = inode(&path);
            LIBRARY.unpack(directory.path()).unwrap();
            assert_ne!(inode(&path), before, "harm {number}");
            assert!(path.symlink_metadata().unwrap().is_file(), "harm {number}");
            assert_eq!(std::fs::read(&path).unwrap(), LIBRARY.bytes, "harm {number}");
        }
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        chmod(directory.path(), 0o770);
        let error = LIBRARY.unpack(directory.path()).unwrap_err();
        assert!(error.to_string().starts_with("others can write to "), "{error}");
    }
}
