//! Programs: whether one can be interposed, and the name of one that runs.
//!
//! The dynamic loader loads the interposer. A program without a loader, or whose loader ignores
//! `LD_PRELOAD`, would run without Baton and fail in confusing ways. So it finds its devices in a
//! mounted binderfs, or is refused.

use crate::failure::{Failure, Kind};
use object::elf::{
    DT_NEEDED, DT_STRTAB, ELF_NOTE_GO, EM_386, EM_AARCH64, EM_X86_64, FileHeader32, FileHeader64,
    PT_INTERP, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use rustix::fs::Access;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most `#!` interpreters in a chain, as in the kernel.
const MAX_INTERPRETERS: u32 = 5;

/// Why a program without a slash in its name was not found.
pub const NOT_ON_PATH: &str = "it is not in any directory of PATH";

/// The kind of a program's file.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// An ELF file of this machine with this loader, and the runtime of AddressSanitizer if it
    /// needs one.
    Dynamic(PathBuf, Option<OsString>),
    /// A Go program with a loader and without a library.
    GoWithoutCLibrary,
    /// A script with this interpreter.
    Script(PathBuf),
    /// An ELF file without a loader.
    Static,
    /// An ELF file of 32 bits that this machine runs.
    ThirtyTwoBits,
    /// An ELF file for another machine.
    Foreign,
    /// Another file, which `exec` will judge.
    Unknown,
}

/// How a program gets to its devices.
#[derive(Debug)]
pub enum Way {
    /// The interposer is loaded into it, behind this library: the runtime of AddressSanitizer
    /// refuses to run behind any other one.
    Interposed(Option<OsString>),
    /// By a mounted binderfs, for this reason; the failure if there can be none.
    Mounted(String, Failure),
}

/// Finds a program as a shell does, and how it gets to its devices.
pub fn find(name: &OsStr) -> Result<(PathBuf, Way), Failure> {
    let path = search(name)?;
    let way = check(&path, &path, MAX_INTERPRETERS)?;
    Ok((path, way))
}

/// The name of a running program, which the broker does not know. `?` if there is none.
pub fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_end() {
        "" => "?".to_owned(),
        name => name.replace(|letter: char| letter.is_control(), "?"),
    }
}

fn tried(path: &Path) -> String {
    format!("run {}", path.display())
}

fn search(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = Path::new(name);
    if name.is_empty() {
        return Err(Failure::new("run a program", "its name is empty").kind(Kind::NotFound));
    }
    if name.as_bytes().contains(&b'/') {
        return match rustix::fs::access(path, Access::EXISTS) {
            Err(errno) => Err(Failure::new(tried(path), errno).kind(Kind::NotFound)),
            Ok(()) => executable(path),
        };
    }
    let directories = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let candidates = std::env::split_paths(&directories).map(|directory| directory.join(path));
    let mut found = candidates.filter(|candidate| candidate.is_file()).map(|c| executable(&c));
    let mut first = None;
    match found.find_map(|result| result.map_err(|failure| first.get_or_insert(failure)).ok()) {
        Some(path) => Ok(path),
        None => {
            Err(first
                .unwrap_or_else(|| Failure::new(tried(path), NOT_ON_PATH).kind(Kind::NotFound)))
        }
    }
}

fn executable(path: &Path) -> Result<PathBuf, Failure> {
    let failure =
        |why: &dyn std::fmt::Display| Failure::new(tried(path), why).kind(Kind::NotExecutable);
    if path.is_dir() {
        return Err(failure(&"it is a directory"));
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|errno| failure(&errno))?;
    Ok(path.to_owned())
}

/// Checks a file. `program` is the requested one, `path` that one or an interpreter of it.
fn check(program: &Path, path: &Path, interpreters: u32) -> Result<Way, Failure> {
    let subject = |why: &str| match program == path {
        true => why.to_owned(),
        false => format!("its interpreter {}: {why}", path.display()),
    };
    let refusal = |why: &str, advice: &str| {
        Failure::new(tried(program), subject(why)).kind(Kind::NotExecutable).advice(advice)
    };
    let mounted = |why: &str, advice: &str| Ok(Way::Mounted(subject(why), refusal(why, advice)));
    if gains_privilege(path) {
        return mounted(
            "it gains privileges when it starts (setuid, setgid or file capabilities), and the \
             loader of such a program ignores LD_PRELOAD",
            "run `baton run` as root, for a binderfs of its own; or run a copy without these \
             marks, as the user that it needs",
        );
    }
    let Ok(bytes) = std::fs::read(path) else {
        // The file is executable but not readable, so it cannot be checked.
        return Ok(Way::Interposed(None));
    };
    match form(&bytes) {
        Form::Dynamic(loader, _)
            if loader.as_os_str().as_bytes().windows(4).any(|w| w == b"musl") =>
        {
            mounted(
                "it is linked with musl, and the interposer needs glibc",
                "run it as root, for a binderfs of its own; or build it for a -gnu target",
            )
        }
        Form::Dynamic(_, sanitizer) => Ok(Way::Interposed(sanitizer)),
        Form::Unknown => Ok(Way::Interposed(None)),
        Form::Script(interpreter) if interpreters > 0 => {
            check(program, &interpreter, interpreters - 1)
        }
        Form::Script(_) => Ok(Way::Interposed(None)),
        Form::Static => mounted(
            "it is statically linked: without a dynamic loader there is nothing that could load \
             the interposer",
            "run it as root, for a binderfs of its own; or link it dynamically (for Rust: a -gnu \
             target without +crt-static), or have it open a device of `baton mount`",
        ),
        Form::GoWithoutCLibrary => mounted(
            "it is a Go program without the C library: Go's runtime then replaces the thread \
             pointer and the \
             signal handlers that the interposer needs",
            "run it as root, for a binderfs of its own; or build it with CGO_ENABLED=1 \
             -buildmode=pie, and import \"C\", or have it open a device of `baton mount`",
        ),
        Form::ThirtyTwoBits => mounted(
            "it is a 32-bit program, and the interposer has 64 bits",
            "run it as root, for a binderfs of its own; or have it open a device of `baton mount`",
        ),
        Form::Foreign => Err(refusal(
            "it is built for another kind of processor than the interposer",
            "build it for the same one as baton",
        )),
    }
}

/// Whether exec gives the program additional privileges, so that its loader ignores `LD_PRELOAD`.
fn gains_privilege(path: &Path) -> bool {
    let Ok(file) = std::fs::metadata(path) else { return false };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let set_user = file.mode() & 0o4000 != 0 && file.uid() != uid;
    let set_group = file.mode() & 0o2010 == 0o2010 && file.gid() != gid;
    set_user || set_group || (uid != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value).is_ok()
}

fn form(bytes: &[u8]) -> Form {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
        return words.next().map_or(Form::Unknown, |interpreter| {
            Form::Script(PathBuf::from(OsStr::from_bytes(interpreter)))
        });
    }
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => elf::<FileHeader64<Endianness>>(bytes),
        Ok(FileKind::Elf32) => elf::<FileHeader32<Endianness>>(bytes),
        _ => Form::Unknown,
    }
}

fn elf<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Form {
    let Ok(header) = E::parse(bytes) else { return Form::Unknown };
    let Ok(endian) = header.endian() else { return Form::Unknown };
    let machine = if cfg!(target_arch = "x86_64") { EM_X86_64 } else { EM_AARCH64 };
    match (header.is_class_64(), header.e_machine(endian)) {
        (true, it) if it == machine => {}
        (false, EM_386) if machine == EM_X86_64 => return Form::ThirtyTwoBits,
        _ => return Form::Foreign,
    }
    let Ok(segments) = header.program_headers(endian, bytes) else { return Form::Unknown };
    let loader = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP);
    match loader.map(|segment| segment.interpreter(endian, bytes)) {
        Some(Ok(Some(_))) if is_go_without_c_library::<E>(segments, endian, bytes) => {
            Form::GoWithoutCLibrary
        }
        Some(Ok(Some(loader))) => {
            let libraries = libraries::<E>(segments, endian, bytes);
            let sanitizer = libraries.into_iter().find(|name| is_address_sanitizer(name));
            let sanitizer = sanitizer.map(|name| OsStr::from_bytes(name).to_owned());
            Form::Dynamic(PathBuf::from(OsStr::from_bytes(loader)), sanitizer)
        }
        Some(_) => Form::Unknown,
        None => Form::Static,
    }
}

/// Whether a library is the runtime of AddressSanitizer: GCC's, or Clang's for `-shared-libasan`.
pub fn is_address_sanitizer(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// The names of the libraries that the file needs.
fn libraries<'a, E: FileHeader<Endian = Endianness>>(
    segments: &[E::ProgramHeader],
    endian: Endianness,
    bytes: &'a [u8],
) -> Vec<&'a [u8]> {
    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, bytes).ok().flatten());
    let entries = dynamic.unwrap_or_default();
    let values = |tag| {
        let with_tag = entries.iter().filter(move |entry| entry.tag(endian) == tag);
        with_tag.map(|entry| -> u64 { entry.d_val(endian).into() })
    };
    let Some(strings) = values(DT_STRTAB).next() else { return Vec::new() };
    let name = |at: u64| {
        segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).find_map(|segment| {
            let (address, offset) =
                (segment.p_vaddr(endian).into(), segment.p_offset(endian).into());
            let size: u64 = segment.p_filesz(endian).into();
            let within = strings.checked_sub(address)?.checked_add(at).filter(|at| *at < size)?;
            let rest = bytes.get(usize::try_from(within.checked_add(offset)?).ok()?..)?;
            rest.split(|&byte| byte == 0).next()
        })
    };
    values(DT_NEEDED).filter_map(name).collect()
}

/// Whether the file has the note of Go's linker and needs no library.
fn is_go_without_c_library<E: FileHeader<Endian = Endianness>>(
    segments: &[E::ProgramHeader],
    endian: Endianness,
    bytes: &[u8],
) -> bool {
    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, bytes).ok().flatten());
    let needs_a_library =
        dynamic.is_some_and(|entries| entries.iter().any(|entry| entry.tag(endian) == DT_NEEDED));
    let is_go = |segment: &E::ProgramHeader| {
        let Ok(Some(mut notes)) = segment.notes(endian, bytes) else { return false };
        std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| note.name() == ELF_NOTE_GO)
    };
    !needs_a_library && segments.iter().any(is_go)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (bytes, expected) in [
            (&b"#! /bin/sh -e\necho"[..], Form::Script("/bin/sh".into())),
            (b"#!/usr/bin/env\tpython3", Form::Script("/usr/bin/env".into())),
            (b"#!\n", Form::Unknown),
            (b"", Form::Unknown),
            (b"\x7fELF", Form::Unknown),
            (b"echo hello", Form::Unknown),
        ] {
            assert_eq!(form(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn runtimes_of_address_sanitizer() {
        for (path, expected) in [
            (&b"libasan.so.8"[..], true),
            (b"/usr/lib/libasan.so.6.0.0", true),
            (b"/usr/lib/clang/libclang_rt.asan-x86_64.so", true),
            (b"libtsan.so.2", false),
            (b"/opt/libasan.so/libc.so.6", false),
            (b"", false),
        ] {
            assert_eq!(is_address_sanitizer(path), expected, "{path:?}");
        }
    }

    #[test]
    fn this_test_is_dynamic_until_its_loader_segment_goes() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(matches!(form(&bytes), Form::Dynamic(_, None)));
        let header = FileHeader64::<Endianness>::parse(&bytes[..]).unwrap();
        let endian = header.endian().unwrap();
        let segments = header.program_headers(endian, &bytes[..]).unwrap();
        let libraries = libraries::<FileHeader64<Endianness>>(segments, endian, &bytes);
        assert!(libraries.contains(&&b"libc.so.6"[..]), "{libraries:?}");
        let index =
            segments.iter().position(|segment| segment.p_type(endian) == PT_INTERP).unwrap();
        let at = header.e_phoff(endian) as usize + index * header.e_phentsize(endian) as usize;
        bytes[at..at + 4].fill(0);
        assert_eq!(form(&bytes), Form::Static);
        bytes[18] ^= 0xff;
        assert_eq!(form(&bytes), Form::Foreign);
    }

    #[test]
    fn programs_of_32_bits_run_where_the_machine_is_theirs() {
        for (machine, runs) in [(EM_386, cfg!(target_arch = "x86_64")), (EM_AARCH64, false)] {
            let mut header = [0u8; size_of::<FileHeader32<Endianness>>()];
            header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
            header[18..20].copy_from_slice(&machine.0.to_le_bytes());
            let expected = if runs { Form::ThirtyTwoBits } else { Form::Foreign };
            assert_eq!(form(&header), expected, "{machine:?}");
        }
    }
}
