//! The interposer: unmodified Binder programs on Baton's driver.
//!
//! Loaded by `LD_PRELOAD`, it stands before the C library for the calls by which a program uses
//! `/dev/binder`:
//!
//! - [`paths`]: which paths are ours; [`detour`]: which lead there; [`status`]: calls that look at
//!   them; [`mounts`]: binderfs is mounted.
//! - [`files`]: descriptors come and go; [`table`]: which are ours, and what they stand for.
//! - [`device`], [`maps`], [`poll`]: what is done with them; [`control`]: `binder-control`.
//! - [`scheduling`]: threads get other priorities.
//! - [`programs`]: those that are executed next.
//! - [`log`]: what the driver has to say.
//! - [`trap`]: inline system calls; [`filter`], [`image`]: which of them; [`signals`]: so that
//!   SIGSYS stays ours. [`stack`], [`alternate`], [`switch`]: where such a call is made;
//!   [`thread_pointer`]:
//!   whether it can be. [`calls`]: system calls by number.
//! - [`real`]: the C library's own functions.
//!
//! **Invariant**: for a path or descriptor that is not ours, every function here is the C
//! library's: the same result and errno, after a test without locks or system calls.
//!
//! The engine's own system calls do not come by here: it makes them through rustix, inline. What
//! the standard library calls does, and is passed on.
#![cfg(all(target_os = "linux", target_env = "gnu", target_endian = "little"))]

mod alternate;
mod calls;
mod control;
mod detour;
mod device;
mod files;
mod filter;
mod image;
mod log;
mod maps;
mod mounts;
mod paths;
mod poll;
mod programs;
mod real;
mod scheduling;
mod signals;
mod stack;
mod status;
mod switch;
mod table;
mod thread_pointer;
mod trap;

/// Run by the dynamic loader before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    log::begin();
    if paths::settings().trap {
        let own = image::own();
        if let image::Own::Hopeless(why) = own {
            programs::tell(programs::own(), why);
        }
        // Go's runtime alone takes all signals for itself.
        if !matches!(own, image::Own::Hopeless(image::Hopeless::Go)) {
            trap::handle();
        }
        if let image::Own::Watched(code) = own {
            trap::arm_code(code);
        }
    }
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    table::forked();
}
