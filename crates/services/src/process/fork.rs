//! `fork`, and the entry of a shared object, which its children call.
//!
//! A shared object that is started from a warm parent defines
//!
//! ```c
//! int baton_main(int argc, char **argv);   // the program: its result is the exit code
//! void baton_preload(void);                // may be missing: what all its processes share
//! ```

use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAIN: &CStr = c"baton_main";
const PRELOAD: &CStr = c"baton_preload";

/// The role of a process after a fork.
pub enum Forked {
    /// The calling process; the child's pid.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Copies this process, which has one thread. `EAGAIN` if there are too many processes.
#[allow(unsafe_code)]
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the process has no other thread that could have left a lock held: it is the helper,
    // whose only loop calls this.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or(Errno::AGAIN),
    }
}

/// Makes these all variables of a process that has just been forked.
#[allow(unsafe_code)]
pub fn set_environment(variables: &[(String, String)]) -> Result<(), String> {
    let is_bad = |name: &str, value: &str| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if let Some((name, _)) = variables.iter().find(|(name, value)| is_bad(name, value)) {
        return Err(format!("{name:?} cannot be a variable"));
    }
    // SAFETY: the process has no other thread yet that could read variables.
    unsafe {
        std::env::vars_os().for_each(|(name, _)| std::env::remove_var(name));
        variables.iter().for_each(|(name, value)| std::env::set_var(name, value));
    }
    Ok(())
}

/// The `baton_main` of a shared object, which stays loaded.
#[derive(Clone, Copy)]
pub struct Entry(extern "C" fn(c_int, *const *const c_char) -> c_int);

impl Entry {
    /// Loads a shared object and calls its `baton_preload`. The error is the loader's.
    #[allow(unsafe_code)]
    pub fn load(path: &Path) -> Result<Entry, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the author of the object answers for its constructors, and for the types of both
        // functions; nobody unloads it. `dlerror` is asked on this thread.
        unsafe {
            let object = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if object.is_null() {
                return Err(error());
            }
            let main = libc::dlsym(object, MAIN.as_ptr());
            if main.is_null() {
                return Err(error());
            }
            let preload = libc::dlsym(object, PRELOAD.as_ptr());
            if !preload.is_null() {
                std::mem::transmute::<*mut c_void, extern "C" fn()>(preload)();
            }
            Ok(Entry(std::mem::transmute::<
                *mut c_void,
                extern "C" fn(c_int, *const *const c_char) -> c_int,
            >(main)))
        }
    }

    /// Runs the program to its end, and returns its exit code.
    pub fn run(self, arguments: &[CString]) -> i32 {
        let mut pointers: Vec<*const c_char> = arguments.iter().map(|it| it.as_ptr()).collect();
        pointers.push(std::ptr::null());
        (self.0)(arguments.len() as c_int, pointers.as_ptr())
    }
}

/// What `dlerror` has to say.
///
/// # Safety
/// For the thread whose `dlopen` or `dlsym` has failed just now.
#[allow(unsafe_code)]
unsafe fn error() -> String {
    // SAFETY: null or a C string, which lives until this thread's next call of the loader.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "the loader does not say why".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}
