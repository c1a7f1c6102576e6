//! Manifests: the components of an application, in the words of `AndroidManifest.xml`.
//!
//! ```xml
//! <manifest xmlns:android="http://schemas.android.com/apk/res/android" xmlns:baton="urn:baton"
//!     package="org.example.clock" baton:uid="10007">
//!     <application android:process=":main" baton:exec="/usr/bin/clockd --quiet">
//!         <receiver android:name=".Alarm" android:exported="true"
//!             android:permission="org.example.SET_ALARM">
//!             <intent-filter android:priority="10">
//!                 <action android:name="org.example.ALARM" />
//!                 <category android:name="org.example.URGENT" />
//!                 <data android:scheme="alarm" android:host="*.example.org" />
//!             </intent-filter>
//!             <meta-data android:name="kind" android:value="daily" />
//!         </receiver>
//!     </application>
//! </manifest>
//! ```
//!
//! | element | attributes |
//! |---|---|
//! | `manifest` | `package`, `baton:uid`: the user that the application asks for |
//! | `application` | `android:persistent`, `baton:realtime` |
//! | `application`, components | `android:process`, `permission`, `baton:exec`, `load`, `java` |
//! | `activity`, `service`, `provider`, `receiver` | `android:name`, `exported` |
//! | `provider` | `android:authorities` |
//! | `intent-filter` | `android:priority` |
//! | `action`, `category` | `android:name` |
//! | `data` | `android:scheme`, `host`, `port`, `mimeType`, `path`, `pathPrefix`, `pathPattern`, |
//! | | `pathSuffix`, `ssp`, `sspPrefix`, `sspPattern`, `sspSuffix` |
//! | `meta-data` | `android:name`, `value` |
//!
//! `baton:exec` is the program that a component's process runs on Linux, and its arguments, with
//! white space between them. `baton:load` is a shared object in its place, with a `baton_main`,
//! which a warm parent has loaded. `baton:java` is a Java program in its place: a class path, the
//! class with `main`, and arguments. An `android:persistent` application runs always. One that is
//! `baton:realtime` may ask for a class that the low-memory killer spares.
//!
//! A class that begins with a dot, or has none, is one of the package. A process that begins with a
//! colon is one of the package's. A component is exported only if it says so; one with filters must
//! say whether it is, as since Android 12. Other elements of Android are passed over; a wrong
//! attribute of `baton:` is an error.

use super::component::ComponentName;
use super::filter::IntentFilter;
use super::pattern::Pattern;
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

const ANDROID: &str = "http://schemas.android.com/apk/res/android";
const BATON: &str = "urn:baton";
/// Elements, attributes and texts of a manifest.
const MAX_NODES: u32 = 100_000;

/// The components of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The package.
    pub package: String,
    /// The user that the application asks for.
    pub uid: Option<u32>,
    /// Whether its processes are always there.
    pub persistent: bool,
    /// Whether its processes may ask for a real-time class.
    pub real_time: bool,
    /// The components, in the order of the file.
    pub components: Vec<Component>,
}

/// A component of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// Package and class.
    pub name: ComponentName,
    /// The kind.
    pub kind: ComponentKind,
    /// The name of the process that it runs in.
    pub process: String,
    /// Whether other applications may use it.
    pub exported: bool,
    /// The permission that its users need.
    pub permission: Option<String>,
    /// The filters of implicit intents.
    pub filters: Vec<IntentFilter>,
    /// The authorities of a provider's URIs.
    pub authorities: Vec<String>,
    /// Values by their names.
    pub meta_data: BTreeMap<String, String>,
    /// The program that the component's process runs.
    pub program: Option<Program>,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The form of the file.
    pub form: ProgramForm,
    /// The program's file, or a Java program's class path.
    pub path: PathBuf,
    /// The arguments behind its name. A Java program's class is among them.
    pub arguments: Vec<String>,
}

/// The forms of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramForm {
    /// A file that is executed.
    Executed,
    /// A shared object whose `baton_main` is called.
    Loaded,
    /// A class in dex files whose `main` is called, by a machine with the class library.
    Java,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))?;
        match self.form {
            ProgramForm::Executed => Ok(()),
            ProgramForm::Loaded => f.write_str(" (loaded)"),
            ProgramForm::Java => f.write_str(" (java)"),
        }
    }
}

/// The kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComponentKind {
    /// An activity: a screen of an application.
    Activity,
    /// A service: work without a screen.
    Service,
    /// A content provider: data that several applications use.
    Provider,
    /// A broadcast receiver.
    Receiver,
}

/// What is wrong with a manifest, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {wrong}")]
pub struct ManifestError {
    /// The line, from 1 on.
    pub line: u32,
    /// The column, from 1 on.
    pub column: u32,
    /// What is wrong.
    pub wrong: String,
}

impl ManifestError {
    fn at(node: Node<'_, '_>, wrong: impl Into<String>) -> ManifestError {
        let place = node.document().text_pos_at(node.range().start);
        ManifestError { line: place.row, column: place.col, wrong: wrong.into() }
    }
}

type Result<T> = std::result::Result<T, ManifestError>;

impl Manifest {
    /// Reads the text of a manifest.
    ///
    /// ```
    /// use baton_services::intent::Manifest;
    /// let error = Manifest::parse("<manifest>\n</manifest>").unwrap_err();
    /// assert_eq!(error.to_string(), "line 1, column 1: <manifest> lacks package");
    /// ```
    ///
    /// # Errors
    /// The author's fault, with its place.
    pub fn parse(text: &str) -> Result<Manifest> {
        let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| {
            let place = error.pos();
            let wrong = error.to_string();
            // The place is shown before it.
            let wrong = wrong.strip_suffix(&format!(" at {place}")).unwrap_or(&wrong);
            let wrong = format!("not well-formed XML: {wrong}");
            ManifestError { line: place.row, column: place.col, wrong }
        })?;
        let root = document.root_element();
        if !root.has_tag_name("manifest") {
            return Err(ManifestError::at(root, "the root is not <manifest>"));
        }
        check_attributes(root, &["uid"])?;
        let package = match root.attribute("package").filter(|package| !package.is_empty()) {
            Some(package) => package,
            None => return Err(ManifestError::at(root, "<manifest> lacks package")),
        };
        let mut manifest = Manifest {
            package: package.to_owned(),
            uid: number(root, BATON, "uid")?,
            persistent: false,
            real_time: false,
            components: Vec::new(),
        };
        for application in elements(root, "application") {
            check_attributes(application, &["exec", "load", "java", "realtime"])?;
            manifest.persistent |= boolean(application, ANDROID, "persistent")?.unwrap_or(false);
            manifest.real_time |= boolean(application, BATON, "realtime")?.unwrap_or(false);
            for node in application.children().filter(Node::is_element) {
                let Some(kind) = kind(node) else { continue };
                let component = component(package, application, node, kind)?;
                if manifest.components.iter().any(|other| other.name == component.name) {
                    let wrong = format!("{} is declared twice", component.name);
                    return Err(ManifestError::at(node, wrong));
                }
                manifest.components.push(component);
            }
        }
        Ok(manifest)
    }

    /// The component of this name.
    pub fn component(&self, name: &ComponentName) -> Option<&Component> {
        self.components.iter().find(|component| component.name == *name)
    }
}

fn elements<'a, 'i>(parent: Node<'a, 'i>, name: &str) -> impl Iterator<Item = Node<'a, 'i>> {
    parent.children().filter(move |node| node.has_tag_name(name))
}

/// Refuses attributes of `baton:` that are none.
fn check_attributes(node: Node<'_, '_>, known: &[&str]) -> Result<()> {
    let mut ours = node.attributes().filter(|it| it.namespace() == Some(BATON));
    match ours.find(|it| !known.contains(&it.name())) {
        Some(wrong) => {
            let (name, element) = (wrong.name(), node.tag_name().name());
            Err(ManifestError::at(node, format!("<{element}> has no attribute baton:{name}")))
        }
        None => Ok(()),
    }
}

fn kind(node: Node<'_, '_>) -> Option<ComponentKind> {
    Some(match node.tag_name().name() {
        "activity" => ComponentKind::Activity,
        "service" => ComponentKind::Service,
        "provider" => ComponentKind::Provider,
        "receiver" => ComponentKind::Receiver,
        _ => return None,
    })
}

fn android<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.attribute((ANDROID, name))
}

fn required<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str> {
    let wrong = || format!("<{}> lacks android:{name}", node.tag_name().name());
    let value = android(node, name).filter(|value| !value.is_empty());
    value.ok_or_else(|| ManifestError::at(node, wrong()))
}

fn number<T: std::str::FromStr>(node: Node<'_, '_>, space: &str, name: &str) -> Result<Option<T>> {
    let Some(text) = node.attribute((space, name)) else { return Ok(None) };
    let wrong = || ManifestError::at(node, format!("{name} is no number in its range: {text:?}"));
    text.parse().map(Some).map_err(|_| wrong())
}

fn boolean(node: Node<'_, '_>, space: &str, name: &str) -> Result<Option<bool>> {
    match node.attribute((space, name)) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(text) => {
            let wrong = format!("{name} is neither true nor false: {text:?}");
            Err(ManifestError::at(node, wrong))
        }
    }
}

fn component(
    package: &str,
    application: Node<'_, '_>,
    node: Node<'_, '_>,
    kind: ComponentKind,
) -> Result<Component> {
    check_attributes(node, &["exec", "load", "java"])?;
    let class = required(node, "name")?;
    let name = match class.contains('.') {
        true => ComponentName::new(package, class),
        false => ComponentName::new(package, &format!(".{class}")),
    };
    let inherited = |name| android(node, name).or_else(|| android(application, name));
    let process = match inherited("process").unwrap_or(package) {
        private if private.starts_with(':') => format!("{package}{private}"),
        process => process.to_owned(),
    };
    let filters: Vec<_> = elements(node, "intent-filter").map(filter).collect::<Result<_>>()?;
    let exported = boolean(node, ANDROID, "exported")?;
    if exported.is_none() && !filters.is_empty() {
        let wrong = format!("{name} has filters and must say whether it is android:exported");
        return Err(ManifestError::at(node, wrong));
    }
    let authorities = match kind {
        ComponentKind::Provider => {
            required(node, "authorities")?.split(';').map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    let meta_data = elements(node, "meta-data").map(|entry| {
        Ok((required(entry, "name")?.to_owned(), required(entry, "value")?.to_owned()))
    });
    Ok(Component {
        kind,
        process,
        exported: exported.unwrap_or(false),
        permission: inherited("permission").map(str::to_owned),
        filters,
        authorities,
        meta_data: meta_data.collect::<Result<_>>()?,
        program: match program(node)? {
            None => program(application)?,
            own => own,
        },
        name,
    })
}

fn program(node: Node<'_, '_>) -> Result<Option<Program>> {
    let forms = [
        ("exec", ProgramForm::Executed),
        ("load", ProgramForm::Loaded),
        ("java", ProgramForm::Java),
    ];
    let mut named =
        forms.iter().filter_map(|(name, form)| Some((name, form, node.attribute((BATON, *name))?)));
    let Some((name, form, words)) = named.next() else { return Ok(None) };
    if let Some((other, ..)) = named.next() {
        let wrong = format!("baton:{name} and baton:{other} are two programs");
        return Err(ManifestError::at(node, wrong));
    }
    let mut words = words.split_whitespace().map(str::to_owned);
    let wrong = || ManifestError::at(node, format!("baton:{name} names no program"));
    let path = words.next().ok_or_else(wrong)?;
    let arguments: Vec<String> = words.collect();
    if *form == ProgramForm::Java && arguments.is_empty() {
        return Err(ManifestError::at(node, "baton:java names a class path, and no class"));
    }
    Ok(Some(Program { form: *form, path: path.into(), arguments }))
}

fn filter(node: Node<'_, '_>) -> Result<IntentFilter> {
    let mut filter = IntentFilter {
        priority: number(node, ANDROID, "priority")?.unwrap_or(0),
        ..IntentFilter::default()
    };
    for action in elements(node, "action") {
        filter = filter.action(required(action, "name")?);
    }
    for category in elements(node, "category") {
        filter = filter.category(required(category, "name")?);
    }
    for data in elements(node, "data") {
        filter = add_data(filter, data)?;
    }
    filter.check().map_err(|error| ManifestError::at(node, error.to_string()))?;
    Ok(filter)
}

/// Adds the attributes of a `data` element. Those of several elements count together, as on
/// Android.
fn add_data(mut filter: IntentFilter, data: Node<'_, '_>) -> Result<IntentFilter> {
    let attribute = |name: &str| android(data, name).map(str::to_owned);
    filter.schemes.extend(attribute("scheme"));
    filter.mime_types.extend(attribute("mimeType"));
    let port = number(data, ANDROID, "port")?;
    match attribute("host") {
        Some(host) => filter = filter.authority(host, port),
        None if port.is_some() => {
            return Err(ManifestError::at(data, "android:port needs android:host beside it"));
        }
        None => {}
    }
    let patterns = |names: [&str; 4]| {
        let makes: [fn(String) -> Pattern; 4] =
            [Pattern::literal, Pattern::prefix, Pattern::glob, Pattern::suffix];
        let texts = names.map(attribute).into_iter();
        texts.zip(makes).filter_map(|(text, make)| text.map(make)).collect::<Vec<_>>()
    };
    filter.paths.extend(patterns(["path", "pathPrefix", "pathPattern", "pathSuffix"]));
    let parts = patterns(["ssp", "sspPrefix", "sspPattern", "sspSuffix"]);
    filter.scheme_specific_parts.extend(parts);
    Ok(filter)
}
