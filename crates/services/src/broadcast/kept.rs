//! What the journal's records say: receivers, sticky broadcasts, broadcasts under way and how far
//! they are. In the format of parcels.

use super::level::{Outcome, Target};
use super::protocol::{Arguments, RequestError, write_outcome, write_text};
use crate::intent::{ComponentName, Intent, IntentFilter};
use baton::Parcel;
use baton::android::{Reader, Write};

/// A callback of a process, which the process names by a key: the same one for every service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callee {
    /// The process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// The callback's key: not 0.
    pub key: u64,
}

/// A registered receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptReceiver {
    /// The callback.
    pub callee: Callee,
    /// The intents that it gets.
    pub filter: IntentFilter,
    /// The permission that senders need.
    pub permission: Option<String>,
    /// The package that explicit intents name.
    pub package: Option<String>,
}

/// A sticky broadcast.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSticky {
    /// The sender's user.
    pub uid: u32,
    /// The intent.
    pub intent: Intent,
}

/// Whom a broadcast goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptTarget {
    /// A registered receiver, by its id.
    Registered(u64),
    /// A component of a manifest.
    Component(ComponentName),
}

/// An ordered broadcast's own part.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOrder {
    /// The result before the first receiver.
    pub initial: Outcome,
    /// Whom the last result goes to. The key is 0 if it cannot be found again.
    pub result_to: Option<Callee>,
}

/// A broadcast that is accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptBroadcast {
    /// The user who is charged.
    pub uid: u32,
    /// The intent.
    pub intent: Intent,
    /// Whether it was sent before its receiver was registered.
    pub is_sticky: bool,
    /// Of an ordered broadcast.
    pub order: Option<KeptOrder>,
    /// The receivers, in their order.
    pub targets: Vec<KeptTarget>,
}

/// How far an ordered broadcast is.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptStep {
    /// The index of the receiver whose turn it is. One more than the last one's: the result's.
    pub at: u32,
    /// The result so far.
    pub outcome: Outcome,
}

type Read<T> = Result<T, RequestError>;

impl Callee {
    fn write(&self, parcel: &mut Parcel) {
        parcel.write_i32(self.pid as i32);
        parcel.write_i32(self.uid as i32);
        parcel.write(&self.key.to_le_bytes());
    }

    fn read(arguments: &mut Arguments<'_>) -> Read<Callee> {
        let (pid, uid) = (arguments.i32("pid")? as u32, arguments.i32("uid")? as u32);
        Ok(Callee { pid, uid, key: arguments.u64("key")? })
    }
}

impl KeptReceiver {
    /// Writes the record's body.
    pub fn write(&self) -> Parcel {
        let mut parcel = Parcel::new();
        self.callee.write(&mut parcel);
        parcel.write_i32(1);
        self.filter.write(&mut parcel);
        write_text(&mut parcel, self.permission.as_deref());
        write_text(&mut parcel, self.package.as_deref());
        parcel
    }

    /// Reads a record's body.
    ///
    /// # Errors
    /// It is another one's.
    pub fn read(body: &[u8]) -> Read<KeptReceiver> {
        let mut arguments = Arguments(Reader::new(body));
        Ok(KeptReceiver {
            callee: Callee::read(&mut arguments)?,
            filter: arguments.parcelable("filter", IntentFilter::read)?,
            permission: arguments.text("permission")?,
            package: arguments.text("package")?,
        })
    }
}

impl KeptSticky {
    /// Writes the body of a user's sticky broadcast.
    pub fn write(uid: u32, intent: &Intent) -> Parcel {
        let mut parcel = Parcel::new();
        parcel.write_i32(uid as i32);
        parcel.write_i32(1);
        intent.write(&mut parcel);
        parcel
    }

    /// Reads a record's body.
    ///
    /// # Errors
    /// It is another one's.
    pub fn read(body: &[u8]) -> Read<KeptSticky> {
        let mut arguments = Arguments(Reader::new(body));
        let uid = arguments.i32("uid")? as u32;
        Ok(KeptSticky { uid, intent: arguments.parcelable("intent", Intent::read)? })
    }
}

impl KeptBroadcast {
    /// The mark of one that has begun.
    pub const BEGUN: u32 = 0;

    /// The mark of a receiver of a parallel one, by its index, that was called.
    pub fn mark(at: usize) -> u32 {
        Self::BEGUN + 1 + at as u32
    }

    /// The number of its marks.
    pub fn n_marks(is_ordered: bool, n_targets: usize) -> u32 {
        Self::mark(if is_ordered { 0 } else { n_targets })
    }

    /// Writes the body of a user's broadcast.
    pub fn write<R>(
        uid: u32,
        intent: &Intent,
        is_sticky: bool,
        order: Option<&KeptOrder>,
        targets: &[Target<R>],
    ) -> Parcel {
        let mut parcel = Parcel::new();
        parcel.write_i32(uid as i32);
        parcel.write_i32(1);
        intent.write(&mut parcel);
        parcel.write_i32(is_sticky.into());
        parcel.write_i32(order.is_some().into());
        if let Some(KeptOrder { initial, result_to }) = order {
            write_outcome(&mut parcel, initial);
            parcel.write_i32(result_to.is_some().into());
            if let Some(callee) = result_to {
                callee.write(&mut parcel);
            }
        }
        parcel.write_i32(targets.len() as i32);
        for target in targets {
            let component = match target {
                Target::Registered(receiver) => match &receiver.component {
                    // The next service starts its process.
                    Some(component) => component,
                    None => {
                        parcel.write(&receiver.id.to_le_bytes());
                        continue;
                    }
                },
                Target::Component(component) => component,
                Target::Reached => unreachable!("a new broadcast has reached nobody"),
            };
            parcel.write(&[0; 8]);
            parcel.write_string(&component.package);
            parcel.write_string(&component.class);
        }
        parcel
    }

    /// Reads a record's body.
    ///
    /// # Errors
    /// It is another one's.
    pub fn read(body: &[u8]) -> Read<KeptBroadcast> {
        let mut arguments = Arguments(Reader::new(body));
        let uid = arguments.i32("uid")? as u32;
        let intent = arguments.parcelable("intent", Intent::read)?;
        let is_sticky = arguments.is_present("sticky")?;
        let order = match arguments.is_present("ordered")? {
            false => None,
            true => {
                let initial = arguments.outcome()?;
                let result_to = match arguments.is_present("resultTo")? {
                    false => None,
                    true => Some(Callee::read(&mut arguments)?),
                };
                Some(KeptOrder { initial, result_to })
            }
        };
        let n_targets = arguments.i32("targets")?;
        let target = |_| {
            Ok(match arguments.u64("target")? {
                0 => KeptTarget::Component(ComponentName {
                    package: arguments.string("package")?,
                    class: arguments.string("className")?,
                }),
                id => KeptTarget::Registered(id),
            })
        };
        let targets = (0..n_targets).map(target).collect::<Read<_>>()?;
        Ok(KeptBroadcast { uid, intent, is_sticky, order, targets })
    }
}

impl KeptStep {
    /// Writes the body of a step.
    pub fn write(at: u32, outcome: &Outcome) -> Parcel {
        let mut parcel = Parcel::new();
        parcel.write_i32(at as i32);
        write_outcome(&mut parcel, outcome);
        parcel
    }

    /// Reads a record's body.
    ///
    /// # Errors
    /// It is another one's.
    pub fn read(body: &[u8]) -> Read<KeptStep> {
        let mut arguments = Arguments(Reader::new(body));
        Ok(KeptStep { at: arguments.i32("at")? as u32, outcome: arguments.outcome()? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::level::Receiver;
    use super::super::presence::Presence;
    use super::*;
    use std::fmt::Debug;
    use std::sync::{Arc, OnceLock};

    fn check<T: PartialEq + Debug>(written: &T, body: &Parcel, read: impl Fn(&[u8]) -> Read<T>) {
        let body = body.data();
        assert_eq!(&read(body).unwrap(), written);
        for n_bytes in 0..body.len() {
            assert!(read(&body[..n_bytes]).is_err(), "{n_bytes} bytes of {written:?}");
        }
    }

    #[test]
    fn bodies_are_read_as_they_were_written_and_parts_are_refused() {
        let callee = Callee { pid: 7, uid: u32::MAX, key: u64::MAX };
        let outcome = Outcome { code: -1, data: Some("ä".to_owned()), extras: None };
        let (permission, package) = (Some("p".to_owned()), None);
        let filter = IntentFilter::new("a");
        let receiver = KeptReceiver { callee, filter, permission, package };
        check(&receiver, &receiver.write(), KeptReceiver::read);
        let sticky = KeptSticky { uid: 8, intent: Intent::new("a") };
        check(&sticky, &KeptSticky::write(8, &sticky.intent), KeptSticky::read);
        let step = KeptStep { at: 3, outcome: outcome.clone() };
        check(&step, &KeptStep::write(3, &outcome), KeptStep::read);
        let name = ComponentName { package: "p".to_owned(), class: ".C".to_owned() };
        let registered = |component| {
            Target::Registered(Arc::new(Receiver {
                id: u64::MAX,
                object: OnceLock::from(()),
                pid: 1,
                uid: 1,
                name: String::new(),
                component,
                permission: None,
                presence: Presence::default(),
            }))
        };
        let targets =
            [registered(None), Target::Component(name.clone()), registered(Some(name.clone()))];
        for order in [None, Some(KeptOrder { initial: outcome, result_to: Some(callee) })] {
            let component = || KeptTarget::Component(name.clone());
            let broadcast = KeptBroadcast {
                uid: 1,
                intent: Intent::new("a"),
                is_sticky: order.is_none(),
                order,
                targets: vec![KeptTarget::Registered(u64::MAX), component(), component()],
            };
            let KeptBroadcast { uid, intent, is_sticky, order, .. } = &broadcast;
            let body = KeptBroadcast::write(*uid, intent, *is_sticky, order.as_ref(), &targets);
            check(&broadcast, &body, KeptBroadcast::read);
        }
    }
}
