//! `cargo xtask tidy`: the rules of the house that the compiler doesn't know.

mod crates;
mod files;
mod graph;
mod kinds;
mod lengths;
mod source;
mod unsafe_pages;
mod unsafety;
mod words;

use std::fmt;
use std::path::Path;

use crate::failure::Failure;
use crate::workspace::Workspace;

use files::File;

/// One place that breaks one rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// A file, with its line where there is one, or a package.
    place: String,
    what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    /// `line_index` counts from 0, as text editors don't.
    fn at(path: &Path, line_index: usize, what: impl Into<String>) -> Self {
        Self::new(format!("{}:{}", path.display(), line_index + 1), what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks the whole workspace, and shows every violation there is.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let root = Path::new(".");
    let files = files::all(root)?;
    let tracked = kinds::tracked(root);
    let mut violations = graph::check(workspace);
    violations.extend(kinds::check(tracked.as_deref().unwrap_or_default()));
    violations.extend(crates::check(workspace)?);
    violations.extend(unsafe_pages::check(&files));
    for file in &files {
        violations.extend(check_file(file));
    }
    for violation in &violations {
        eprintln!("tidy: {violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: {} files, {} packages", files.len(), workspace.packages.len());
            if tracked.is_none() {
                println!("tidy: kinds of tracked files skipped: git knows no checkout here");
            }
            Ok(())
        }
        count => Err(Failure::failed(format!("tidy: {count} violations"))),
    }
}

fn check_file(file: &File) -> Vec<Violation> {
    let mut violations = words::check(file);
    violations.extend(lengths::file(file));
    if file.is_rust() {
        let code = source::code_only(&file.text);
        violations.extend(lengths::functions(&file.path, &code));
        violations.extend(unsafety::check(file, &code));
    }
    violations
}
