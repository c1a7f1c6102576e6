//! Fuzzes the decoders of intents, filters and bundles, and the reader of manifests. A value that
//! is decoded comes back from its own encoding.

use super::input::Input;
use baton::Parcel;
use baton::android::{Reader, Write};
use baton_services::intent::{
    Bundle, DecodeError, Intent, IntentFilter, Manifest, Owner, Resolver,
};

/// Decodes bytes, and what was decoded once more.
fn check<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
    write: impl Fn(&T, &mut Parcel),
) -> Option<T> {
    let value = read(&mut Reader::new(bytes)).ok()?;
    let mut parcel = Parcel::new();
    write(&value, &mut parcel);
    let mut reader = Reader::new(parcel.data());
    // As text: a float that is no number is not equal to itself.
    let again = read(&mut reader).map(|again| format!("{again:?}"));
    assert_eq!(again, Ok(format!("{value:?}")));
    assert!(reader.is_empty(), "{value:?}");
    Some(value)
}

/// A parcel that is likelier to be one than random bytes are: words and strings as they are chosen.
fn compose(input: &mut Input<'_>) -> Parcel {
    let mut parcel = Parcel::new();
    while !input.is_over() {
        match input.below(5) {
            0 => parcel.write_i32(input.small() as i32),
            1 => parcel.write_null_string(),
            2 => parcel.write_string8(&String::from_utf8_lossy(input.bytes(3))),
            3 => parcel.write_string(&String::from_utf8_lossy(input.bytes(3))),
            _ => drop(parcel.write(b"BNDL")),
        }
    }
    parcel
}

/// An intent's encoding with some of its bytes replaced.
fn replace(input: &mut Input<'_>) -> Vec<u8> {
    let mut intent = Intent::new("a.ACTION");
    intent.data = Some("http://h:1/p".into());
    intent.mime_type = Some("image/*".to_owned());
    intent.categories.insert("c".to_owned());
    intent.extras.put("text", "value");
    intent.extras.put("numbers", vec![1, 2]);
    intent.extras.put("inner", Bundle::from_iter([("k".to_owned(), 7.into())]));
    let mut parcel = Parcel::new();
    intent.write(&mut parcel);
    let mut bytes = parcel.data().to_vec();
    for _ in 0..1 + input.below(3) {
        let at = input.u32() as usize % bytes.len();
        bytes[at] = input.u8();
    }
    bytes
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let bytes = match input.below(4) {
        0 => input.bytes(usize::MAX).to_vec(),
        1 => replace(&mut input),
        2 => return drop(Manifest::parse(&String::from_utf8_lossy(input.bytes(usize::MAX)))),
        _ => compose(&mut input).data().to_vec(),
    };
    check(&bytes, Bundle::read, Bundle::write);
    let intent = check(&bytes, Intent::read, Intent::write);
    let filter = check(&bytes, IntentFilter::read, IntentFilter::write);
    let mut resolver = Resolver::default();
    if let Some(filter) = filter {
        let _ = resolver.insert(Owner::Process, filter, ());
    }
    resolver.query(&intent.unwrap_or_default());
}
