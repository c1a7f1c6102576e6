//! com.android.org.conscrypt.NativeCrypto: message digests, message
//! authentication by HMAC (RFC 2104), and random bytes

use super::handles::Handles;
use super::values::{Outcome, VOID, byte_range, bytes, check_range, non_null, rust, throw};
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

/// A digest that is under way, if the context has begun one.
#[derive(Default)]
struct Context {
    digest: Option<Box<dyn Digest>>,
    /// With a key: the digest that ends with the result of the other one
    outer: Option<Box<dyn Digest>>,
}

static CONTEXTS: Handles<Mutex<Context>> = Handles::new();
/// Keys for authentication
static KEYS: Handles<Vec<u8>> = Handles::new();

/// Algorithms by OpenSSL's names, with the bytes of a block. An algorithm's number is its place,
/// from 1 on.
const ALGORITHMS: &[(&str, usize, Make)] = &[
    ("md5", 64, || Box::new(md5::Md5::default())),
    ("sha1", 64, || Box::new(sha1::Sha1::default())),
    ("sha256", 64, || Box::new(sha2::Sha256::default())),
    ("sha384", 128, || Box::new(sha2::Sha384::default())),
    ("sha512", 128, || Box::new(sha2::Sha512::default())),
];

pub(super) const TABLE: &[Native] = &[
    (CRYPTO, "clinit", "()V", |_, _| VOID),
    (CRYPTO, "EVP_get_digestbyname", "(Ljava/lang/String;)J", |t, a| {
        let name = rust(t, a.reference(0))?;
        match ALGORITHMS.iter().position(|(of, ..)| *of == name) {
            Some(place) => Ok(Value::Long(place as i64 + 1)),
            None => {
                let message = format!("there is no digest {name}");
                Err(throw(t, "java/lang/RuntimeException", &message))
            }
        }
    }),
    (CRYPTO, "EVP_MD_size", "(J)I", |t, a| {
        Ok(Value::Int(start(t, a.long(0))?.1.output_size() as i32))
    }),
    (CRYPTO, "EVP_MD_block_size", "(J)I", |t, a| Ok(Value::Int(start(t, a.long(0))?.0 as i32))),
    (CRYPTO, "EVP_DigestInit", "(J)J", |t, a| {
        let (_, digest) = start(t, a.long(0))?;
        add(Context { digest: Some(digest), outer: None })
    }),
    (CRYPTO, "EVP_MD_CTX_copy", "(J)J", |t, a| {
        add(with_context(t, a.long(0), |context| Context {
            digest: context.digest.as_ref().map(|digest| digest.copy()),
            outer: context.outer.as_ref().map(|digest| digest.copy()),
        })?)
    }),
    (CRYPTO, "EVP_MD_CTX_create", "()J", |_, _| add(Context::default())),
    (CRYPTO, "EVP_MD_CTX_init", "(J)V", |t, a| {
        with_context(t, a.long(0), |context| *context = Context::default())?;
        VOID
    }),
    (CRYPTO, "EVP_PKEY_new_mac_key", "(I[B)J", |t, a| {
        let array = non_null(t, a.reference(1), "key")?;
        let key = byte_range(t, array, 0, array.length() as i32)?;
        Ok(Value::Long(KEYS.add(Arc::new(key))))
    }),
    (CRYPTO, "EVP_PKEY_free", "(J)V", |_, a| {
        KEYS.remove(a.long(0));
        VOID
    }),
    (CRYPTO, "EVP_DigestSignInit", "(JJJ)V", |t, a| {
        let Some(key) = KEYS.get(a.long(4)) else {
            return Err(throw(t, "java/lang/NullPointerException", "no key"));
        };
        let signing = keyed(t, a.long(2), &key)?;
        with_context(t, a.long(0), |context| *context = signing)?;
        VOID
    }),
    (CRYPTO, "EVP_DigestSignFinal", "(J)[B", |t, a| {
        let inner = with(t, a.long(0), |digest| digest.finalize_reset())?;
        let result = with_context(t, a.long(0), |context| {
            let outer = context.outer.as_mut()?;
            outer.update(&inner);
            Some(outer.finalize_reset())
        })?;
        match result {
            Some(result) => Ok(Value::Ref(bytes(t, &result)?)),
            None => Err(none_under_way(t)),
        }
    }),
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

/// The bytes of a block, and a fresh digest, of an algorithm's number.
fn start(t: &Thread, algorithm: i64) -> Result<(usize, Box<dyn Digest>), Thrown> {
    let place = usize::try_from(algorithm - 1).ok();
    match place.and_then(|place| ALGORITHMS.get(place)) {
        Some((_, block, make)) => Ok((*block, make())),
        None => Err(throw(t, "java/lang/NullPointerException", "no digest")),
    }
}

/// A context that authenticates with a key: two digests, each begins with the key in a block.
fn keyed(t: &Thread, algorithm: i64, key: &[u8]) -> Result<Context, Thrown> {
    let (block, mut inner) = start(t, algorithm)?;
    let mut outer = inner.copy();
    let mut padded = key.to_vec();
    if key.len() > block {
        let mut short = inner.copy();
        short.update(key);
        padded = short.finalize_reset().into_vec();
    }
    padded.resize(block, 0);
    let with_each = |mask: u8| padded.iter().map(|byte| byte ^ mask).collect::<Vec<_>>();
    inner.update(&with_each(0x36));
    outer.update(&with_each(0x5c));
    Ok(Context { digest: Some(inner), outer: Some(outer) })
}

fn add(context: Context) -> Outcome {
    Ok(Value::Long(CONTEXTS.add(Arc::new(Mutex::new(context)))))
}

fn none_under_way(t: &Thread) -> Thrown {
    throw(t, "java/lang/NullPointerException", "no digest under way")
}

fn with_context<R>(
    t: &Thread,
    context: i64,
    run: impl FnOnce(&mut Context) -> R,
) -> Result<R, Thrown> {
    match CONTEXTS.get(context) {
        Some(context) => Ok(run(&mut context.lock().expect("no holder panics"))),
        None => Err(none_under_way(t)),
    }
}

fn with<R>(t: &Thread, context: i64, run: impl FnOnce(&mut dyn Digest) -> R) -> Result<R, Thrown> {
    let result = with_context(t, context, |context| {
        let digest = context.digest.as_mut()?;
        Some(run(&mut **digest))
    })?;
    result.ok_or_else(|| none_under_way(t))
}
