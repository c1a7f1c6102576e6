//! android.os.ServiceManagerProxy: names of services, in the protocol of the manager that is there
//!
//! The class speaks the protocol of Android 4.4, which differs from that of later managers in its
//! numbers, header and replies. So its methods are replaced. They speak to managers of Android 11
//! to 16: see [`baton::service_manager`].

use super::binder::context_manager;
use crate::binders::{java_object, object_of};
use crate::calls::{self, CallError};
use crate::classes::throw;
use crate::parcel::Parcel;
use baton::android::Reader;
use baton::service_manager::{ADD, CHECK, INTERFACE, LIST, Protocol};
use baton_vm::natives::values::{self, Outcome, VOID, non_null, strings, units};
use baton_vm::stack::{Args, Value};
use baton_vm::vm::{Native, Thread, Thrown};
use std::sync::OnceLock;

const PROXY: &str = "Landroid/os/ServiceManagerProxy;";
/// The same methods of Android 11 to 14.
const OLD_LIST: u32 = 4;
const OLD_CHECK: u32 = 2;
const OLD_ADD: u32 = 3;
/// DUMP_FLAG_PRIORITY_ALL.
const EVERY_PRIORITY: i32 = 15;
/// DUMP_FLAG_PRIORITY_DEFAULT.
const DUMP_PRIORITY: i32 = 1 << 3;
pub const TABLE: &[Native] = &[
    (PROXY, "getService", "(Ljava/lang/String;)Landroid/os/IBinder;", check),
    (PROXY, "checkService", "(Ljava/lang/String;)Landroid/os/IBinder;", check),
    (PROXY, "addService", "(Ljava/lang/String;Landroid/os/IBinder;Z)V", |t, a| {
        let name = units(t, a.reference(1))?;
        let service = object_of(t, non_null(t, a.reference(2), "service")?)?;
        let allows_isolated = i32::from(a.boolean(3));
        ask(t, [ADD, OLD_ADD], |request| {
            request.write_string(Some(&name));
            request.write_object(service);
            request.write_i32(allows_isolated);
            request.write_i32(DUMP_PRIORITY);
        })?;
        VOID
    }),
    (PROXY, "listServices", "()[Ljava/lang/String;", |t, _| {
        let mut reply = ask(t, [LIST, OLD_LIST], |request| request.write_i32(EVERY_PRIORITY))?;
        let names = reply.read_length(size_of::<i32>()).unwrap_or(0);
        let names: Vec<String> = (0..names)
            .map(|_| String::from_utf16_lossy(&reply.read_string().unwrap_or_default()))
            .collect();
        Ok(Value::Ref(strings(t, &names)?))
    }),
];

fn check(t: &Thread, a: Args) -> Outcome {
    let name = units(t, a.reference(1))?;
    let reply = ask(t, [CHECK, OLD_CHECK], |request| request.write_string(Some(&name)))?;
    Ok(Value::Ref(java_object(t, reply.first_binder())?))
}

/// Calls the manager's method, whose numbers are those of Android 16 and of Android 11. The reply
/// is read up to its status.
fn ask(t: &Thread, codes: [u32; 2], arguments: impl FnOnce(&mut Parcel)) -> Result<Parcel, Thrown> {
    let protocol = protocol(t)?;
    let mut request = request(protocol);
    arguments(&mut request);
    let code = if protocol == Protocol::Android16 { codes[0] } else { codes[1] };
    let reply = calls::call(t, context_manager(t)?.handle(), code, 0, &request);
    let mut reply = reply.map_err(|_| {
        throw(t, "android/os/RemoteException", Some("the service manager does not answer"))
    })?;
    match Reader::new(reply.bytes()).status() {
        Some(Ok(())) => {
            reply.set_position(size_of::<i32>());
            Ok(reply)
        }
        Some(Err(refusal)) => {
            let message = format!("the service manager refuses: {}", refusal.message);
            Err(values::throw(t, "java/lang/SecurityException", &message))
        }
        None => {
            let message = "the service manager answers with nothing";
            Err(throw(t, "android/os/RemoteException", Some(message)))
        }
    }
}

fn request(protocol: Protocol) -> Parcel {
    let mut request = Parcel::default();
    request.write(protocol.request(INTERFACE).data());
    request
}

/// The protocol of the manager: the one to whose list it answers.
fn protocol(t: &Thread) -> Result<Protocol, Thrown> {
    static FOUND: OnceLock<Protocol> = OnceLock::new();
    if let Some(protocol) = FOUND.get() {
        return Ok(*protocol);
    }
    let manager = context_manager(t)?;
    for (protocol, list) in [(Protocol::Android16, LIST), (Protocol::Android11, OLD_LIST)] {
        let mut request = request(protocol);
        request.write_i32(EVERY_PRIORITY);
        match calls::call(t, manager.handle(), list, 0, &request) {
            Ok(_) => return Ok(*FOUND.get_or_init(|| protocol)),
            Err(CallError::Dead) => {
                let message = "the context has no service manager: baton manager is one";
                return Err(throw(t, "android/os/RemoteException", Some(message)));
            }
            Err(CallError::Failed | CallError::Status(_)) => {}
        }
    }
    let message = "the service manager speaks no protocol of Android 11 to 16";
    Err(throw(t, "android/os/RemoteException", Some(message)))
}
