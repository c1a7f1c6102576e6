//! The interposer: unmodified Binder programs on Baton's driver.
//!
//! `LD_PRELOAD` puts this library before the C library, whose functions a program uses for
//! `/dev/binder`:
//!
//! - [`paths`]: the paths of Binder devices. [`aliases`]: other names of these paths. [`status`]:
//!   functions that examine them. [`mounts`]: functions that set them up.
//! - [`files`]: functions that open and close descriptors. [`table`]: the descriptors of devices.
//! - [`device`], [`maps`], [`poll`]: functions that use devices. [`control`]: `binder-control`.
//! - [`scheduling`]: functions that change threads' priorities.
//! - [`programs`]: functions that execute programs. [`environment`]: what these programs inherit.
//! - [`log`]: the driver's log.
//! - [`trap`]: inline system calls. [`filter`], [`image`]: which of them are trapped. [`signals`]:
//!   functions that could take SIGSYS from the trap. [`stack`], [`alternate`], [`switch`]: the
//!   stack on which a trapped call runs. [`thread_pointer`]: whether a thread's call can run.
//!   [`calls`]: system calls by number. [`registers`]: system calls by instruction.
//! - [`real`]: the C library's own functions. [`lookups`]: functions that programs look up in it.
//!
//! **Invariant**: for every path and descriptor that is not a Binder device's, a function behaves
//! like the C library's, with the same result and errno. The check takes neither a lock nor a
//! system call. The number of a device may have been closed unseen: [`files::current`] looks at it.
//!
//! The engine makes its own system calls inline, through rustix, so they do not pass through these
//! functions. Calls of the standard library do, and are forwarded.
#![cfg(all(target_os = "linux", target_env = "gnu", target_endian = "little"))]

mod aliases;
mod alternate;
mod calls;
mod control;
mod device;
mod environment;
mod files;
mod filter;
mod image;
mod log;
mod lookups;
mod maps;
mod mounts;
mod paths;
mod poll;
mod programs;
mod real;
mod registers;
mod scheduling;
mod signals;
mod stack;
mod status;
mod switch;
mod table;
mod thread_pointer;
mod trap;

/// The dynamic loader runs this function before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    log::init();
    environment::init();
    if paths::settings().trap {
        let own = image::check_own();
        if let image::Support::Unsupported(why) = own {
            programs::report(programs::own(), why);
        }
        // Go's runtime without the C library handles all signals itself.
        if !matches!(own, image::Support::Unsupported(image::Unsupported::Go)) {
            trap::install_handler();
        }
        if let image::Support::Watched(code) = own {
            filter::install_code_filter(code);
        }
    }
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    table::forked();
}
