//! Manifests as texts: what they say, and what is wrong with them.

use baton_services::intent::{
    ComponentKind, ComponentName, IntentFilter, Manifest, Pattern, Program, ProgramForm,
};
use std::collections::BTreeMap;

const WHOLE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<!-- A clock. -->
<manifest xmlns:android="http://schemas.android.com/apk/res/android"
    xmlns:baton="urn:baton" package="org.example.clock" android:versionCode="3"
    baton:uid="10007">
    <uses-permission android:name="android.permission.INTERNET" />
    <application android:label="Clock" android:permission="p.USE"
        baton:exec="/usr/bin/clockd -q  x">
        <activity android:name=".Face" android:exported="true" android:process=":ui">
            <intent-filter>
                <action android:name="android.intent.action.MAIN" />
                <category android:name="android.intent.category.LAUNCHER" />
            </intent-filter>
            <meta-data android:name="kind" android:value="analog &amp; round" />
        </activity>
        <service android:name="Ticker" android:process="org.example.shared" baton:exec="ticker" />
        <provider android:name="org.other.Times" android:authorities="times;org.example.times" />
        <receiver android:name=".Alarm" android:exported="false" android:permission="p.SET">
            <intent-filter android:priority="-10">
                <action android:name="ALARM" />
                <action android:name="SNOOZE" />
                <data android:scheme="alarm" android:host="*.example.org" android:port="80" />
                <data android:pathPrefix="/daily" />
                <data android:path="/now" android:pathPattern="/.*" android:pathSuffix="x" />
                <data android:mimeType="text/*" android:ssp="s" android:sspPrefix="p" />
            </intent-filter>
            <intent-filter><action android:name="RESET" /></intent-filter>
        </receiver>
    </application>
</manifest>"#;

#[test]
fn a_manifest_says_what_an_application_consists_of() {
    let manifest = Manifest::parse(WHOLE).unwrap();
    assert_eq!(manifest.package, "org.example.clock");
    assert_eq!(manifest.uid, Some(10_007));
    let program = |path: &str, arguments: &[&str]| Program {
        path: path.into(),
        arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
        form: ProgramForm::Executed,
    };
    let inherited = program("/usr/bin/clockd", &["-q", "x"]);
    let expected = [
        ("org.example.clock.Face", ComponentKind::Activity, "org.example.clock:ui", true, "p.USE"),
        ("org.example.clock.Ticker", ComponentKind::Service, "org.example.shared", false, "p.USE"),
        ("org.other.Times", ComponentKind::Provider, "org.example.clock", false, "p.USE"),
        ("org.example.clock.Alarm", ComponentKind::Receiver, "org.example.clock", false, "p.SET"),
    ];
    assert_eq!(manifest.components.len(), expected.len());
    for (component, (class, kind, process, exported, permission)) in
        manifest.components.iter().zip(expected)
    {
        assert_eq!(component.name, ComponentName::new("org.example.clock", class));
        assert_eq!(manifest.component(&component.name), Some(component));
        let found = (component.kind, component.process.as_str(), component.exported);
        assert_eq!(found, (kind, process, exported), "{class}");
        assert_eq!(component.permission.as_deref(), Some(permission), "{class}");
        let own = component.name.class.ends_with("Ticker").then(|| program("ticker", &[]));
        assert_eq!(component.program, own.or(Some(inherited.clone())), "{class}");
    }
    let [face, ticker, times, alarm] = manifest.components.as_slice() else { panic!() };
    let launcher = IntentFilter::new("android.intent.action.MAIN")
        .category("android.intent.category.LAUNCHER");
    assert_eq!(face.filters, [launcher]);
    let kind = ("kind".to_owned(), "analog & round".to_owned());
    assert_eq!(face.meta_data, BTreeMap::from([kind]));
    assert!(ticker.filters.is_empty() && ticker.authorities.is_empty());
    assert_eq!(times.authorities, ["times", "org.example.times"]);
    let ring = IntentFilter::new("ALARM")
        .action("SNOOZE")
        .priority(-10)
        .scheme("alarm")
        .authority("*.example.org", Some(80))
        .path(Pattern::prefix("/daily"))
        .path(Pattern::literal("/now"))
        .path(Pattern::glob("/.*"))
        .path(Pattern::suffix("x"))
        .mime_type("text/*")
        .scheme_specific_part(Pattern::literal("s"))
        .scheme_specific_part(Pattern::prefix("p"));
    assert_eq!(alarm.filters, [ring, IntentFilter::new("RESET")]);
}

#[test]
fn a_java_program_is_a_class_path_a_class_and_arguments() {
    let text = within("<service android:name='.S' baton:java='a.dex:b.dex  org.Main -x'/>");
    let program = Manifest::parse(&text).unwrap().components[0].program.clone();
    let arguments = ["org.Main", "-x"].map(str::to_owned).to_vec();
    let form = ProgramForm::Java;
    assert_eq!(program, Some(Program { form, path: "a.dex:b.dex".into(), arguments }));
}

/// A manifest with these lines within its application, which begin in line 3.
fn within(lines: &str) -> String {
    format!(
        "<manifest xmlns:android='http://schemas.android.com/apk/res/android' \
         xmlns:baton='urn:baton' package='p'>\n\
         <application>\n{lines}\n</application></manifest>"
    )
}

#[test]
fn a_wrong_manifest_is_refused_with_line_and_column() {
    let filter = |inner: &str| {
        within(&format!(
            "<receiver android:name='.R' android:exported='true'>\n {inner}</receiver>"
        ))
    };
    for (text, expected) in [
        ("<application/>".to_owned(), "line 1, column 1: the root is not <manifest>"),
        ("<manifest package=''/>".to_owned(), "line 1, column 1: <manifest> lacks package"),
        (within("\n  <service/>"), "line 4, column 3: <service> lacks android:name"),
        (within("<service name='S'/>"), "line 3, column 1: <service> lacks android:name"),
        (
            within("<service android:name='.S'/>\n<receiver android:name='p.S'/>"),
            "line 4, column 1: p/p.S is declared twice",
        ),
        (
            within("<provider android:name='.P'/>"),
            "line 3, column 1: <provider> lacks android:authorities",
        ),
        (
            within("<service android:name='.S' android:exported='yes'/>"),
            "line 3, column 1: exported is neither true nor false: \"yes\"",
        ),
        (
            within("<service android:name='.S' baton:exe='x'/>"),
            "line 3, column 1: <service> has no attribute baton:exe",
        ),
        (
            within("<service android:name='.S' baton:exec=' '/>"),
            "line 3, column 1: baton:exec names no program",
        ),
        (
            within("<service android:name='.S' baton:java='a.dex:b.dex'/>"),
            "line 3, column 1: baton:java names a class path, and no class",
        ),
        (
            within("<service android:name='.S' baton:java='a.dex Main' baton:load='l.so'/>"),
            "line 3, column 1: baton:load and baton:java are two programs",
        ),
        (
            within(
                "<receiver android:name='.R'><intent-filter>\
                 <action android:name='a'/></intent-filter></receiver>",
            ),
            "line 3, column 1: p/p.R has filters and must say whether it is android:exported",
        ),
        (
            filter("<intent-filter/>"),
            "line 4, column 2: the filter has no action, so that no intent with an action matches \
             it",
        ),
        (
            filter("<intent-filter android:priority='high'/>"),
            "line 4, column 2: priority is no number in its range: \"high\"",
        ),
        (
            filter(
                "<intent-filter android:priority='1001'><action android:name='a'/></intent-filter>",
            ),
            "line 4, column 2: the priority 1001 is not within -1000 to 1000",
        ),
        (
            filter("<intent-filter>\n<action/></intent-filter>"),
            "line 5, column 1: <action> lacks android:name",
        ),
        (
            filter("<intent-filter>\n<data android:port='1'/></intent-filter>"),
            "line 5, column 1: android:port needs android:host beside it",
        ),
        (
            filter(
                "<intent-filter>\n<data android:host='h' android:port='65536'/></intent-filter>",
            ),
            "line 5, column 1: port is no number in its range: \"65536\"",
        ),
        (
            filter("<meta-data android:name='n'/>"),
            "line 4, column 2: <meta-data> lacks android:value",
        ),
    ] {
        let error = Manifest::parse(&text).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    let uid = "<manifest xmlns:b='urn:baton' package='p' b:uid='-1'/>";
    let error = Manifest::parse(uid).unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 1: uid is no number in its range: \"-1\"");
}

#[test]
fn a_text_that_is_no_xml_is_refused_with_line_and_column() {
    let entity = "<!DOCTYPE m [<!ENTITY a 'x'>]><manifest package='&a;'/>";
    let deep = "<a>".repeat(100_000);
    for (text, line) in
        [("", 1), ("\n<manifest x>", 2), ("<manifest>\n</x>", 2), (entity, 1), (&deep, 1)]
    {
        let error = Manifest::parse(text).unwrap_err();
        let is_named = error.wrong.starts_with("not well-formed XML: ");
        assert!(error.line == line && is_named, "{}: {error}", &text[..text.len().min(40)]);
    }
    let error = Manifest::parse("<manifest>\n</x>").unwrap_err();
    let shown = "line 2, column 1: not well-formed XML: expected 'manifest' tag, not 'x'";
    assert_eq!(error.to_string(), shown);
    let many = format!("<manifest package='p'>{}</manifest>", "<a/>".repeat(100_001));
    assert!(Manifest::parse(&many).is_err());
}
