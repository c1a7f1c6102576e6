//! Calls that carry more than bytes: the cases, what their requests ask for, and the counts that
//! have to add up.

use serde::{Deserialize, Serialize};
use strum::{FromRepr, IntoStaticStr, VariantArray};

/// What a call carries beside its bytes, or what takes the place of a call. In the order in which
/// they are measured: those that come late change what the client is.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Case {
    /// Nothing: what the others are told over.
    #[default]
    Plain,
    /// An object of the client's, which the server holds already.
    ObjectKnown,
    /// An object of the client's, of which the server keeps nothing.
    ObjectDropped,
    /// A new object of the client's each time, which ends when the server drops it.
    ObjectNew,
    /// An object of the server's in the reply; the client holds it already.
    ObjectInReply,
    /// The client's handle of an object of the server's.
    HandleHome,
    /// The client's handle of a third process's object, which the server holds already.
    HandleKnown,
    /// The client's handle of a third process's object, of which the server keeps nothing. The
    /// server has a channel with the owner.
    Introduction,
    /// The server's handle of a third process's object in the reply; the client holds it already.
    GetService,
    /// A descriptor, which the server closes.
    Descriptor,
    /// No call: a death notice is asked for and cleared.
    LinkUnlink,
    /// The device is opened, and a plain call made by it.
    FirstContact,
}

impl Case {
    /// As rows and ratios name it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Which end of a call receives what it carries.
    pub(crate) fn receiver(self) -> Option<Receiver> {
        match self {
            Case::Plain | Case::LinkUnlink | Case::FirstContact => None,
            Case::ObjectInReply | Case::GetService => Some(Receiver::Client),
            _ => Some(Receiver::Server),
        }
    }

    /// The code of a call to the server, and the thing that the call carries. `None` if the case
    /// makes no call, or a first one.
    pub(crate) fn request(self) -> Option<(Code, Carried)> {
        Some(match self {
            Case::Plain => (Code::Echo, Carried::Nothing),
            Case::ObjectKnown => (Code::Keep, Carried::OwnObject),
            Case::ObjectDropped => (Code::Drop, Carried::OwnObject),
            Case::ObjectNew => (Code::Drop, Carried::NewObject),
            Case::ObjectInReply => (Code::Give, Carried::Nothing),
            Case::HandleHome => (Code::TakeHome, Carried::KeptHandle),
            Case::HandleKnown => (Code::Keep, Carried::KeptHandle),
            Case::Introduction => (Code::Drop, Carried::KeptHandle),
            Case::GetService => (Code::GetService, Carried::Nothing),
            Case::Descriptor => (Code::CloseDescriptor, Carried::Descriptor),
            Case::LinkUnlink | Case::FirstContact => return None,
        })
    }

    /// The code of the call that brings the handle which the client keeps, before all others.
    /// `None` if the server does not bring that handle.
    pub(crate) fn fetched(self) -> Option<Code> {
        match self {
            Case::HandleHome | Case::LinkUnlink => Some(Code::Give),
            Case::HandleKnown => Some(Code::GetService),
            _ => None,
        }
    }

    /// How many times fewer calls are enough: each takes that much longer.
    pub(crate) fn fewer(self) -> u32 {
        if self == Case::FirstContact { 50 } else { 1 }
    }
}

/// The thing that a request carries beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Nothing,
    /// The client's object, which is the same in all calls.
    OwnObject,
    NewObject,
    /// The handle that the client keeps.
    KeptHandle,
    Descriptor,
}

/// An end of a call that receives something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    Client,
    Server,
}

/// What a request asks the server for: its transaction code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u32)]
pub(crate) enum Code {
    /// To answer with what it was sent, as to all that follow.
    Echo = 1,
    /// To keep a reference to the object that comes, unless it has one.
    Keep,
    /// To take a reference to the object that comes, and to drop it.
    Drop,
    /// To drop the reference to the object that comes that it keeps.
    Forget,
    /// To answer with an object of its own, too.
    Give,
    /// To see that the object that comes is its own.
    TakeHome,
    /// To keep the object that comes as the service.
    AddService,
    /// To call the service.
    CallService,
    /// To answer with the service, too.
    GetService,
    /// To close the descriptor that comes.
    CloseDescriptor,
    /// To answer with its counts alone.
    Count,
}

impl Code {
    /// Whether the server counts what comes, once it has seen that it is the right one.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Code::Keep | Code::Drop | Code::TakeHome | Code::CloseDescriptor)
    }
}

/// What one end has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects, handles and descriptors that came, each of which was the one that had to come.
    pub received: u64,
    /// References to others' objects that it keeps.
    pub kept: u64,
    /// References to its own objects that the driver has told of and not taken back; of a typed
    /// program, objects that have not ended.
    pub lent: u64,
    /// Descriptors that are open.
    pub descriptors: u64,
}

/// Counts as a reply carries them.
const COUNTS_BYTES: usize = 32;

impl Counts {
    /// As they travel.
    pub fn bytes(self) -> [u8; COUNTS_BYTES] {
        let Counts { received, kept, lent, descriptors } = self;
        bytemuck::cast([received, kept, lent, descriptors])
    }

    /// As they came. `None` if these are no counts.
    pub fn read(bytes: &[u8]) -> Option<Counts> {
        let bytes: [u8; COUNTS_BYTES] = bytes.try_into().ok()?;
        let [received, kept, lent, descriptors] = bytemuck::cast(bytes);
        Some(Counts { received, kept, lent, descriptors })
    }
}

/// What both ends have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The end that calls.
    pub client: Counts,
    /// The end that answers.
    pub server: Counts,
}

impl Ends {
    fn of(&self, receiver: Receiver) -> u64 {
        match receiver {
            Receiver::Client => self.client.received,
            Receiver::Server => self.server.received,
        }
    }

    /// Whether `n_calls` calls since `before` have left nothing behind: an error says what. What is
    /// left is given back soon, and so may be looked at again; a wrong number of objects is not.
    pub(crate) fn left(&self, case: Case, before: &Ends, n_calls: u64) -> Result<(), Left> {
        let received = case.receiver().map_or(0, |end| self.of(end) - before.of(end));
        let wanted = case.receiver().map_or(0, |_| n_calls);
        if received != wanted {
            return Err(Left::Lost { received, wanted });
        }
        let ends = [
            ("client", Receiver::Client, self.client, before.client),
            ("server", Receiver::Server, self.server, before.server),
        ];
        for (end, receiver, now, before) in ends {
            let more = |count: fn(&Counts) -> u64| count(&now).saturating_sub(count(&before));
            let (kept, lent) = (more(|it| it.kept), more(|it| it.lent));
            let is_watched = case == Case::Descriptor && case.receiver() == Some(receiver);
            let descriptors = if is_watched { more(|it| it.descriptors) } else { 0 };
            if kept + lent + descriptors > 0 {
                return Err(Left::Unreleased { end, kept, lent, descriptors });
            }
        }
        Ok(())
    }
}

/// What does not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Left {
    #[error("{received} objects came of {wanted}")]
    Lost { received: u64, wanted: u64 },
    #[error(
        "at the end the {end} has more than before: {kept} handles, {lent} references that others \
         have to its objects, {descriptors} descriptors"
    )]
    Unreleased { end: &'static str, kept: u64, lent: u64, descriptors: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: Counts, server: Counts) -> Ends {
        Ends { client, server }
    }

    #[test]
    fn counts_travel() {
        let counts = Counts { received: 1, kept: 2, lent: u64::MAX, descriptors: 4 };
        assert_eq!(Counts::read(&counts.bytes()), Some(counts));
        for wrong in [&[][..], &[0; COUNTS_BYTES - 1], &[0; COUNTS_BYTES + 1]] {
            assert_eq!(Counts::read(wrong), None);
        }
    }

    #[test]
    fn a_code_is_known_from_others() {
        assert_eq!(Code::from_repr(Code::Count as u32), Some(Code::Count));
        assert_eq!(Code::from_repr(0), None);
        assert_eq!(Code::from_repr(Code::Count as u32 + 1), None);
    }

    #[test]
    fn all_that_was_sent_has_to_come() {
        let none = Counts::default();
        let five = Counts { received: 5, ..none };
        let lost = |received| Err(Left::Lost { received, wanted: 5 });
        for (case, after, expected) in [
            (Case::ObjectKnown, ends(none, five), Ok(())),
            (Case::ObjectKnown, ends(five, none), lost(0)),
            (Case::GetService, ends(five, none), Ok(())),
            (Case::Descriptor, ends(none, Counts { received: 4, ..none }), lost(4)),
            (Case::Plain, ends(none, none), Ok(())),
            (Case::LinkUnlink, ends(none, none), Ok(())),
        ] {
            assert_eq!(after.left(case, &Ends::default(), 5), expected, "{case:?}");
        }
        let before = ends(none, Counts { received: 95, ..none });
        let after = ends(none, Counts { received: 100, ..none });
        assert_eq!(after.left(Case::ObjectNew, &before, 5), Ok(()));
    }

    #[test]
    fn all_that_was_taken_has_to_be_released() {
        let (none, before) = (Counts::default(), Counts { kept: 1, lent: 2, ..Counts::default() });
        let unreleased = |end, [kept, lent, descriptors]: [u64; 3]| {
            Err(Left::Unreleased { end, kept, lent, descriptors })
        };
        for (case, client, server, expected) in [
            (Case::Plain, before, before, Ok(())),
            (Case::Plain, none, none, Ok(())),
            (Case::Plain, Counts { lent: 4, ..before }, before, unreleased("client", [0, 2, 0])),
            (Case::Plain, before, Counts { kept: 2, ..before }, unreleased("server", [1, 0, 0])),
            // A channel has descriptors, too.
            (Case::Plain, before, Counts { descriptors: 3, ..before }, Ok(())),
        ] {
            let after = ends(client, server);
            assert_eq!(after.left(case, &ends(before, before), 9), expected, "{after:?}");
        }
        let server = Counts { received: 9, descriptors: 9, ..none };
        let left = ends(none, server).left(Case::Descriptor, &Ends::default(), 9);
        assert_eq!(left, unreleased("server", [0, 0, 9]));
    }
}
