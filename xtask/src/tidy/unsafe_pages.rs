//! That the pages of the crates which are unsafe inside list where, so that a reader finds all of it.

use std::path::Path;

use super::Violation;
use super::files::File;
use super::{source, unsafety};

/// The crates of the library that hold unsafe code.
const CRATES: [&str; 6] =
    ["crates/arena", "crates/dpdk", "crates/flow", "crates/ops", "crates/ring", "crates/stage"];

const HEADING: &str = "//! # Unsafe code";

/// Checks that each file of theirs with an unsafe block or impl is named in its crate's page.
pub fn check(files: &[File]) -> Vec<Violation> {
    CRATES.iter().flat_map(|folder| check_crate(&Path::new(folder).join("src"), files)).collect()
}

fn check_crate(sources: &Path, files: &[File]) -> Vec<Violation> {
    let root = sources.join("lib.rs");
    let page = files.iter().find(|file| file.path == root);
    let section = page.map_or("", |page| section(&page.text));
    let claims = |file: &&File| unsafety::is_claimed(&source::code_only(&file.text));
    let own = files.iter().filter(|file| file.is_rust() && file.path.starts_with(sources));
    own.filter(claims)
        .filter(|file| source::word_positions(section, module(&file.path)).next().is_none())
        .map(|file| {
            let what =
                format!("unsafe code that «Unsafe code» in {} does not list", root.display());
            Violation::new(file.path.display().to_string(), what)
        })
        .collect()
}

/// The section's lines, up to the next heading or the end of the page.
fn section(text: &str) -> &str {
    let Some((_, rest)) = text.split_once(HEADING) else { return "" };
    let end = rest
        .match_indices('\n')
        .find(|(at, _)| {
            let line = &rest[at + 1..];
            !line.starts_with("//!") || line.starts_with("//! # ")
        })
        .map_or(rest.len(), |(at, _)| at);
    &rest[..end]
}

/// The name that a file is known by: its own, or its folder's where it is a `mod.rs`.
fn module(path: &Path) -> &str {
    let named = if path.ends_with("mod.rs") { path.parent().unwrap_or(path) } else { path };
    named.file_stem().and_then(|name| name.to_str()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str, path: &str, text: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        check(&[file("crates/ring/src/lib.rs", page), file(path, text)]).len()
    }

    #[test]
    fn a_file_that_the_page_does_not_list_is_found() {
        let page = "//! A ring.\n//!\n//! # Unsafe code\n//!\n//! - `lines.rs`: one block.\n//!\n\
                    //! # Limits\n//!\n//! None in shared.\n\nmod shared;\n";
        let text = "// SAFETY: 1. so.\nunsafe { f() }";
        assert_eq!(found(page, "crates/ring/src/lines.rs", text), 0);
        assert_eq!(found(page, "crates/ring/src/lines/mod.rs", text), 0);
        assert_eq!(found(page, "crates/ring/src/shared.rs", text), 1);
        assert_eq!(found("//! A ring.\n", "crates/ring/src/lines.rs", text), 1);
    }

    #[test]
    fn only_claims_of_these_crates_count() {
        assert_eq!(found("", "crates/ring/src/a.rs", "/// # Safety\nunsafe fn f() {}"), 0);
        assert_eq!(found("", "crates/ring/tests/a.rs", "unsafe { f() }"), 0);
        assert_eq!(found("", "crates/dpdk-sys/src/a.rs", "unsafe { f() }"), 0);
        assert_eq!(found("", "crates/ring/src/a.rs", "unsafe impl Send for A {}"), 1);
    }
}
