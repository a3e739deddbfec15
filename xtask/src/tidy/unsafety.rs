//! The places of unsafe code. Each use must have its reasons, and each file must be on the page of
//! its crate.

use std::path::Path;

use super::Violation;
use super::files::File;
use super::source;

/// Folders and files that may hold unsafe code.
const ALLOWED: [&str; 12] = [
    // A packet as cheap as an mbuf; peers in C, and peers written by hand without any check.
    "benches/src/buffer.rs",
    "benches/src/peers",
    "crates/arena",
    "crates/dpdk",
    "crates/dpdk-sys",
    "crates/flow",
    // Making a TAP interface.
    "crates/kernel/src/tun.rs",
    // Opening a device with a peer that the user of a program trusts.
    "crates/ops/src/devices.rs",
    "crates/ring",
    "crates/stage/src/burst.rs",
    "crates/stage/src/burst/tests.rs",
    // `GlobalAlloc`, which counts allocations in tests, is an unsafe trait.
    "crates/testing/src/alloc_guard.rs",
];

/// The crates whose page lists their unsafe code.
const WITH_PAGES: [&str; 7] = [
    "crates/arena",
    "crates/dpdk",
    "crates/flow",
    "crates/kernel",
    "crates/ops",
    "crates/ring",
    "crates/stage",
];

const HEADING: &str = "//! # Unsafe code";

/// The maximum number of lines between the start of a comment and its unsafe block.
const COMMENT_LINES_MAX: usize = 30;

/// Checks one file of Rust; `code` is its text without comments and literals.
pub fn check(file: &File, code: &str) -> Vec<Violation> {
    let is_allowed = ALLOWED.iter().any(|place| file.path.starts_with(Path::new(place)));
    let lines: Vec<&str> = file.text.lines().collect();
    source::word_positions(code, "unsafe")
        .filter_map(|at| {
            let line_index = source::line_index(code, at);
            let what = if !is_allowed {
                "unsafe code may not stand here"
            } else if needs_reason(&code[at..]) && !has_reason(&lines, line_index) {
                "no `SAFETY:` comment above"
            } else {
                return None;
            };
            Some(Violation::at(&file.path, line_index, what))
        })
        .collect()
}

/// A block or an impl must state why it is sound; a function or a trait leaves that to its user.
fn needs_reason(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    rest.starts_with('{') || rest.starts_with("impl")
}

/// Whether the comment is in the same paragraph, above the line or on it.
fn has_reason(lines: &[&str], line_index: usize) -> bool {
    lines[..=line_index]
        .iter()
        .rev()
        .take(COMMENT_LINES_MAX)
        .take_while(|line| !line.trim().is_empty())
        .any(|line| line.contains("SAFETY:"))
}

/// Checks that the page of each crate names every file with an unsafe block or impl.
pub fn check_pages(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for sources in WITH_PAGES.map(|folder| Path::new(folder).join("src")) {
        let root = sources.join("lib.rs");
        let page = files.iter().find(|file| file.path == root);
        let section = page.map_or("", |page| section(&page.text));
        for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with(&sources)) {
            let code = source::code_only(&file.text);
            let has_claim =
                source::word_positions(&code, "unsafe").any(|at| needs_reason(&code[at..]));
            if has_claim && source::word_positions(section, module(&file.path)).next().is_none() {
                let what = format!("`{HEADING}` in {} does not list it", root.display());
                violations.push(Violation::new(file.path.display().to_string(), what));
            }
        }
    }
    violations
}

/// The lines of the section, up to the next heading or the end of the page.
fn section(text: &str) -> &str {
    let Some((_, rest)) = text.split_once(HEADING) else { return "" };
    let is_end = |line: &str| !line.starts_with("//!") || line.starts_with("//! # ");
    let end = rest.match_indices('\n').find(|(at, _)| is_end(&rest[at + 1..]));
    &rest[..end.map_or(rest.len(), |(at, _)| at)]
}

/// The name of a file's module.
fn module(path: &Path) -> &str {
    let named = if path.ends_with("mod.rs") { path.parent().unwrap_or(path) } else { path };
    named.file_stem().and_then(|name| name.to_str()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.to_owned() }
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        let violations = check(&file(path, text), &source::code_only(text));
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_in_a_safe_crate_is_found() {
        let text = "// SAFETY: 1. none.\nunsafe { f() }";
        let expected = ["crates/engine/src/a.rs:2: unsafe code may not stand here"];
        assert_eq!(found("crates/engine/src/a.rs", text), expected);
        for path in ["crates/dpdk-extra/src/a.rs", "crates/stage/src/lib.rs", "benches/src/row.rs"]
        {
            assert_eq!(found(path, text).len(), 1, "{path}");
        }
        for path in ["benches/src/peers/rte_ring.rs", "crates/stage/src/burst.rs"] {
            assert!(found(path, text).is_empty(), "{path}");
        }
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe { }\";";
        assert!(found("crates/engine/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_block_or_impl_without_its_comment_is_found() {
        let path = "crates/ring/src/a.rs";
        let block = "// SAFETY: 1. of another block.\n\nlet x =\n    unsafe { f() };";
        assert_eq!(found(path, block), ["crates/ring/src/a.rs:4: no `SAFETY:` comment above"]);
        assert_eq!(found(path, "unsafe impl Send for A {}").len(), 1);
        assert!(found(path, "// SAFETY: 1. so.\nunsafe impl Send for A {}").is_empty());
        assert!(found(path, "/// # Safety\nunsafe fn f() {}").is_empty());
    }

    #[test]
    fn a_file_that_the_page_does_not_list_is_found() {
        let page = "//! A ring.\n//!\n//! # Unsafe code\n//!\n//! - `lines.rs`: one block.\n//!\n\
                    //! # Limits\n//!\n//! None in shared.\n\nmod shared;\n";
        let text = "// SAFETY: 1. so.\nunsafe { f() }";
        for (page, path, text, count) in [
            (page, "crates/ring/src/lines.rs", text, 0),
            (page, "crates/ring/src/lines/mod.rs", text, 0),
            (page, "crates/ring/src/shared.rs", text, 1),
            ("//! A ring.\n", "crates/ring/src/lines.rs", text, 1),
            ("", "crates/ring/src/a.rs", "unsafe impl Send for A {}", 1),
            ("", "crates/ring/src/a.rs", "/// # Safety\nunsafe fn f() {}", 0),
            ("", "crates/ring/tests/a.rs", text, 0),
            ("", "crates/dpdk-sys/src/a.rs", text, 0),
        ] {
            let files = [file("crates/ring/src/lib.rs", page), file(path, text)];
            assert_eq!(check_pages(&files).len(), count, "{path}: {text}");
        }
    }
}
