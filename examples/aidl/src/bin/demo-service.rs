//! The service of `make demo`: offers `demo.IDemo` under the name `baton.demo`.
//!
//! An ordinary rsbinder program: it knows of nothing but `/dev/binder`.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicI32, Ordering};

use baton_example_aidl::demo::IDemo::{BnDemo, IDemo};
use baton_example_aidl::demo::IProgress::IProgress;
use rsbinder::{
    BinderResult, Interface, ParcelFileDescriptor, ProcessState, StatusCode, Strong, hub,
};

#[derive(Default)]
struct Demo {
    total: AtomicI32,
}

impl Interface for Demo {}

impl IDemo for Demo {
    fn echo(&self, data: &[u8]) -> BinderResult<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn work(&self, progress: &Strong<dyn IProgress>) -> BinderResult<i32> {
        [0, 25, 50, 75, 100].iter().try_fold(0, |sum, percent| Ok(sum + progress.report(*percent)?))
    }

    fn shout(&self, mut text: &ParcelFileDescriptor) -> BinderResult<String> {
        let mut read = String::new();
        text.read_to_string(&mut read).map_err(|_| StatusCode::BadValue)?;
        Ok(read.to_uppercase())
    }

    fn publish(&self, text: &str) -> BinderResult<ParcelFileDescriptor> {
        // A pipe holds 64 KiB without a reader: more than the demo publishes.
        let (reader, mut writer) = ParcelFileDescriptor::pipe()?;
        writer.write_all(text.as_bytes()).map_err(|_| StatusCode::BadValue)?;
        Ok(reader)
    }

    fn add(&self, value: i32) -> BinderResult<()> {
        self.total.fetch_add(value, Ordering::SeqCst);
        Ok(())
    }

    fn total(&self) -> BinderResult<i32> {
        Ok(self.total.swap(0, Ordering::SeqCst))
    }

    fn pid(&self) -> BinderResult<i32> {
        Ok(std::process::id() as i32)
    }

    fn callerPid(&self) -> BinderResult<i32> {
        Ok(rsbinder::get_calling_pid())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    env_logger::init();
    ProcessState::init_default()?;
    ProcessState::start_thread_pool();
    hub::add_service("baton.demo", BnDemo::new_binder(Demo::default()).as_binder())?;
    println!("service  process {} offers baton.demo", std::process::id());
    Ok(ProcessState::join_thread_pool()?)
}
