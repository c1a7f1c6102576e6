//! Why a binderfs could not be mounted or served.

use baton_driver::device::OpenError;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why a binderfs could not be mounted or served.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory's path names another file.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The directory is that of a file system whose server has ended.
    #[error("the server of the file system at {} has ended", .0.display())]
    Abandoned(PathBuf),
    /// The directory cannot be used.
    #[error("{}: {errno}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// /dev/fuse cannot be opened.
    #[error("/dev/fuse: {0}")]
    NoFuse(Errno),
    /// This process may not mount file systems.
    #[error("this process may not mount file systems")]
    NotPermitted,
    /// The kernel's FUSE is another one than this server's.
    #[error("this kernel speaks version {0} of FUSE")]
    OtherFuse(u32),
    /// The kernel cannot pass maps through to other files.
    #[error("this kernel does not pass maps of a FUSE file through to another file")]
    NoPassthrough,
    /// The kernel does not pass maps through for this process.
    #[error("this process may not have maps of a FUSE file passed through: {0}")]
    MayNotPassThrough(Errno),
    /// A context has a name that no device can have, or is named twice.
    #[error("context {0:?} is named twice, or has a name that no device can have")]
    BadContext(String),
    /// There are more contexts than devices that there may be.
    #[error("more contexts are named than max={0} allows devices")]
    TooManyDevices(usize),
    /// The broker could not be reached.
    #[error(transparent)]
    Broker(#[from] OpenError),
    /// The broker refused a context.
    #[error("the broker refused context {context:?}: {errno}")]
    Refused {
        /// The context.
        context: String,
        /// The broker's reason.
        errno: Errno,
    },
    /// `/proc` shows no processes of this pid namespace.
    #[error("/proc is not that of this pid namespace")]
    OtherProc,
    /// The broker does not see this server, or not that it is in the broker's own pid namespace:
    /// it opens no device for a program.
    #[error("the broker opens no device for this server's programs: {0}")]
    NotSeen(Errno),
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// The call.
        operation: &'static str,
        /// Its error.
        errno: Errno,
    },
}

impl MountError {
    /// The directory could not be examined.
    pub(crate) fn directory(directory: &Path, error: &std::io::Error) -> MountError {
        let directory = directory.to_owned();
        match Errno::from_io_error(error).unwrap_or(Errno::IO) {
            Errno::NOTCONN => MountError::Abandoned(directory),
            Errno::NOTDIR => MountError::NotADirectory(directory),
            errno => MountError::Directory { directory, errno },
        }
    }

    /// `mount` has failed.
    pub(crate) fn mount(directory: PathBuf, errno: Errno) -> MountError {
        match errno {
            Errno::PERM | Errno::ACCESS => MountError::NotPermitted,
            errno => MountError::Directory { directory, errno },
        }
    }

    /// A system call has failed.
    pub(crate) fn system(operation: &'static str) -> impl Fn(Errno) -> MountError {
        move |errno| MountError::System { operation, errno }
    }
}
