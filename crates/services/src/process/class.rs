//! Importance classes: the adjustment, the nice class and the share of the processors of each.
//!
//! | class | adjustment | killed below | nice: main thread, others | processors |
//! |---|---|---|---|---|
//! | persistent | -12 | never | 0, 0 | full share |
//! | real-time | -11 to -1 | never | as they are | full share |
//! | foreground | 0 | 6 MiB | -4, -2 | full share |
//! | visible | 1 | 8 MiB | 0, 0 | full share |
//! | secondary server | 2 | 16 MiB | 0, 0 | full share |
//! | backup | 3 | 16 MiB | 10, 10 | background |
//! | home | 4 | 16 MiB | 0, 0 | full share |
//! | hidden | 7 to 13 | 20 MiB | 10, 10 | background |
//! | content provider | 14 | 22 MiB | 10, 10 | background |
//! | empty | 15 | 24 MiB | 10, 10 | background |
//!
//! Backup has an adjustment of its own, so that an adjustment names its class; Android gives it
//! that of a secondary server, and the same threshold.
//!
//! Source: *RTAndroid*, listings 2.2 and 5.1, section 5.3; Android 2.2's `init.rc`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of a page, in which `minfree` counts.
pub const PAGE_BYTES: u64 = 4096;

/// An importance class, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A part of the system, which is started again whenever it ends.
    Persistent,
    /// A process with deadlines, protected while it works in the background.
    RealTime,
    /// The process that the user works with, or one that runs a receiver.
    Foreground,
    /// A process with an activity that is to be seen behind the resumed one.
    Visible,
    /// A process with a started service.
    SecondaryServer,
    /// A process whose data is being backed up.
    Backup,
    /// The process with the home screen.
    Home,
    /// A process with stopped activities, or a service that has not been used for long.
    Hidden,
    /// A process with a content provider that nobody uses.
    ContentProvider,
    /// A process without components, kept because its next start is then a fast one.
    Empty,
}

/// A process's place in the order in which memory is taken from processes: Android's `OOM_ADJ`.
/// The higher the number, the sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Adjustment(i32);

/// A name or number that is no class and no adjustment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no class (persistent, real-time, foreground, visible, secondary-server, backup, \
         home, hidden, content-provider, empty) and no adjustment from -12 to 15"
)]
pub struct NotAClass(pub String);

/// The nice values of a process's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nice {
    /// That of the main thread, which draws.
    pub main: i32,
    /// That of the others.
    pub others: i32,
}

/// The part of the processors that a process competes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// As much as every other process.
    Full,
    /// All background processes together get 5 percent where others want the rest.
    Background,
}

/// `ANDROID_PRIORITY_*`.
const BACKGROUND: i32 = 10;
const NORMAL: i32 = 0;
const FOREGROUND: i32 = -2;
const DISPLAY: i32 = -4;

impl Class {
    /// All classes, the best first.
    pub const ALL: [Class; 10] = [
        Class::Persistent,
        Class::RealTime,
        Class::Foreground,
        Class::Visible,
        Class::SecondaryServer,
        Class::Backup,
        Class::Home,
        Class::Hidden,
        Class::ContentProvider,
        Class::Empty,
    ];

    /// The best adjustment of the class; of real-time, the worst one: more than -1 is asked for by
    /// number.
    pub fn adjustment(self) -> Adjustment {
        Adjustment(match self {
            Class::Persistent => -12,
            Class::RealTime => -1,
            Class::Foreground => 0,
            Class::Visible => 1,
            Class::SecondaryServer => 2,
            Class::Backup => 3,
            Class::Home => 4,
            Class::Hidden => 7,
            Class::ContentProvider => 14,
            Class::Empty => 15,
        })
    }

    /// The name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Persistent => "persistent",
            Class::RealTime => "real-time",
            Class::Foreground => "foreground",
            Class::Visible => "visible",
            Class::SecondaryServer => "secondary-server",
            Class::Backup => "backup",
            Class::Home => "home",
            Class::Hidden => "hidden",
            Class::ContentProvider => "content-provider",
            Class::Empty => "empty",
        }
    }

    /// The nice values of the class. `None` for real-time: such a process has set its own.
    pub fn nice(self) -> Option<Nice> {
        let (main, others) = match self {
            Class::RealTime => return None,
            Class::Foreground => (DISPLAY, FOREGROUND),
            _ if self.share() == Share::Background => (BACKGROUND, BACKGROUND),
            _ => (NORMAL, NORMAL),
        };
        Some(Nice { main, others })
    }

    /// The share of the processors.
    pub fn share(self) -> Share {
        match self {
            Class::Backup | Class::Hidden | Class::ContentProvider | Class::Empty => {
                Share::Background
            }
            _ => Share::Full,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Adjustment {
    /// The best one: that of persistent processes.
    pub const BEST: Adjustment = Adjustment(-12);
    /// The worst one: that of empty processes.
    pub const WORST: Adjustment = Adjustment(15);

    /// An adjustment. `None` outside of [`Adjustment::BEST`] to [`Adjustment::WORST`].
    pub fn new(value: i32) -> Option<Adjustment> {
        (Adjustment::BEST.0..=Adjustment::WORST.0).contains(&value).then_some(Adjustment(value))
    }

    /// The number.
    pub fn get(self) -> i32 {
        self.0
    }

    /// That of the hidden process which `n_later` hidden processes have been used after.
    pub fn of_hidden(n_later: usize) -> Adjustment {
        let worst = Class::ContentProvider.adjustment().0 - 1;
        let steps = i32::try_from(n_later).unwrap_or(i32::MAX);
        Adjustment(Class::Hidden.adjustment().0.saturating_add(steps).min(worst))
    }

    /// The class that it belongs to.
    pub fn class(self) -> Class {
        match self.0 {
            ..=-12 => Class::Persistent,
            -11..=-1 => Class::RealTime,
            0 => Class::Foreground,
            1 => Class::Visible,
            2 => Class::SecondaryServer,
            3 => Class::Backup,
            4..=6 => Class::Home,
            7..=13 => Class::Hidden,
            14 => Class::ContentProvider,
            15.. => Class::Empty,
        }
    }

    /// Whether the low-memory killer leaves the process alone.
    pub fn is_protected(self) -> bool {
        self.0 < Class::Foreground.adjustment().0
    }

    /// The value for `/proc/PID/oom_score_adj`, so that the kernel's own killer has the same order.
    pub fn oom_score_adj(self) -> i32 {
        const MOST: i32 = 1000;
        match self {
            Adjustment::WORST => MOST,
            // OOM_DISABLE was -17.
            Adjustment(value) => value * MOST / 17,
        }
    }
}

impl fmt::Display for Adjustment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Adjustment {
    type Err = NotAClass;

    /// A class by its name, or a number.
    fn from_str(text: &str) -> Result<Adjustment, NotAClass> {
        let named = Class::ALL.iter().find(|class| class.name() == text);
        named
            .map(|class| class.adjustment())
            .or_else(|| Adjustment::new(text.parse().ok()?))
            .ok_or_else(|| NotAClass(text.to_owned()))
    }
}

/// The amounts of free memory below which processes are killed: Android's `minfree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MinFree {
    pages: [u64; 6],
}

/// Six numbers of pages were expected, none less than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "six numbers of pages of 4096 bytes are needed, none less than the one before it, such as \
         1536,2048,4096,5120,5632,6144"
)]
pub struct NotMinFree;

impl MinFree {
    /// The adjustments that the amounts belong to: of six slots, as the kernel's driver had.
    pub const ADJUSTMENTS: [Adjustment; 6] = [
        Adjustment(0),
        Adjustment(1),
        Adjustment(2),
        Adjustment(7),
        Adjustment(14),
        Adjustment(15),
    ];

    /// Amounts in pages, the least first.
    pub fn new(pages: [u64; 6]) -> Result<MinFree, NotMinFree> {
        if pages.is_sorted() { Ok(MinFree { pages }) } else { Err(NotMinFree) }
    }

    /// The adjustments, and the bytes below which those at or above them may be killed.
    pub fn thresholds(&self) -> impl Iterator<Item = (Adjustment, u64)> {
        let bytes = self.pages.map(|pages| pages.saturating_mul(PAGE_BYTES));
        MinFree::ADJUSTMENTS.into_iter().zip(bytes)
    }

    /// The best adjustment that may be killed for as much free memory. `None` if none may be.
    pub fn limit(&self, free_bytes: u64) -> Option<(Adjustment, u64)> {
        self.thresholds().find(|(_, bytes)| free_bytes < *bytes)
    }

    /// The most free memory for which anything is killed.
    pub fn most_bytes(&self) -> u64 {
        self.pages[5].saturating_mul(PAGE_BYTES)
    }
}

impl Default for MinFree {
    fn default() -> MinFree {
        MinFree { pages: [1536, 2048, 4096, 5120, 5632, 6144] }
    }
}

impl FromStr for MinFree {
    type Err = NotMinFree;

    fn from_str(text: &str) -> Result<MinFree, NotMinFree> {
        let pages: Result<Vec<u64>, _> = text.split(',').map(|part| part.trim().parse()).collect();
        let pages = pages.map_err(|_| NotMinFree)?.try_into().map_err(|_| NotMinFree)?;
        MinFree::new(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_adjustment_belongs_to_one_class_and_back() {
        let mut last = Class::Persistent;
        for value in -12..=15 {
            let adjustment = Adjustment::new(value).unwrap();
            let class = adjustment.class();
            assert!(last <= class, "{value}: a worse number is no better class");
            last = class;
            assert_eq!(adjustment.is_protected(), class <= Class::RealTime, "{value}");
        }
        for class in Class::ALL {
            assert_eq!(class.adjustment().class(), class);
            assert_eq!(class.name().parse(), Ok(class.adjustment()));
        }
        assert_eq!((Adjustment::new(-13), Adjustment::new(16)), (None, None));
    }

    #[test]
    fn names_and_numbers_are_read_and_others_refused() {
        for (text, expected) in [
            ("-1", Some(-1)),
            ("real-time", Some(-1)),
            ("foreground", Some(0)),
            ("15", Some(15)),
            ("16", None),
            ("-13", None),
            ("Foreground", None),
            ("", None),
        ] {
            let read = text.parse::<Adjustment>();
            assert_eq!(read.clone().ok().map(Adjustment::get), expected, "{text:?}");
            if let Err(error) = read {
                assert!(error.to_string().contains("content-provider"), "{error}");
            }
        }
    }

    /// Listing 5.1, and the two examples of section 5.3.
    #[test]
    fn thresholds_are_those_of_the_listing() {
        const MIB: u64 = 1 << 20;
        let check = |free_bytes: u64, expected: Option<i32>| {
            let limit = MinFree::default().limit(free_bytes);
            assert_eq!(limit.map(|(limit, _)| limit.get()), expected, "{free_bytes} free");
        };
        check(24 * MIB, None);
        check(24 * MIB - 1, Some(15));
        check(22 * MIB - 1, Some(14));
        check(20 * MIB - 1, Some(7));
        check(16 * MIB - 1, Some(2));
        check(8 * MIB - 1, Some(1));
        check(6 * MIB - 1, Some(0));
        check(0, Some(0));
    }

    #[test]
    fn thresholds_are_read_or_refused() {
        assert_eq!("1536,2048,4096,5120,5632,6144".parse(), Ok(MinFree::default()));
        for text in ["", "1,2,3,4,5", "1,2,3,4,5,6,7", "2,1,3,4,5,6", "1,2,3,4,5,x", "-1,2,3,4,5,6"]
        {
            assert_eq!(text.parse::<MinFree>(), Err(NotMinFree), "{text:?}");
        }
    }

    #[test]
    fn the_kernels_order_is_ours() {
        let scores: Vec<i32> =
            (-12..=15).map(|value| Adjustment::new(value).unwrap().oom_score_adj()).collect();
        assert!(scores.is_sorted_by(|one, other| one < other), "{scores:?}");
        assert_eq!((scores[0], scores[12], scores[27]), (-705, 0, 1000));
    }

    #[test]
    fn a_hidden_process_is_the_worse_the_longer_it_is_unused() {
        let of = |n_later| Adjustment::of_hidden(n_later).get();
        assert_eq!([of(0), of(1), of(6), of(7), of(usize::MAX)], [7, 8, 13, 13, 13]);
    }
}
