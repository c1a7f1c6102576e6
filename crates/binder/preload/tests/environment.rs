//! The environments of programs that an interposed one executes.

mod setting;

use setting::*;
use std::ffi::OsString;
use std::process::Command;

/// The variables that a command's output shows.
fn shown(mut command: Command) -> Vec<(String, String)> {
    let output = command.output().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    output
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(n, v)| (n.into(), v.into()))
        .collect()
}

fn env(words: &[&str]) -> Vec<(String, String)> {
    let mut command = Command::new("env");
    command.args(words);
    shown(command)
}

#[test]
fn a_new_environment_has_batons_variables_and_another_one_is_left_alone() {
    if is_outside("a_new_environment_has_batons_variables_and_another_one_is_left_alone") {
        return;
    }
    let own = |name: &str| std::env::var(name).unwrap();
    let value = |variables: &[(String, String)], name: &str| {
        variables.iter().find(|(its, _)| its == name).map(|(_, value)| value.clone())
    };
    // Lost: `env` executes by its own environment, and this program by one that it gives.
    let mut cleared = Command::new("/usr/bin/env");
    cleared.env_clear().env("OTHER", "kept");
    for variables in [env(&["-i", "OTHER=kept", "env"]), shown(cleared)] {
        for name in ["LD_PRELOAD", "BATON_DEV", "BATON_SOCKET", "BATON_LOG_DIR"] {
            assert_eq!(value(&variables, name), Some(own(name)), "{name}");
        }
        assert_eq!(value(&variables, "OTHER").as_deref(), Some("kept"));
        assert_eq!(value(&variables, "PATH"), None);
    }
    let variables = env(&["-i", "BATON_SOCKET=/another", "env"]);
    assert_eq!(value(&variables, "BATON_SOCKET").as_deref(), Some("/another"));
    assert_eq!(value(&variables, "LD_PRELOAD"), Some(own("LD_PRELOAD")));
    assert_eq!(variables.iter().filter(|(name, _)| name == "BATON_SOCKET").count(), 1);
    // Given, or taken away on purpose.
    assert_eq!(env(&["-i", "LD_PRELOAD=", "env"]), [("LD_PRELOAD".into(), String::new())]);
    assert_eq!(value(&env(&["-u", "LD_PRELOAD", "env"]), "LD_PRELOAD"), None);
    // Not made anew.
    let mut many = Command::new("/usr/bin/env");
    many.env_clear().envs((0..1000).map(|n| (format!("N{n}"), OsString::from("x"))));
    assert_eq!(shown(many).len(), 1000);
}
