//! The methods of `android.os.IServiceManager`, by release of Android, as requests carry them.
//!
//! Two families of requests can be told apart by their headers, so the manager answers both:
//!
//! | family | a request begins with | a reply begins with |
//! |---|---|---|
//! | classic (up to Android 10) | policy, [work source,] descriptor | its result |
//! | AIDL (from Android 11 on) | policy, work source, mark, descriptor | a status |
//!
//! The numbers of AIDL's methods change from release to release, and a request does not name its
//! release. So the manager speaks one [`Release`].
//!
//! Classic requests have grown as well, at their ends: Android 8 has no flags, and the `bctest` of
//! AOSP registers a service by a name and an object alone. libgbinder writes requests of Android 8
//! unless told otherwise.
//!
//! Source: `IServiceManager.aidl` of Android 11 to 16; `service_manager.c` of Android 6 to 10.

use baton::android::{Mark, Reader, Write};
use baton::service_manager::{DUMP_PRIORITY, EVERY_PRIORITY, INTERFACE, SERVICE_WITH_METADATA};
use baton::{Errno, Parcel};

/// The releases of Android by their numbering of the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Android 11.
    Eleven,
    /// Android 12: with debug information.
    Twelve,
    /// Android 13: with connections.
    Thirteen,
    /// Android 14: with updatable names.
    Fourteen,
    /// Android 15: with accessors.
    Fifteen,
    /// Android 16.
    Sixteen,
}

/// The form in which a service is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The object, or null.
    Object,
    /// The union `Service` of Android 15.
    Union,
}

/// A request. Its objects are not in here: they stand in the transaction, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `getService`, `getService2`, `checkService`, `checkService2`.
    Get(Lookup, String),
    /// `addService`: the service is the first object.
    Add {
        /// The name.
        name: String,
        /// The stability that the service's process declares.
        stability: i32,
        /// `DUMP_FLAG_*` and others.
        flags: i32,
    },
    /// `listServices` of AIDL: all with one of these flags.
    List(i32),
    /// `SVC_MGR_LIST_SERVICES`: the one at this place.
    ListOne(usize, i32),
    /// `registerForNotifications`: the callback is the first object.
    Watch(String),
    /// `unregisterForNotifications`: the callback is the first object.
    Unwatch(String),
    /// `isDeclared`
    IsDeclared,
    /// `getDeclaredInstances`, `getUpdatableNames`
    NoNames,
    /// `updatableViaApex`
    NoName,
    /// `getConnectionInfo`
    NoConnection,
    /// `registerClientCallback`: the service and the callback are the objects.
    WatchClients(String),
    /// `tryUnregisterService`: the service is the first object.
    TryUnregister(String),
    /// `getServiceDebugInfo`
    DebugInfo,
}

/// The family of a request, in which its reply is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// See the module.
    Classic,
    /// See the module. The client's objects take requests with its mark.
    Aidl(Mark),
}

impl Family {
    /// Whether it is AIDL's.
    pub fn is_aidl(self) -> bool {
        matches!(self, Family::Aidl(_))
    }
}

/// A method before its arguments are read.
#[derive(Clone, Copy)]
enum Method {
    Get(Lookup),
    Add,
    List,
    Watch,
    Unwatch,
    IsDeclared,
    NoNames,
    NoName,
    NoConnection,
    WatchClients,
    TryUnregister,
    DebugInfo,
}

/// The methods of Android's classic service manager, from 1 on.
const CLASSIC: &[Method] =
    &[Method::Get(Lookup::Object), Method::Get(Lookup::Object), Method::Add, Method::List];

impl Release {
    /// The methods, in the order of their codes, which begin with 1.
    fn methods(self) -> Vec<Method> {
        use Method::*;
        let (object, union) = (Get(Lookup::Object), Get(Lookup::Union));
        let lookups: &[Method] = match self {
            Release::Fifteen => &[object, union, union],
            Release::Sixteen => &[object, union, object, union],
            _ => &[object, object],
        };
        let declarations: &[Method] = match self {
            Release::Eleven => &[],
            Release::Twelve => &[NoNames, NoName],
            Release::Thirteen => &[NoNames, NoName, NoConnection],
            _ => &[NoNames, NoName, NoNames, NoConnection],
        };
        let debug: &[Method] = if self == Release::Eleven { &[] } else { &[DebugInfo] };
        let registrations = [Add, List, Watch, Unwatch, IsDeclared];
        let parts = [lookups, &registrations, declarations, &[WatchClients, TryUnregister], debug];
        parts.concat()
    }
}

/// Decodes a request.
///
/// # Errors
/// All are the client's fault. `EPERM`: a request to another interface. `ENOSYS`: no method has
/// this code. `EINVAL`: the arguments are malformed.
pub fn decode(release: Release, code: u32, data: &[u8]) -> Result<(Family, Request), Errno> {
    let (family, mut reader) = header(data).ok_or(Errno::PERM)?;
    let methods = match family {
        Family::Classic => CLASSIC.to_vec(),
        Family::Aidl(_) => release.methods(),
    };
    let index = (code as usize).checked_sub(1).ok_or(Errno::NOSYS)?;
    let method = *methods.get(index).ok_or(Errno::NOSYS)?;
    let request = arguments(family, method, &mut reader).ok_or(Errno::INVAL)?;
    Ok((family, request))
}

/// The family of a request to this interface, and its arguments.
fn header(data: &[u8]) -> Option<(Family, Reader<'_>)> {
    let mut aidl = Reader::new(data);
    if let Some((mark, descriptor)) = aidl.marked_token()
        && descriptor == INTERFACE
    {
        return Some((Family::Aidl(mark), aidl));
    }
    // With the policy alone (Android 9), or with the work source, too (Android 10).
    (1..=2).find_map(|n_words| {
        let mut classic = Reader::new(data);
        for _ in 0..n_words {
            classic.i32()?;
        }
        (classic.string()? == INTERFACE).then_some((Family::Classic, classic))
    })
}

fn arguments(family: Family, method: Method, reader: &mut Reader<'_>) -> Option<Request> {
    Some(match method {
        Method::Get(lookup) => Request::Get(lookup, reader.string()?),
        Method::Add => {
            let name = reader.string()?;
            let stability = object(family, reader)?;
            let _allows_isolated = newer(family, reader, 0)?;
            Request::Add { name, stability, flags: newer(family, reader, DUMP_PRIORITY)? }
        }
        Method::List if family == Family::Classic => {
            let place = usize::try_from(reader.i32()?).ok()?;
            Request::ListOne(place, newer(family, reader, EVERY_PRIORITY)?)
        }
        Method::List => Request::List(reader.i32()?),
        Method::Watch => Request::Watch(reader.string()?),
        Method::Unwatch => Request::Unwatch(reader.string()?),
        Method::IsDeclared => Request::IsDeclared,
        Method::NoNames => Request::NoNames,
        Method::NoName => Request::NoName,
        Method::NoConnection => Request::NoConnection,
        Method::WatchClients => Request::WatchClients(reader.string()?),
        Method::TryUnregister => Request::TryUnregister(reader.string()?),
        Method::DebugInfo => Request::DebugInfo,
    })
}

/// A number at the end of a request: `absent` if the client is older than this argument.
fn newer(family: Family, reader: &mut Reader<'_>, absent: i32) -> Option<i32> {
    if family == Family::Classic && reader.is_empty() {
        return Some(absent);
    }
    reader.i32()
}

/// Passes over an object. Its stability follows it in AIDL's family, and is 0 otherwise.
fn object(family: Family, reader: &mut Reader<'_>) -> Option<i32> {
    const OBJECT_WORDS: usize = 6;
    for _ in 0..OBJECT_WORDS {
        reader.i32()?;
    }
    match family {
        Family::Classic => Some(0),
        Family::Aidl(_) => reader.i32(),
    }
}

/// The beginning of a reply that is no exception.
pub fn success(family: Family) -> Parcel {
    let mut reply = Parcel::new();
    if family.is_aidl() {
        reply.write_i32(0);
    }
    reply
}

/// A reply that is an exception: `EX_SECURITY` and its like.
pub fn exception(code: i32, message: &str) -> Parcel {
    let mut reply = Parcel::new();
    reply.write_exception(code, message);
    reply
}

/// Writes the union `Service` with a `ServiceWithMetadata`, whose object `write_object` writes
/// with its stability.
pub fn write_union(reply: &mut Parcel, is_lazy: bool, write_object: impl FnOnce(&mut Parcel)) {
    const OBJECT_BYTES: i32 = 28;
    const THERE: i32 = 1;
    let (size_bytes, lazy_bytes) = (4, 4);
    for value in [THERE, SERVICE_WITH_METADATA, THERE, size_bytes + OBJECT_BYTES + lazy_bytes] {
        reply.write_i32(value);
    }
    write_object(reply);
    reply.write_i32(i32::from(is_lazy));
}

/// Writes one `ServiceDebugInfo` of an array.
pub fn write_debug_info(reply: &mut Parcel, name: &str, pid: u32) {
    const THERE: i32 = 1;
    let mut fields = Parcel::new();
    fields.write_string(name);
    fields.write_i32(pid as i32);
    let size_bytes = 4;
    reply.write_i32(THERE);
    reply.write_i32(size_bytes + fields.data().len() as i32);
    reply.write(fields.data());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "echo";
    const OBJECT: [i32; 6] = [0; 6];

    fn words(parcel: &mut Parcel, words: &[i32]) {
        words.iter().for_each(|word| parcel.write_i32(*word));
    }

    fn request(header: &[i32], write: impl FnOnce(&mut Parcel)) -> Vec<u8> {
        let mut parcel = Parcel::new();
        words(&mut parcel, header);
        parcel.write_string(INTERFACE);
        write(&mut parcel);
        parcel.data().to_vec()
    }

    fn aidl(write: impl FnOnce(&mut Parcel)) -> Vec<u8> {
        marked(b"SYST", write)
    }

    fn marked(mark: &[u8; 4], write: impl FnOnce(&mut Parcel)) -> Vec<u8> {
        request(&[0, -1, i32::from_be_bytes(*mark)], write)
    }

    /// The codes of methods that every client uses, in each release.
    #[test]
    fn methods_have_the_codes_of_their_release() {
        use Release::*;
        let by_name = aidl(|parcel| parcel.write_string(NAME));
        let numbered = aidl(|parcel| parcel.write_i32(15));
        let object = Request::Get(Lookup::Object, NAME.into());
        let union = Request::Get(Lookup::Union, NAME.into());
        for (release, code, data, expected) in [
            (Eleven, 2, &by_name, object.clone()),
            (Fourteen, 2, &by_name, object.clone()),
            (Fifteen, 2, &by_name, union.clone()),
            (Fifteen, 3, &by_name, union.clone()),
            (Sixteen, 3, &by_name, object.clone()),
            (Sixteen, 4, &by_name, union.clone()),
            (Eleven, 4, &numbered, Request::List(15)),
            (Fourteen, 4, &numbered, Request::List(15)),
            (Fifteen, 5, &numbered, Request::List(15)),
            (Sixteen, 6, &numbered, Request::List(15)),
            (Eleven, 8, &by_name, Request::WatchClients(NAME.into())),
            (Twelve, 10, &by_name, Request::WatchClients(NAME.into())),
            (Thirteen, 11, &by_name, Request::WatchClients(NAME.into())),
            (Fourteen, 12, &by_name, Request::WatchClients(NAME.into())),
            (Fifteen, 13, &by_name, Request::WatchClients(NAME.into())),
            (Sixteen, 14, &by_name, Request::WatchClients(NAME.into())),
            (Twelve, 12, &by_name, Request::DebugInfo),
            (Sixteen, 16, &by_name, Request::DebugInfo),
        ] {
            let decoded = decode(release, code, data);
            assert_eq!(decoded, Ok((Family::Aidl(Mark::System), expected)), "{release:?} {code}");
        }
        for (release, last) in [
            (Eleven, 9),
            (Twelve, 12),
            (Thirteen, 13),
            (Fourteen, 14),
            (Fifteen, 15),
            (Sixteen, 16),
        ] {
            assert!(decode(release, last, &by_name).is_ok());
            assert_eq!(decode(release, last + 1, &by_name), Err(Errno::NOSYS));
            assert_eq!(decode(release, 0, &by_name), Err(Errno::NOSYS));
        }
    }

    #[test]
    fn requests_may_have_any_mark_of_libbinder() {
        for (mark, expected) in [
            (b"SYST", Some(Mark::System)),
            (b"VNDR", Some(Mark::Vendor)),
            (b"RECO", Some(Mark::Recovery)),
            (b"UNKN", Some(Mark::Unknown)),
            (b"ELSE", None),
        ] {
            let decoded = decode(Release::Sixteen, 6, &marked(mark, |it| it.write_i32(15)));
            let list = |mark| (Family::Aidl(mark), Request::List(15));
            assert_eq!(decoded, expected.map(list).ok_or(Errno::PERM), "{mark:?}");
        }
    }

    #[test]
    fn classic_requests_are_known_by_their_headers() {
        for header in [&[0][..], &[0, -1]] {
            let check = |code, expected, write: &dyn Fn(&mut Parcel)| {
                let decoded = decode(Release::Sixteen, code, &request(header, |it| write(it)));
                assert_eq!(decoded, Ok((Family::Classic, expected)), "{header:?}");
            };
            let get = Request::Get(Lookup::Object, NAME.into());
            check(1, get.clone(), &|it| it.write_string(NAME));
            check(2, get, &|it| it.write_string(NAME));
            check(4, Request::ListOne(3, 15), &|it| words(it, &[3, 15]));
            let add = Request::Add { name: NAME.into(), stability: 0, flags: 8 };
            // Without the flags, as up to Android 8, and as bctest.
            for end in [&[0, 8][..], &[0], &[]] {
                check(3, add.clone(), &|it| {
                    it.write_string(NAME);
                    words(it, &OBJECT);
                    words(it, end);
                });
            }
            check(4, Request::ListOne(3, 15), &|it| words(it, &[3]));
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        let other = {
            let mut parcel = Parcel::new();
            parcel.write_token("android.os.IOther");
            parcel.data().to_vec()
        };
        let add = aidl(|parcel| {
            parcel.write_string(NAME);
            words(parcel, &OBJECT);
            words(parcel, &[12, 0, 8]);
        });
        let expected = Request::Add { name: NAME.into(), stability: 12, flags: 8 };
        assert_eq!(decode(Release::Sixteen, 5, &add), Ok((Family::Aidl(Mark::System), expected)));
        let header = aidl(|_| {}).len();
        for length in header..add.len() {
            let cut = decode(Release::Sixteen, 5, &add[..length]);
            assert_eq!(cut, Err(Errno::INVAL), "{length}");
        }
        for length in 0..header {
            assert_eq!(decode(Release::Sixteen, 5, &add[..length]), Err(Errno::PERM), "{length}");
        }
        assert_eq!(decode(Release::Sixteen, 1, &other), Err(Errno::PERM));
    }
}
