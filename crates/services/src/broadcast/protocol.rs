//! The methods of `baton.app.IBroadcastManager` and `baton.app.IIntentReceiver`, as requests carry
//! them: see the files in `aidl`.

use super::level::Outcome;
use crate::intent::{Bundle, ComponentName, DecodeError, Intent, IntentFilter};
use baton::android::{Reader, Write};
use baton::{CallError, CountedObject, Errno, Parcel};

/// Whether a call has failed because a broker was killed, and may succeed at the next one.
pub fn is_transient(error: CallError) -> bool {
    matches!(error, CallError::BrokerGone | CallError::Refused(Errno::AGAIN))
}

/// The service's name.
pub const NAME: &str = "broadcast";
/// The service's interface.
pub const MANAGER: &str = "baton.app.IBroadcastManager";
/// The receivers' interface.
pub const RECEIVER: &str = "baton.app.IIntentReceiver";
/// The AIDL files: their names and texts.
pub const INTERFACES: [(&str, &str); 5] = [
    (
        "baton/app/IBroadcastManager.aidl",
        include_str!("../../aidl/baton/app/IBroadcastManager.aidl"),
    ),
    ("baton/app/IIntentReceiver.aidl", include_str!("../../aidl/baton/app/IIntentReceiver.aidl")),
    ("android/content/Intent.aidl", include_str!("../../aidl/android/content/Intent.aidl")),
    (
        "android/content/IntentFilter.aidl",
        include_str!("../../aidl/android/content/IntentFilter.aidl"),
    ),
    ("android/os/Bundle.aidl", include_str!("../../aidl/android/os/Bundle.aidl")),
];
/// The one method of receivers.
pub const PERFORM_RECEIVE: u32 = 1;

const REGISTER_RECEIVER: u32 = 1;
const UNREGISTER_RECEIVER: u32 = 2;
/// `broadcastIntent`, whose sender the service counts before it decodes the request.
pub const BROADCAST_INTENT: u32 = 3;
const REMOVE_STICKY: u32 = 4;
const FINISH_RECEIVER: u32 = 5;
const ATTACH_RECEIVER: u32 = 6;
const DESCRIBE: u32 = 7;
const RETURN_RESULT_RECEIVER: u32 = 8;

/// A request of the service. Its objects are not in here: they stand in the transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `registerReceiver`: the receiver is the first object.
    Register {
        /// The intents that it gets.
        filter: IntentFilter,
        /// The permission that senders need.
        permission: Option<String>,
        /// The package that explicit intents name.
        package: Option<String>,
        /// Names the receiver for the next service, if it is not 0.
        key: u64,
    },
    /// `unregisterReceiver`: the receiver is the first object.
    Unregister,
    /// `broadcastIntent`: the receiver of the result is the first object, if there is one.
    Broadcast(Box<Send>),
    /// `removeStickyBroadcast`
    RemoveSticky(Intent),
    /// `finishReceiver`
    Finish {
        /// Names the step that is finished.
        token: u64,
        /// The receiver's result.
        outcome: Outcome,
        /// Whether no other receiver gets the broadcast.
        aborts: bool,
    },
    /// `attachReceiver`: the receiver is the first object.
    Attach(ComponentName),
    /// `describe`
    Describe,
    /// `returnResultReceiver`: the receiver is the first object.
    ReturnResultReceiver {
        /// The key that the broadcast had.
        key: u64,
    },
}

/// What is to be sent, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Send {
    /// The intent.
    pub intent: Intent,
    /// The result that the first receiver of an ordered broadcast finds.
    pub initial: Outcome,
    /// The permission that receivers need.
    pub permission: Option<String>,
    /// Whether the receivers get it one after the other.
    pub is_ordered: bool,
    /// Whether receivers that register later get it, too.
    pub is_sticky: bool,
    /// Names the receiver of the result for the next service, if it is not 0.
    pub result_key: u64,
}

/// What a receiver gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The intent.
    pub intent: Intent,
    /// The result so far.
    pub outcome: Outcome,
    /// Whether the receivers get it one after the other.
    pub is_ordered: bool,
    /// Whether it was sent before the receiver was registered.
    pub is_sticky: bool,
    /// By which the receiver finishes. 0: the service does not wait for it.
    pub token: u64,
    /// Names the broadcast. A service that was killed may have called a receiver, and the next one
    /// calls it again, with this id. 0 from an older service.
    pub id: u64,
}

/// Why a request cannot be read: its writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It is one of another interface.
    #[error("the request is none of {MANAGER}")]
    Interface,
    /// The interface has no such method.
    #[error("{MANAGER} has no method {0}")]
    Method(u32),
    /// An argument is missing, or has another form.
    #[error("the argument {0} is missing or malformed")]
    Argument(&'static str),
    /// An intent, a filter or a bundle is malformed.
    #[error("the argument {argument}: {wrong}")]
    Malformed {
        /// The argument's name.
        argument: &'static str,
        /// What is wrong with it.
        wrong: DecodeError,
    },
}

/// The arguments of a request, or what a record of the journal has.
pub(super) struct Arguments<'a>(pub Reader<'a>);

impl Arguments<'_> {
    /// A number that is 0 or 1.
    pub fn is_present(&mut self, name: &'static str) -> Result<bool, RequestError> {
        match self.0.i32() {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(RequestError::Argument(name)),
        }
    }

    /// A parcelable that may be null.
    fn nullable<T>(
        &mut self,
        argument: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, RequestError> {
        if !self.is_present(argument)? {
            return Ok(None);
        }
        let malformed = |wrong| RequestError::Malformed { argument, wrong };
        read(&mut self.0).map(Some).map_err(malformed)
    }

    /// A parcelable.
    pub fn parcelable<T>(
        &mut self,
        argument: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, RequestError> {
        self.nullable(argument, read)?.ok_or(RequestError::Argument(argument))
    }

    /// An integer.
    pub fn i32(&mut self, name: &'static str) -> Result<i32, RequestError> {
        self.0.i32().ok_or(RequestError::Argument(name))
    }

    /// A string.
    pub fn string(&mut self, name: &'static str) -> Result<String, RequestError> {
        self.0.string().ok_or(RequestError::Argument(name))
    }

    /// A string that may be null.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, RequestError> {
        self.0.nullable_string().ok_or(RequestError::Argument(name))
    }

    /// An object, with its stability. False if it is null.
    fn object(&mut self, name: &'static str) -> Result<bool, RequestError> {
        let object = self.0.object().zip(self.0.i32());
        object.map(|(is_there, _)| is_there).ok_or(RequestError::Argument(name))
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, name: &'static str) -> Result<u64, RequestError> {
        self.0.array().map(u64::from_le_bytes).ok_or(RequestError::Argument(name))
    }

    /// A last argument of 64 bits, which callers by an older interface leave out: 0.
    fn last(&mut self, name: &'static str) -> Result<u64, RequestError> {
        if self.0.is_empty() { Ok(0) } else { self.u64(name) }
    }

    /// A result.
    pub fn outcome(&mut self) -> Result<Outcome, RequestError> {
        Ok(Outcome {
            code: self.i32("resultCode")?,
            data: self.text("resultData")?,
            extras: self.nullable("resultExtras", Bundle::read)?,
        })
    }
}

/// Reads a request of the service.
///
/// # Errors
/// The client's fault.
pub fn decode(code: u32, data: &[u8]) -> Result<Request, RequestError> {
    let mut reader = Reader::new(data);
    if reader.token().as_deref() != Some(MANAGER) {
        return Err(RequestError::Interface);
    }
    let mut arguments = Arguments(reader);
    match code {
        REGISTER_RECEIVER => {
            arguments.object("receiver")?;
            Ok(Request::Register {
                filter: arguments.parcelable("filter", IntentFilter::read)?,
                permission: arguments.text("permission")?,
                package: arguments.text("package")?,
                key: arguments.last("key")?,
            })
        }
        UNREGISTER_RECEIVER => Ok(Request::Unregister),
        BROADCAST_INTENT => {
            let intent = arguments.parcelable("intent", Intent::read)?;
            arguments.object("resultTo")?;
            Ok(Request::Broadcast(Box::new(Send {
                intent,
                initial: arguments.outcome()?,
                permission: arguments.text("permission")?,
                is_ordered: arguments.is_present("ordered")?,
                is_sticky: arguments.is_present("sticky")?,
                result_key: arguments.last("resultKey")?,
            })))
        }
        REMOVE_STICKY => Ok(Request::RemoveSticky(arguments.parcelable("intent", Intent::read)?)),
        FINISH_RECEIVER => Ok(Request::Finish {
            token: arguments.u64("token")?,
            outcome: arguments.outcome()?,
            aborts: arguments.is_present("abort")?,
        }),
        ATTACH_RECEIVER => {
            arguments.object("receiver")?;
            let (package, class) = (arguments.string("package")?, arguments.string("className")?);
            Ok(Request::Attach(ComponentName { package, class }))
        }
        DESCRIBE => Ok(Request::Describe),
        RETURN_RESULT_RECEIVER => {
            arguments.object("receiver")?;
            Ok(Request::ReturnResultReceiver { key: arguments.u64("key")? })
        }
        code => Err(RequestError::Method(code)),
    }
}

/// Writes a request and the code of its method. The object is the request's, if it has one.
pub fn encode(request: &Request, object: Option<&CountedObject>) -> (u32, Parcel) {
    let mut parcel = Parcel::new();
    parcel.write_token(MANAGER);
    let code = match request {
        Request::Register { filter, permission, package, key } => {
            write_object(&mut parcel, object);
            parcel.write_i32(1);
            filter.write(&mut parcel);
            write_text(&mut parcel, permission.as_deref());
            write_text(&mut parcel, package.as_deref());
            parcel.write(&key.to_le_bytes());
            REGISTER_RECEIVER
        }
        Request::Unregister => {
            write_object(&mut parcel, object);
            UNREGISTER_RECEIVER
        }
        Request::Broadcast(send) => {
            parcel.write_i32(1);
            send.intent.write(&mut parcel);
            write_object(&mut parcel, object);
            write_outcome(&mut parcel, &send.initial);
            write_text(&mut parcel, send.permission.as_deref());
            parcel.write_i32(send.is_ordered.into());
            parcel.write_i32(send.is_sticky.into());
            parcel.write(&send.result_key.to_le_bytes());
            BROADCAST_INTENT
        }
        Request::RemoveSticky(intent) => {
            parcel.write_i32(1);
            intent.write(&mut parcel);
            REMOVE_STICKY
        }
        Request::Finish { token, outcome, aborts } => {
            parcel.write(&token.to_le_bytes());
            write_outcome(&mut parcel, outcome);
            parcel.write_i32((*aborts).into());
            FINISH_RECEIVER
        }
        Request::Attach(component) => {
            write_object(&mut parcel, object);
            parcel.write_string(&component.package);
            parcel.write_string(&component.class);
            ATTACH_RECEIVER
        }
        Request::Describe => DESCRIBE,
        Request::ReturnResultReceiver { key } => {
            write_object(&mut parcel, object);
            parcel.write(&key.to_le_bytes());
            RETURN_RESULT_RECEIVER
        }
    };
    (code, parcel)
}

/// Writes what a receiver gets.
pub fn encode_received(
    intent: &Intent,
    outcome: &Outcome,
    is_ordered: bool,
    is_sticky: bool,
    token: u64,
    id: u64,
) -> Parcel {
    let mut parcel = Parcel::new();
    parcel.write_token(RECEIVER);
    parcel.write_i32(1);
    intent.write(&mut parcel);
    write_outcome(&mut parcel, outcome);
    parcel.write_i32(is_ordered.into());
    parcel.write_i32(is_sticky.into());
    parcel.write(&token.to_le_bytes());
    parcel.write(&id.to_le_bytes());
    parcel
}

/// Reads what a receiver gets.
///
/// # Errors
/// The service's fault.
pub fn decode_received(data: &[u8]) -> Result<Received, RequestError> {
    let mut reader = Reader::new(data);
    if reader.token().as_deref() != Some(RECEIVER) {
        return Err(RequestError::Interface);
    }
    let mut arguments = Arguments(reader);
    Ok(Received {
        intent: arguments.parcelable("intent", Intent::read)?,
        outcome: arguments.outcome()?,
        is_ordered: arguments.is_present("ordered")?,
        is_sticky: arguments.is_present("sticky")?,
        token: arguments.u64("token")?,
        id: arguments.last("id")?,
    })
}

fn write_object(parcel: &mut Parcel, object: Option<&CountedObject>) {
    match object {
        Some(object) => {
            parcel.write_counted_object(object);
            parcel.write_i32(baton::android::SYSTEM_STABILITY);
        }
        None => parcel.write_null_object(),
    }
}

/// Writes a string that may be null.
pub(super) fn write_text(parcel: &mut Parcel, text: Option<&str>) {
    match text {
        Some(text) => parcel.write_string(text),
        None => parcel.write_null_string(),
    }
}

/// Writes a result.
pub(super) fn write_outcome(parcel: &mut Parcel, outcome: &Outcome) {
    parcel.write_i32(outcome.code);
    write_text(parcel, outcome.data.as_deref());
    match &outcome.extras {
        Some(extras) => {
            parcel.write_i32(1);
            extras.write(parcel);
        }
        None => parcel.write_i32(0),
    }
}
