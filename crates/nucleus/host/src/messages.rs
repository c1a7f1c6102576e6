//! Messages between threads of the kernel: up to eight words, which travel in registers.
//!
//! ```text
//!            word 0 (kind, slot, length)      1                 2 to 7
//!  request   FORWARDED                        -                 -
//!  label:    SHORT                            answer's place    the bytes
//!  the code  LONG                             answer's place    where the bytes are
//!            END                              -                 -
//!
//!            word 0                           1 to 7
//!  answer    SHORT                            the bytes
//!            PLACED: in the answer's place    -
//!            FAILED: length is the errno      -
//! ```
//!
//! Requests that are longer than a message are copied from the caller; long answers are moved to
//! it.
//!
//! **Invariant**: each address is in the frame of the calling thread, which waits for the answer.
//! No thread of a host aborts another one's wait.

use crate::answer::{Answer, SHORT_BYTES, Source};
use baton::{CallError, Parcel};
use baton_nucleus::{Message, Tag};
use rustix::io::Errno;

const FORWARDED: u64 = 0;
const SHORT: u64 = 1;
const LONG: u64 = 2;
const END: u64 = 3;
const PLACED: u64 = 4;
const FAILED: u64 = 5;

/// Bytes of a request that travels in registers.
pub(crate) const REQUEST_BYTES: usize = 48;
const _: () = assert!(REQUEST_BYTES == 6 * 8 && SHORT_BYTES == 7 * 8);

/// The place in the caller's frame for an answer that is too long for registers.
pub(crate) type AnswerPlace = Option<Parcel>;

fn head(kind: u64, slot: usize, length: usize) -> u64 {
    kind | (slot as u64) << 8 | (length as u64) << 16
}

fn length(head: u64) -> usize {
    (head >> 16) as usize
}

fn message(label: u32, words: &[u64]) -> Message {
    let mut message = Message { tag: Tag::new(label, words.len() as u8), words: [0; 8] };
    message.words[..words.len()].copy_from_slice(words);
    message
}

fn put(words: &mut [u64], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(eight);
    }
}

fn get<const N: usize>(words: &[u64]) -> [u8; N] {
    let mut bytes = [0; N];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// A forwarder's message to a service: the pending call of this slot is for the service.
pub(crate) fn forwarded(slot: usize) -> Message {
    message(0, &[head(FORWARDED, slot, 0)])
}

/// The dispatcher's message to any thread: it has to end.
pub(crate) fn end() -> Message {
    message(0, &[head(END, 0, 0)])
}

/// The dispatcher's message to a waiting thread: it has to go on.
pub(crate) fn go_on() -> Message {
    message(0, &[])
}

/// Whether the message is [`end`].
pub(crate) fn is_end(message: &Message) -> bool {
    message.tag.length() > 0 && message.words[0] & 0xff == END
}

/// A service's message to another service, on behalf of the pending call of this slot.
pub(crate) fn request(slot: usize, code: u32, data: &[u8], place: *mut AnswerPlace) -> Message {
    let length = data.len();
    let mut words = [0; 8];
    words[1] = place as u64;
    if length <= REQUEST_BYTES {
        words[0] = head(SHORT, slot, length);
        put(&mut words[2..], data);
    } else {
        words[0] = head(LONG, slot, length);
        words[2] = data.as_ptr() as u64;
    }
    message(code, &words)
}

/// A message that a service has received.
pub(crate) enum ServiceMessage<'a> {
    Forwarded,
    Request { data: &'a [u8], code: u32, place: *mut AnswerPlace },
    End,
}

/// Memory for requests, which a service uses again and again.
pub(crate) struct Memory {
    short: [u8; REQUEST_BYTES],
    long: Vec<u8>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { short: [0; REQUEST_BYTES], long: Vec::new() }
    }
}

/// The slot of the pending call to which a request belongs.
pub(crate) fn slot(message: &Message) -> usize {
    (message.words[0] >> 8 & 0xff) as usize
}

/// Reads a request that a service has received.
pub(crate) fn read<'a>(message: &Message, memory: &'a mut Memory) -> ServiceMessage<'a> {
    let (head, code, place) =
        (message.words[0], message.tag.label(), message.words[1] as *mut AnswerPlace);
    match head & 0xff {
        SHORT => {
            memory.short = get(&message.words[2..]);
            ServiceMessage::Request { data: &memory.short[..length(head)], code, place }
        }
        LONG => {
            // SAFETY: these are the bytes of `request`, whose caller waits (the invariant).
            let data =
                unsafe { std::slice::from_raw_parts(message.words[2] as *const u8, length(head)) };
            memory.long.clear();
            memory.long.extend_from_slice(data);
            ServiceMessage::Request { data: &memory.long, code, place }
        }
        END => ServiceMessage::End,
        _ => ServiceMessage::Forwarded,
    }
}

/// A service's answer to another service.
///
/// # Safety
/// `place` is that of the request, which has not been answered yet.
pub(crate) unsafe fn answer(answer: Result<Parcel, Errno>, place: *mut AnswerPlace) -> Message {
    match answer {
        Err(errno) => message(0, &[head(FAILED, 0, errno.raw_os_error() as usize)]),
        Ok(parcel) if !parcel.has_objects() && parcel.data().len() <= SHORT_BYTES => {
            let mut words = [0; 8];
            words[0] = head(SHORT, 0, parcel.data().len());
            put(&mut words[1..], parcel.data());
            message(0, &words)
        }
        Ok(parcel) => {
            // SAFETY: the caller waits (the invariant).
            unsafe { *place = Some(parcel) };
            placed()
        }
    }
}

/// The answer whose parcel is in its place already.
pub(crate) fn placed() -> Message {
    message(0, &[head(PLACED, 0, 0)])
}

/// Reads the answer to [`request`].
pub(crate) fn answered<'t>(message: &Message, place: AnswerPlace) -> Result<Answer<'t>, CallError> {
    let head = message.words[0];
    match (head & 0xff, place) {
        (SHORT, _) => {
            let bytes = get(&message.words[1..]);
            Ok(Answer(Source::Short { bytes, length: length(head) }))
        }
        (PLACED, Some(parcel)) => Ok(Answer(Source::Parcel(parcel))),
        _ => Err(CallError::Refused(Errno::from_raw_os_error(length(head) as i32))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_of_any_length_arrive_as_they_were() {
        for bytes in [0, 1, 7, 8, 47, 48, 49, 55, 56, 57, 4000] {
            let data: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let mut place = None;
            let asked = request(127, 77, &data, &raw mut place);
            assert_eq!((slot(&asked), is_end(&asked)), (127, false));
            let mut memory = Memory::new();
            let ServiceMessage::Request { data: read, code: 77, place: where_to } =
                read(&asked, &mut memory)
            else {
                panic!("{bytes} bytes")
            };
            assert_eq!(read, data);
            // SAFETY: `place` is the variable above.
            let answer = unsafe { answer(Ok(Parcel::from(&data[..])), where_to) };
            assert_eq!(answered(&answer, place).unwrap().data(), data);
        }
    }

    #[test]
    fn an_errno_is_an_answer() {
        let mut place = None;
        // SAFETY: `place` is the variable above.
        let answer = unsafe { answer(Err(Errno::PERM), &raw mut place) };
        let failed = answered(&answer, place).map(drop);
        assert_eq!(failed, Err(CallError::Refused(Errno::PERM)));
    }
}
