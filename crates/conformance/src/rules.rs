//! Rules about intended differences from the kernel's driver. docs/differences.md has the reasons
//! under the same names.
//!
//! The comparison applies a rule that *explains* to a step in which the sides differ. A rule that
//! is *avoided* belongs to a place of the generator: the result would depend on more than the
//! steps, so no scenario leads there.

use crate::step::{Act, Control, Step};

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Name, as in docs/differences.md.
    pub name: &'static str,
    /// Effect of the rule.
    pub does: Does,
}

/// The effect of a rule on the comparison.
#[derive(Debug)]
pub enum Does {
    /// Returns a line without the parts that may differ. `None` if the rule does not apply to the
    /// line.
    Explains(fn(&Scene, Whose, &str) -> Option<String>),
    /// None: the generator avoids such steps.
    Avoided,
}

/// The side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The kernel's driver.
    Kernel,
    /// Baton.
    Baton,
}

/// A step in which the sides differ, with the steps before it.
#[derive(Debug)]
pub struct Scene<'a> {
    /// Name of the kernel's driver: "linux", and its release.
    pub kernel_driver: &'a str,
    /// All steps up to this one, inclusive.
    pub steps: &'a [Step],
    /// The kernel's lines; the step's own line first.
    pub theirs: &'a [String],
    /// Baton's lines; the step's own line first.
    pub ours: &'a [String],
    /// Rules beside [`RULES`].
    pub more_rules: &'static [Rule],
}

/// All rules that the comparison needs.
pub const RULES: &[Rule] = &[
    Rule { name: "taken-in-later", does: Does::Explains(without_offsets_of_waiting_processes) },
    Rule { name: "pending-frozen", does: Does::Explains(as_before_pending_frozen) },
    Rule { name: "dead-at-once", does: Does::Avoided },
    Rule { name: "former-manager", does: Does::Avoided },
    Rule { name: "frozen-at-the-door", does: Does::Avoided },
    Rule { name: "equal-holes", does: Does::Avoided },
    Rule { name: "oldest-looper-first", does: Does::Avoided },
    Rule { name: "reply-without-room", does: Does::Avoided },
    Rule { name: "small-read-buffer", does: Does::Avoided },
    Rule { name: "spam-by-sender", does: Does::Avoided },
    Rule { name: "unread-at-exit", does: Does::Avoided },
];

/// Rules of mounted programs alone. docs/binderfs.md has the reasons.
pub const MOUNT_RULES: &[Rule] =
    &[Rule { name: "unreadable-argument", does: Does::Explains(as_of_no_argument) }];

/// The fewest rules that explain the step: one, or else all that apply.
pub fn explain(scene: &Scene) -> Option<Vec<&'static Rule>> {
    if scene.theirs.first() != scene.ours.first() || scene.theirs.len() != scene.ours.len() {
        return None;
    }
    let explains = |rule: &&Rule| matches!(rule.does, Does::Explains(_));
    let all: Vec<&'static Rule> = RULES.iter().chain(scene.more_rules).filter(explains).collect();
    if let Some(rule) = all.iter().find(|rule| makes_equal(scene, &[rule])) {
        return Some(vec![rule]);
    }
    if !makes_equal(scene, &all) {
        return None;
    }
    // The rules without which the step would still differ.
    let needed = |rule: &&&'static Rule| {
        let others: Vec<_> = all.iter().filter(|other| other.name != rule.name).copied().collect();
        !makes_equal(scene, &others)
    };
    Some(all.iter().filter(needed).copied().collect())
}

fn makes_equal(scene: &Scene, rules: &[&Rule]) -> bool {
    let canonical = |whose, line: &String| {
        rules.iter().fold(line.clone(), |line, rule| match rule.does {
            Does::Explains(canonical) => canonical(scene, whose, &line).unwrap_or(line),
            Does::Avoided => line,
        })
    };
    scene.theirs.iter().zip(scene.ours).skip(1).all(|(theirs, ours)| {
        theirs == ours || canonical(Whose::Kernel, theirs) == canonical(Whose::Baton, ours)
    })
}

/// Removes offsets in the receive buffer for processes whose threads wait in the driver: while they
/// are busy, no thread takes work in.
fn without_offsets_of_waiting_processes(
    scene: &Scene,
    _whose: Whose,
    line: &str,
) -> Option<String> {
    let process = process_of(line)?;
    let of_it = scene.steps.iter().filter(|step| step.process == process);
    let waits = of_it.fold(false, |waits, step| match step.act {
        Act::Open { nonblocking } => !nonblocking,
        _ => waits,
    });
    waits.then(|| without_offsets(line))
}

/// A one-way transaction to a frozen process: kernels before 6.2 have no return of its own for it.
fn as_before_pending_frozen(scene: &Scene, whose: Whose, line: &str) -> Option<String> {
    let knows_it = release(scene.kernel_driver)? >= (6, 2);
    (whose == Whose::Baton && !knows_it)
        .then(|| line.replace("TRANSACTION_PENDING_FROZEN", "TRANSACTION_COMPLETE"))
}

/// An ioctl whose argument cannot be read: FUSE answers before the driver has looked at the
/// request's number. A thread's first ioctl is never one: see [`Thread::is_known`].
///
/// [`Thread::is_known`]: crate::world::Thread::is_known
fn as_of_no_argument(scene: &Scene, whose: Whose, line: &str) -> Option<String> {
    let step = scene.steps.last().filter(|_| whose == Whose::Kernel)?;
    let is_unreadable = matches!(step.act, Act::Control(Control::BadAddress(_)));
    let start = line.strip_suffix(" EINVAL").filter(|_| is_unreadable)?;
    Some(format!("{start} EFAULT"))
}

/// `  p3.t0 ...`
fn process_of(line: &str) -> Option<u8> {
    line.trim_start().strip_prefix('p')?.split_once('.')?.0.parse().ok()
}

/// Version and patch level of "linux 6.1.0-56-amd64".
pub fn release(driver: &str) -> Option<(u32, u32)> {
    let mut numbers = driver.strip_prefix("linux ")?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A line without offsets in the receive buffer (`+1f0`).
fn without_offsets(line: &str) -> String {
    let is_place = |word: &str| {
        word.strip_prefix('+').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let words = line.split(' ').map(|word| if is_place(word) { "+" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    const OLD: &str = "linux 6.1.0-56-amd64";
    const NEW: &str = "linux 6.12.3";

    fn check(driver: &str, opening: &[Act], theirs: &str, ours: &str) -> Option<Vec<&'static str>> {
        let step = |act: &Act| Step { process: 1, thread: 0, act: act.clone() };
        let steps: Vec<_> = opening.iter().map(step).collect();
        let lines = |line: &str| ["> the step".to_owned(), format!("  {line}")];
        let (theirs, ours) = (lines(theirs), lines(ours));
        let (steps, theirs, ours) = (&*steps, &theirs, &ours);
        let scene = Scene { kernel_driver: driver, steps, theirs, ours, more_rules: MOUNT_RULES };
        Some(explain(&scene)?.iter().map(|rule| rule.name).collect())
    }

    #[test]
    fn only_an_argument_that_cannot_be_read_is_refused_otherwise() {
        let unreadable = [Act::Control(Control::BadAddress(1))];
        let of = |acts: &[Act], ours| check(OLD, acts, "p1.t0 EINVAL", ours);
        assert_eq!(of(&unreadable, "p1.t0 EFAULT"), Some(vec!["unreadable-argument"]));
        assert_eq!(of(&unreadable, "p1.t0 ok"), None);
        assert_eq!(of(&[Act::Control(Control::Manage)], "p1.t0 EFAULT"), None);
        assert_eq!(check(OLD, &unreadable, "p1.t0 EFAULT", "p1.t0 EINVAL"), None);
    }

    #[test]
    fn places_may_differ_where_threads_wait() {
        let waiting = [Act::Open { nonblocking: false }];
        let (one, other) = ("p1.t0 at +10 2+0 bytes", "p1.t0 at +58 2+0 bytes");
        let differ = |acts: &[Act]| check(OLD, acts, one, other);
        assert_eq!(differ(&waiting), Some(vec!["taken-in-later"]));
        assert_eq!(differ(&[Act::Open { nonblocking: true }]), None);
        let (waiting_once, polling) = (waiting[0].clone(), Act::Open { nonblocking: true });
        assert_eq!(differ(&[waiting_once, Act::Close, polling]), None);
        assert_eq!(check(OLD, &waiting, one, "p1.t0 at +58 3+0 bytes"), None);
        assert_eq!(check(OLD, &waiting, one, "p1.t0 at outside 2+0 bytes"), None);
        assert_eq!(check(OLD, &waiting, "p2.t0 at +10", "p2.t0 at +20"), None);
    }

    #[test]
    fn old_kernels_do_not_say_pending_frozen() {
        let (complete, frozen) = ("p1.t0 TRANSACTION_COMPLETE", "p1.t0 TRANSACTION_PENDING_FROZEN");
        assert_eq!(check(OLD, &[], complete, frozen), Some(vec!["pending-frozen"]));
        assert_eq!(check(OLD, &[], frozen, complete), None);
        assert_eq!(check(NEW, &[], complete, frozen), None);
    }

    #[test]
    fn two_rules_are_both_named() {
        let acts = [Act::Open { nonblocking: false }];
        let (one, other) =
            ("p1.t0 TRANSACTION_COMPLETE, at +8", "p1.t0 TRANSACTION_PENDING_FROZEN, at +0");
        assert_eq!(check(OLD, &acts, one, other), Some(vec!["taken-in-later", "pending-frozen"]));
    }

    /// In both documents, names that the comparison knows are bold and italic.
    #[test]
    fn docs_and_tables_have_the_same_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (file, rules) in [("differences.md", RULES), ("binderfs.md", MOUNT_RULES)] {
            let told = std::fs::read_to_string(root.join("../../docs").join(file)).unwrap();
            let told: BTreeSet<_> = told.split("***").skip(1).step_by(2).collect();
            let known: BTreeSet<_> = rules.iter().map(|rule| rule.name).collect();
            assert_eq!(known.len(), rules.len());
            assert_eq!(known, told, "{file}");
        }
    }

    /// Places of the generator name their rule: "Rule `name`", "Rules `one` and `other`".
    #[test]
    fn rules_that_are_avoided_stand_in_the_sources_and_the_table() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut named = BTreeSet::new();
        for file in std::fs::read_dir(sources).unwrap() {
            let path = file.unwrap().path();
            if path.ends_with("rules.rs") {
                continue;
            }
            for line in std::fs::read_to_string(path).unwrap().lines() {
                let comment = line.split_once("//").map_or("", |(_, comment)| comment);
                let Some(at) = comment.to_lowercase().find("rule") else { continue };
                named.extend(comment[at..].split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        let avoided = RULES.iter().filter(|rule| matches!(rule.does, Does::Avoided));
        let avoided: BTreeSet<_> = avoided.map(|rule| rule.name.to_owned()).collect();
        let known: BTreeSet<_> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
        assert_eq!(avoided.difference(&named).count(), 0, "{avoided:?} and {named:?}");
        assert_eq!(named.difference(&known).count(), 0, "{named:?} and {known:?}");
    }
}
