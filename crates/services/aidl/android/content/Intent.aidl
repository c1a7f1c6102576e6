package android.content;

/** A Rust program brings a type of its own: tests/rsbinder/src/android.rs has a small one. */
parcelable Intent rust_type "crate::android::Intent";
