//! A steady call of a hosted service allocates no memory, whether the service stays or not, and
//! whether it calls another service or not.
mod support;

use baton::Parcel;
use baton_host::{Call, Host, Stays, Target};
use rustix::io::Errno;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use support::Broker;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes on to the system's allocator, which keeps the promises of the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn echo(call: &mut Call<'_>) -> Result<Parcel, Errno> {
    Ok(Parcel::from(call.data()))
}

fn pass_on(to: &'static str) -> impl FnMut(&mut Call<'_>) -> Result<Parcel, Errno> + Send {
    let mut target: Option<Target> = None;
    move |call| {
        if target.is_none() {
            target = call.find(to).map_err(|_| Errno::NOENT)?;
        }
        let target = target.as_ref().ok_or(Errno::NOENT)?;
        let parcel = Parcel::from(call.data());
        let answer = call.call(target, 1, &parcel).map_err(|_| Errno::IO)?;
        Ok(Parcel::from(answer.data()))
    }
}

fn main() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let mut host = Host::new();
    host.add("echo", Stays(echo)).unwrap();
    host.add("stays", Stays(pass_on("echo"))).unwrap();
    host.add("leaves", echo).unwrap();
    host.add("passes on", pass_on("leaves")).unwrap();
    let mut running = host.start("binder", &broker.socket).unwrap();
    running.publish().unwrap();
    let client = broker.open();
    for name in ["echo", "stays", "leaves", "passes on"] {
        let handle = support::find(&client, name);
        // A parcel of so few bytes needs no heap memory.
        let parcel = Parcel::from(&[7; 32][..]);
        let call = || drop(handle.call(1, &parcel).unwrap());
        (0..1000).for_each(|_| call());
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..1000).for_each(|_| call());
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        println!("{name}: {allocations} allocations in 1000 calls");
        // The broker and the control threads allocate a little.
        assert!(allocations < 50, "{name}: {allocations} allocations in 1000 calls");
    }
    running.close();
    manager.close();
}
