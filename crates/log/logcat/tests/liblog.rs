//! The texts of entries beside those of Android's own liblog, in `golden/liblog.json`, which
//! `golden/make.py` has written with Debian's package android-liblog 1:29.0.6-28.

use baton_logcat::event::Style;
use baton_logcat::format::{Format, Verb};
use baton_logcat::tags::Tags;
use baton_logcat::wire;
use jiff::tz::TimeZone;
use serde_json::Value;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn text(case: &Value) -> Option<String> {
    let (entry, _) = wire::decode(&bytes(case["entry"].as_str().unwrap())).ok()?;
    let zone = TimeZone::posix(case["zone"].as_str().unwrap()).unwrap();
    let mut format = Format::new(Verb::Brief, zone);
    for word in case["words"].as_array().unwrap() {
        format.add(word.as_str().unwrap()).unwrap();
    }
    let tags = Tags::default();
    let shown = entry.shown(&tags, Style::Plain)?;
    let lines = format.lines(&entry, &shown, &|_| None);
    Some(lines.into_iter().map(char::from).collect())
}

#[test]
fn every_text_is_liblogs() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("golden/liblog.json")).unwrap();
    assert!(cases.len() > 1000);
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| text(case).as_deref() != case["text"].as_str())
        .map(|case| format!("{case}\n  ours: {:?}", text(case)))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}
