//! Packages: what the process manager knows of an application before any of it runs.

use crate::intent::{ComponentKind, Manifest, Program};
use std::collections::BTreeMap;

/// The category of the home screen's activity.
const HOME: &str = "android.intent.category.HOME";

/// A component as its package declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The kind.
    pub kind: ComponentKind,
    /// The process that it runs in.
    pub process: String,
    /// Whether other users may use it.
    pub exported: bool,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The name.
    pub name: String,
    /// The user as which it runs. `None` for the manager's own.
    pub uid: Option<u32>,
    /// Whether its processes are always there.
    pub persistent: bool,
    /// Whether it has the home screen.
    pub is_home: bool,
    /// Whether its processes may ask for a real-time class.
    pub real_time: bool,
    /// Components by their classes.
    pub components: BTreeMap<String, Declared>,
    /// Programs by the names of processes.
    pub programs: BTreeMap<String, Program>,
}

/// A process that cannot be both.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process {process} of {package} has two programs: {one} and {other}")]
pub struct TwoPrograms {
    package: String,
    process: String,
    one: String,
    other: String,
}

impl Package {
    /// The package of a manifest.
    ///
    /// # Errors
    /// The author's fault: components of one process name different programs for it.
    pub fn new(manifest: &Manifest) -> Result<Package, TwoPrograms> {
        let mut components = BTreeMap::new();
        let mut programs: BTreeMap<String, Program> = BTreeMap::new();
        for component in &manifest.components {
            let (kind, exported) = (component.kind, component.exported);
            let declared = Declared { kind, process: component.process.clone(), exported };
            components.insert(component.name.class.clone(), declared);
            let Some(program) = &component.program else { continue };
            let known = programs.entry(component.process.clone()).or_insert(program.clone());
            if known != program {
                return Err(TwoPrograms {
                    package: manifest.package.clone(),
                    process: component.process.clone(),
                    one: known.to_string(),
                    other: program.to_string(),
                });
            }
        }
        let filters = manifest.components.iter().flat_map(|component| &component.filters);
        Ok(Package {
            name: manifest.package.clone(),
            uid: manifest.uid,
            persistent: manifest.persistent,
            is_home: filters.into_iter().any(|filter| filter.categories.contains(HOME)),
            real_time: manifest.real_time,
            components,
            programs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(attributes: &str, components: &str) -> Result<Package, TwoPrograms> {
        let text = format!(
            "<manifest xmlns:android=\"http://schemas.android.com/apk/res/android\" \
             xmlns:baton=\"urn:baton\" package=\"org.app\"><application {attributes}>{components}\
             </application></manifest>"
        );
        Package::new(&Manifest::parse(&text).unwrap())
    }

    #[test]
    fn a_package_has_what_its_manifest_says() {
        let home = "<activity android:name='.Home' android:exported='true'><intent-filter>\
             <action android:name='android.intent.action.MAIN'/>\
             <category android:name='android.intent.category.HOME'/></intent-filter></activity>";
        let work = "<service android:name='.Work' android:process=':w' baton:load='/lib/w.so a'/>";
        let attributes = "android:persistent='true' baton:realtime='true' baton:exec='/bin/app'";
        let package = package(attributes, &format!("{home}{work}")).unwrap();
        assert!(package.persistent && package.real_time && package.is_home);
        assert_eq!(package.components["org.app.Work"].process, "org.app:w");
        assert!(package.components["org.app.Home"].exported);
        let programs: Vec<_> =
            package.programs.iter().map(|(process, it)| format!("{process}: {it}")).collect();
        assert_eq!(programs, ["org.app: /bin/app", "org.app:w: /lib/w.so a (loaded)"]);
    }

    #[test]
    fn a_process_has_one_program() {
        let [one, other] = ["/bin/one", "/bin/other"]
            .map(|exec| format!("<service android:name='.S{}' baton:exec='{exec}'/>", &exec[5..]));
        let error = package("", &format!("{one}{other}")).unwrap_err().to_string();
        assert!(error.contains("org.app") && error.contains("/bin/other"), "{error}");
    }
}
