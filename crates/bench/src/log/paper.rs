//! The paper's scheme, as an experiment: shared memory of 64 KiB, a semaphore of all writers, the
//! time taken while it is held, and text without anything else.
//!
//! Walker, *Android Logger vs. Shared Memory*, linux-kernel, March 2012. It is a measure, not a
//! log: a writer that dies while it holds the semaphore stops all others, and any of them can write
//! anything.

use crate::log::log_writer::RecordFn;
use crate::log::system::Gets;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::path::Path;
use std::ptr::NonNull;

const AREA_BYTES: usize = 64 * 1024;

#[repr(C)]
struct Control {
    semaphore: libc::sem_t,
    start: usize,
    end: usize,
    overwrites: bool,
    text: [u8; 0],
}

const TEXT_AT: usize = offset_of!(Control, text);
const TEXT_BYTES: usize = AREA_BYTES - TEXT_AT;

/// One writer's map of the area.
pub struct Area {
    control: NonNull<Control>,
    gets: Gets,
}

// SAFETY: all but the semaphore is touched by who holds it, and that is for many processes.
unsafe impl Send for Area {}

impl Area {
    /// Makes the file, for several to map.
    pub fn make(path: &Path) -> io::Result<()> {
        File::create_new(path)?.set_len(AREA_BYTES as u64)?;
        let area = Area::map(path, Gets::FromThePage)?;
        // SAFETY: zeroed memory of its own size, which nobody else uses yet.
        match unsafe { libc::sem_init(&raw mut (*area.control.as_ptr()).semaphore, 1, 1) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn map(path: &Path, gets: Gets) -> io::Result<Area> {
        let file = File::options().read(true).write(true).open(path)?;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh map at an address of the kernel's choice.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), AREA_BYTES, access, flags, &file, 0)? };
        Ok(Area { control: NonNull::new(map.cast()).expect("maps are not at zero"), gets })
    }
}

impl RecordFn for Area {
    #[inline(always)]
    fn write(&mut self, text: &'static [u8]) {
        assert!(text.len() < TEXT_BYTES);
        let control = self.control.as_ptr();
        // SAFETY: the map has this layout. Who waits for the semaphore, and has it, is alone with
        // the rest; `end` is below `TEXT_BYTES` at all times, and so is what is written.
        unsafe {
            libc::sem_wait(&raw mut (*control).semaphore);
            get_time(self.gets);
            let at = (&raw mut (*control).text).cast::<u8>();
            let end = (*control).end;
            if end + text.len() >= TEXT_BYTES {
                let (first, second) = text.split_at(TEXT_BYTES - end);
                at.add(end).copy_from_nonoverlapping(first.as_ptr(), first.len());
                at.copy_from_nonoverlapping(second.as_ptr(), second.len());
                (*control).end = second.len();
                (*control).overwrites = true;
            } else {
                at.add(end).copy_from_nonoverlapping(text.as_ptr(), text.len());
                (*control).end = end + text.len();
            }
            if (*control).overwrites {
                (*control).start = (*control).end + 1;
            }
            libc::sem_post(&raw mut (*control).semaphore);
        }
    }
}

#[inline(always)]
fn get_time(gets: Gets) {
    let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: a structure of ours, which either fills.
    unsafe {
        match gets {
            Gets::FromThePage => drop(libc::gettimeofday(&raw mut now, std::ptr::null_mut())),
            Gets::FromTheKernel => {
                let nowhere = std::ptr::null_mut::<libc::timezone>();
                libc::syscall(libc::SYS_gettimeofday, &raw mut now, nowhere);
            }
        }
    }
    std::hint::black_box(now);
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nobody has a reference any more.
        let _ = unsafe { rustix::mm::munmap(self.control.as_ptr().cast(), AREA_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::messages::{bytes_of, message};

    #[test]
    fn text_follows_text_and_goes_round() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("area");
        Area::make(&path).unwrap();
        let mut area = Area::map(&path, Gets::FromThePage).unwrap();
        let n_records = 2000;
        (0..n_records).for_each(|number| area.write(message(number)));
        let bytes = std::fs::read(&path).unwrap();
        let last = message(n_records - 1);
        let end = bytes_of(n_records) as usize % TEXT_BYTES + TEXT_AT;
        assert_eq!(&bytes[end - last.len()..end], last);
    }
}
