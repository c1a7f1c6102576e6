//! java.util.regex.Pattern and Matcher

use super::handles::Handles;
use super::values::{Outcome, VOID, boolean, construct, text, units};
use crate::object::Ref;
use crate::regex::{self, Input, Pattern};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use std::ops::Range;
use std::sync::{Arc, Mutex};

const PATTERN: &str = "Ljava/util/regex/Pattern;";
const MATCHER: &str = "Ljava/util/regex/Matcher;";

static PATTERNS: Handles<Pattern> = Handles::new();
static MATCHERS: Handles<Mutex<Matcher>> = Handles::new();

struct Matcher {
    pattern: Arc<Pattern>,
    input: Vec<u16>,
    region: Range<usize>,
    anchoring: bool,
    transparent: bool,
    /// The bounds of the last match
    last: Option<Range<usize>>,
    hit_end: bool,
    require_end: bool,
}

pub(super) const TABLE: &[Native] = &[
    (PATTERN, "compileImpl", "(Ljava/lang/String;I)J", |t, a| {
        let pattern = units(t, a.reference(0))?;
        match Pattern::compile(&pattern, a.int(1) as u32) {
            Ok(pattern) => Ok(Value::Long(PATTERNS.add(Arc::new(pattern)))),
            Err(error) => {
                let args = [
                    Value::Ref(text(t, error.description)?),
                    Value::Ref(a.reference(0)),
                    Value::Int(error.index as i32),
                ];
                let class = "java/util/regex/PatternSyntaxException";
                let signature = "(Ljava/lang/String;Ljava/lang/String;I)V";
                let exception = construct(t, class, signature, &args)?;
                Err(t.throw_object(exception))
            }
        }
    }),
    (PATTERN, "closeImpl", "(J)V", |_, a| {
        PATTERNS.remove(a.long(0));
        VOID
    }),
    (MATCHER, "openImpl", "(J)J", |t, a| {
        let pattern = PATTERNS.get(a.long(0)).ok_or_else(|| closed(t))?;
        let matcher = Matcher {
            pattern,
            input: Vec::new(),
            region: 0..0,
            anchoring: true,
            transparent: false,
            last: None,
            hit_end: false,
            require_end: false,
        };
        Ok(Value::Long(MATCHERS.add(Arc::new(Mutex::new(matcher)))))
    }),
    (MATCHER, "closeImpl", "(J)V", |_, a| {
        MATCHERS.remove(a.long(0));
        VOID
    }),
    (MATCHER, "setInputImpl", "(JLjava/lang/String;II)V", |t, a| {
        let input = units(t, a.reference(2))?;
        with(t, a, |matcher| {
            matcher.input = input;
            matcher.region = a.int(3) as usize..a.int(4) as usize;
            matcher.last = None;
        })?;
        VOID
    }),
    (MATCHER, "useAnchoringBoundsImpl", "(JZ)V", |t, a| {
        with(t, a, |matcher| matcher.anchoring = a.boolean(2))?;
        VOID
    }),
    (MATCHER, "useTransparentBoundsImpl", "(JZ)V", |t, a| {
        with(t, a, |matcher| matcher.transparent = a.boolean(2))?;
        VOID
    }),
    (MATCHER, "groupCountImpl", "(J)I", |t, a| {
        Ok(Value::Int(with(t, a, |matcher| matcher.pattern.groups())? as i32))
    }),
    (MATCHER, "hitEndImpl", "(J)Z", |t, a| boolean(with(t, a, |matcher| matcher.hit_end)?)),
    (MATCHER, "requireEndImpl", "(J)Z", |t, a| boolean(with(t, a, |matcher| matcher.require_end)?)),
    // A search from a place resets the region to the whole text.
    (MATCHER, "findImpl", "(JLjava/lang/String;I[I)Z", |t, a| {
        with(t, a, |matcher| {
            matcher.region = 0..matcher.input.len();
            matcher.last = None;
        })?;
        run(t, a, a.reference(4), |matcher, input| matcher.pattern.find(input, a.int(3) as usize))
    }),
    (MATCHER, "findNextImpl", "(JLjava/lang/String;[I)Z", |t, a| {
        run(t, a, a.reference(3), |matcher, input| {
            // After an empty match the next one begins at least one character later.
            let from = match &matcher.last {
                None => input.region.start,
                Some(last) if last.is_empty() => {
                    let rest = matcher.input.get(last.end..).unwrap_or_default();
                    let next = char::decode_utf16(rest.iter().copied()).next();
                    last.end + next.map_or(1, |c| c.map_or(1, char::len_utf16))
                }
                Some(last) => last.end,
            };
            matcher.pattern.find(input, from)
        })
    }),
    (MATCHER, "lookingAtImpl", "(JLjava/lang/String;[I)Z", |t, a| {
        run(t, a, a.reference(3), |matcher, input| {
            matcher.pattern.match_at(input, input.region.start)
        })
    }),
    (MATCHER, "matchesImpl", "(JLjava/lang/String;[I)Z", |t, a| {
        run(t, a, a.reference(3), |matcher, input| {
            matcher.pattern.match_all(input, input.region.start)
        })
    }),
];

fn closed(t: &Thread) -> Thrown {
    super::values::throw(t, "java/lang/IllegalStateException", "closed")
}

fn with<R>(t: &Thread, a: Args, run: impl FnOnce(&mut Matcher) -> R) -> Result<R, Thrown> {
    let matcher = MATCHERS.get(a.long(0)).ok_or_else(|| closed(t))?;
    Ok(run(&mut matcher.lock().expect("no holder panics")))
}

/// Runs an attempt and stores the groups' bounds, which the Java half reads.
fn run(
    t: &Thread,
    a: Args,
    offsets: Ref,
    attempt: impl FnOnce(&Matcher, &Input<'_>) -> regex::Outcome,
) -> Outcome {
    let matcher = MATCHERS.get(a.long(0)).ok_or_else(|| closed(t))?;
    // The attempt may take long: other threads may collect meanwhile.
    let groups = t.safe(|| {
        let mut matcher = matcher.lock().expect("no holder panics");
        let input = Input {
            units: &matcher.input,
            region: matcher.region.clone(),
            anchoring: matcher.anchoring,
            transparent: matcher.transparent,
            last_end: matcher.last.as_ref().map_or(matcher.region.start, |last| last.end),
        };
        let outcome = attempt(&matcher, &input);
        matcher.hit_end = outcome.hit_end;
        matcher.require_end = outcome.require_end;
        matcher.last = outcome.groups.as_ref().and_then(|groups| groups[0].clone());
        outcome.groups
    });
    let Some(groups) = groups else { return boolean(false) };
    for (index, group) in (0..).zip(&groups) {
        let (start, end) = group.as_ref().map_or((-1, -1), |it| (it.start as i32, it.end as i32));
        offsets.set_i32(2 * index, start);
        offsets.set_i32(2 * index + 1, end);
    }
    boolean(true)
}
