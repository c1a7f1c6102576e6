//! The paper's sixteen messages: what a phone said when a card was put into it.

use std::ffi::CStr;
use std::hint::black_box;

/// What they are filed under. The paper has no tag; a log that people read has one.
pub const TAG: &CStr = c"vold";

pub const N_MESSAGES: usize = 16;

/// The messages. Each has its end, so that its length has to be found.
pub const MESSAGES: [&CStr; N_MESSAGES] = [
    c"New MMC card '00000' (serial 2029453699) added @ \
        /devices/platform/msm_sdcc.2/mmc_host/mmc1/mmc1:0001\n",
    c"Disk (blkdev 179:0), 7954432 secs (3884 MB) 1 partitions\n",
    c"New blkdev 179.0 on media 00000, media path \
        /devices/platform/msm_sdcc.2/mmc_host/mmc1/mmc1:0001, Dpp 1\n",
    c"Partition (blkdev 179:1), 7946240 secs (3880 MB) type 0xb\n",
    c"New blkdev 179.1 on media 00000, media path \
        /devices/platform/msm_sdcc.2/mmc_host/mmc1/mmc1:0001, Dpp 0\n",
    c"Evaluating dev '/devices/platform/msm_sdcc.2/mmc_host/mmc1/mmc1:0001/block/mmcblk0' for \
        mountable filesystems for '/sdcard'\n",
    c"handle_switch_event(): Ignoring switch 'No Device'\n",
    c"Bootstrapping complete\n",
    c"dosfsck 3.0.1 (23 Nov 2008)\n",
    c"akmd 1.6.4 START \n",
    c"library version: 1.2.1.1129\n",
    c"dosfsck 3.0.1, 23 Nov 2008, FAT32, LFN\n",
    c"Logical sector size is zero.\n",
    c"/system/bin/dosfsck terminated by exit(8)\n",
    c"Filesystem check failed (not a FAT filesystem)\n",
    c"vfat filesystem check failed on 179:1 (No data available)\n",
];

/// The message whose turn it is, as a program that knows only where it begins has it: its length is
/// found anew.
#[inline(always)]
pub fn message(number: usize) -> &'static [u8] {
    let start = black_box(MESSAGES[number % N_MESSAGES].as_ptr());
    // SAFETY: it begins one of the messages, which have an end.
    unsafe { CStr::from_ptr(start) }.to_bytes()
}

/// Bytes of so many messages, from the first one on.
pub fn bytes_of(n_records: usize) -> u64 {
    let length = |number: usize| MESSAGES[number].count_bytes() as u64;
    let all: u64 = (0..N_MESSAGES).map(length).sum();
    let rest: u64 = (0..n_records % N_MESSAGES).map(length).sum();
    (n_records / N_MESSAGES) as u64 * all + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_messages() {
        for n_records in [0, 1, 15, 16, 17, 40] {
            let counted: usize = (0..n_records).map(|number| message(number).len()).sum();
            assert_eq!(bytes_of(n_records), counted as u64, "{n_records}");
        }
    }
}
