//! Annotations of classes, fields, methods and parameters.
//!
//! ```text
//!   directory   u32 set of the class; u32 count of fields, methods, parameters
//!               then for each of these: u32 id, u32 offset of a set or of a list of sets
//!   list        u32 count, u32 offset of a set for each parameter (0: none)
//!   set         u32 count, u32 offset of an item for each annotation
//!   item        u8 visibility, then an encoded annotation
//! ```

use crate::cursor::Cursor;
use crate::error::DexError;
use crate::file::{CHECKED, DexFile};
use crate::ids::{FieldId, MethodId};
use crate::value::EncodedAnnotation;

/// The time at which an annotation is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// When programs are built.
    Build,
    /// When programs run, by reflection.
    Runtime,
    /// For the virtual machine alone: inner classes, `throws`, generic signatures.
    System,
}

/// An annotation of an element of a program.
#[derive(Clone, Copy, Debug)]
pub struct Annotation<'a> {
    /// The time at which the annotation is visible.
    pub visibility: Visibility,
    /// The annotation itself.
    pub annotation: EncodedAnnotation<'a>,
}

impl<'a> Annotation<'a> {
    pub(crate) fn read(mut cursor: Cursor<'a>) -> Result<Annotation<'a>, DexError> {
        let place = cursor;
        let visibility = match cursor.u8()? {
            0 => Visibility::Build,
            1 => Visibility::Runtime,
            2 => Visibility::System,
            _ => return place.error("a visibility from 0 to 2"),
        };
        Ok(Annotation { visibility, annotation: EncodedAnnotation::read(cursor)? })
    }
}

/// The annotations of one element, in ascending order of types.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationSet<'a> {
    /// At the offset of the first annotation.
    offsets: Cursor<'a>,
    count: u32,
    file: &'a [u8],
}

impl<'a> AnnotationSet<'a> {
    /// Reads a set: an empty one for offset 0.
    fn read(file: &'a [u8], offset: u32) -> Result<AnnotationSet<'a>, DexError> {
        let mut offsets = Cursor::new(file, offset as usize);
        let count = if offset == 0 { 0 } else { offsets.u32()? };
        Ok(AnnotationSet { offsets, count, file })
    }

    /// The annotations.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Annotation<'a>> + use<'a> {
        let (mut offsets, file) = (self.offsets, self.file);
        (0..self.count).map(move |_| {
            let offset = offsets.u32().expect(CHECKED);
            Annotation::read(Cursor::new(file, offset as usize)).expect(CHECKED)
        })
    }

    /// Whether the element has no annotation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The annotations of a class and of its members.
#[derive(Clone, Copy, Debug)]
pub struct Annotations<'a> {
    file: &'a [u8],
    class: u32,
    /// Counts of annotated fields, methods, and methods with annotated parameters.
    counts: [u32; 3],
    /// At the first annotated field.
    members: Cursor<'a>,
}

impl<'a> Annotations<'a> {
    /// Reads a directory: an empty one for offset 0.
    pub(crate) fn read(file: &DexFile<'a>, offset: u32) -> Result<Annotations<'a>, DexError> {
        let mut members = file.cursor(offset);
        let file = file.bytes();
        if offset == 0 {
            return Ok(Annotations { file, class: 0, counts: [0; 3], members });
        }
        let class = members.u32()?;
        let counts = [members.u32()?, members.u32()?, members.u32()?];
        Ok(Annotations { file, class, counts, members })
    }

    /// Annotations of the class.
    pub fn class(&self) -> AnnotationSet<'a> {
        AnnotationSet::read(self.file, self.class).expect(CHECKED)
    }

    /// Annotations of a field that the class defines.
    pub fn field(&self, id: FieldId) -> AnnotationSet<'a> {
        AnnotationSet::read(self.file, self.find(0, id.0)).expect(CHECKED)
    }

    /// Annotations of a method that the class defines.
    pub fn method(&self, id: MethodId) -> AnnotationSet<'a> {
        AnnotationSet::read(self.file, self.find(1, id.0)).expect(CHECKED)
    }

    /// Annotations of each parameter of a method that the class defines. The list is empty if no
    /// parameter has an annotation, and may be shorter than the list of parameters: constructors of
    /// inner classes and enumerations have parameters of which the compiler's list says nothing.
    pub fn parameters(
        &self,
        id: MethodId,
    ) -> impl ExactSizeIterator<Item = AnnotationSet<'a>> + use<'a> {
        let (offset, file) = (self.find(2, id.0), self.file);
        let mut list = Cursor::new(file, offset as usize);
        let count = if offset == 0 { 0 } else { list.u32().expect(CHECKED) };
        (0..count)
            .map(move |_| AnnotationSet::read(file, list.u32().expect(CHECKED)).expect(CHECKED))
    }

    /// The entries of one of the three tables: ids and offsets.
    pub(crate) fn entries(&self, table: usize) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let n_before: u32 = self.counts[..table].iter().sum();
        let start = self.members.offset() + 8 * n_before as usize;
        let mut cursor = Cursor::new(self.file, start);
        (0..self.counts[table])
            .map(move |_| (cursor.u32().expect(CHECKED), cursor.u32().expect(CHECKED)))
    }

    /// The offset in a table's entry for a member: 0 without one.
    fn find(&self, table: usize, id: u32) -> u32 {
        self.entries(table).find(|(of, _)| *of == id).map_or(0, |(_, offset)| offset)
    }
}
