//! The order in which everything is measured, and how far that has come: on standard error, where
//! a person looks at it.

use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;

/// Does all steps once in each round: what disturbs the machine for a while disturbs all of them.
pub fn each_round<T, S: Into<Cow<'static, str>>>(
    rounds: u32,
    steps: &[T],
    title: impl Fn(&T) -> S,
    act: impl FnMut(&T),
) {
    in_order((0..rounds).flat_map(|_| steps), rounds as usize * steps.len(), title, act);
}

/// Does each step in all rounds before the next: a step has its systems in turn.
pub fn each_step<T, S: Into<Cow<'static, str>>>(
    rounds: u32,
    steps: &[T],
    title: impl Fn(&T) -> S,
    act: impl FnMut(&T),
) {
    let n_steps = rounds as usize * steps.len();
    let order = steps.iter().flat_map(|step| std::iter::repeat_n(step, rounds as usize));
    in_order(order, n_steps, title, act);
}

/// The title of a step that has a name.
pub fn by_name<T: Copy + Into<&'static str>>(step: &T) -> &'static str {
    (*step).into()
}

fn in_order<'a, T: 'a, S: Into<Cow<'static, str>>>(
    steps: impl Iterator<Item = &'a T>,
    n_steps: usize,
    title: impl Fn(&T) -> S,
    mut act: impl FnMut(&T),
) {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
    let progress = ProgressBar::new(n_steps as u64).with_style(style.expect("a sound template"));
    for step in steps {
        progress.set_message(title(step));
        act(step);
        progress.inc(1);
    }
    progress.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_outside_or_inside() {
        let mut done = String::new();
        each_round(2, &["a", "b"], |_| "", |step| done += step);
        each_step(2, &["c", "d"], |_| "", |step| done += step);
        assert_eq!(done, "ababccdd");
    }
}
