//! Fuzzes a transaction's objects: the sender's pass over arbitrary bytes, and the receiver's pass
//! over its result or over arbitrary bytes of a hostile engine.

use super::input::Input;
use baton_abi::control::{NodeId, Strength};
use baton_abi::uapi::*;
use baton_state::parcel::{self, Delivery, Named, Sent};
use baton_state::transaction::HeldObject;
use bytemuck::{bytes_of, bytes_of_mut};
use rustix::io::Errno;

const KINDS: [u32; 7] = [
    BINDER_TYPE_BINDER,
    BINDER_TYPE_WEAK_BINDER,
    BINDER_TYPE_HANDLE,
    BINDER_TYPE_WEAK_HANDLE,
    BINDER_TYPE_FD,
    BINDER_TYPE_PTR,
    BINDER_TYPE_FDA,
];

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let buffers_size = input.small() as usize % 4096 * 8;
    let (mut bytes, offsets) = objects(&mut input);
    let readable = input.u8() < 250;
    let original = bytes.clone();
    let sent = parcel::send(&mut bytes, &offsets, buffers_size, |address, into| {
        into.fill(address as u8);
        if readable { Ok(()) } else { Err(Errno::FAULT) }
    });
    if sent.failed.is_none() {
        assert!(sent.buffers.len() <= buffers_size.next_multiple_of(8), "more than was asked for");
        deliver_honestly(&bytes, &offsets, sent);
    }
    deliver_anything(original, &offsets, &mut input);
}

/// Bytes with objects in them, in order or not, aligned or not.
pub fn objects(input: &mut Input<'_>) -> (Vec<u8>, Vec<u64>) {
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    for _ in 0..input.below(12) {
        let gap = input.below(3) * 4;
        bytes.resize(bytes.len() + gap, 0);
        offsets.push(if input.u8() < 240 { bytes.len() as u64 } else { input.small() });
        let kind = if input.u8() < 250 { input.pick(&KINDS) } else { input.u32() };
        let flags = input.below(2) as u32;
        match kind {
            BINDER_TYPE_PTR => {
                let (buffer, length) = (input.small(), input.small());
                let (parent, parent_offset) = (input.small(), input.small());
                let object = BufferObject { kind, flags, buffer, length, parent, parent_offset };
                bytes.extend_from_slice(bytes_of(&object));
            }
            BINDER_TYPE_FDA => {
                let (num_fds, parent, parent_offset) =
                    (input.small(), input.small(), input.small() & !3);
                let object = FdArrayObject { kind, pad: 0, num_fds, parent, parent_offset };
                bytes.extend_from_slice(bytes_of(&object));
            }
            _ => {
                let (binder, cookie) = (input.small(), input.small());
                bytes.extend_from_slice(bytes_of(&FlatObject { kind, flags, binder, cookie }));
            }
        }
    }
    let left = input.below(40);
    bytes.extend_from_slice(input.bytes(left));
    (bytes, offsets)
}

/// Checks that an honest sender's objects arrive.
fn deliver_honestly(bytes: &[u8], offsets: &[u64], sent: Sent) {
    let held: Vec<HeldObject> = sent.objects.iter().map(held_object).collect();
    let fds: Vec<i32> = (100..).take(sent.fds.len()).collect();
    let delivery = Delivery { held: &held, fds: &fds, buffers_address: 1 << 40 };
    let (mut bytes, mut buffers) = (bytes.to_vec(), sent.buffers);
    let placed = parcel::receive(&mut bytes, offsets, &mut buffers, &delivery, |_| Some((8, 9)));
    let array_fds = placed.expect("an honest sender's objects");
    assert!(array_fds.iter().all(|fd| fds.contains(fd)));
}

fn held_object(object: &Named) -> HeldObject {
    match *object {
        Named::Binder { strength, ptr, .. } => HeldObject::Handle { handle: ptr as u32, strength },
        Named::Handle { handle, strength } => {
            HeldObject::Own { node: NodeId(u64::from(handle)), strength }
        }
    }
}

fn kind_at(bytes: &[u8], offset: u64) -> Option<u32> {
    let bytes = bytes.get(offset as usize..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// Checks that arbitrary bytes, tickets and descriptors break nothing, refused or not, and that a
/// program is given the ticket's references and no others.
fn deliver_anything(mut bytes: Vec<u8>, offsets: &[u64], input: &mut Input<'_>) {
    let strengths = [Strength::Strong, Strength::Weak];
    let mut held = Vec::new();
    // As many references and descriptors as there are objects for them, mostly.
    let kinds: Vec<Option<u32>> = offsets.iter().map(|&offset| kind_at(&bytes, offset)).collect();
    let n_fds = kinds.iter().filter(|kind| **kind == Some(BINDER_TYPE_FD)).count();
    let others = [Some(BINDER_TYPE_FD), Some(BINDER_TYPE_PTR), Some(BINDER_TYPE_FDA)];
    let n_references = kinds.iter().filter(|kind| !others.contains(kind)).count();
    let mut number = |right| if input.u8() < 200 { right } else { input.below(6) };
    let (n_fds, n_references) = (number(n_fds), number(n_references));
    for _ in 0..n_references {
        let (node, strength) = (NodeId(input.small()), input.pick(&strengths));
        held.push(HeldObject::Own { node, strength });
    }
    let fds: Vec<i32> = (0..n_fds as i32).collect();
    let mut buffers = vec![0; input.below(32) * 8];
    let buffers_address = input.u64() >> 1;
    let delivery = Delivery { held: &held, fds: &fds, buffers_address };
    let known = |node: NodeId| (node.0 < 200).then_some((node.0, 1));
    if parcel::receive(&mut bytes, offsets, &mut buffers, &delivery, known).is_err() {
        return;
    }
    let objects = offsets.iter().map(|&offset| {
        let end = bytes.len().min(offset as usize + size_of::<FlatObject>());
        let mut object = FlatObject { kind: 0, flags: 0, binder: 0, cookie: 0 };
        bytes_of_mut(&mut object)[..end - offset as usize]
            .copy_from_slice(&bytes[offset as usize..end]);
        object
    });
    let given = objects.filter_map(|object| match object.kind {
        BINDER_TYPE_BINDER => Some((object.binder, Strength::Strong)),
        BINDER_TYPE_WEAK_BINDER => Some((object.binder, Strength::Weak)),
        BINDER_TYPE_FD | BINDER_TYPE_PTR | BINDER_TYPE_FDA => None,
        kind => panic!("an object of kind {kind:#x} without a reference"),
    });
    let held = held.iter().map(|held| match *held {
        HeldObject::Own { node, strength } => (node.0, strength),
        HeldObject::Handle { .. } => unreachable!("none was held"),
    });
    assert!(given.eq(held), "the program is given other references");
}
