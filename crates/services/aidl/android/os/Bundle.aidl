package android.os;

/** A Rust program brings a type of its own: tests/rsbinder/src/android.rs has a small one. */
parcelable Bundle rust_type "crate::android::Bundle";
