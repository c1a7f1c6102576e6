//! The environment of programs that this one executes: Baton's part comes back where it was lost.
//!
//! A program that gives another one an environment of its own making (`env -i`, a build tool, a
//! supervisor) means nothing against Baton. Whoever does says so by LD_PRELOAD:
//!
//! | the new environment has | the new program gets |
//! |---|---|
//! | neither LD_PRELOAD nor BATON_DEV | LD_PRELOAD and BATON_* as this process was started with |
//! | LD_PRELOAD, also an empty one | what it was given |
//! | BATON_DEV without LD_PRELOAD | what it was given: LD_PRELOAD alone was removed |
//!
//! A process without BATON_DEV was not started by `baton run`, and changes nothing.

use crate::real::StringArray;
use crate::stack;
use libc::{Dl_info, c_char};
use rustix::fs::{Access, access};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::ptr::null;
use std::sync::OnceLock;

const PRELOAD: &[u8] = b"LD_PRELOAD";
const PLACEHOLDERS: &[u8] = b"BATON_DEV";

/// Most variables of an environment that is completed. One with more was not made anew.
const MOST: usize = 500;

/// Baton's part of the environment with which this process was started.
struct Kept {
    /// As they stand in an environment, `NAME=VALUE`.
    variables: Vec<CString>,
    /// The path of this library.
    library: &'static CStr,
}

static KEPT: OnceLock<Option<Kept>> = OnceLock::new();

/// Remembers Baton's part of the environment, which the program may change later.
pub fn init() {
    KEPT.get_or_init(|| {
        let has = |name: &str| std::env::var_os(name).is_some();
        (has("LD_PRELOAD") && has("BATON_DEV")).then_some(())?;
        let is_ours = |name: &[u8]| name == PRELOAD || name.starts_with(b"BATON_");
        let variables =
            std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let variables = variables
            .filter(|(name, _)| is_ours(name))
            .filter_map(|(name, value)| CString::new([&name[..], b"=", &value].concat()).ok());
        let mut found = MaybeUninit::<Dl_info>::uninit();
        // SAFETY: a query, which fills its result where it does not return 0. The name stays as
        // long as this library, which is never unloaded.
        let library = unsafe {
            if libc::dladdr(init as fn() as *const _, found.as_mut_ptr()) == 0 {
                return None;
            }
            CStr::from_ptr(found.assume_init().dli_fname)
        };
        Some(Kept { variables: variables.collect(), library })
    });
}

/// Executes by an environment that has Baton's part, if the given one has lost it. Allocates
/// nothing, as it may run in the child of a `vfork`.
///
/// # Safety
/// The environment is null or an array of C strings.
pub unsafe fn complete<T>(environment: StringArray, execute: impl FnOnce(StringArray) -> T) -> T {
    let Some(Some(kept)) = KEPT.get() else { return execute(environment) };
    // SAFETY: by this function's contract.
    let given = || unsafe { variables(environment) };
    let is_given = |name| given().any(|given| name_of(given) == name);
    let all = given().count() + kept.variables.len();
    if is_given(PRELOAD)
        || is_given(PLACEHOLDERS)
        || all > MOST
        // Another root directory may lack it: the loader would say so in each program.
        || access(kept.library, Access::READ_OK).is_err()
    {
        return execute(environment);
    }
    stack::on_large_stack(|| {
        let mut completed = [null::<c_char>(); MOST + 1];
        let lost = kept.variables.iter().map(|variable| &**variable);
        let lost = lost.filter(|variable| !is_given(name_of(variable)));
        for (place, variable) in completed.iter_mut().zip(given().chain(lost)) {
            *place = variable.as_ptr();
        }
        execute(completed.as_ptr())
    })
}

/// The variables of an environment.
///
/// # Safety
/// The environment is null or an array of C strings, and stays.
unsafe fn variables<'a>(environment: StringArray) -> impl Iterator<Item = &'a CStr> {
    let mut next = environment;
    std::iter::from_fn(move || {
        // SAFETY: by this function's contract; the array ends with a null pointer.
        unsafe {
            if next.is_null() || (*next).is_null() {
                return None;
            }
            let variable = CStr::from_ptr(*next);
            next = next.add(1);
            Some(variable)
        }
    })
}

fn name_of(variable: &CStr) -> &[u8] {
    let bytes = variable.to_bytes();
    let end = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
    &bytes[..end]
}
