//! Parcels of intents, filters and bundles: their bytes, their round trips, and foreign ones.

#[path = "../../binder/driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use baton::Parcel;
use baton::android::{Reader, Write};
use baton_services::intent::decode::MAX_DEPTH;
use baton_services::intent::intent::Rect;
use baton_services::intent::{
    Bundle, ComponentName, DecodeError, Intent, IntentFilter, Pattern, Uri, Value, flags,
};
use rng::Rng;

fn words(parcel: &Parcel) -> Vec<u32> {
    let words = parcel.data().chunks_exact(4);
    words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Four bytes as one word.
const fn w(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}

const NULL: u32 = u32::MAX;

/// An intent whose bytes are known.
fn golden_intent() -> Intent {
    let mut intent = Intent::new("a.B");
    intent.data = Some(Uri::from("tel:1"));
    intent.flags = flags::RECEIVER_FOREGROUND;
    intent.component = Some(ComponentName::new("p", ".C"));
    intent.categories.insert("c".to_owned());
    intent.extras.put("k", 7);
    intent
}

/// Its words, as `Intent.writeToParcel` of Android 16 writes them.
const GOLDEN_INTENT: [u32; 33] = [
    // Action, writeString8: the length, the letters and a zero, padded to four.
    3,
    w(b"a.B\0"),
    // Data, Uri.writeToParcel: a StringUri is kind 1 and its text, writeString8.
    1,
    5,
    w(b"tel:"),
    w(b"1\0\0\0"),
    // Type and identifier, writeString8 of null: a length of -1.
    NULL,
    NULL,
    // Flags and extended flags.
    0x1000_0000,
    0,
    // Package: null.
    NULL,
    // Component, writeString of the package and of the class: units of two bytes.
    1,
    w(b"p\0\0\0"),
    3,
    w(b"p\0.\0"),
    w(b"C\0\0\0"),
    // No source bounds.
    0,
    // One category, writeString8.
    1,
    1,
    w(b"c\0\0\0"),
    // No selector, no clip data.
    0,
    0,
    // Content user hint: UserHandle.USER_CURRENT, which is -2.
    -2i32 as u32,
    // Extras: the map has 20 bytes, and the magic of a bundle of Java's precedes it.
    20,
    0x4c44_4e42,
    // One entry; its key, writeString; VAL_INTEGER and 7.
    1,
    1,
    w(b"k\0\0\0"),
    1,
    7,
    // The bundle has no intent in it (mHasIntent).
    0,
    // No original intent, no creator token.
    0,
    0,
];

#[test]
fn an_intent_has_the_bytes_that_android_writes() {
    let mut parcel = Parcel::new();
    golden_intent().write(&mut parcel);
    assert_eq!(words(&parcel), GOLDEN_INTENT);
}

#[test]
fn a_filter_has_the_bytes_that_android_writes() {
    let filter = IntentFilter::new("a")
        .scheme("s")
        .mime_type("t/*")
        .authority("*.h", Some(80))
        .path(Pattern::prefix("/"))
        .priority(5);
    let mut parcel = Parcel::new();
    filter.write(&mut parcel);
    let expected = [
        // Actions, writeStringArray: one, and the string in units of two bytes.
        1,
        1,
        w(b"a\0\0\0"),
        // Categories: null. Schemes: not null, one.
        0,
        1,
        1,
        1,
        w(b"s\0\0\0"),
        // Static types and all types: `t/*` is kept as `t`, and a mark below.
        1,
        1,
        1,
        w(b"t\0\0\0"),
        1,
        1,
        1,
        w(b"t\0\0\0"),
        // MIME groups: null. No scheme-specific parts.
        0,
        0,
        // One authority: the host as it was written, without its wildcard, the wildcard, the port.
        1,
        3,
        w(b"*\0.\0"),
        w(b"h\0\0\0"),
        2,
        w(b".\0h\0"),
        0,
        1,
        80,
        // One path: the pattern, PATTERN_PREFIX, and no parsed form.
        1,
        1,
        w(b"/\0\0\0"),
        1,
        NULL,
        // Priority, a static type with a wildcard, no dynamic one.
        5,
        1,
        0,
        // Auto-verify, visibility to instant apps, order, extras, groups of relative URIs: none.
        0,
        0,
        0,
        0,
        0,
    ];
    assert_eq!(words(&parcel), expected);
    assert_eq!(IntentFilter::read(&mut Reader::new(parcel.data())), Ok(filter));
}

fn text(rng: &mut Rng) -> String {
    let letters = ["", "a", "\u{e4}", "\u{20ac}", "\u{1f600}", "/", "*"];
    (0..rng.below(6)).map(|_| rng.pick(&letters).unwrap()).collect()
}

/// A vector of up to three elements.
fn some<T>(rng: &mut Rng, mut element: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.below(4)).map(|_| element(rng)).collect()
}

fn value(rng: &mut Rng, depth: usize) -> Value {
    match rng.below(24) {
        0 => Value::Null,
        1 => Value::String(text(rng)),
        2 => Value::Integer(rng.next() as i32),
        3 => Value::Long(rng.next() as i64),
        4 => Value::Short(rng.next() as i16),
        5 => Value::Byte(rng.next() as i8),
        6 => Value::Char(rng.next() as u16),
        7 => Value::Float(rng.below(1000) as f32 / 8.0),
        8 => Value::Double(rng.below(1000) as f64 / 8.0),
        9 => Value::Boolean(rng.percent(50)),
        10 => Value::CharSequence(text(rng)),
        11 if depth < 4 => Value::Bundle(bundle(rng, depth + 1)),
        12 => Value::Uri(Uri::from(text(rng))),
        13 => Value::Component(ComponentName { package: text(rng), class: text(rng) }),
        14 => Value::ByteArray(some(rng, |rng| rng.next() as u8)),
        15 => Value::StringArray(some(rng, |rng| rng.percent(70).then(|| text(rng)))),
        16 => Value::IntArray(some(rng, |rng| rng.next() as i32)),
        17 => Value::LongArray(some(rng, |rng| rng.next() as i64)),
        18 => Value::ShortArray(some(rng, |rng| rng.next() as i16)),
        19 => Value::CharArray(some(rng, |rng| rng.next() as u16)),
        20 => Value::FloatArray(some(rng, |rng| rng.below(1000) as f32 / 8.0)),
        21 => Value::DoubleArray(some(rng, |rng| rng.below(1000) as f64 / 8.0)),
        22 => Value::BooleanArray(some(rng, |rng| rng.percent(50))),
        _ => Value::Raw {
            kind: rng.pick(&[2, 4, 11, 12, 16, 17, 21]).unwrap(),
            bytes: some(rng, |rng| rng.next() as u32)
                .into_iter()
                .flat_map(u32::to_le_bytes)
                .collect(),
        },
    }
}

fn bundle(rng: &mut Rng, depth: usize) -> Bundle {
    (0..rng.below(5)).map(|index| (format!("{index}{}", text(rng)), value(rng, depth))).collect()
}

fn intent(rng: &mut Rng) -> Intent {
    let maybe = |rng: &mut Rng| rng.percent(50).then(|| text(rng));
    Intent {
        action: maybe(rng),
        data: maybe(rng).map(Uri::from),
        mime_type: maybe(rng),
        identifier: maybe(rng),
        categories: some(rng, text).into_iter().collect(),
        package: maybe(rng),
        component: maybe(rng).map(|package| ComponentName { package, class: text(rng) }),
        flags: rng.next() as u32,
        source_bounds: rng.percent(30).then(|| {
            let [left, top, right, bottom] = [(); 4].map(|()| rng.next() as i32);
            Rect { left, top, right, bottom }
        }),
        extras: bundle(rng, 1),
    }
}

fn filter(rng: &mut Rng) -> IntentFilter {
    let patterns = |rng: &mut Rng| {
        let makes: [fn(String) -> Pattern; 4] =
            [Pattern::literal, Pattern::prefix, Pattern::suffix, Pattern::glob];
        some(rng, |rng| rng.pick(&makes).unwrap()(text(rng)))
    };
    let mut filter = IntentFilter {
        actions: some(rng, text).into_iter().collect(),
        categories: some(rng, text).into_iter().collect(),
        schemes: some(rng, text).into_iter().collect(),
        scheme_specific_parts: patterns(rng),
        paths: patterns(rng),
        mime_types: some(rng, |rng| rng.pick(&["a/b", "a/*", "*/*", "c/d"]).unwrap().to_owned())
            .into_iter()
            .collect(),
        priority: rng.next() as i32,
        ..IntentFilter::default()
    };
    for _ in 0..rng.below(3) {
        let port = rng.percent(50).then(|| rng.next() as u16);
        filter = filter.authority(text(rng), port);
    }
    filter
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let (intent, filter) = (intent(&mut rng), filter(&mut rng));
        let mut parcel = Parcel::new();
        intent.write(&mut parcel);
        filter.write(&mut parcel);
        parcel.write_i32(42);
        let mut reader = Reader::new(parcel.data());
        assert_eq!(Intent::read(&mut reader), Ok(intent), "seed {seed}");
        assert_eq!(IntentFilter::read(&mut reader), Ok(filter), "seed {seed}");
        assert_eq!((reader.i32(), reader.is_empty()), (Some(42), true), "seed {seed}");
    }
}

#[test]
fn a_parcel_that_is_cut_short_is_refused() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut parcel = Parcel::new();
        intent(&mut rng).write(&mut parcel);
        for length in 0..parcel.data().len() {
            let cut = Intent::read(&mut Reader::new(&parcel.data()[..length]));
            assert!(cut.is_err(), "seed {seed}, {length} bytes: {cut:?}");
        }
        let mut parcel = Parcel::new();
        filter(&mut rng).write(&mut parcel);
        for length in 0..parcel.data().len() {
            let cut = IntentFilter::read(&mut Reader::new(&parcel.data()[..length]));
            assert!(cut.is_err(), "seed {seed}, {length} bytes: {cut:?}");
        }
    }
}

/// A bundle of one entry with these words.
fn entry(key: &str, words: &[i32]) -> Parcel {
    let mut map = Parcel::new();
    map.write_i32(1);
    map.write_string(key);
    words.iter().for_each(|word| map.write_i32(*word));
    let mut bundle = Parcel::new();
    bundle.write_i32(map.data().len() as i32);
    bundle.write(b"BNDL").write(map.data());
    bundle.write_i32(0);
    bundle
}

fn of_key(key: &str, error: DecodeError) -> DecodeError {
    DecodeError::Value { key: key.to_owned(), error: Box::new(error) }
}

#[test]
fn a_wrong_value_is_refused_with_its_key() {
    let malformed = DecodeError::Malformed("a value");
    for (words, error) in [
        // VAL_IBINDER, VAL_SIZE and a type that nobody knows.
        (&[15, 0, 0, 0, 0, 0, 0][..], DecodeError::ValueType(15)),
        (&[26, 1, 2], DecodeError::ValueType(26)),
        (&[99], DecodeError::ValueType(99)),
        (&[-2], DecodeError::ValueType(-2)),
        // A text with styles.
        (&[10, 0], DecodeError::Unsupported("a text with styles")),
        // Numbers of elements that are negative, or more than there are.
        (&[18, -1], malformed.clone()),
        (&[18, i32::MAX, 1], malformed.clone()),
        (&[14, 2, -1], malformed.clone()),
        (&[13, i32::MAX], malformed.clone()),
        (&[13, -1], malformed.clone()),
        (&[2, 8, 1], malformed.clone()),
        // A list of no whole words.
        (&[11, 3, 0], malformed.clone()),
        (&[6, 1], malformed.clone()),
        (&[0, 5, 0], malformed),
    ] {
        let bundle = entry("the key", words);
        let found = Bundle::read(&mut Reader::new(bundle.data()));
        assert_eq!(found, Err(of_key("the key", error)), "{words:?}");
    }
    let error = of_key("k", DecodeError::ValueType(15));
    assert_eq!(error.to_string(), "the value of \"k\": values of type 15 are not supported");
}

#[test]
fn a_wrong_bundle_is_refused() {
    let malformed = |name| Err(DecodeError::Malformed(name));
    let magic = i32::from_le_bytes(*b"BNDL");
    for (words, name) in [
        (&[-1][..], "the bundle"),
        (&[-8, magic, 0, 0], "the bundle"),
        (&[3, magic, 0, 0], "the bundle"),
        (&[4, 0, 0, 0], "the bundle"),
        (&[i32::MAX - 3, magic, 0, 0], "the bundle"),
        (&[4, magic, -1, 0], "the bundle"),
        // A map that is longer than its entries, and one that is shorter.
        (&[8, magic, 0, 0, 0], "the bundle"),
        (&[4, magic, 1, 0], "a bundle's key"),
        (&[8, magic, 1, -1, 0], "a bundle's key"),
        // A key twice: both null values.
        (&[28, magic, 2, 1, 97, -1, 1, 97, -1, 0], "a bundle's key"),
    ] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(Bundle::read(&mut Reader::new(&bytes)), malformed(name), "{words:?}");
    }
}

#[test]
fn values_of_unknown_classes_are_passed_on() {
    let mut of_class = Parcel::new();
    of_class.write_string("org.example.Class");
    of_class.write_i32(7);
    let mut bundle = Bundle::new();
    let raw = Value::Raw { kind: 4, bytes: of_class.data().to_vec() };
    bundle.put("raw", raw.clone());
    bundle.put("after", 1);
    let mut parcel = Parcel::new();
    bundle.write(&mut parcel);
    let again = Bundle::read(&mut Reader::new(parcel.data())).unwrap();
    assert_eq!((again.get("raw"), again.get("after")), (Some(&raw), Some(&Value::Integer(1))));
    // A URI of two parts, which a Java program writes for `Uri.fromParts("a", "b", null)`.
    let mut parts = Parcel::new();
    parts.write_string("android.net.Uri$OpaqueUri");
    parts.write_i32(2);
    parts.write_string8("a");
    for part in [Some("b"), None] {
        parts.write_i32(2);
        parts.write_nullable_string8(part);
    }
    let mut words = vec![4, parts.data().len() as i32];
    let data = parts.data().chunks_exact(4);
    words.extend(data.map(|word| i32::from_le_bytes(word.try_into().unwrap())));
    let bundle = Bundle::read(&mut Reader::new(entry("uri", &words).data())).unwrap();
    assert_eq!(bundle.get("uri"), Some(&Value::Uri(Uri::from("a:b"))));
}

#[test]
fn bundles_may_be_nested_up_to_the_limit() {
    let nested = |depth: usize| {
        let mut bundle = Bundle::from_iter([("k".to_owned(), Value::Null)]);
        for _ in 1..depth {
            bundle = Bundle::from_iter([("k".to_owned(), Value::Bundle(bundle))]);
        }
        let mut parcel = Parcel::new();
        bundle.write(&mut parcel);
        (Bundle::read(&mut Reader::new(parcel.data())), bundle)
    };
    let (found, written) = nested(MAX_DEPTH);
    assert_eq!(found, Ok(written));
    let mut error = nested(MAX_DEPTH + 1).0.unwrap_err();
    while let DecodeError::Value { error: inner, .. } = error {
        error = *inner;
    }
    assert_eq!(error, DecodeError::TooDeep);
}

#[test]
fn a_field_that_cannot_be_passed_over_is_refused() {
    for (at, name) in
        [(20, "a selector"), (21, "clip data"), (31, "an original intent"), (32, "a creator token")]
    {
        let mut words = GOLDEN_INTENT;
        words[at] = 1;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = Intent::read(&mut Reader::new(&bytes));
        assert_eq!(found, Err(DecodeError::Unsupported(name)));
    }
    let mut too_many = GOLDEN_INTENT;
    too_many[17] = 513;
    let bytes: Vec<u8> = too_many.iter().flat_map(|word| word.to_le_bytes()).collect();
    let too_large = DecodeError::TooLarge { field: "the categories", limit: 512 };
    assert_eq!(Intent::read(&mut Reader::new(&bytes)), Err(too_large));
}

#[test]
fn the_fields_of_a_filter_that_are_not_supported_are_refused() {
    let mut parcel = Parcel::new();
    IntentFilter::new("a").write(&mut parcel);
    let written = words(&parcel);
    // Behind the action: five lists, three numbers, priority, two marks, three fields, two more.
    assert_eq!(written.len(), 3 + 5 + 3 + 1 + 2 + 3 + 2);
    for (at, insert, error) in [
        (7, &[1, 1, 1, w(b"g\0\0\0")][..], DecodeError::Unsupported("a MIME group")),
        (17, &[1], DecodeError::Unsupported("extras of a filter")),
        (18, &[1], DecodeError::Unsupported("a group of relative URIs")),
        // A scheme-specific part with PATTERN_ADVANCED_GLOB, and one of no kind.
        (8, &[1, 1, w(b"x\0\0\0"), 3, 1, 0], DecodeError::Unsupported("an advanced pattern")),
        (8, &[1, 1, w(b"x\0\0\0"), 5, NULL], DecodeError::Malformed("a pattern")),
        (8, &[1, 1, w(b"x\0\0\0"), 0, 0], DecodeError::Malformed("a pattern")),
        // A port of more than 16 bits.
        (
            9,
            &[1, 1, w(b"h\0\0\0"), 1, w(b"h\0\0\0"), 0, 65536],
            DecodeError::Malformed("the authorities"),
        ),
    ] {
        let mut words = written.clone();
        words.splice(at..=at, insert.iter().copied());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(IntentFilter::read(&mut Reader::new(&bytes)), Err(error), "{insert:?}");
    }
}

#[test]
fn an_intent_is_shown_as_android_shows_it() {
    let mut intent = golden_intent();
    intent.mime_type = Some("a/b".to_owned());
    intent.package = Some("p".to_owned());
    let shown =
        "Intent { act=a.B cat=[c] dat=tel:1 typ=a/b flg=0x10000000 pkg=p cmp=p/p.C (has extras) }";
    assert_eq!(intent.to_string(), shown);
    assert_eq!(Intent::default().to_string(), "Intent { }");
}

#[test]
fn filter_equality_is_of_what_is_matched() {
    let intent = golden_intent();
    let mut same = Intent { flags: 0, extras: Bundle::new(), ..intent.clone() };
    assert!(intent.filter_equals(&same));
    same.identifier = Some("i".to_owned());
    assert!(!intent.filter_equals(&same));
    let other = Intent { data: None, ..intent.clone() };
    assert!(!intent.filter_equals(&other));
}
