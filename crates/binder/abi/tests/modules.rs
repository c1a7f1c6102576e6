//! Modules of a crate import downwards: no module reaches itself over the modules that it imports.
//!
//! A module is a file; an inline module belongs to the file that it stands in. Module `a` depends
//! on module `b` if code of `a` names an item of `b`, in a `use` or in a path. Three things are no
//! dependency: a `mod` declaration, a re-export (`pub use`), and code under `#[cfg(test)]` or
//! `#[cfg(simulated)]`. Code that names a re-exported item depends on the module that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A token of Rust: a word (identifier, keyword, number), or one character of punctuation. Strings,
/// character literals, lifetimes and comments are left out.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let at = |index: usize| text.get(index).copied().unwrap_or('\0');
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut found = Vec::new();
    let mut index = 0;
    while index < text.len() {
        let first = text[index];
        match first {
            '/' if at(index + 1) == '/' => {
                while index < text.len() && text[index] != '\n' {
                    index += 1;
                }
            }
            '/' if at(index + 1) == '*' => {
                let mut depth = 1;
                index += 2;
                while depth > 0 && index < text.len() {
                    match (text[index], at(index + 1)) {
                        ('/', '*') => (depth, index) = (depth + 1, index + 2),
                        ('*', '/') => (depth, index) = (depth - 1, index + 2),
                        _ => index += 1,
                    }
                }
            }
            '"' => index = end_of_string(&text, index),
            '\'' if at(index + 1) == '\\' => {
                index += 3;
                while index < text.len() && text[index] != '\'' {
                    index += 1;
                }
                index += 1;
            }
            '\'' if at(index + 2) == '\'' => index += 3,
            '\'' => {
                index += 1;
                while is_word(at(index)) {
                    index += 1;
                }
            }
            _ if is_word(first) => {
                let start = index;
                while is_word(at(index)) {
                    index += 1;
                }
                let word: String = text[start..index].iter().collect();
                let opens = at(index) == '"' || (at(index) == '#' && "#\"".contains(at(index + 1)));
                match word.as_str() {
                    "r" | "br" | "cr" if opens => index = end_of_raw_string(&text, index),
                    "b" | "c" if opens => index = end_of_string(&text, index),
                    _ => found.push(word),
                }
            }
            _ => {
                if !first.is_whitespace() {
                    found.push(first.to_string());
                }
                index += 1;
            }
        }
    }
    found
}

/// Where a string literal that begins at `start` is over.
fn end_of_string(text: &[char], start: usize) -> usize {
    let mut index = start + 1;
    while index < text.len() && text[index] != '"' {
        index += if text[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// Where a raw string whose hashes or quote begin at `start` is over.
fn end_of_raw_string(text: &[char], start: usize) -> usize {
    let n_hashes = text[start..].iter().take_while(|&&character| character == '#').count();
    let mut index = start + n_hashes + 1;
    let closes = |index: usize| {
        text[index] == '"'
            && text[index + 1..].iter().take_while(|&&it| it == '#').count() >= n_hashes
    };
    while index < text.len() && !closes(index) {
        index += 1;
    }
    index + 1 + n_hashes
}

/// The index after the bracket that closes the one at `open`.
fn after_group(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Whether an attribute's tokens leave its item out of everything but tests and the simulator.
fn is_for_tests(attribute: &[String]) -> bool {
    let words: Vec<&str> = attribute.iter().map(String::as_str).collect();
    let names_tests = words.contains(&"test") || words.contains(&"simulated");
    words.starts_with(&["[", "cfg", "("]) && names_tests && !words.contains(&"not")
}

/// The index after the item, field or statement that begins at `start`.
fn after_item(tokens: &[String], start: usize) -> usize {
    let mut index = start;
    let mut has_body = false;
    while index < tokens.len() {
        match tokens[index].as_str() {
            "fn" | "impl" | "struct" | "enum" | "trait" | "union" => has_body = true,
            "use" => {
                while tokens[index] != ";" {
                    index += 1;
                }
                return index + 1;
            }
            "{" => return after_group(tokens, index),
            "(" | "[" => {
                index = after_group(tokens, index);
                continue;
            }
            ";" => return index + 1,
            "," if !has_body => return index + 1,
            ")" | "]" | "}" => return index,
            _ => {}
        }
        index += 1;
    }
    index
}

/// The tokens of a file without items for tests and without attributes.
fn shipped(text: &str) -> Vec<String> {
    let all = tokens(text);
    let mut kept = Vec::new();
    let mut index = 0;
    while index < all.len() {
        let bracket = if all.get(index + 1).is_some_and(|it| it == "!") { 2 } else { 1 };
        let is_attribute =
            all[index] == "#" && all.get(index + bracket).is_some_and(|it| it == "[");
        if !is_attribute {
            kept.push(all[index].clone());
            index += 1;
            continue;
        }
        let end = after_group(&all, index + bracket);
        let leaves_out = is_for_tests(&all[index + bracket..end]);
        index = end;
        if leaves_out {
            while all.get(index).is_some_and(|it| it == "#") {
                index = after_group(&all, index + 1);
            }
            index = after_item(&all, index);
        }
    }
    kept
}

/// The names that one module declares, imports and uses.
#[derive(Default)]
struct Contents {
    /// Modules that are files of their own.
    children: Vec<String>,
    /// Items that the module defines.
    items: BTreeSet<String>,
    /// Imports: the name here, the whole path, and whether they re-export. A glob has the name `*`.
    imports: Vec<Import>,
    /// Paths in code, and single names, which matter if they are re-exported here.
    paths: Vec<Vec<String>>,
}

struct Import {
    name: String,
    path: Vec<String>,
    is_re_export: bool,
}

impl Contents {
    fn of(text: &str) -> Contents {
        let tokens = shipped(text);
        let mut contents = Contents::default();
        let mut inline: Vec<(String, usize)> = Vec::new();
        let mut depth = 0;
        let mut index = 0;
        let word = |index: usize| tokens.get(index).map_or("", String::as_str);
        while index < tokens.len() {
            let inside: Vec<String> = inline.iter().map(|(name, _)| name.clone()).collect();
            match word(index) {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inline.pop_if(|(_, opened)| *opened == depth);
                }
                "mod" if word(index + 2) == ";" => {
                    contents.children.push(word(index + 1).to_owned());
                    index += 2;
                }
                "mod" if word(index + 2) == "{" => {
                    contents.items.insert(word(index + 1).to_owned());
                    inline.push((word(index + 1).to_owned(), depth));
                    depth += 1;
                    index += 2;
                }
                "use" if word(index + 1) != "<" => {
                    let is_re_export = ["pub", ")"].contains(&word(index.wrapping_sub(1)));
                    let mut end = index + 1;
                    contents.import(&tokens, &mut end, &inside, Vec::new(), is_re_export);
                    index = end;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    let is_named = word(index + 1).starts_with(|it: char| it.is_alphabetic());
                    if is_named && depth == inline.len() {
                        contents.items.insert(word(index + 1).to_owned());
                        index += 1;
                    }
                }
                "macro_rules" => {
                    contents.items.insert(word(index + 2).to_owned());
                    index += 2;
                }
                "." => index += 1,
                // A visibility is no dependency: `pub(in super::super)`.
                "pub" if word(index + 1) == "(" => index = after_group(&tokens, index + 1) - 1,
                first if first.starts_with(|it: char| it.is_alphabetic() || it == '_') => {
                    let mut path = vec![first.to_owned()];
                    while word(index + 1) == ":"
                        && word(index + 2) == ":"
                        && word(index + 3).starts_with(|it: char| it.is_alphabetic() || it == '_')
                    {
                        path.push(word(index + 3).to_owned());
                        index += 3;
                    }
                    contents.paths.push(outward(path, &inside));
                }
                _ => {}
            }
            index += 1;
        }
        contents
    }

    /// Reads the tree of a `use` from `index` on, which ends at the token that closes it.
    fn import(
        &mut self,
        tokens: &[String],
        index: &mut usize,
        inside: &[String],
        prefix: Vec<String>,
        is_re_export: bool,
    ) {
        let mut path = prefix;
        let mut name = None;
        loop {
            match tokens[*index].as_str() {
                "{" => {
                    *index += 1;
                    while tokens[*index] != "}" {
                        self.import(tokens, index, inside, path.clone(), is_re_export);
                        *index += usize::from(tokens[*index] == ",");
                    }
                    *index += 1;
                    return;
                }
                "," | "}" | ";" => break,
                ":" => {}
                "as" => {
                    *index += 1;
                    name = Some(tokens[*index].clone());
                }
                "self" if !path.is_empty() => {}
                segment => path.push(segment.to_owned()),
            }
            *index += 1;
        }
        let last = path.last().cloned().unwrap_or_default();
        let path = outward(path, inside);
        self.imports.push(Import { name: name.unwrap_or(last), path, is_re_export });
    }
}

/// A path as it reads from the file's own module, if it stands in inline modules.
fn outward(mut path: Vec<String>, inside: &[String]) -> Vec<String> {
    if !inside.is_empty() && path[0] == "super" {
        path.remove(0);
        path.splice(0..0, ["self".to_owned()]);
        path.splice(1..1, inside[..inside.len() - 1].iter().cloned());
    }
    path
}

/// Modules, by their paths.
type Found = BTreeSet<Vec<String>>;

/// Re-exports in a row that are followed.
const PATIENCE: usize = 9;

/// The modules of one library or program, by their paths in it.
struct Modules(BTreeMap<Vec<String>, Contents>);

impl Modules {
    fn read(root: &Path) -> Modules {
        let mut found = BTreeMap::new();
        let mut open = vec![(Vec::new(), root.to_owned(), root.parent().unwrap().to_owned())];
        while let Some((module, file, directory)) = open.pop() {
            let contents = Contents::of(&std::fs::read_to_string(&file).unwrap());
            for child in &contents.children {
                let mut path: Vec<String> = module.clone();
                path.push(child.clone());
                let flat = directory.join(format!("{child}.rs"));
                let nested = directory.join(child).join("mod.rs");
                let file = if flat.exists() { flat } else { nested };
                open.push((path, file, directory.join(child)));
            }
            found.insert(module, contents);
        }
        Modules(found)
    }

    /// The modules that define the item to which `path` leads from `module`: none if it is no item
    /// of this crate, and two if a name depends on the architecture.
    fn definers(&self, module: &[String], path: &[String], patience: usize) -> Found {
        let mut at = module.to_vec();
        let is_name = |segment: &String| !["crate", "self", "super"].contains(&segment.as_str());
        let n_leading = path.iter().position(is_name).unwrap_or(path.len());
        if n_leading == 0 {
            return self.named(module, path, patience);
        }
        let (leading, rest) = path.split_at(n_leading);
        for segment in leading {
            match segment.as_str() {
                "crate" => at.clear(),
                "super" => _ = at.pop(),
                _ => {}
            }
        }
        let found = self.named(&at, rest, patience);
        if found.is_empty() { Found::from([at]) } else { found }
    }

    /// Like `definers`, of a path whose first segment is a name of `module` itself.
    fn named(&self, module: &[String], path: &[String], patience: usize) -> Found {
        let (Some(contents), Some((first, rest))) = (self.0.get(module), path.split_first()) else {
            return Found::new();
        };
        let child = [module, std::slice::from_ref(first)].concat();
        if self.0.contains_key(&child) {
            let found = self.named(&child, rest, patience);
            return if found.is_empty() { Found::from([child]) } else { found };
        }
        if contents.items.contains(first) {
            return Found::from([module.to_vec()]);
        }
        let Some(patience) = patience.checked_sub(1) else { return Found::new() };
        let imports = contents.imports.iter();
        let named = imports.filter(|import| import.name == *first && import.path[0] != *first);
        let found: Found = named
            .flat_map(|import| self.definers(module, &[&import.path[..], rest].concat(), patience))
            .collect();
        if !found.is_empty() {
            return found;
        }
        let globs = contents.imports.iter().filter(|import| import.name == "*");
        let sources = globs.flat_map(|import| {
            self.definers(module, &import.path[..import.path.len() - 1], patience)
        });
        sources
            .filter(|source| source != module)
            .flat_map(|source| self.named(&source, path, patience))
            .collect()
    }

    /// The modules that each module depends on.
    fn edges(&self) -> BTreeMap<&[String], BTreeSet<Vec<String>>> {
        let of = |(module, contents): (&'_ Vec<String>, &Contents)| {
            let imports = contents.imports.iter().filter(|import| !import.is_re_export);
            let imported = imports.flat_map(|import| match import.path.split_last() {
                Some((last, source)) if last == "*" => self.definers(module, source, PATIENCE),
                _ => self.definers(module, &import.path, PATIENCE),
            });
            // A single name is a variable more often than a module.
            let used = contents.paths.iter().filter(|path| {
                let re_exports = |import: &Import| import.is_re_export && import.name == path[0];
                path.len() > 1 || contents.imports.iter().any(re_exports)
            });
            let used = used.flat_map(|path| self.definers(module, path, PATIENCE));
            imported.chain(used).filter(|to| to != module).collect::<BTreeSet<_>>()
        };
        self.0.iter().map(|entry| (entry.0.as_slice(), of(entry))).collect()
    }

    /// The modules that reach themselves, each with those of its neighbours that lead back to it.
    fn cyclic(&self) -> BTreeMap<String, Vec<String>> {
        let edges = self.edges();
        let reached = |from: &[String]| {
            let mut seen = BTreeSet::new();
            let mut open = vec![from.to_vec()];
            while let Some(module) = open.pop() {
                let next = edges.get(module.as_slice()).into_iter().flatten();
                open.extend(next.filter(|to| seen.insert((*to).clone())).cloned());
            }
            seen
        };
        let reached: BTreeMap<&[String], _> =
            edges.keys().map(|module| (*module, reached(module))).collect();
        let mut found = BTreeMap::new();
        for (module, to) in &edges {
            let back = to.iter().filter(|to| reached[to.as_slice()].contains(*module));
            let back: Vec<String> = back.map(|to| shown(to)).collect();
            if !back.is_empty() {
                found.insert(shown(module), back);
            }
        }
        found
    }
}

fn shown(module: &[String]) -> String {
    if module.is_empty() { "crate".to_owned() } else { module.join("::") }
}

/// Directories under `crates` that have a manifest.
fn crates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")];
    while let Some(directory) = open.pop() {
        if directory.join("Cargo.toml").exists() {
            found.push(directory);
        } else {
            let inside = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            open.extend(inside.filter(|path| path.is_dir()));
        }
    }
    found.sort();
    found
}

/// Directories of a crate, lowest first.
const ORDERS: &[(&str, &str)] =
    &[("driver", "sys channel wait engine realtime fast runner observer device")];

/// The edges that lead from a directory to one that stands after it, or that is not in the order.
fn upward(modules: &Modules, order: &str) -> Vec<String> {
    let place = |module: &[String]| {
        let directory = module.first().map_or("crate", String::as_str);
        order.split_whitespace().position(|known| known == directory)
    };
    let edges = modules.edges();
    let from = edges.iter().filter(|(from, _)| !from.is_empty());
    let all = from.flat_map(|(from, to)| to.iter().map(move |to| (*from, to)));
    let wrong = all.filter(|(from, to)| place(from).is_none() || place(to) > place(from));
    wrong.map(|(from, to)| format!("{} -> {}", shown(from), shown(to))).collect()
}

#[test]
fn directories_use_only_those_below_them() {
    for (name, order) in ORDERS {
        let path = crates().into_iter().find(|path| path.ends_with(name)).unwrap();
        let modules = Modules::read(&path.join("src/lib.rs"));
        assert_eq!(upward(&modules, order), [""; 0], "{name}");
    }
    let mut modules = Modules(BTreeMap::new());
    for (name, text) in [
        ("low", "pub struct A;"),
        ("low::one", "use super::A; use crate::high::B;"),
        ("high", "pub struct B(crate::low::A);"),
        ("new", "use crate::low::A;"),
    ] {
        let path = name.split("::").map(str::to_owned);
        modules.0.insert(path.collect(), Contents::of(text));
    }
    modules.0.insert(Vec::new(), Contents::of("mod low; mod high; mod new;"));
    assert_eq!(upward(&modules, "low high"), ["low::one -> high", "new -> low"]);
}

#[test]
fn no_module_stands_on_a_cycle() {
    let mut wrong = Vec::new();
    let mut n_modules = 0;
    for path in crates() {
        for root in ["src/lib.rs", "src/main.rs"].map(|root| path.join(root)) {
            if root.exists() {
                let modules = Modules::read(&root);
                n_modules += modules.0.len();
                wrong.extend(modules.cyclic().into_iter().map(|(module, back)| {
                    format!("{}: {module} leads back to itself over {back:?}", root.display())
                }));
            }
        }
    }
    assert!(n_modules > 300, "the whole tree: {n_modules}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A crate of the given files, each with its module's path, in which these modules are cyclic.
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let mut modules = Modules(BTreeMap::new());
    for (name, text) in files {
        let path = name.split("::").filter(|it| *it != "crate").map(str::to_owned);
        modules.0.insert(path.collect(), Contents::of(text));
    }
    let cyclic: Vec<String> = modules.cyclic().into_keys().collect();
    assert_eq!(cyclic, expected, "{files:?}");
}

#[test]
fn cycles_are_found_and_nothing_else() {
    let root = ("crate", "mod a; mod b; pub use b::{B, deep::Deep as D};");
    let deep = ("b::deep", "pub struct Deep;");
    let b = |text| ("b", text);
    let on_b = ("a", "use crate::b::B; pub struct A;");
    check(&[root, on_b, b("pub mod deep; pub struct B;"), deep], &[]);
    check(&[root, on_b, b("pub mod deep; use crate::a::A; pub struct B;"), deep], &["a", "b"]);
    check(&[root, on_b, b("pub struct B; fn f() { g(super::a::A) }")], &["a", "b"]);
    check(&[root, on_b, b("use crate::a; pub struct B; fn f() -> a::A {}")], &["a", "b"]);
    // A comment, a string, a test, a variable and a field are no dependency.
    check(&[root, on_b, b("// crate::a::A\n pub struct B(char); fn f() { \"crate::a::A\" }")], &[]);
    check(&[root, on_b, b("pub struct B; #[cfg(test)] mod tests { use crate::a::A; }")], &[]);
    check(&[root, on_b, b("pub struct B; #[cfg(test)] use crate::a::A;")], &[]);
    check(&[root, on_b, b("pub struct B; fn f(a: u8) { a.a }")], &[]);
    check(&[root, on_b, b("pub struct B; #[cfg(not(test))] use crate::a::A;")], &["a", "b"]);
    // A re-exported item belongs to the module that defines it.
    check(
        &[root, ("a", "use crate::B; pub struct A;"), b("pub struct B(crate::a::A);")],
        &["a", "b"],
    );
    check(&[root, ("a", "use crate::D;"), b("pub mod deep; use crate::a::A;"), deep], &[]);
    // A parent that re-exports a child does not depend on it; one that uses it does.
    let child = ("b::deep", "use super::B; pub struct Deep(B);");
    check(&[root, b("mod deep; pub use deep::Deep; pub struct B;"), child], &[]);
    check(
        &[root, b("mod deep; pub use deep::Deep; pub struct B(Deep);"), child],
        &["b", "b::deep"],
    );
    // An inline module is part of its file, and its `super` is that file.
    check(&[root, on_b, b("pub struct B; mod inner { use super::B; }")], &[]);
    check(&[root, on_b, b("pub struct B; mod inner { use super::super::a::A; }")], &["a", "b"]);
    // A visibility is no dependency.
    let visible = ("b::deep", "pub(in super::super) struct Deep;");
    check(&[root, b("pub mod deep; pub struct B(deep::Deep);"), visible], &[]);
    // A glob leads to what it names.
    check(&[root, on_b, b("use crate::a::*; pub struct B(A);")], &["a", "b"]);
}
