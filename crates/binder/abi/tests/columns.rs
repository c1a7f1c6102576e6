//! A law about the lines of every source and document of the tree.

use std::path::{Path, PathBuf};

/// Most columns of a line. Rows of tables in Markdown cannot be broken.
const COLUMNS: usize = 100;

/// Files under a directory with one of these endings, without build results and hidden files.
fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the tree") {
        let path = entry.expect("the tree").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| path_ends(&path, ending)) {
            found.push(path);
        }
    }
    found
}

fn path_ends(path: &Path, ending: &str) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(ending))
}

#[test]
fn no_line_is_over_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let (mut n_files, mut long) = (0, Vec::new());
    for path in files(&root, &[""]) {
        // Other files need not be text.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let is_source = [".rs", ".md", "Makefile"].iter().any(|end| path_ends(&path, end));
        if !is_source && !text.starts_with("#!/") {
            continue;
        }
        n_files += 1;
        for (number, line) in (1..).zip(text.lines()) {
            let is_row = line.starts_with('|') && path.extension().is_some_and(|it| it == "md");
            if line.chars().count() > COLUMNS && !is_row {
                long.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(n_files > 300, "the whole tree: {n_files}");
    assert!(long.is_empty(), "over {COLUMNS} columns: {long:#?}");
}

/// Markdown's links outside of code blocks, without those to other sites.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1));
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.trim()));
    targets.filter(|target| !target.contains("://")).collect()
}

#[test]
fn every_link_leads_to_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let (mut n_links, mut broken) = (0, Vec::new());
    for path in files(&root, &[".md"]) {
        let text = std::fs::read_to_string(&path).expect("text");
        let directory = path.parent().expect("a directory");
        for link in links(&text) {
            n_links += 1;
            let target = link.split('#').next().unwrap_or_default();
            if !directory.join(target).exists() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(n_links > 300, "the documents' links: {n_links}");
    assert!(broken.is_empty(), "links to nothing: {broken:#?}");
}

/// ARCHITECTURE.md links each function that it names to the file in which it stands.
#[test]
fn functions_stand_where_the_architecture_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("text");
    let (mut n_functions, mut gone) = (0, Vec::new());
    for piece in text.split("[`").skip(1) {
        let Some((name, rest)) = piece.split_once("`](") else { continue };
        let Some((path, _)) = rest.split_once(')') else { continue };
        let Some((_, function)) = name.split_once("::").filter(|_| path.ends_with(".rs")) else {
            continue;
        };
        n_functions += 1;
        let source = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_there = ["(", "<"].iter().any(|end| source.contains(&format!("fn {function}{end}")));
        if !is_there {
            gone.push(format!("{name} in {path}"));
        }
    }
    assert!(n_functions > 20, "the steps of a call: {n_functions}");
    assert!(gone.is_empty(), "not where ARCHITECTURE.md says: {gone:#?}");
}
