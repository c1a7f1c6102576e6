//! Whose a record is: what the reader knows of it, and what it is told.

use crate::files::layout::{Former, Header};
use crate::files::lock;
use crate::files::opened::Opened;

/// Who says which process it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voucher {
    /// The kernel: the process was there when the reader first looked, and held the file.
    Kernel,
    /// The writer. The process has ended, or is none of those that this one can see. A user's
    /// processes could have given themselves out for each other, and for no other user's.
    Writer,
}

/// A process that wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The user that the file belongs to, which is what the process's effective user was when it
    /// began to log: the kernel says so.
    pub user: u32,
    /// The process's number, here if the kernel vouches for it, else where it was given.
    pub process: u32,
    /// Who vouches for the process's number.
    pub voucher: Voucher,
    /// The program's name, as the process says.
    pub program: String,
    /// The file, in the log's directory, or what it was called before it came to an archive: no
    /// other process has had one of this name.
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

    /// Of a process whose records are in an archive of its user's.
    pub(crate) fn of_former(archive: &Origin, former: &Former) -> Origin {
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
