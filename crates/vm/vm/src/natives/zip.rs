//! java.util.zip: Inflater, Deflater, CRC32 and Adler32
//!
//! Preset dictionaries are missing: the library that compresses has none.

use super::handles::Handles;
use super::posix::with_fd;
use super::values::{Outcome, VOID, byte_range, check_range, field, throw};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::sync::{Arc, Mutex};

const INFLATER: &str = "Ljava/util/zip/Inflater;";
const DEFLATER: &str = "Ljava/util/zip/Deflater;";
const CRC: &str = "Ljava/util/zip/CRC32;";
const ADLER: &str = "Ljava/util/zip/Adler32;";

/// A stream with the input that it has not read.
struct Stream<T> {
    engine: T,
    input: Vec<u8>,
    read: usize,
    has_header: bool,
    /// Adler's checksum of the data that is not compressed
    sum: u32,
}

static INFLATERS: Handles<Mutex<Stream<Decompress>>> = Handles::new();
static DEFLATERS: Handles<Mutex<Stream<Compress>>> = Handles::new();

fn stream<T>(engine: T, has_header: bool) -> Arc<Mutex<Stream<T>>> {
    Arc::new(Mutex::new(Stream { engine, input: Vec::new(), read: 0, has_header, sum: 1 }))
}

fn compression(level: i32) -> Compression {
    u32::try_from(level).map_or(Compression::default(), |level| Compression::new(level.min(9)))
}

pub(super) const TABLE: &[Native] = &[
    (INFLATER, "createStream", "(Z)J", |_, a| {
        let has_header = !a.boolean(1);
        Ok(Value::Long(INFLATERS.add(stream(Decompress::new(has_header), has_header))))
    }),
    (INFLATER, "endImpl", "(J)V", |_, a| {
        INFLATERS.remove(a.long(1));
        VOID
    }),
    (INFLATER, "resetImpl", "(J)V", |t, a| {
        with(t, &INFLATERS, a.long(1), |stream| {
            stream.engine.reset(stream.has_header);
            (stream.input, stream.read, stream.sum) = (Vec::new(), 0, 1);
        })?;
        VOID
    }),
    (INFLATER, "setInputImpl", "([BIIJ)V", |t, a| set_input(t, a, &INFLATERS)),
    (INFLATER, "setFileInputImpl", "(Ljava/io/FileDescriptor;JIJ)I", |t, a| {
        let mut input = vec![0; a.int(4).max(0) as usize];
        let offset = a.long(2) as u64;
        let n =
            with_fd(t, a.reference(1), "pread", |fd| rustix::io::pread(fd, &mut input, offset))?;
        input.truncate(n);
        with(t, &INFLATERS, a.long(5), |stream| (stream.input, stream.read) = (input, 0))?;
        Ok(Value::Int(n as i32))
    }),
    (INFLATER, "getTotalInImpl", "(J)J", |t, a| {
        Ok(Value::Long(with(t, &INFLATERS, a.long(1), |it| it.engine.total_in())? as i64))
    }),
    (INFLATER, "getTotalOutImpl", "(J)J", |t, a| {
        Ok(Value::Long(with(t, &INFLATERS, a.long(1), |it| it.engine.total_out())? as i64))
    }),
    (INFLATER, "getAdlerImpl", "(J)I", |t, a| {
        Ok(Value::Int(with(t, &INFLATERS, a.long(1), |it| it.sum)? as i32))
    }),
    (INFLATER, "inflateImpl", "([BIIJ)I", |t, a| {
        check_range(t, a.reference(1), a.int(2), a.int(3))?;
        let mut output = vec![0; a.int(3) as usize];
        let inflated = with(t, &INFLATERS, a.long(4), |stream| {
            let before = (stream.engine.total_in(), stream.engine.total_out());
            let input = &stream.input[stream.read..];
            let status = stream.engine.decompress(input, &mut output, FlushDecompress::Sync);
            stream.read += (stream.engine.total_in() - before.0) as usize;
            output.truncate((stream.engine.total_out() - before.1) as usize);
            stream.sum = adler(stream.sum, &output);
            status.map(|status| (status, stream.read)).map_err(|error| error.needs_dictionary())
        })?;
        let this = a.reference(0);
        match inflated {
            Ok((status, read)) => {
                field(this, "finished", "Z").set32(this, u32::from(status == Status::StreamEnd));
                field(this, "inRead", "I").set32(this, read as u32);
                give(a, &output)
            }
            Err(Some(_)) => {
                field(this, "needsDictionary", "Z").set32(this, 1);
                Ok(Value::Int(0))
            }
            Err(None) => Err(throw(t, "java/util/zip/DataFormatException", "data error")),
        }
    }),
    (DEFLATER, "createStream", "(IIZ)J", |_, a| {
        let has_header = !a.boolean(3);
        let engine = Compress::new(compression(a.int(1)), has_header);
        Ok(Value::Long(DEFLATERS.add(stream(engine, has_header))))
    }),
    (DEFLATER, "endImpl", "(J)V", |_, a| {
        DEFLATERS.remove(a.long(1));
        VOID
    }),
    (DEFLATER, "resetImpl", "(J)V", |t, a| {
        with(t, &DEFLATERS, a.long(1), |stream| {
            stream.engine.reset();
            (stream.input, stream.read, stream.sum) = (Vec::new(), 0, 1);
        })?;
        VOID
    }),
    // A level for what follows. The data so far is complete: the Java half flushes it before.
    (DEFLATER, "setLevelsImpl", "(IIJ)V", |t, a| {
        with(t, &DEFLATERS, a.long(3), |stream| {
            if stream.engine.total_in() == 0 {
                stream.engine = Compress::new(compression(a.int(1)), stream.has_header);
            }
        })?;
        VOID
    }),
    (DEFLATER, "setInputImpl", "([BIIJ)V", |t, a| set_input(t, a, &DEFLATERS)),
    (DEFLATER, "getTotalInImpl", "(J)J", |t, a| {
        Ok(Value::Long(with(t, &DEFLATERS, a.long(1), |it| it.engine.total_in())? as i64))
    }),
    (DEFLATER, "getTotalOutImpl", "(J)J", |t, a| {
        Ok(Value::Long(with(t, &DEFLATERS, a.long(1), |it| it.engine.total_out())? as i64))
    }),
    (DEFLATER, "getAdlerImpl", "(J)I", |t, a| {
        Ok(Value::Int(with(t, &DEFLATERS, a.long(1), |it| it.sum)? as i32))
    }),
    (DEFLATER, "deflateImpl", "([BIIJI)I", |t, a| {
        check_range(t, a.reference(1), a.int(2), a.int(3))?;
        let flush = match a.int(6) {
            2 => FlushCompress::Sync,
            3 => FlushCompress::Full,
            4 => FlushCompress::Finish,
            _ => FlushCompress::None,
        };
        let mut output = vec![0; a.int(3) as usize];
        let deflated = with(t, &DEFLATERS, a.long(4), |stream| {
            let before = (stream.engine.total_in(), stream.engine.total_out());
            let input = &stream.input[stream.read..];
            let status = stream.engine.compress(input, &mut output, flush);
            let n_read = (stream.engine.total_in() - before.0) as usize;
            stream.sum = adler(stream.sum, &input[..n_read]);
            stream.read += n_read;
            output.truncate((stream.engine.total_out() - before.1) as usize);
            status.map(|status| (status, stream.read))
        })?;
        let Ok((status, read)) = deflated else {
            return Err(throw(t, "java/lang/IllegalStateException", "stream error"));
        };
        let this = a.reference(0);
        if status == Status::StreamEnd {
            field(this, "finished", "Z").set32(this, 1);
        }
        field(this, "inRead", "I").set32(this, read as u32);
        give(a, &output)
    }),
    (CRC, "updateImpl", "([BIIJ)J", |t, a| {
        let bytes = byte_range(t, a.reference(1), a.int(2), a.int(3))?;
        Ok(Value::Long(crc(a.long(4), &bytes)))
    }),
    (CRC, "updateByteImpl", "(BJ)J", |_, a| Ok(Value::Long(crc(a.long(2), &[a.int(1) as u8])))),
    (ADLER, "updateImpl", "([BIIJ)J", |t, a| {
        let bytes = byte_range(t, a.reference(1), a.int(2), a.int(3))?;
        Ok(Value::Long(i64::from(adler(a.long(4) as u32, &bytes))))
    }),
    (ADLER, "updateByteImpl", "(IJ)J", |_, a| {
        Ok(Value::Long(i64::from(adler(a.long(2) as u32, &[a.int(1) as u8]))))
    }),
];

fn with<T, R>(
    t: &Thread,
    streams: &Handles<Mutex<Stream<T>>>,
    number: i64,
    run: impl FnOnce(&mut Stream<T>) -> R,
) -> Result<R, Thrown> {
    match streams.get(number) {
        Some(stream) => Ok(run(&mut stream.lock().expect("no holder panics"))),
        None => Err(throw(t, "java/lang/IllegalStateException", "closed")),
    }
}

fn set_input<T>(t: &Thread, a: Args, streams: &Handles<Mutex<Stream<T>>>) -> Outcome {
    let input = byte_range(t, a.reference(1), a.int(2), a.int(3))?;
    with(t, streams, a.long(4), |stream| (stream.input, stream.read) = (input, 0))?;
    VOID
}

/// Stores output in the array that is the first argument; returns its length.
fn give(a: Args, output: &[u8]) -> Outcome {
    for (index, byte) in (a.int(2) as u32..).zip(output) {
        a.reference(1).set_i8(index, *byte as i8);
    }
    Ok(Value::Int(output.len() as i32))
}

fn adler(sum: u32, bytes: &[u8]) -> u32 {
    let mut adler = adler2::Adler32::from_checksum(sum);
    adler.write_slice(bytes);
    adler.checksum()
}

fn crc(sum: i64, bytes: &[u8]) -> i64 {
    let mut hasher = crc32fast::Hasher::new_with_initial(sum as u32);
    hasher.update(bytes);
    i64::from(hasher.finalize())
}
