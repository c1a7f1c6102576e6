//! Names of components.
//!
//! In a parcel a component is its package and its class, a string 16 each. Null is a null package.

use super::decode::{DecodeError, field};
use baton::Parcel;
use baton::android::{Reader, Write};
use std::fmt;

/// The name of a component: the package of its application, and its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentName {
    /// The package.
    pub package: String,
    /// The full name of the class.
    pub class: String,
}

impl ComponentName {
    /// The component of a package. A class that begins with a dot has the package before it.
    pub fn new(package: &str, class: &str) -> ComponentName {
        let outer = if class.starts_with('.') { package } else { "" };
        ComponentName { package: package.to_owned(), class: format!("{outer}{class}") }
    }

    /// The component of a text `package/class`, as [`new`](ComponentName::new) reads it. `None` if
    /// it lacks either.
    pub fn parse(text: &str) -> Option<ComponentName> {
        let (package, class) = text.split_once('/')?;
        let is_complete = !package.is_empty() && !class.is_empty();
        is_complete.then(|| ComponentName::new(package, class))
    }

    /// Writes a component or null: see the module.
    pub fn write(component: Option<&ComponentName>, parcel: &mut Parcel) {
        let Some(component) = component else { return parcel.write_null_string() };
        parcel.write_string(&component.package);
        parcel.write_string(&component.class);
    }

    /// Reads a component or null: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<Option<ComponentName>, DecodeError> {
        let Some(package) = field("the component", reader.nullable_string())? else {
            return Ok(None);
        };
        let class = field("the component", reader.string())?;
        Ok(Some(ComponentName { package, class }))
    }
}

impl fmt::Display for ComponentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.package, self.class)
    }
}
