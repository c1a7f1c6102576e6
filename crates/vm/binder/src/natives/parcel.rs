//! android.os.Parcel
//!
//! Parcel's own methods with bytecode call native ones with the number of its contents. The most
//! used of them are replaced here as a whole, and arrays of numbers are written and read at once.

use crate::binders::{java_object, object_of};
use crate::classes::{classes, find};
use crate::driver::duplicate_of;
use crate::parcel::{Object, Parcel};
use crate::parcels::PARCELS;
use crate::pool;
use baton::android::Mark;
use baton_vm::natives::values::{
    NULL, Outcome, VOID, boolean, byte_range, bytes, call, construct, field, non_null, primitives,
    rust, throw, units, utf16,
};
use baton_vm::object::{Kind, Ref};
use baton_vm::stack::{Args, Value};
use baton_vm::string;
use baton_vm::vm::{Native, Thread, Thrown};
use rustix::fd::{IntoRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

const PARCEL: &str = "Landroid/os/Parcel;";
/// The beginning of a request: gather violations of no strict-mode policy.
const STRICT_MODE: i32 = i32::MIN;
/// The caller works for itself.
const NO_WORK_SOURCE: i32 = -1;

/// A read and a write of one number.
macro_rules! number {
    ($write:literal, $read:literal, $type:literal, $number:ty, $get:ident, $value:ident) => {
        [
            (PARCEL, $write, concat!("(", $type, ")V"), |t, a| {
                own(t, a, |parcel| parcel.write(&<$number>::to_le_bytes(a.$get(1))))?;
                VOID
            }),
            (PARCEL, $read, concat!("()", $type), |t, a| {
                let value = own(t, a, |parcel| <$number>::from_le_bytes(parcel.read_number()))?;
                Ok(Value::$value(value))
            }),
        ]
    };
}

/// A write of an array, and reads into a new one and into one that is there.
macro_rules! numbers {
    ($write:literal, $create:literal, $read:literal, $type:literal, $kind:ident, $number:ty,
     $get:ident, $set:ident) => {
        [
            (PARCEL, $write, concat!("([", $type, ")V"), |t, a| {
                let array = a.reference(1);
                own(t, a, |parcel| {
                    if array.is_null() {
                        return parcel.write_i32(-1);
                    }
                    let array = array.array().expect("an array");
                    let elements = (0..array.length() as usize).map(|it| array.$get(it as u32));
                    parcel.write_elements(elements.map(<$number>::to_le_bytes));
                })?;
                VOID
            }),
            (PARCEL, $create, concat!("()[", $type), |t, a| {
                let Some(length) = own(t, a, |it| it.read_length(size_of::<$number>()))? else {
                    return NULL;
                };
                let array = primitives(t, Kind::$kind, length)?;
                own(t, a, |parcel| {
                    let array = array.array().expect("an array");
                    let bytes = parcel.read(length * size_of::<$number>()).unwrap_or(&[]);
                    let elements = bytes.chunks_exact(size_of::<$number>());
                    (0..).zip(elements).for_each(|(it, element)| {
                        let element = element.try_into().expect("as many bytes");
                        array.$set(it, <$number>::from_le_bytes(element));
                    });
                })?;
                Ok(Value::Ref(array))
            }),
            (PARCEL, $read, concat!("([", $type, ")V"), |t, a| {
                let array = non_null(t, a.reference(1), "val")?;
                let fits = own(t, a, |parcel| {
                    let fits = parcel.read_i32() as u32 == array.length();
                    if fits {
                        (0..array.length()).for_each(|it| {
                            array.$set(it, <$number>::from_le_bytes(parcel.read_number()));
                        });
                    }
                    fits
                })?;
                if !fits {
                    return Err(throw(t, "java/lang/RuntimeException", "bad array lengths"));
                }
                VOID
            }),
        ]
    };
}

const NUMBERS: [[Native; 2]; 4] = [
    number!("writeInt", "readInt", "I", i32, int, Int),
    number!("writeLong", "readLong", "J", i64, long, Long),
    number!("writeFloat", "readFloat", "F", f32, float, Float),
    number!("writeDouble", "readDouble", "D", f64, double, Double),
];
const ARRAYS: [[Native; 3]; 2] = [
    numbers!("writeIntArray", "createIntArray", "readIntArray", "I", Int, i32, get_i32, set_i32),
    numbers!(
        "writeLongArray",
        "createLongArray",
        "readLongArray",
        "J",
        Long,
        i64,
        get_i64,
        set_i64
    ),
];

/// The native methods, and those that are replaced.
pub fn table() -> Vec<Native> {
    [NUMBERS.as_flattened(), ARRAYS.as_flattened(), TABLE].concat()
}

const TABLE: &[Native] = &[
    (PARCEL, "obtain", "()Landroid/os/Parcel;", |t, _| Ok(Value::Ref(pool::obtain(t)?))),
    (PARCEL, "obtain", "(I)Landroid/os/Parcel;", |t, a| {
        Ok(Value::Ref(pool::obtain_holder(t, a.int(0))?))
    }),
    (
        PARCEL,
        "recycle",
        "()V",
        |t, a| {
            if pool::recycle(a.reference(0)) { VOID } else { Err(freed(t)) }
        },
    ),
    (PARCEL, "writeString", "(Ljava/lang/String;)V", |t, a| {
        let text = a.reference(1);
        let units = (!text.is_null()).then(|| string::units(t, text));
        own(t, a, |parcel| parcel.write_string(units.as_deref()))?;
        VOID
    }),
    (PARCEL, "readString", "()Ljava/lang/String;", |t, a| {
        let units = own(t, a, Parcel::read_string)?;
        units.map_or(NULL, |units| Ok(Value::Ref(utf16(t, &units)?)))
    }),
    (PARCEL, "writeStrongBinder", "(Landroid/os/IBinder;)V", |t, a| {
        let object = object_of(t, a.reference(1))?;
        own(t, a, |parcel| parcel.write_object(object))?;
        VOID
    }),
    (PARCEL, "readStrongBinder", "()Landroid/os/IBinder;", |t, a| {
        let object = own(t, a, Parcel::read_binder)?;
        Ok(Value::Ref(java_object(t, object)?))
    }),
    (PARCEL, "nativeDataSize", "(I)I", |t, a| size(numbered(t, a, |it| it.bytes().len())?)),
    (PARCEL, "nativeDataAvail", "(I)I", |t, a| size(numbered(t, a, |it| it.available())?)),
    (PARCEL, "nativeDataPosition", "(I)I", |t, a| size(numbered(t, a, |it| it.position())?)),
    (PARCEL, "nativeDataCapacity", "(I)I", |t, a| size(numbered(t, a, |it| it.capacity())?)),
    (PARCEL, "nativeSetDataSize", "(II)V", |t, a| {
        let len = not_negative(t, a.int(1))?;
        numbered(t, a, |parcel| parcel.set_len(len))?;
        VOID
    }),
    (PARCEL, "nativeSetDataPosition", "(II)V", |t, a| {
        let position = not_negative(t, a.int(1))?;
        numbered(t, a, |parcel| parcel.set_position(position))?;
        VOID
    }),
    (PARCEL, "nativeSetDataCapacity", "(II)V", |t, a| {
        let capacity = not_negative(t, a.int(1))?;
        numbered(t, a, |parcel| parcel.reserve(capacity))?;
        VOID
    }),
    (PARCEL, "nativePushAllowFds", "(IZ)Z", |t, a| {
        // Never loosens what is set.
        let before = numbered(t, a, |parcel| {
            let before = parcel.refuses_descriptors();
            parcel.refuse_descriptors(before || !a.boolean(1))
        })?;
        boolean(!before)
    }),
    (PARCEL, "nativeRestoreAllowFds", "(IZ)V", |t, a| {
        numbered(t, a, |parcel| parcel.refuse_descriptors(!a.boolean(1)))?;
        VOID
    }),
    (PARCEL, "nativeWriteByteArray", "(I[BII)V", |t, a| {
        let bytes = byte_range(t, a.reference(1), a.int(2), a.int(3))?;
        numbered(t, a, |parcel| {
            parcel.write_i32(bytes.len() as i32);
            parcel.write(&bytes);
        })?;
        VOID
    }),
    (PARCEL, "nativeCreateByteArray", "(I)[B", |t, a| {
        let read = numbered(t, a, |parcel| parcel.read_bytes().map(<[u8]>::to_vec))?;
        read.map_or(NULL, |read| Ok(Value::Ref(bytes(t, &read)?)))
    }),
    (PARCEL, "nativeWriteFileDescriptor", "(ILjava/io/FileDescriptor;)V", |t, a| {
        if numbered(t, a, |parcel| parcel.refuses_descriptors())? {
            let message = "Not allowed to write file descriptors here";
            return Err(throw(t, "java/lang/RuntimeException", message));
        }
        let fd = duplicate(t, a.reference(1))?;
        numbered(t, a, |parcel| parcel.write_object(Some(Object::Descriptor(fd))))?;
        VOID
    }),
    (PARCEL, "nativeReadFileDescriptor", "(I)Ljava/io/FileDescriptor;", |t, a| {
        let fd = numbered(t, a, Parcel::read_descriptor)?;
        fd.map_or(NULL, |fd| Ok(Value::Ref(file_descriptor(t, fd)?)))
    }),
    (PARCEL, "nativeCreate", "()I", |t, _| {
        find(t)?;
        Ok(Value::Int(PARCELS.add(Box::default()) as i32))
    }),
    (PARCEL, "nativeFreeBuffer", "(I)V", |t, a| {
        numbered(t, a, Parcel::clear)?;
        VOID
    }),
    (PARCEL, "nativeDestroy", "(I)V", |_, a| {
        drop(PARCELS.remove(a.int(0) as u32));
        VOID
    }),
    (PARCEL, "nativeMarshall", "(I)[B", |t, a| {
        let copy = numbered(t, a, |it| (!it.has_objects()).then(|| it.bytes().to_vec()))?;
        let Some(copy) = copy else {
            let message = "Tried to marshall a Parcel that contained Binder objects.";
            return Err(throw(t, "java/lang/RuntimeException", message));
        };
        Ok(Value::Ref(bytes(t, &copy)?))
    }),
    (PARCEL, "nativeUnmarshall", "(I[BII)V", |t, a| {
        let bytes = byte_range(t, a.reference(1), a.int(2), a.int(3))?;
        numbered(t, a, |parcel| {
            parcel.set_len(0);
            parcel.write(&bytes);
            parcel.set_len(bytes.len());
        })?;
        VOID
    }),
    (PARCEL, "nativeAppendFrom", "(IIII)V", |t, a| {
        // By way of a copy: the two may be one.
        let (start, len) = (not_negative(t, a.int(2))?, not_negative(t, a.int(3))?);
        let mut part = Parcel::default();
        let mut appended = contents(t, a.int(1), |from| part.append(from, start, len))?;
        if appended.is_ok() {
            appended = numbered(t, a, |parcel| parcel.append(&part, 0, len))?;
        }
        appended.map_err(|errno| {
            let message = format!("no part of {len} bytes at {start} can be copied: {errno}");
            throw(t, "java/lang/IllegalArgumentException", &message)
        })?;
        VOID
    }),
    (PARCEL, "nativeHasFileDescriptors", "(I)Z", |t, a| {
        boolean(numbered(t, a, |parcel| parcel.has_descriptors())?)
    }),
    (PARCEL, "nativeWriteInterfaceToken", "(ILjava/lang/String;)V", |t, a| {
        let name = units(t, a.reference(1))?;
        numbered(t, a, |parcel| {
            let header = [STRICT_MODE, NO_WORK_SOURCE, Mark::System.word()];
            header.into_iter().for_each(|it| parcel.write_i32(it));
            parcel.write_string(Some(&name));
        })?;
        VOID
    }),
    (PARCEL, "nativeEnforceInterface", "(ILjava/lang/String;)V", |t, a| {
        let name = units(t, a.reference(1))?;
        if !numbered(t, a, |parcel| reads_token(parcel, &name))? {
            let message = "Binder invocation to an incorrect interface";
            return Err(throw(t, "java/lang/SecurityException", message));
        }
        VOID
    }),
    (
        PARCEL,
        "openFileDescriptor",
        "(Ljava/lang/String;I)Ljava/io/FileDescriptor;",
        open_file_descriptor,
    ),
    (PARCEL, "dupFileDescriptor", "(Ljava/io/FileDescriptor;)Ljava/io/FileDescriptor;", |t, a| {
        let fd = duplicate(t, a.reference(0))?;
        Ok(Value::Ref(file_descriptor(t, fd)?))
    }),
    (PARCEL, "closeFileDescriptor", "(Ljava/io/FileDescriptor;)V", |t, a| {
        let object = non_null(t, a.reference(0), "fd")?;
        call(t, "libcore/io/IoUtils", "close", "(Ljava/io/FileDescriptor;)V", &[Value::Ref(object)])
    }),
    (PARCEL, "clearFileDescriptor", "(Ljava/io/FileDescriptor;)V", |t, a| {
        let object = non_null(t, a.reference(0), "fd")?;
        field(object, "descriptor", "I").set32(object, -1i32 as u32);
        VOID
    }),
];

/// Runs `with` on the contents of a number.
fn contents<T>(t: &Thread, number: i32, with: impl FnOnce(&mut Parcel) -> T) -> Result<T, Thrown> {
    PARCELS.with(number as u32, with).ok_or_else(|| freed(t))
}

#[cold]
fn freed(t: &Thread) -> Thrown {
    throw(t, "java/lang/IllegalStateException", "the parcel has been recycled")
}

/// Runs `with` on the contents of the Parcel that is the first argument.
fn own<T>(t: &Thread, a: Args, with: impl FnOnce(&mut Parcel) -> T) -> Result<T, Thrown> {
    contents(t, classes().parcel_number.get32(a.reference(0)) as i32, with)
}

/// Runs `with` on the contents whose number is the first argument.
fn numbered<T>(t: &Thread, a: Args, with: impl FnOnce(&mut Parcel) -> T) -> Result<T, Thrown> {
    contents(t, a.int(0), with)
}

/// A size as Java has it.
fn size(value: usize) -> Outcome {
    Ok(Value::Int(i32::try_from(value).unwrap_or(i32::MAX)))
}

fn not_negative(t: &Thread, value: i32) -> Result<usize, Thrown> {
    usize::try_from(value).map_err(|_| {
        throw(t, "java/lang/IllegalArgumentException", &format!("{value} is negative"))
    })
}

/// Whether a request begins with this interface, in the form of Android 11 and later, with whatever
/// mark, or in that of Android 9 and earlier.
fn reads_token(parcel: &mut Parcel, name: &[u16]) -> bool {
    let start = parcel.position();
    let [_policy, _work_source, mark] = [(); 3].map(|()| parcel.read_i32());
    if Mark::of(mark).is_none() {
        parcel.set_position(start + size_of::<i32>());
    }
    parcel.read_string().as_deref() == Some(name)
}

/// A duplicate of a java.io.FileDescriptor's descriptor.
fn duplicate(t: &Thread, object: Ref) -> Result<OwnedFd, Thrown> {
    let object = non_null(t, object, "fd")?;
    let number = field(object, "descriptor", "I").get32(object) as i32;
    let duplicate = if number < 0 { Err(Errno::BADF) } else { duplicate_of(number) };
    duplicate.map_err(|errno| {
        throw(t, "java/lang/IllegalArgumentException", &format!("descriptor {number}: {errno}"))
    })
}

/// A java.io.FileDescriptor that has this descriptor.
fn file_descriptor(t: &Thread, fd: OwnedFd) -> Result<Ref, Thrown> {
    let object = construct(t, "java/io/FileDescriptor", "()V", &[])?;
    field(object, "descriptor", "I").set32(object, fd.into_raw_fd() as u32);
    Ok(object)
}

/// ParcelFileDescriptor.open, whose modes these are.
fn open_file_descriptor(t: &Thread, a: Args) -> Outcome {
    const WORLD_READABLE: i32 = 1;
    const WORLD_WRITEABLE: i32 = 2;
    const APPEND: i32 = 0x0200_0000;
    const TRUNCATE: i32 = 0x0400_0000;
    const CREATE: i32 = 0x0800_0000;
    const READ_ONLY: i32 = 0x1000_0000;
    const WRITE_ONLY: i32 = 0x2000_0000;
    const READ_WRITE: i32 = 0x3000_0000;
    let (path, mode) = (rust(t, a.reference(0))?, a.int(1));
    let access = match mode & READ_WRITE {
        READ_ONLY => OFlags::RDONLY,
        WRITE_ONLY => OFlags::WRONLY,
        READ_WRITE => OFlags::RDWR,
        _ => OFlags::RDONLY,
    };
    let mut flags = access | OFlags::CLOEXEC;
    for (bit, flag) in
        [(APPEND, OFlags::APPEND), (TRUNCATE, OFlags::TRUNC), (CREATE, OFlags::CREATE)]
    {
        flags.set(flag, mode & bit != 0);
    }
    let mut permissions = Mode::RWXU | Mode::RWXG;
    permissions.set(Mode::ROTH, mode & WORLD_READABLE != 0);
    permissions.set(Mode::WOTH, mode & WORLD_WRITEABLE != 0);
    let opened = t.safe(|| openat(CWD, path.as_str(), flags, permissions));
    let fd = opened
        .map_err(|errno| throw(t, "java/io/FileNotFoundException", &format!("{path}: {errno}")))?;
    Ok(Value::Ref(file_descriptor(t, fd)?))
}
