//! Checks that each public item named in docs/functions.md exists.

use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/functions.md");

/// All public items, as `cargo xtask check` compares them with the crates.
fn items() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/hotloop/api");
    let lists = fs::read_dir(folder).expect("the lists are kept");
    lists.map(|list| fs::read_to_string(list.unwrap().path()).expect("a list is text")).collect()
}

#[test]
fn each_item_of_the_page_is_public() {
    let items = items();
    let spans = PAGE.split('`').skip(1).step_by(2);
    let paths: Vec<_> = spans.filter(|span| span.contains("::") && !span.contains('(')).collect();
    assert!(paths.len() > 60, "{paths:?}");
    let is_there = |path: &str| {
        let ends = ['(', '<', '\n', ' '];
        // A method of a generic type has the type's parameters between.
        let (of, name) = path.rsplit_once("::").expect("a path");
        items.lines().any(|line| {
            line.split(ends).any(|word| word.ends_with(&format!("::{path}")))
                || line.contains(&format!("::{of}<")) && line.contains(&format!(">::{name}"))
        })
    };
    let unknown: Vec<_> = paths.iter().filter(|path| !is_there(path)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
