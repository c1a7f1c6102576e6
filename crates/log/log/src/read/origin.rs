//! The process of a record: what the kernel says of it, and what it says itself.

use crate::files::directory::Directory;
use crate::files::layout::{ArchivedRing, Header, parse_name_of_file};
use crate::files::lock;
use crate::files::opened::{self, Opened};
use rustix::io::Errno;
use std::ffi::CStr;

/// The source of a process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voucher {
    /// The kernel: the process was alive when the reader first looked, and held the file.
    Kernel,
    /// The writer: its process has ended, or is not visible to this one. Processes of one user
    /// could have claimed each other's numbers, but not those of another user.
    Writer,
}

/// A process that has written records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The owner of the file, as the kernel says: the effective user of the process when it began
    /// to log.
    pub user: u32,
    /// The number of the process: in the reader's namespace if the kernel vouches for it, else in
    /// the writer's.
    pub process: u32,
    /// The source of the process number.
    pub voucher: Voucher,
    /// The program's name, as the process says.
    pub program: String,
    /// The name of the file in the log's directory, even if its records are in an archive by now.
    /// No other process has had a file of this name.
    pub file: String,
}

impl Origin {
    pub(crate) fn of(opened: &Opened, header: &Header, file: &str) -> Origin {
        let ours = opened.is_ours.then(|| rustix::process::getpid().as_raw_nonzero().get() as u32);
        let known = ours.or_else(|| lock::process(opened));
        Origin {
            user: opened.stat.st_uid,
            process: known.unwrap_or(header.process),
            voucher: if known.is_some() { Voucher::Kernel } else { Voucher::Writer },
            program: program(&header.name),
            file: file.to_owned(),
        }
    }

    /// The origin of a process whose file cannot be opened for want of descriptors. `EPERM` as for
    /// [`Opened::open`].
    pub(crate) fn of_unopened(directory: &Directory, name: &CStr) -> Result<Origin, Errno> {
        let user = opened::status(directory, name)?.st_uid;
        let file = name.to_string_lossy().into_owned();
        let process = parse_name_of_file(&file).map_or(0, |(process, _)| process);
        Ok(Origin { user, process, voucher: Voucher::Writer, program: String::new(), file })
    }

    /// The origin of a process whose records are in an archive.
    pub(crate) fn of_former(archive: &Origin, former: &ArchivedRing) -> Origin {
        Origin {
            user: archive.user,
            process: former.process,
            voucher: Voucher::Writer,
            program: program(&former.name),
            file: former.file(),
        }
    }
}

fn program(name: &[u8]) -> String {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
