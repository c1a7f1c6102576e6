//! Fuzzes a log's reader with arbitrary bytes in a file, before and during reading. The reader must
//! end, and return nothing larger than the file.

use super::input::Input;
use baton_log::{Buffer, Content, Item, Options, Priority, Reader};
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Header, table, and the beginnings of the first rings: the most important bytes.
const PLACES: [u64; 14] = [0, 8, 12, 16, 40, 48, 64, 104, 4096, 4104, 4112, 4160, 4168, 135_168];
const FILE_BYTES: usize = 135_168 + 2 * 65536;
/// Upper bound of the records in a file of this size, including reads without a result.
const MOST_ITEMS: usize = 4 * FILE_BYTES / 24;

thread_local!(static DIRECTORY: RefCell<Option<Sample>> = const { RefCell::new(None) });

/// A log's directory, and a valid file of a dead process.
struct Sample {
    directory: tempfile::TempDir,
    sound: Vec<u8>,
}

impl Sample {
    fn make() -> Sample {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let logger = Options::new().directory(directory.path()).open();
        let writer = logger.writer();
        for number in 0..40_u8 {
            let message = vec![number; usize::from(number) * 7];
            writer.write(Buffer::Main, Priority::Info, b"fuzz", &message);
            writer.write_event(Buffer::Events, u32::from(number), &message);
        }
        let path = only_file(&directory);
        let sound = std::fs::read(&path).expect("a file");
        std::fs::remove_file(path).expect("a file");
        Sample { directory, sound }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("7-7")
    }
}

fn only_file(directory: &tempfile::TempDir) -> PathBuf {
    let entries = std::fs::read_dir(directory.path()).expect("a directory").flatten();
    let names = entries.map(|entry| entry.path());
    let is_ring = |path: &PathBuf| {
        path.to_string_lossy().contains('-') && path.file_name() != Some("watch".as_ref())
    };
    names.filter(is_ring).last().expect("the file of a process")
}

pub fn run(bytes: &[u8]) {
    DIRECTORY.with_borrow_mut(|sample| {
        let sample = sample.get_or_insert_with(Sample::make);
        let input = &mut Input::new(bytes);
        let mut contents = sample.sound.clone();
        if input.u8() < 20 {
            contents = vec![0; input.below(256) * 1024];
        }
        std::fs::write(sample.path(), contents).expect("room for a file");
        let file = OpenOptions::new().write(true).open(sample.path()).expect("our own file");
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .expect("our own file");
        for _ in 0..input.below(12) {
            change(&file, input);
        }
        let mut reader = Reader::open(sample.directory.path()).expect("our own directory");
        read_all(&mut reader);
        while !input.is_over() {
            change(&file, input);
            if input.u8() < 5 {
                file.set_len(input.below(256) as u64 * 1024).expect("our own file");
            }
            read_all(&mut reader);
        }
        let last = Reader::open_last(sample.directory.path(), &Buffer::ALL);
        last.expect("our own directory").iter_mut().for_each(read_all);
    });
}

fn change(file: &File, input: &mut Input<'_>) {
    let place = match input.below(4) {
        0 => input.pick(&PLACES),
        1 => u64::from(input.u32()) % FILE_BYTES as u64,
        2 => 135_168 + input.below(256) as u64 * 8,
        _ => input.pick(&PLACES) + input.below(64) as u64,
    };
    let n_bytes = 1 + input.below(8);
    file.write_all_at(input.bytes(n_bytes), place).expect("room");
}

fn read_all(reader: &mut Reader) {
    let mut n_items = 0;
    while let Some(item) = reader.next_item() {
        n_items += 1;
        assert!(n_items <= MOST_ITEMS, "a reader that goes round");
        if let Item::Record(record) = item {
            let n_bytes = match record.content {
                Content::Text { tag, message, .. } => tag.len() + message.len() + 3,
                Content::Event { payload, .. } => payload.len() + 4,
            };
            assert!(n_bytes <= baton_log::MAX_PAYLOAD_BYTES);
        }
    }
}
