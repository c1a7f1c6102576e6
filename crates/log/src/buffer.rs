//! What a record is filed under.

/// A buffer, with the number that Android's `log_id_t` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Buffer {
    /// Of applications.
    Main = 0,
    /// Of the radio and telephony.
    Radio = 1,
    /// Binary events.
    Events = 2,
    /// Of the system.
    System = 3,
    /// Of programs that end by a fault.
    Crash = 4,
}

/// How many there are.
pub const N_BUFFERS: usize = 5;

impl Buffer {
    /// All of them, by their numbers.
    pub const ALL: [Buffer; N_BUFFERS] =
        [Buffer::Main, Buffer::Radio, Buffer::Events, Buffer::System, Buffer::Crash];

    /// The name by which people ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Buffer::Main => "main",
            Buffer::Radio => "radio",
            Buffer::Events => "events",
            Buffer::System => "system",
            Buffer::Crash => "crash",
        }
    }

    /// The buffer of this name.
    pub fn named(name: &str) -> Option<Buffer> {
        Buffer::ALL.into_iter().find(|buffer| buffer.name() == name)
    }

    /// The buffer of this number.
    pub fn numbered(number: u8) -> Option<Buffer> {
        Buffer::ALL.get(usize::from(number)).copied()
    }
}

/// How much a record matters, with Android's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Of use while a program is written.
    Verbose = 2,
    /// Of use while a fault is looked for.
    Debug = 3,
    /// What is done in the ordinary course.
    Info = 4,
    /// Something is odd.
    Warn = 5,
    /// Something has failed.
    Error = 6,
    /// The program cannot go on.
    Fatal = 7,
}

impl Priority {
    /// From the least to the greatest.
    pub const ALL: [Priority; 6] = [
        Priority::Verbose,
        Priority::Debug,
        Priority::Info,
        Priority::Warn,
        Priority::Error,
        Priority::Fatal,
    ];

    /// The letter that stands for it.
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

    /// The priority of this letter, large or small.
    pub fn lettered(letter: char) -> Option<Priority> {
        let wanted = letter.to_ascii_uppercase();
        Priority::ALL.into_iter().find(|priority| priority.letter() == wanted)
    }

    /// The priority of this number.
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
