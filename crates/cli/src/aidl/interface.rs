//! The declarations that a service's interface needs, in the AIDL files that the user gives.
//!
//! A file is read when a name leads to it: `a.b.IThing` and `a.b.IThing.Kind` lead to all files
//! `IThing.aidl` in the user's directories, and to `a/b/IThing.aidl` beside what has been read. A
//! file that is given by itself is read at once. A file that does not parse is an error only if it
//! is read.

use super::constant::{NoValue, evaluate};
use super::error::AidlError;
use super::syntax::{Body, Declaration, Method, TypeName, Value, parse};
use baton_host::builtin;
use baton_services::broadcast::protocol as broadcast;
use baton_services::process::protocol;
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The first transaction code of an interface's methods.
const FIRST_CALL: u32 = 1;
/// Constants that lead to each other.
const LONGEST_CHAIN: usize = 32;

/// AIDL files, of which some have been read.
#[derive(Debug, Default)]
pub struct Sources {
    /// Files by their names without `.aidl`.
    files: HashMap<String, Vec<PathBuf>>,
    /// Directories in which the packages of the files that have been read are.
    roots: RefCell<BTreeSet<PathBuf>>,
    read: RefCell<HashSet<PathBuf>>,
    declared: RefCell<HashMap<String, Rc<Declared>>>,
}

/// A declaration, and what its names mean.
#[derive(Debug)]
pub struct Declared {
    /// The full name.
    pub name: String,
    pub body: Body,
    constants: Vec<(String, Value)>,
    scope: Rc<Scope>,
}

/// The meaning of the names in a file.
#[derive(Debug)]
struct Scope {
    package: String,
    imports: Vec<String>,
}

/// A type and whether its value may be null.
#[derive(Clone, Debug)]
pub struct Typed {
    pub kind: Type,
    pub nullable: bool,
}

/// A type of values.
#[derive(Clone, Debug)]
pub enum Type {
    Boolean,
    Byte,
    Char,
    Int,
    Long,
    Float,
    Double,
    String,
    /// An object, of any interface or of one.
    Object(Option<Rc<Declared>>),
    File,
    Enumeration(Rc<Declared>),
    Parcelable(Rc<Declared>),
    Union(Rc<Declared>),
    /// An array or a list: its elements, and their number if it is fixed.
    Array(Box<Typed>, Option<usize>),
}

impl Sources {
    /// The files at these paths, and in directories there; behind them the interfaces of the
    /// services that come with `baton`.
    pub fn at(paths: &[PathBuf]) -> Result<Sources, AidlError> {
        let mut sources = Sources::default();
        for path in paths {
            if path.is_dir() {
                sources.enter(path)?;
            } else {
                sources.read(path)?;
            }
        }
        let services = protocol::INTERFACES.into_iter().chain(broadcast::INTERFACES);
        for (path, text) in builtin::INTERFACES.into_iter().chain(services) {
            sources.add(Path::new(path), text)?;
        }
        Ok(sources)
    }

    fn enter(&mut self, directory: &Path) -> Result<(), AidlError> {
        let failed = |error| AidlError::Read { path: directory.to_owned(), error };
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            // A link to a directory may lead back to where it stands.
            if entry.file_type().map_err(failed)?.is_dir() {
                self.enter(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "aidl") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                self.files.entry(name).or_default().push(path);
            }
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<(), AidlError> {
        if !self.read.borrow_mut().insert(path.to_owned()) {
            return Ok(());
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| AidlError::Read { path: path.to_owned(), error })?;
        self.add(path, &text)
    }

    /// Adds what a file declares.
    fn add(&self, path: &Path, text: &str) -> Result<(), AidlError> {
        let document =
            parse(text).map_err(|error| AidlError::Syntax { path: path.to_owned(), error })?;
        let directories = document.package.split('.').filter(|part| !part.is_empty());
        let root = directories.rev().try_fold(path.parent().unwrap_or(path), |within, part| {
            within.parent().filter(|_| within.file_name().is_some_and(|name| name == part))
        });
        self.roots.borrow_mut().extend(root.map(Path::to_owned));
        let scope = Rc::new(Scope { package: document.package, imports: document.imports });
        for declaration in document.declarations {
            self.declare(&scope.package, declaration, &scope);
        }
        Ok(())
    }

    fn declare(&self, within: &str, declaration: Declaration, scope: &Rc<Scope>) {
        let Declaration { name, body, constants, nested } = declaration;
        let name = join(within, &name);
        for inner in nested {
            self.declare(&name, inner, scope);
        }
        let scope = Rc::clone(scope);
        let mut declared = self.declared.borrow_mut();
        // A declaration without a body is often beside the one that has it.
        let old = declared.get(&name).filter(|old| !matches!(old.body, Body::Unknown(_)));
        if old.is_none() {
            declared.insert(name.clone(), Rc::new(Declared { name, body, constants, scope }));
        }
    }

    /// The declaration of a full name.
    pub fn find(&self, name: &str) -> Result<Option<Rc<Declared>>, AidlError> {
        let known = || self.declared.borrow().get(name).map(Rc::clone);
        let mut outer = name;
        while known().is_none() {
            let (within, part) = outer.rsplit_once('.').unwrap_or(("", outer));
            self.files.get(part).into_iter().flatten().try_for_each(|path| self.read(path))?;
            let beside = format!("{}.aidl", outer.replace('.', "/"));
            let roots = self.roots.borrow().clone();
            let files = roots.iter().map(|root| root.join(&beside)).filter(|path| path.is_file());
            files.into_iter().try_for_each(|path| self.read(&path))?;
            if within.is_empty() {
                break;
            }
            outer = within;
        }
        Ok(known())
    }

    /// The names of all files and of the interfaces that have been read: for advice.
    pub fn names(&self) -> Vec<String> {
        let declared = self.declared.borrow();
        self.files.keys().chain(declared.keys()).cloned().collect()
    }

    /// The declaration that a name means to a user of it.
    fn meant(&self, user: &Declared, name: &str) -> Result<Option<Rc<Declared>>, AidlError> {
        // Innermost first: the user's own inner types, then those around it, then its package's.
        let mut around = user.name.as_str();
        loop {
            if let Some(found) = self.find(&join(around, name))? {
                return Ok(Some(found));
            }
            if around.len() <= user.scope.package.len() {
                break;
            }
            around = around.rsplit_once('.').map_or("", |(around, _)| around);
        }
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_it = |import: &&String| import.rsplit('.').next() == Some(first);
        match user.scope.imports.iter().find(is_it) {
            Some(import) if rest.is_empty() => self.find(import),
            Some(import) => self.find(&join(import, rest)),
            None => self.find(name),
        }
    }

    /// The type that a name means to a user of it.
    pub fn resolve(&self, user: &Declared, name: &TypeName) -> Result<Typed, AidlError> {
        let unsupported = |why| AidlError::Unsupported { name: name.to_string(), why };
        let is_list = matches!(name.name.as_str(), "List" | "java.util.List");
        let kind = match (is_list, &name.parameters[..]) {
            (true, [element]) => {
                let mut element = self.resolve(user, element)?;
                if !element.kind.may_be_in_list() {
                    return Err(unsupported("a list has strings, objects, files or parcelables"));
                }
                element.nullable |= name.nullable;
                Type::Array(Box::new(element), None)
            }
            (true, _) => return Err(unsupported("a list needs the type of its elements")),
            (false, []) => self.plain(user, name)?,
            (false, _) => return Err(unsupported("no type but a list has parameters")),
        };
        let mut typed = Typed { nullable: name.nullable && kind.may_be_null(), kind };
        if name.dimensions.len() > 1 && name.dimensions.iter().any(Option::is_none) {
            return Err(unsupported("an array of arrays needs fixed lengths"));
        }
        for dimension in name.dimensions.iter().rev() {
            let length = dimension.as_ref().map(|length| {
                let length = self.evaluate(user, length)?.as_u64();
                let length = length.and_then(|length| usize::try_from(length).ok());
                length.ok_or_else(|| unsupported("a length is a number"))
            });
            let kind = Type::Array(Box::new(typed), length.transpose()?);
            typed = Typed { kind, nullable: false };
        }
        typed.nullable = name.nullable && typed.kind.may_be_null();
        Ok(typed)
    }

    fn plain(&self, user: &Declared, name: &TypeName) -> Result<Type, AidlError> {
        let unsupported = |why| AidlError::Unsupported { name: name.name.clone(), why };
        Ok(match name.name.as_str() {
            "boolean" => Type::Boolean,
            "byte" => Type::Byte,
            "char" => Type::Char,
            "int" => Type::Int,
            "long" => Type::Long,
            "float" => Type::Float,
            "double" => Type::Double,
            "String" | "java.lang.String" => Type::String,
            "IBinder" | "android.os.IBinder" => Type::Object(None),
            "ParcelFileDescriptor" | "android.os.ParcelFileDescriptor" => Type::File,
            "void" => return Err(unsupported("it is no value")),
            "ParcelableHolder" | "android.os.ParcelableHolder" => {
                return Err(unsupported("what it holds is known to its users alone"));
            }
            "Map"
            | "java.util.Map"
            | "CharSequence"
            | "java.lang.CharSequence"
            | "FileDescriptor"
            | "java.io.FileDescriptor" => {
                return Err(unsupported("it is Java's alone"));
            }
            named => match self.meant(user, named)? {
                Some(declared) => match &declared.body {
                    Body::Interface(_) => Type::Object(Some(declared)),
                    Body::Parcelable(_) => Type::Parcelable(declared),
                    Body::Union(_) => Type::Union(declared),
                    Body::Enumeration(..) => Type::Enumeration(declared),
                    Body::Unknown(why) => return Err(unsupported(why)),
                },
                None => {
                    let (name, user) = (named.to_owned(), user.name.clone());
                    return Err(AidlError::Undeclared { name, user });
                }
            },
        })
    }

    /// The value of a constant that stands in a declaration.
    pub fn evaluate(&self, user: &Declared, value: &Value) -> Result<Json, AidlError> {
        self.evaluate_chain(user, value, LONGEST_CHAIN)
    }

    fn evaluate_chain(
        &self,
        user: &Declared,
        value: &Value,
        left: usize,
    ) -> Result<Json, AidlError> {
        evaluate(value, &|name| self.named(user, name, left).map_err(Unevaluated::Other)).map_err(
            |error| match error {
                Unevaluated::Other(error) => error,
                Unevaluated::NoValue(why) => {
                    let (text, user) = ("an expression".to_owned(), user.name.clone());
                    AidlError::Constant { text, user, why }
                }
            },
        )
    }

    /// The value of a name, in the declaration that has it or in those around that.
    fn named(&self, user: &Declared, name: &str, left: usize) -> Result<Json, AidlError> {
        let missing = |why| {
            let (text, user) = (name.to_owned(), user.name.clone());
            AidlError::Constant { text, user, why }
        };
        let left = left.checked_sub(1).ok_or_else(|| missing("its constants lead in a circle"))?;
        if let Some((owner, name)) = name.rsplit_once('.') {
            let owner = self.meant(user, owner)?.ok_or_else(|| missing("there is no such type"))?;
            let value = self.member(&owner, name, left)?;
            return value.ok_or_else(|| missing("its type does not have it"));
        }
        let mut around = user.name.as_str();
        loop {
            let declared = self.declared.borrow().get(around).map(Rc::clone);
            let value = declared.map(|it| self.member(&it, name, left)).transpose()?;
            if let Some(value) = value.flatten() {
                return Ok(value);
            }
            let Some((outer, _)) = around.rsplit_once('.') else { break };
            around = outer;
        }
        Err(missing("there is no constant of this name"))
    }

    fn member(&self, owner: &Declared, name: &str, left: usize) -> Result<Option<Json>, AidlError> {
        if let Some((_, value)) = owner.constants.iter().find(|(constant, _)| constant == name) {
            return self.evaluate_chain(owner, value, left).map(Some);
        }
        let Body::Enumeration(_, enumerators) = &owner.body else { return Ok(None) };
        let Some(place) = enumerators.iter().position(|(enumerator, _)| enumerator == name) else {
            return Ok(None);
        };
        // One without a value follows the last one with a value.
        let valued = enumerators[..=place].iter().rposition(|(_, value)| value.is_some());
        let (first, steps) = match valued {
            Some(valued) => {
                let value = enumerators[valued].1.as_ref().expect("it has one");
                let first = self.evaluate_chain(owner, value, left)?;
                (first.as_i64().unwrap_or_default(), place - valued)
            }
            None => (0, place),
        };
        Ok(Some(Json::from(first.saturating_add(steps as i64))))
    }

    /// An enumeration's backing type, and its names with their values.
    pub fn enumeration(&self, of: &Declared) -> Result<(Type, Vec<(String, i64)>), AidlError> {
        let Body::Enumeration(backing, enumerators) = &of.body else {
            unreachable!("{} is an enumeration", of.name)
        };
        let why = "an enumeration is backed by byte, int or long";
        let kind = match backing.as_str() {
            "byte" => Type::Byte,
            "int" => Type::Int,
            "long" => Type::Long,
            _ => return Err(AidlError::Unsupported { name: of.name.clone(), why }),
        };
        let value = |name: &String| {
            let value = self.member(of, name, LONGEST_CHAIN)?.and_then(|value| value.as_i64());
            let why = "it is no number";
            let (text, user) = (name.clone(), of.name.clone());
            let value = value.ok_or(AidlError::Constant { text, user, why })?;
            Ok((name.clone(), value))
        };
        let values = enumerators.iter().map(|(name, _)| value(name));
        Ok((kind, values.collect::<Result<_, AidlError>>()?))
    }
}

/// Why a constant has no value: by itself, or for what it names.
enum Unevaluated {
    NoValue(NoValue),
    Other(AidlError),
}

impl From<NoValue> for Unevaluated {
    fn from(why: NoValue) -> Unevaluated {
        Unevaluated::NoValue(why)
    }
}

impl Declared {
    /// The methods of an interface with their transaction codes; none of another declaration.
    pub fn methods(&self) -> Result<Vec<(u32, &Method)>, AidlError> {
        let Body::Interface(methods) = &self.body else { return Ok(Vec::new()) };
        let wrong = |why| AidlError::Numbers { interface: self.name.clone(), why };
        let n_numbered = methods.iter().filter(|method| method.code.is_some()).count();
        if n_numbered != 0 && n_numbered != methods.len() {
            return Err(wrong("to some of them only"));
        }
        let code = |(place, method): (usize, &Method)| method.code.unwrap_or(place as u32);
        let codes = methods.iter().enumerate().map(|it| FIRST_CALL + code(it));
        let coded: Vec<_> = codes.zip(methods).collect();
        let distinct: HashSet<u32> = coded.iter().map(|(code, _)| *code).collect();
        if distinct.len() < coded.len() {
            return Err(wrong("twice"));
        }
        Ok(coded)
    }
}

impl Type {
    /// Whether `@nullable` means something: numbers and enumerations always have a value.
    fn may_be_null(&self) -> bool {
        !matches!(
            self,
            Type::Boolean
                | Type::Byte
                | Type::Char
                | Type::Int
                | Type::Long
                | Type::Float
                | Type::Double
                | Type::Enumeration(_)
        )
    }

    fn may_be_in_list(&self) -> bool {
        self.may_be_null() && !matches!(self, Type::Array(..))
    }
}

fn join(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sources(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let sources = Sources::at(&[directory.path().to_owned()]).unwrap();
        (directory, sources)
    }

    fn first_type(sources: &Sources, interface: &str) -> Result<Typed, AidlError> {
        let declared = sources.find(interface)?.expect("it is declared");
        let methods = declared.methods()?;
        sources.resolve(&declared, &methods[0].1.arguments[0].of_type)
    }

    #[test]
    fn names_mean_the_innermost_declaration() {
        let (_directory, sources) = sources(&[
            (
                "a/IThing.aidl",
                "package a; import b.Other; interface IThing { enum Kind { INNER } \
                 void f(in Kind k); void g(in Other.Deep d); void h(in Near n); \
                 void i(in b.Other o); }",
            ),
            ("a/Kind.aidl", "package a; enum Kind { OUTER }"),
            ("a/Near.aidl", "package a; parcelable Near { int x; }"),
            ("b/Other.aidl", "package b; parcelable Other { parcelable Deep { int x; } }"),
            ("c/Bad.aidl", "this is no AIDL"),
        ]);
        let thing = sources.find("a.IThing").unwrap().unwrap();
        let names = thing.methods().unwrap().into_iter().map(|(_, method)| {
            match sources.resolve(&thing, &method.arguments[0].of_type).unwrap().kind {
                Type::Enumeration(declared) | Type::Parcelable(declared) => declared.name.clone(),
                other => panic!("{other:?}"),
            }
        });
        assert!(names.eq(["a.IThing.Kind", "b.Other.Deep", "a.Near", "b.Other"]));
        assert!(sources.find("a.INone").unwrap().is_none());
        let error = sources.find("c.Bad").unwrap_err().to_string();
        assert!(error.contains("c/Bad.aidl:1:1: expected "), "{error}");
    }

    #[test]
    fn a_file_leads_to_those_beside_it() {
        let (directory, _) = sources(&[
            ("a/b/I.aidl", "package a.b; import a.c.P; interface I { void f(in P p); }"),
            ("a/c/P.aidl", "package a.c; parcelable P { int x; }"),
            ("x/P.aidl", "package a.c; parcelable P { String x; }"),
        ]);
        let alone = Sources::at(&[directory.path().join("a/b/I.aidl")]).unwrap();
        let typed = first_type(&alone, "a.b.I").unwrap();
        assert!(matches!(&typed.kind, Type::Parcelable(p) if p.name == "a.c.P"), "{typed:?}");
        assert!(Sources::at(&[directory.path().join("none.aidl")]).is_err());
    }

    #[test]
    fn codes_come_from_the_order_or_from_numbers() {
        let codes = |text: &str| {
            let (_directory, sources) = sources(&[("I.aidl", text)]);
            let declared = sources.find("I").unwrap().unwrap();
            let methods = declared.methods();
            methods.map(|them| them.iter().map(|(code, _)| *code).collect::<Vec<_>>())
        };
        assert_eq!(codes("interface I { void a(); void b(); }").unwrap(), [1, 2]);
        assert_eq!(codes("interface I { void a() = 7; void b() = 0; }").unwrap(), [8, 1]);
        assert!(codes("interface I { void a() = 7; void b(); }").is_err());
        assert!(codes("interface I { void a() = 7; void b() = 7; }").is_err());
    }

    #[test]
    fn enumerators_and_constants_refer_to_each_other() {
        let (_directory, sources) = sources(&[
            (
                "I.aidl",
                "interface I { const int N = E.TWO + 1; void f(in int[N] v); \
              @Backing(type=\"int\") enum E { ONE = 1, TWO, TEN = TWO * 5, ELEVEN } }",
            ),
            ("J.aidl", "interface J { const int A = B; const int B = A; void f(in int[A] v); }"),
            ("K.aidl", "interface K { void f(in int[NONE] v); }"),
        ]);
        let e = sources.find("I.E").unwrap().unwrap();
        let (_, values) = sources.enumeration(&e).unwrap();
        assert_eq!(json!(values), json!([["ONE", 1], ["TWO", 2], ["TEN", 10], ["ELEVEN", 11]]));
        let typed = first_type(&sources, "I").unwrap();
        assert!(matches!(typed.kind, Type::Array(_, Some(3))), "{typed:?}");
        assert!(first_type(&sources, "J").unwrap_err().to_string().contains("circle"));
        assert!(first_type(&sources, "K").unwrap_err().to_string().contains("NONE"));
    }

    #[test]
    fn types_without_a_form_are_named() {
        for (parameter, name) in [
            ("in Map m", "Map"),
            ("in CharSequence c", "CharSequence"),
            ("in ParcelableHolder h", "ParcelableHolder"),
            ("in List l", "List"),
            ("in List<int> l", "List<int>"),
            ("in int[][] a", "int[][]"),
            ("in Pair<int> p", "Pair<int>"),
            ("in Flat f", "Flat"),
            ("in Nowhere n", "Nowhere"),
        ] {
            let (_directory, sources) = sources(&[
                ("I.aidl", &format!("interface I {{ void f({parameter}); }}")),
                ("Flat.aidl", "parcelable Flat cpp_header \"flat.h\";"),
                ("Pair.aidl", "parcelable Pair<T> { int x; }"),
            ]);
            let error = first_type(&sources, "I").unwrap_err().to_string();
            assert!(error.contains(&format!("the type {name}")), "{parameter}: {error}");
        }
    }
}
