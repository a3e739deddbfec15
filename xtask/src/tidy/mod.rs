//! The rules of this repository that the compiler does not check.

pub mod files;
mod layers;
mod lengths;
mod packages;
mod shapes;
mod snippets;
mod source;
mod tools;
mod unsafety;
mod words;

use std::fmt;
use std::path::Path;

use crate::failure::Failure;
use crate::workspace::Workspace;

use files::File;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    /// A file, with a line if it is known, or a package.
    place: String,
    what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    /// `line_index` counts from 0.
    fn at(path: &Path, line_index: usize, what: impl Into<String>) -> Self {
        Self::new(format!("{}:{}", path.display(), line_index + 1), what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks the whole workspace, and prints every violation.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let (files, mut violations) = files::all(Path::new("."))?;
    violations.extend(packages::check(workspace)?);
    violations.extend(layers::check(&files));
    violations.extend(unsafety::check_pages(&files));
    violations.extend(snippets::check(&files));
    violations.extend(files.iter().flat_map(check_file));
    for violation in &violations {
        eprintln!("tidy: {violation}");
    }
    match violations.len() {
        0 => println!("tidy: {} files, {} packages", files.len(), workspace.packages.len()),
        count => return Err(Failure::failed(format!("{count} violations"))),
    }
    Ok(())
}

fn check_file(file: &File) -> Vec<Violation> {
    let mut violations = words::check(file);
    violations.extend(lengths::file(file));
    if file.is_rust() {
        let code = source::code_only(&file.text);
        violations.extend(lengths::functions(&file.path, &code));
        violations.extend(unsafety::check(file, &code));
        violations.extend(tools::check(file, &code));
        violations.extend(shapes::check(file));
    }
    violations
}
