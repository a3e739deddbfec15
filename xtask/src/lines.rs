//! `cargo xtask lines`: the length of the source, package by package.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::path::Path;

use crate::failure::Failure;
use crate::tidy::files::{self, File};
use crate::workspace::{Package, Workspace};

/// Lines that aren't blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    /// Outside tests. A comment after code on the same line doesn't count.
    comments: usize,
    /// Without their comments.
    tests: usize,
}

/// Comment syntax of a language.
#[derive(Clone, Copy)]
enum Language {
    Rust,
    C,
    Script,
}

/// Prints a table of the packages, of the folders outside them, and of the total.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let (mut table, mut all) = (BTreeMap::<&Path, Lines>::new(), Lines::default());
    let files = files::all(Path::new("."))?.0;
    for file in &files {
        if let Some(language) = Language::of(file) {
            let lines = count(file, language);
            *table.entry(owner(&file.path, workspace)).or_default() += lines;
            all += lines;
        }
    }
    println!("{:<24} {:>8} {:>8} {:>8}", "", "code", "comments", "tests");
    for (folder, lines) in &table {
        println!("{:<24} {lines}", folder.display().to_string());
    }
    println!("{:<24} {all}", "all");
    Ok(())
}

/// The folder of the package that has a file, or else the first folder of its path.
fn owner<'a>(file: &'a Path, workspace: &'a Workspace) -> &'a Path {
    let folder = workspace.package_of(file).map(Package::folder);
    let package = folder.and_then(|folder| folder.strip_prefix(&workspace.workspace_root).ok());
    package.or_else(|| file.iter().next().map(Path::new)).unwrap_or(file)
}

/// Counts a file's lines. Folders and modules of tests and files named `tests.rs` hold tests.
fn count(file: &File, language: Language) -> Lines {
    let is_test = file.is_in_tests() || file.path.ends_with("tests.rs");
    let all: Vec<&str> = file.text.lines().collect();
    let tests_from = match language {
        _ if is_test => 0,
        Language::Rust => all.windows(2).position(begins_tests).unwrap_or(all.len()),
        Language::C | Language::Script => all.len(),
    };
    let mut lines = Lines::default();
    for (index, line) in all.into_iter().map(str::trim_start).enumerate() {
        match (language.is_comment(line), index >= tests_from) {
            _ if line.is_empty() => {}
            (true, true) => {}
            (true, false) => lines.comments += 1,
            (false, true) => lines.tests += 1,
            (false, false) => lines.code += 1,
        }
    }
    lines
}

/// Whether these two lines begin a module of tests. It is always the last item of its file.
fn begins_tests(pair: &[&str]) -> bool {
    pair[0].starts_with("#[cfg(")
        && pair[0].contains("test")
        && pair[1].starts_with("mod ")
        && pair[1].ends_with('{')
}

impl Language {
    /// `None` if the file isn't source code.
    fn of(file: &File) -> Option<Self> {
        match file.extension() {
            "rs" => Some(Self::Rust),
            "c" | "h" => Some(Self::C),
            "py" | "sh" => Some(Self::Script),
            _ => file.text.starts_with("#!").then_some(Self::Script),
        }
    }

    /// Whether a line is a comment, or part of one. The project's C begins each line of a longer one with a star.
    fn is_comment(self, line: &str) -> bool {
        match self {
            Self::Rust => line.starts_with("//"),
            Self::C => ["//", "/*", "* ", "*/"].iter().any(|mark| line.starts_with(mark)),
            Self::Script => line.starts_with('#'),
        }
    }
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
    }
}

/// Three columns.
impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} {:>8} {:>8}", self.code, self.comments, self.tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Option<[usize; 3]> {
        let file = File { path: path.into(), text: text.into() };
        let Lines { code, comments, tests } = count(&file, Language::of(&file)?);
        Some([code, comments, tests])
    }

    #[test]
    fn code_comments_and_tests_are_told_apart() {
        let rust = "//! A.\n\n#[cfg(test)]\nuse a::B;\n\n/// C.\nfn c() {} // D.\n\n\
                    #[cfg(all(test, feature = \"e\"))]\nmod tests {\n    // F.\n    fn g() {}\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", rust), Some([3, 2, 4]));
        for path in ["crates/a/tests/b/mod.rs", "crates/a/src/b/tests.rs", "tests/src/b.rs"] {
            assert_eq!(lines(path, rust), Some([0, 0, 7]));
        }
        let c = "/* A\n * b.\n */\nint *a;\n*a = 1; // C.\n";
        assert_eq!(lines("crates/a/csrc/a.c", c), Some([2, 3, 0]));
        assert_eq!(lines(".ci/run", "#!/bin/sh\n# A.\n\na\n"), Some([1, 2, 0]));
        assert_eq!(lines("README.md", "# A\n"), None);
    }

    #[test]
    fn a_file_belongs_to_its_package_or_to_the_first_folder() {
        let workspace = r#"{
            "packages": [
                {"name": "a", "manifest_path": "/p/crates/a/Cargo.toml", "dependencies": [], "targets": []},
                {"name": "b", "manifest_path": "/p/crates/a/b/Cargo.toml", "dependencies": [], "targets": []}
            ],
            "workspace_root": "/p", "target_directory": "/p/target"
        }"#;
        let workspace: Workspace = serde_json::from_str(workspace).unwrap();
        let owner = |file: &'static str| owner(Path::new(file), &workspace).to_owned();
        assert_eq!(owner("crates/a/src/c.rs"), Path::new("crates/a"));
        assert_eq!(owner("crates/a/b/src/c.rs"), Path::new("crates/a/b"));
        assert_eq!(owner("demo/live.sh"), Path::new("demo"));
    }
}
