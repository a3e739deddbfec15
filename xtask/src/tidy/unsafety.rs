//! Where unsafe code may stand, and that each use of it says why it is sound.

use std::path::Path;

use super::Violation;
use super::files::File;
use super::source;

/// Folders and files that may hold unsafe code.
const ALLOWED: [&str; 9] = [
    // Peers in C, and peers written by hand without any check.
    "benches/src/peers",
    "crates/arena",
    "crates/dpdk",
    "crates/dpdk-sys",
    "crates/flow",
    // Opening a device whose peer the user of a program trusts.
    "crates/ops/src/devices.rs",
    "crates/ring",
    "crates/stage/src/burst.rs",
    // `GlobalAlloc`, which counts allocations in tests, is an unsafe trait.
    "crates/testing/src/alloc_guard.rs",
];

/// How far above an unsafe block its comment may begin.
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
            } else if claims(&code[at..]) && !is_justified(&lines, line_index) {
                "no `SAFETY:` comment above"
            } else {
                return None;
            };
            Some(Violation::at(&file.path, line_index, what))
        })
        .collect()
}

/// Whether this code, which is without comments and literals, claims anywhere to be sound.
pub fn is_claimed(code: &str) -> bool {
    source::word_positions(code, "unsafe").any(|at| claims(&code[at..]))
}

/// A block or an impl claims to be sound; a function or trait only asks its caller to see to it.
fn claims(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    rest.starts_with('{') || rest.starts_with("impl")
}

/// The comment stands in the same paragraph, above the line or on it.
fn is_justified(lines: &[&str], line_index: usize) -> bool {
    lines[..=line_index]
        .iter()
        .rev()
        .take(COMMENT_LINES_MAX)
        .take_while(|line| !line.trim().is_empty())
        .any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = File { path: PathBuf::from(path), text: text.to_owned() };
        let violations = check(&file, &source::code_only(text));
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_in_a_safe_crate_is_found() {
        let text = "// SAFETY: 1. none.\nunsafe { f() }";
        let expected = ["crates/engine/src/a.rs:2: unsafe code may not stand here"];
        assert_eq!(found("crates/engine/src/a.rs", text), expected);
        assert_eq!(found("crates/dpdk-extra/src/a.rs", text).len(), 1);
        assert_eq!(found("crates/stage/src/lib.rs", text).len(), 1);
        assert_eq!(found("benches/src/row.rs", text).len(), 1);
        assert!(found("benches/src/peers/rte_ring.rs", text).is_empty());
        assert_eq!(found("benches/src/peers/rte_ring.rs", "unsafe { f() }").len(), 1);
        assert!(found("crates/stage/src/burst.rs", text).is_empty());
        assert!(found("crates/ring/src/a.rs", text).is_empty());
    }

    #[test]
    fn the_word_alone_is_not_unsafe_code() {
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
}
