//! The processes of components: started for a broadcast, and kept while they work on one.
//!
//! One thread does this, so that a delivery thread waits for no process. It hears of a component
//! that works once for each delivery, and once of each one's end.

use crate::intent::ComponentName;
use std::any::Any;
use std::collections::HashMap;
use std::sync::mpsc::Receiver;

/// Keeps a component's process important until it is dropped.
pub type Held = Box<dyn Any + Send>;
/// Starts a component's process, which then attaches its receiver. It may be running already.
pub type Start = Box<dyn Fn(&ComponentName) -> Result<Held, String> + Send + Sync>;
/// Keeps a component's process, if there is one. None is started.
pub type Hold = Box<dyn Fn(&ComponentName) -> Option<Held> + Send + Sync>;

/// How the process manager deals with components.
pub struct Components {
    /// Starts one.
    pub start: Start,
    /// Keeps one.
    pub hold: Hold,
}

impl Default for Components {
    /// Without a process manager nothing is started.
    fn default() -> Components {
        Components {
            start: Box::new(|_| Err("nobody starts it".to_owned())),
            hold: Box::new(|_| None),
        }
    }
}

/// A wish of a delivery thread for a component.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The component works on one more broadcast, or will once it is started.
    Busy(ComponentName),
    /// The component works on one broadcast less.
    Idle(ComponentName),
    /// The component's process is to run.
    Start(ComponentName),
}

/// Does what deliveries want, until the last delivery thread has ended. Tells which components
/// could not be started.
pub fn serve_components(
    wanted: Receiver<Wanted>,
    components: &Components,
    not_started: impl Fn(ComponentName),
) {
    // How many broadcasts a component works on, and its process.
    let mut working: HashMap<ComponentName, (u32, Option<Held>)> = HashMap::new();
    for wanted in wanted {
        match wanted {
            Wanted::Busy(name) => {
                let (n, held) = working.entry(name.clone()).or_default();
                *n += 1;
                if held.is_none() {
                    *held = (components.hold)(&name);
                }
            }
            Wanted::Idle(name) => {
                if let Some((n, _)) = working.get_mut(&name) {
                    *n -= 1;
                    if *n == 0 {
                        working.remove(&name);
                    }
                }
            }
            Wanted::Start(name) => match (components.start)(&name) {
                Ok(new) => {
                    if let Some((_, held)) = working.get_mut(&name) {
                        *held = Some(new);
                    }
                }
                Err(why) => {
                    tracing::warn!(target: "broadcast", "{name} does not start: {why}");
                    not_started(name);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex, mpsc};

    /// Counts the guards of a component's process.
    struct Guard(Arc<AtomicU32>);

    impl Guard {
        fn hold(count: &Arc<AtomicU32>) -> Held {
            count.fetch_add(1, Ordering::Relaxed);
            Box::new(Guard(Arc::clone(count)))
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_process_is_kept_until_its_last_broadcast_is_done_with() {
        let name = |class: &str| ComponentName { package: "p".into(), class: class.into() };
        let (runs, absent, broken) = (|| name("runs"), || name("absent"), || name("broken"));
        let (count, failed) = (Arc::new(AtomicU32::new(0)), Mutex::new(Vec::new()));
        let [of_start, of_hold] = [(); 2].map(|()| Arc::clone(&count));
        let components = Components {
            start: Box::new(move |name| match name.class.as_str() {
                "broken" => Err("it is broken".to_owned()),
                _ => Ok(Guard::hold(&of_start)),
            }),
            hold: Box::new(move |name| (name.class == "runs").then(|| Guard::hold(&of_hold))),
        };
        for (wanted, kept) in [
            (vec![], 0),
            (vec![Wanted::Busy(runs())], 1),
            (vec![Wanted::Busy(runs()), Wanted::Busy(runs()), Wanted::Idle(runs())], 1),
            (vec![Wanted::Busy(runs()), Wanted::Busy(absent())], 1),
            (vec![Wanted::Busy(absent()), Wanted::Start(absent())], 1),
            (vec![Wanted::Busy(absent()), Wanted::Start(absent()), Wanted::Idle(absent())], 0),
            // The new process's guard is there before the old one's ends.
            (vec![Wanted::Busy(runs()), Wanted::Start(runs())], 1),
            (vec![Wanted::Busy(broken()), Wanted::Start(broken()), Wanted::Idle(broken())], 0),
            (vec![Wanted::Idle(runs()), Wanted::Start(runs())], 0),
        ] {
            let shown = format!("{wanted:?}");
            let (sender, receiver) = mpsc::channel();
            // The count is looked at as the last one is asked for.
            let last = [Wanted::Start(broken())];
            wanted.into_iter().chain(last).for_each(|it| sender.send(it).unwrap());
            drop(sender);
            serve_components(receiver, &components, |name| {
                failed.lock().unwrap().push((name, count.load(Ordering::Relaxed)));
            });
            assert_eq!(failed.lock().unwrap().pop(), Some((broken(), kept)), "{shown}");
            assert_eq!(count.load(Ordering::Relaxed), 0, "{shown}: all are dropped");
        }
    }
}
