//! What holds of every source and document of the tree.

use std::path::{Path, PathBuf};

/// Columns of a line, at most. Rows of Markdown's tables cannot be broken.
const COLUMNS: usize = 100;

/// Files under a directory whose names end so; what is built, and what is hidden, is left out.
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
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_line_is_over_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let all = files(&root, &[".rs", ".md"]);
    assert!(all.len() > 300, "the whole tree: {}", all.len());
    let mut long = Vec::new();
    for path in all {
        let text = std::fs::read_to_string(&path).expect("text");
        for (number, line) in (1..).zip(text.lines()) {
            let is_row = line.starts_with('|') && path.extension().is_some_and(|it| it == "md");
            if line.chars().count() > COLUMNS && !is_row {
                long.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "over {COLUMNS} columns: {long:#?}");
}
