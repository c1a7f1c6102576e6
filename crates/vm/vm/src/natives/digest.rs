//! com.android.org.conscrypt.NativeCrypto: message digests and random bytes

use super::handles::Handles;
use super::values::{Outcome, VOID, byte_range, check_range, non_null, rust, throw};
use crate::stack::Value;
use crate::vm::{Native, Thread, Thrown};
use digest::DynDigest;
use rustix::rand::GetRandomFlags;
use std::sync::{Arc, Mutex};

const CRYPTO: &str = "Lcom/android/org/conscrypt/NativeCrypto;";

/// Digests of all algorithms.
trait Digest: DynDigest + Send {
    fn copy(&self) -> Box<dyn Digest>;
}
impl<D: DynDigest + Clone + Send + 'static> Digest for D {
    fn copy(&self) -> Box<dyn Digest> {
        Box::new(self.clone())
    }
}
type Make = fn() -> Box<dyn Digest>;

/// Digests that are under way.
static CONTEXTS: Handles<Mutex<Box<dyn Digest>>> = Handles::new();

/// Algorithms by OpenSSL's names. An algorithm's number is its place, from 1 on.
const ALGORITHMS: &[(&str, Make)] = &[
    ("md5", || Box::new(md5::Md5::default())),
    ("sha1", || Box::new(sha1::Sha1::default())),
    ("sha256", || Box::new(sha2::Sha256::default())),
    ("sha384", || Box::new(sha2::Sha384::default())),
    ("sha512", || Box::new(sha2::Sha512::default())),
];

pub(super) const TABLE: &[Native] = &[
    (CRYPTO, "clinit", "()V", |_, _| VOID),
    (CRYPTO, "EVP_get_digestbyname", "(Ljava/lang/String;)J", |t, a| {
        let name = rust(t, a.reference(0))?;
        match ALGORITHMS.iter().position(|(of, _)| *of == name) {
            Some(place) => Ok(Value::Long(place as i64 + 1)),
            None => {
                let message = format!("there is no digest {name}");
                Err(throw(t, "java/lang/RuntimeException", &message))
            }
        }
    }),
    (CRYPTO, "EVP_MD_size", "(J)I", |t, a| {
        Ok(Value::Int(start(t, a.long(0))?.output_size() as i32))
    }),
    (CRYPTO, "EVP_DigestInit", "(J)J", |t, a| add(start(t, a.long(0))?)),
    (CRYPTO, "EVP_MD_CTX_copy", "(J)J", |t, a| add(with(t, a.long(0), |digest| digest.copy())?)),
    (CRYPTO, "EVP_MD_CTX_destroy", "(J)V", |_, a| {
        CONTEXTS.remove(a.long(0));
        VOID
    }),
    (CRYPTO, "EVP_DigestUpdate", "(J[BII)V", |t, a| {
        let bytes = byte_range(t, a.reference(2), a.int(3), a.int(4))?;
        with(t, a.long(0), |digest| digest.update(&bytes))?;
        VOID
    }),
    // The context ends with its result.
    (CRYPTO, "EVP_DigestFinal", "(J[BI)I", |t, a| {
        let result = with(t, a.long(0), |digest| digest.finalize_reset())?;
        let (array, at) = (a.reference(2), a.int(3));
        check_range(t, array, at, result.len() as i32)?;
        for (index, byte) in (at as u32..).zip(&*result) {
            array.set_i8(index, *byte as i8);
        }
        CONTEXTS.remove(a.long(0));
        Ok(Value::Int(result.len() as i32))
    }),
    // The kernel's source needs no seed.
    (CRYPTO, "RAND_seed", "([B)V", |_, _| VOID),
    (CRYPTO, "RAND_load_file", "(Ljava/lang/String;J)I", |_, a| Ok(Value::Int(a.long(1) as i32))),
    (CRYPTO, "RAND_bytes", "([B)V", |t, a| {
        let array = non_null(t, a.reference(0), "output")?;
        for (index, byte) in (0..).zip(random(array.length() as usize)) {
            array.set_i8(index, byte as i8);
        }
        VOID
    }),
];

/// Random bytes of the kernel's source.
pub(super) fn random(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    let mut filled = 0;
    while filled < n {
        let more = rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty());
        filled += more.expect("the kernel has a random source");
    }
    bytes
}

/// A fresh digest of an algorithm's number.
fn start(t: &Thread, algorithm: i64) -> Result<Box<dyn Digest>, Thrown> {
    let place = usize::try_from(algorithm - 1).ok();
    match place.and_then(|place| ALGORITHMS.get(place)) {
        Some((_, make)) => Ok(make()),
        None => Err(throw(t, "java/lang/NullPointerException", "no digest")),
    }
}

fn add(digest: Box<dyn Digest>) -> Outcome {
    Ok(Value::Long(CONTEXTS.add(Arc::new(Mutex::new(digest)))))
}

fn with<R>(t: &Thread, context: i64, run: impl FnOnce(&mut dyn Digest) -> R) -> Result<R, Thrown> {
    match CONTEXTS.get(context) {
        Some(digest) => Ok(run(&mut **digest.lock().expect("no holder panics"))),
        None => Err(throw(t, "java/lang/NullPointerException", "no digest under way")),
    }
}
