//! Dex files 035 to 039: the code of Android's Java programs.
//!
//! [`DexFile::open`] checks a whole file, so that reading it afterwards cannot fail. The
//! instructions of a method are checked by [`verify`] before the method runs, as one bad
//! method does not make its file useless. Types of registers, which depend on other classes, are
//! the virtual machine's to check.
//!
//! Source: the dex format and the Dalvik bytecode as documented by the Android Open Source
//! Project.

#![forbid(unsafe_code)]

mod annotation;
mod check;
mod class;
mod code;
mod cursor;
mod debug;
mod error;
mod file;
mod header;
mod ids;
mod instruction;
mod opcode;
mod string;
mod tables;
mod value;
mod verify;

pub use annotation::{Annotation, AnnotationSet, Annotations, Visibility};
pub use class::{ClassData, ClassDef, EncodedField, EncodedMethod, access};
pub use code::{Code, Handler, Try};
pub use error::{CodeError, DexError};
pub use file::DexFile;
pub use ids::{
    CallSiteId, Field, FieldId, Method, MethodHandle, MethodHandleId, MethodId, Proto, ProtoId,
    StringId, TypeId, TypeList,
};
pub use instruction::{Instruction, Payload};
pub use opcode::{Flow, Format, IndexKind, Opcode};
pub use string::{Mutf8, encode as encode_mutf8};
pub use value::{EncodedAnnotation, Value, Values};
pub use verify::verify;
