//! What a process of `baton bench log` does: see [`Role`].

use crate::child::{RoleArgs, say};
use crate::log::messages::{TAG, message};
use crate::log::role::Role;
use crate::log::{descriptors, kill_test};
use baton_log::{Buffer, Options, Priority, Reader};
use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

/// Does the part until it is killed.
pub fn run(args: &RoleArgs) -> ExitCode {
    let ready = || say("ready");
    args.run(|(role, place): (Role, PathBuf)| match role {
        Role::Datagrams => descriptors::read_datagrams(&place, ready),
        Role::Pipe => descriptors::read_pipe(&place, ready),
        Role::Follower => follow(&place),
        Role::Writers { n_threads } => write(&place, n_threads),
        Role::Killed { n_threads } => kill_test::write(&place, n_threads, ready),
    })
}

fn follow(log: &Path) -> io::Result<()> {
    let mut reader = Reader::open(log)?;
    say("ready")?;
    reader.follow(|item| {
        black_box(item);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn write(log: &Path, n_threads: usize) -> io::Result<()> {
    let logger = Options::new().directory(log).open();
    thread::scope(|scope| {
        for _ in 0..n_threads {
            let writer = logger.writer();
            scope.spawn(move || {
                for number in 0.. {
                    writer.write(Buffer::Main, Priority::Info, TAG.to_bytes(), message(number));
                }
            });
        }
        say("ready")
    })
}
