//! Samples of Rust in documentation are compiled and run: a page that nothing runs is soon wrong.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Violation;
use super::files::File;

const FENCE: &str = "```";

const INCLUDE: &str = "include_str!(\"";

/// The test that runs whole programs of pages, until a signal: the tests of documentation can't.
const RUNNER: &str = "tests/tests/samples.rs";

/// Checks that no sample is left out of the tests of documentation, and that some Rust file includes each page
/// with samples. Only samples of a page that [`RUNNER`] includes need not run there.
pub fn check(files: &[File]) -> Vec<Violation> {
    let rust = || files.iter().filter(|file| file.is_rust());
    let included: BTreeSet<_> = rust().flat_map(pages).collect();
    let run: BTreeSet<_> =
        rust().filter(|file| file.path == Path::new(RUNNER)).flat_map(pages).collect();
    let mut violations = Vec::new();
    for file in files {
        let is_page = file.extension() == "md";
        let is_left_out = is_page && !included.contains(&resolved(&file.path));
        for (line_index, line) in file.text.lines().enumerate() {
            let Some(tags) = tags(line, file) else { continue };
            let has = |tag| tags.split(',').any(|its| its == tag);
            let mut found = |what| violations.push(Violation::at(&file.path, line_index, what));
            if has("ignore") {
                found("a sample that is not compiled");
            } else if has("no_run") && !run.contains(&resolved(&file.path)) {
                found("a sample that is not run");
            } else if has("rust") && is_left_out {
                found("a sample on a page that no Rust file includes");
            }
        }
    }
    violations
}

/// The tags of the fence in a line of Markdown, or of a comment with documentation.
fn tags<'a>(line: &'a str, file: &File) -> Option<&'a str> {
    let line = line.trim_start();
    let comment = || line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let markdown = if file.is_rust() { comment()? } else { line };
    markdown.trim_start().strip_prefix(FENCE)
}

/// The files that a Rust file includes.
fn pages(file: &File) -> Vec<PathBuf> {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let names = file.text.split(INCLUDE).skip(1).filter_map(|rest| rest.split('"').next());
    names.map(|name| resolved(&folder.join(name))).collect()
}

/// The path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_compiled_by_a_file_that_includes_their_page() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("a/src/lib.rs", "#[doc = include_str!(\"../../docs/page.md\")]\n/// ```ignore\n"),
            file("docs/page.md", "```rust\n```\n```rust,ignore\n```\n```rust,no_run\n```\n"),
            file("docs/other.md", "text\n```rust\n```\n```sh\n```\n"),
            file(RUNNER, "const PAGE: &str = include_str!(\"../../docs/whole.md\");\n"),
            file("docs/whole.md", "```rust,no_run\n```\n"),
        ];
        let places: Vec<_> = check(&files).into_iter().map(|found| found.place).collect();
        assert_eq!(
            places,
            ["a/src/lib.rs:2", "docs/page.md:3", "docs/page.md:5", "docs/other.md:2"]
        );
    }
}
