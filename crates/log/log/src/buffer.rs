//! The buffers and priorities of records.

/// A buffer, with the number of Android's `log_id_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Buffer {
    /// Records of applications.
    Main = 0,
    /// Records of radio and telephony.
    Radio = 1,
    /// Binary events.
    Events = 2,
    /// Records of the system.
    System = 3,
    /// Records of programs that crash.
    Crash = 4,
}

/// The number of buffers.
pub const N_BUFFERS: usize = 5;

impl Buffer {
    /// All buffers, by their numbers.
    pub const ALL: [Buffer; N_BUFFERS] =
        [Buffer::Main, Buffer::Radio, Buffer::Events, Buffer::System, Buffer::Crash];

    /// The name of the buffer, for people.
    pub fn name(self) -> &'static str {
        match self {
            Buffer::Main => "main",
            Buffer::Radio => "radio",
            Buffer::Events => "events",
            Buffer::System => "system",
            Buffer::Crash => "crash",
        }
    }

    /// The buffer with this name.
    pub fn named(name: &str) -> Option<Buffer> {
        Buffer::ALL.into_iter().find(|buffer| buffer.name() == name)
    }

    /// The buffer with this number.
    pub fn numbered(number: u8) -> Option<Buffer> {
        Buffer::ALL.get(usize::from(number)).copied()
    }
}

/// The priority of a record, with Android's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Useful while a program is developed.
    Verbose = 2,
    /// Useful while a fault is searched.
    Debug = 3,
    /// A step in the normal course.
    Info = 4,
    /// Something is unexpected.
    Warn = 5,
    /// Something has failed.
    Error = 6,
    /// The program cannot go on.
    Fatal = 7,
}

impl Priority {
    /// All priorities, from the lowest to the highest.
    pub const ALL: [Priority; 6] = [
        Priority::Verbose,
        Priority::Debug,
        Priority::Info,
        Priority::Warn,
        Priority::Error,
        Priority::Fatal,
    ];

    /// The letter of the priority, in capitals.
    pub fn letter(self) -> char {
        match self {
            Priority::Verbose => 'V',
            Priority::Debug => 'D',
            Priority::Info => 'I',
            Priority::Warn => 'W',
            Priority::Error => 'E',
            Priority::Fatal => 'F',
        }
    }

    /// The priority with this letter, in either case.
    pub fn lettered(letter: char) -> Option<Priority> {
        let wanted = letter.to_ascii_uppercase();
        Priority::ALL.into_iter().find(|priority| priority.letter() == wanted)
    }

    /// The priority with this number.
    pub fn numbered(number: u8) -> Option<Priority> {
        Priority::ALL.into_iter().find(|&priority| priority as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_letters_lead_back() {
        for (number, buffer) in (0..).zip(Buffer::ALL) {
            assert_eq!(
                (Buffer::numbered(number), Buffer::named(buffer.name())),
                (Some(buffer), Some(buffer))
            );
        }
        assert_eq!((Buffer::numbered(5), Buffer::named("kernel")), (None, None));
        for priority in Priority::ALL {
            assert_eq!(Priority::lettered(priority.letter()), Some(priority));
            assert_eq!(Priority::numbered(priority as u8), Some(priority));
        }
        assert_eq!(Priority::lettered('w'), Some(Priority::Warn));
        assert_eq!((Priority::lettered('S'), Priority::numbered(8)), (None, None));
    }
}
