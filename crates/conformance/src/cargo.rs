//! The contents of random transactions.

use crate::choices::Choices;
use crate::profile::Cargo;
use crate::step::*;
use crate::world::World;

/// A random parcel of a process.
pub fn parcel(choices: &mut Choices, world: &World, process: u8) -> Parcel {
    let mut parcel = Parcel::default();
    match choices.profile.cargo {
        Cargo::Heavy => {
            let most = [200, 1000, 4096, 9000][choices.random.below(4) as usize];
            parcel.items.push(Item::Bytes(choices.random.below(most) as u32));
        }
        Cargo::Bytes => {
            if choices.random.once_in(2) {
                parcel.items.push(Item::Bytes(choices.random.below(100) as u32));
            }
        }
        Cargo::References => {
            for _ in 0..choices.random.below(4) {
                parcel.items.push(reference(choices, world, process));
            }
        }
        Cargo::Everything => {
            parcel.scatter = if choices.random.once_in(5) { None } else { Some(0) };
            for _ in 0..choices.random.below(4) {
                thing(choices, world, process, &mut parcel.items);
            }
            if choices.wrong() {
                spoil(choices, &mut parcel);
            }
        }
    }
    parcel
}

/// Random bytes, a node or a handle.
fn reference(choices: &mut Choices, world: &World, process: u8) -> Item {
    match choices.random.below(3) {
        0 => Item::Bytes(choices.random.below(200) as u32),
        1 => {
            let (ptr, cookie) = choices.node(world, process);
            let weak = choices.random.once_in(4);
            let flags = [0x100, 0x17f, 0][choices.random.below(3) as usize];
            Item::Binder { weak, ptr, cookie, flags }
        }
        _ => {
            let weak = choices.random.once_in(4);
            match choices.known_handle(world, process) {
                Some(handle) => Item::Handle { weak, handle },
                None => Item::Bytes(8),
            }
        }
    }
}

fn thing(choices: &mut Choices, world: &World, process: u8, items: &mut Vec<Item>) {
    let n_objects = items.iter().filter(|item| !matches!(item, Item::Bytes(_))).count() as u64;
    match choices.random.below(6) {
        0 | 1 => items.push(reference(choices, world, process)),
        2 => items.push(Item::File(file(choices, world, process))),
        3 => {
            let n = choices.random.below(4);
            let mut files: Vec<_> = (0..n).map(|_| file(choices, world, process)).collect();
            let n_files = if choices.wrong() { choices.random.below(6) } else { n };
            let parent = if choices.wrong() { choices.random.below(5) } else { n_objects };
            let offset = if choices.wrong() { choices.random.below(9) } else { 0 };
            for (at, file) in (0..).step_by(4).zip(&mut files) {
                if parent != n_objects || at < offset || at >= offset + n_files * 4 {
                    // The receiver sees the number as it is, so it must be invalid on both sides.
                    *file = FileName::Number(-1);
                }
            }
            items.push(Item::Buffer { content: Content::Files(files), parent: None });
            items.push(Item::Array { n_files, parent, offset });
        }
        4 => {
            let bytes = choices.random.below(40) as u32;
            let content =
                if choices.wrong() { Content::Nowhere(bytes) } else { Content::Bytes(bytes) };
            items.push(Item::Buffer { content, parent: None });
        }
        _ => {
            items.push(Item::Buffer { content: Content::Bytes(64), parent: None });
            let mut offset = 0;
            for child in 0..choices.random.below(4) {
                let parent = match choices.random.below(8) {
                    0 => n_objects + choices.random.below(child + 1),
                    _ => n_objects,
                };
                offset += 8 * choices.random.below(4);
                if choices.wrong() {
                    offset = choices.random.below(80);
                }
                let content = Content::Bytes(8 + choices.random.below(60) as u32);
                items.push(Item::Buffer { content, parent: Some((parent, offset)) });
                offset += 8;
            }
        }
    }
}

fn file(choices: &mut Choices, world: &World, process: u8) -> FileName {
    let n_files = world.processes[process as usize].files.len() as u64;
    if n_files == 0 || choices.wrong() {
        return FileName::Number(choices.random.below(2) as i32 * 1000 - 1);
    }
    FileName::Known(choices.random.below(n_files) as u32)
}

/// Makes the parcel invalid as a whole.
fn spoil(choices: &mut Choices, parcel: &mut Parcel) {
    let small = |choices: &mut Choices| choices.random.below(40) as i64 - 20;
    match choices.random.below(11) {
        0 => parcel.quirk = Some(Quirk::BadData),
        1 => parcel.quirk = Some(Quirk::BadOffsets),
        2 => parcel.quirk = Some(Quirk::DataSize(small(choices))),
        3 => parcel.quirk = Some(Quirk::OffsetsSize(small(choices))),
        4 => parcel.quirk = Some(Quirk::Offset(choices.random.below(100))),
        5 => parcel.quirk = Some(Quirk::Shifted(small(choices))),
        6 => parcel.quirk = Some(Quirk::Reversed),
        7 => parcel.quirk = Some(Quirk::Twice),
        8 => parcel.scatter = Some(small(choices)),
        9 => parcel.scatter = Some(small(choices) * 8),
        _ => {
            let kinds = [0x73682a85, 0x66642a85, 0x70742a85, 0x66646185, 0x12345678, 0];
            let kind = choices.random.one_of(&kinds).expect("several");
            parcel.items.push(Item::Object(kind, choices.random.below(48) as u32));
        }
    }
}
