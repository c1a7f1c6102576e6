//! `include/baton.h` is what the sources say.

use std::path::Path;

#[test]
fn the_header_is_of_these_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut generated = Vec::new();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["reference.rs", "process.rs", "parcel.rs", "received.rs"] {
        builder = builder.with_src(here.join("src").join(file));
    }
    builder.generate().unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap().replace("# Safety", "Requires:");
    let checked_in = here.join("include/baton.h");
    if std::fs::read_to_string(&checked_in).is_ok_and(|header| header == generated) {
        return;
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("baton.h");
    std::fs::write(&fresh, generated).unwrap();
    panic!("{} is out of date: copy {} there", checked_in.display(), fresh.display());
}
