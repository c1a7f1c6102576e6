//! Services from shared objects: `include/baton_service.h`.
//!
//! A shared object is never unloaded, as threads may be running its code.

use crate::answer::Answer;
use crate::call::{Call, Target};
use crate::service::Service;
use baton::{CallError, Parcel};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const VERSION: u32 = 1;
/// BATON_SERVICE_STAYS.
const STAYS: u32 = 1;
const SYMBOL: &CStr = c"baton_service";

/// `struct baton_service`.
#[repr(C)]
struct Definition {
    version: u32,
    flags: u32,
    name: *const c_char,
    interface: *const c_char,
    start: Option<unsafe extern "C" fn(state: *mut *mut c_void) -> c_int>,
    handle: Option<unsafe extern "C" fn(state: *mut c_void, call: *mut RawCall) -> c_int>,
    end: Option<unsafe extern "C" fn(state: *mut c_void)>,
}

/// `struct baton_call`.
#[repr(C)]
struct RawCall {
    code: u32,
    sender_uid: u32,
    sender_pid: u32,
    data: *const c_void,
    bytes: usize,
    answer: *const c_void,
    answer_bytes: usize,
    reply: unsafe extern "C" fn(*mut RawCall, *const c_void, usize),
    call: unsafe extern "C" fn(*mut RawCall, *const c_char, u32, *const c_void, usize) -> c_int,
}

/// The context of a call; it begins with the `RawCall` that the plugin gets.
#[repr(C)]
struct Context<'a, 'b> {
    raw: RawCall,
    call: &'a mut Call<'b>,
    reply: Parcel,
    answer: Vec<u8>,
    targets: &'a mut HashMap<CString, Target>,
}

/// Why a shared object is no service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The system cannot load it, or it does not define `baton_service`.
    #[error("{0}")]
    Load(String),
    /// It is built for another version of the header.
    #[error("it is built for version {0} of baton_service.h, not {VERSION}")]
    Version(u32),
    /// It has flags that this version does not know.
    #[error("its baton_service has flags that are not known here: {0:#x}")]
    Flags(u32),
    /// It has no name or no handler.
    #[error("its baton_service has no name or no handle")]
    Incomplete,
    /// Its `start` has failed with this error.
    #[error("it does not start: {0}")]
    Start(Errno),
}

/// A service from a shared object.
pub struct Plugin {
    definition: &'static Definition,
    name: String,
    interface: String,
    state: *mut c_void,
    targets: HashMap<CString, Target>,
}

// SAFETY: the header says that its functions are called one at a time, on any thread.
unsafe impl Send for Plugin {}

impl Plugin {
    /// Loads a shared object and starts its service. Its constructors run.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub fn load(path: &Path) -> Result<Plugin, PluginError> {
        let definition = find(path)?;
        if definition.version != VERSION {
            return Err(PluginError::Version(definition.version));
        }
        if definition.flags & !STAYS != 0 {
            return Err(PluginError::Flags(definition.flags));
        }
        // SAFETY: the header says that both are C strings or null; the object is never unloaded.
        let [name, interface] =
            [definition.name, definition.interface].map(|text| unsafe { text_at(text) });
        let (Some(name), Some(_)) = (name, definition.handle) else {
            return Err(PluginError::Incomplete);
        };
        let mut state = ptr::null_mut();
        if let Some(start) = definition.start {
            // SAFETY: called as the header declares it.
            match unsafe { start(&mut state) } {
                0 => {}
                errno => return Err(PluginError::Start(Errno::from_raw_os_error(errno))),
            }
        }
        let interface = interface.unwrap_or_default();
        Ok(Plugin { definition, name, interface, state, targets: HashMap::new() })
    }

    /// The name under which the plugin wants to be added.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn find(path: &Path) -> Result<&'static Definition, PluginError> {
    // Without a slash the system would search its library path.
    let path = std::path::absolute(path).map_err(|error| PluginError::Load(error.to_string()))?;
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|error| PluginError::Load(error.to_string()))?;
    // SAFETY: the author of the object answers for its constructors; `dlerror` is asked on this
    // thread.
    unsafe {
        let object = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let symbol = match object.is_null() {
            true => object,
            false => libc::dlsym(object, SYMBOL.as_ptr()),
        };
        if symbol.is_null() {
            let why = text_at(libc::dlerror());
            return Err(PluginError::Load(why.unwrap_or_else(|| "it is empty".to_owned())));
        }
        // SAFETY: the symbol is a `struct baton_service`, by its name; the object is never
        // unloaded.
        Ok(&*symbol.cast())
    }
}

/// # Safety
/// Null or a C string.
unsafe fn text_at(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Service for Plugin {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn stays(&self) -> bool {
        self.definition.flags & STAYS != 0
    }

    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        let handle = self.definition.handle.ok_or(Errno::NOSYS)?;
        let (sender_pid, sender_uid) = call.sender();
        let data = call.data();
        let raw = RawCall {
            code: call.code(),
            sender_uid,
            sender_pid,
            data: data.as_ptr().cast(),
            bytes: data.len(),
            answer: ptr::null(),
            answer_bytes: 0,
            reply: append,
            call: call_by_name,
        };
        let (reply, answer) = (Parcel::new(), Vec::new());
        let mut context = Context { raw, call, reply, answer, targets: &mut self.targets };
        // SAFETY: called as the header declares it. The pointer is to the whole context, which
        // outlives the call.
        match unsafe { handle(self.state, (&raw mut context).cast()) } {
            0 => Ok(context.reply),
            errno => Err(Errno::from_raw_os_error(errno.clamp(1, 4095))),
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if let Some(end) = self.definition.end {
            // SAFETY: called as the header declares it, and after all other calls.
            unsafe { end(self.state) };
        }
    }
}

/// # Safety
/// `data` points to `bytes` bytes, or `bytes` is 0.
unsafe fn bytes_at<'a>(data: *const c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data.cast(), bytes) } }
}

unsafe extern "C" fn append(call: *mut RawCall, data: *const c_void, bytes: usize) {
    // SAFETY: the pointer that `handle`, which is running, got: it is to the whole context.
    let context = unsafe { &mut *call.cast::<Context<'_, '_>>() };
    // SAFETY: the plugin promises it.
    context.reply.write(unsafe { bytes_at(data, bytes) });
}

unsafe extern "C" fn call_by_name(
    call: *mut RawCall,
    name: *const c_char,
    code: u32,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the pointer that `handle`, which is running, got: it is to the whole context.
    let context = unsafe { &mut *call.cast::<Context<'_, '_>>() };
    // SAFETY: the plugin promises it.
    let (name, data) = unsafe { (CStr::from_ptr(name), bytes_at(data, bytes)) };
    let called = find_target(context, name).and_then(|target| {
        let answer = context.call.call(&target, code, &Parcel::from(data));
        answer.map(|answer: Answer<'_>| {
            context.answer.clear();
            context.answer.extend_from_slice(answer.data());
        })
    });
    (context.raw.answer, context.raw.answer_bytes) =
        (context.answer.as_ptr().cast(), context.answer.len());
    match called {
        Ok(()) => 0,
        Err(error) => error.errno().raw_os_error(),
    }
}

fn find_target(context: &mut Context<'_, '_>, name: &CStr) -> Result<Target, CallError> {
    if let Some(target) = context.targets.get(name) {
        return Ok(target.clone());
    }
    let found = context.call.find(&name.to_string_lossy())?;
    let target = found.ok_or(CallError::Refused(Errno::NOENT))?;
    context.targets.insert(name.to_owned(), target.clone());
    Ok(target)
}
