//! A client of Baton's broadcast service, by the service's AIDL: registers receivers, sends a
//! parallel, an ordered and a sticky broadcast, and prints what arrives.
#![forbid(unsafe_code)]

use baton_rsbinder_programs::android::{Bundle, Intent, IntentFilter};
use baton_rsbinder_programs::baton::app::IBroadcastManager::IBroadcastManager;
use baton_rsbinder_programs::baton::app::IIntentReceiver::{BnIntentReceiver, IIntentReceiver};
use rsbinder::{BinderResult, Interface, ProcessState, Strong, hub};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time to wait for something that should come at once.
const PATIENCE: Duration = Duration::from_secs(20);
const NEWS: &str = "org.example.NEWS";
const STATE: &str = "org.example.STATE";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Service = Strong<dyn IBroadcastManager>;

/// Tells what it receives, and adds its name to the result of an ordered broadcast.
struct Named {
    name: &'static str,
    service: Service,
    told: Mutex<Sender<String>>,
}

impl Interface for Named {}

impl IIntentReceiver for Named {
    fn performReceive(
        &self,
        intent: &Intent,
        code: i32,
        data: Option<&str>,
        extras: Option<&Bundle>,
        is_ordered: bool,
        is_sticky: bool,
        token: i64,
        id: i64,
    ) -> BinderResult<()> {
        let mut text = format!("{}: {} {:?}", self.name, intent.action, intent.extras.0);
        if is_ordered || data.is_some() {
            let extras = extras.map(|extras| &extras.0);
            text.push_str(&format!(", result {code} {data:?} {extras:?}"));
        }
        let marks = [(is_ordered, "ordered"), (is_sticky, "sticky"), (id == 0, "without an id")];
        for (_, mark) in marks.iter().filter(|(is_so, _)| *is_so) {
            text.push_str(&format!(", {mark}"));
        }
        // The receiver of the texts is gone only after a failure.
        let _ = self.told.lock().unwrap().send(text);
        if is_ordered {
            let data = format!("{}{}, ", data.unwrap_or_default(), self.name);
            let extras = Bundle(BTreeMap::from([("last".to_owned(), self.name.to_owned())]));
            self.service.finishReceiver(token, code + 1, Some(&data), Some(&extras), false)?;
        }
        Ok(())
    }
}

/// The next texts, in the order of the alphabet: receivers are called at once.
fn show(told: &Receiver<String>, n: usize) -> Result<(), RecvTimeoutError> {
    let mut texts: Vec<_> =
        (0..n).map(|_| told.recv_timeout(PATIENCE)).collect::<Result<_, _>>()?;
    texts.sort();
    texts.iter().for_each(|text| println!("  {text}"));
    Ok(())
}

fn intent(action: &str, title: &str) -> Intent {
    let extras = Bundle(BTreeMap::from([("title".to_owned(), title.to_owned())]));
    Intent { action: action.to_owned(), flags: 0, extras }
}

fn filter(action: &str, priority: i32) -> IntentFilter {
    IntentFilter { action: Some(action.to_owned()), priority }
}

fn run() -> Outcome {
    ProcessState::init_default()?;
    ProcessState::start_thread_pool();
    let service: Service = hub::check_interface("broadcast")?;
    let (tell, told) = channel();
    let receiver = |name| {
        let (service, told) = (service.clone(), Mutex::new(tell.clone()));
        BnIntentReceiver::new_binder(Named { name, service, told })
    };
    let send = |intent: &Intent, is_sticky| {
        service.broadcastIntent(intent, None, 0, None, None, None, false, is_sticky, 0)
    };
    let [first, second, late, result] = ["first", "second", "late", "result"].map(receiver);
    service.registerReceiver(&first, &filter(NEWS, 2), None, None, 0)?;
    service.registerReceiver(&second, &filter(NEWS, 1), None, None, 0)?;

    println!("parallel, to {}", send(&intent(NEWS, "hello"), false)?);
    show(&told, 2)?;

    let (news, begin) = (intent(NEWS, "one by one"), Some("by "));
    let n = service.broadcastIntent(&news, Some(&result), 40, begin, None, None, true, false, 0)?;
    println!("ordered, to {n}");
    (0..3).try_for_each(|_| show(&told, 1))?;

    println!("sticky, to {}", send(&intent(STATE, "kept"), true)?);
    service.registerReceiver(&late, &filter(STATE, 0), None, None, 0)?;
    show(&told, 1)?;
    println!("parallel, to {}", send(&intent(STATE, "now"), false)?);
    show(&told, 1)?;
    service.removeStickyBroadcast(&intent(STATE, ""))?;

    service.unregisterReceiver(&first)?;
    println!("parallel, to {}", send(&intent(NEWS, "again"), false)?);
    show(&told, 1)?;

    let refused = service.registerReceiver(&first, &IntentFilter::default(), None, None, 0);
    println!("refused: {}", refused.err().ok_or("a filter without an action is registered")?);
    Ok(())
}

fn main() -> ExitCode {
    env_logger::init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("broadcasts: {error}");
            ExitCode::FAILURE
        }
    }
}
