//! Which modules of a package may use which: those on lower floors.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::Violation;
use super::files::File;
use super::source;

/// The top modules of packages that have many, by folder and floor, the lowest first. A module may use
/// modules of lower floors only, so that no two use each other, not even by way of others. Unit tests
/// are free, and so are `lib.rs` and `main.rs`, which are above all floors.
#[rustfmt::skip]
const FLOORS: &[(&str, &[&[&str]])] = &[
    ("crates/watch/src", &[&["place"], &["load"], &["snapshot"], &["tap"]]),
    ("crates/engine/src", &[
        // Plain values, and the trait of a part of a graph.
        &["clock", "deployment", "idle", "node_info", "panic_origin", "settle", "sources", "topology", "turn"],
        &["placement", "per_core", "wait", "worker"],
        // Between cores, and from control to cores.
        &["ledger", "mailbox", "publish"],
        &["chain", "report"],
        &["assembly", "monitor", "report_text"],
        &["control"],
        &["thread"],
        &["engine"],
    ]),
    ("crates/balancer/src", &[
        &["capture_order", "excerpt", "maglev", "own_header", "route", "state"],
        &["prefix", "exceptions"],
        &["blocks", "hashes"],
        &["spec"],
        &["classify", "limits", "rules"],
        &["services"],
        &["connection", "counts"],
        &["connections"],
        &["balance", "vlan"],
    ]),
    ("crates/cluster/src", &[&["random", "settings"], &["store", "sync"]]),
    ("crates/files/src", &[&["file", "kept_file"], &["certificates"]]),
    ("examples/ipip-lb/src", &[
        &["dropped", "exception_mover", "failure", "until"],
        &["config", "outcome", "vip_guard"],
        &["check", "exception", "health", "hugepages", "request"],
        &["announce", "ctl", "next_hops", "overrides", "store"],
        &["network_function", "port_hops", "replace", "source"],
        &["cli", "control"],
        &["replay", "run"],
    ]),
];

/// Modules above all floors.
const ROOTS: [&str; 2] = ["lib", "main"];

/// Every use of a module that is not on a lower floor, and modules that [`FLOORS`] lacks or has too many of.
pub fn check(files: &[File]) -> Vec<Violation> {
    FLOORS.iter().flat_map(|(folder, floors)| check_package(files, folder, floors)).collect()
}

fn check_package(files: &[File], folder: &str, floors: &[&[&str]]) -> Vec<Violation> {
    let floor_of: HashMap<&str, usize> = floors
        .iter()
        .enumerate()
        .flat_map(|(floor, modules)| modules.iter().map(move |module| (*module, floor)))
        .collect();
    let sources = files.iter().filter_map(|file| {
        let path = file.path.strip_prefix(folder).ok().filter(|_| file.is_rust())?;
        let is_of_tests =
            path.file_stem().is_some_and(|stem| stem == "tests") || file.is_in_tests();
        (!is_of_tests).then(|| (file, module_path(path), production_code(&file.text)))
    });
    let sources: Vec<_> = sources.collect();
    let lib = sources.iter().find(|(_, path, _)| path.first().is_some_and(|it| it == "lib"));
    let exported = lib.map(|(.., code)| exported(code)).unwrap_or_default();
    let mut violations = Vec::new();
    let mut found = BTreeSet::new();
    for (file, path, code) in &sources {
        let Some(module) = path.first().filter(|it| !ROOTS.contains(&it.as_str())) else {
            continue;
        };
        found.insert(module.as_str());
        let Some(floor) = floor_of.get(module.as_str()) else {
            let what = format!("{module} has no floor in xtask/src/tidy/layers.rs");
            violations.push(Violation::at(&file.path, 0, what));
            continue;
        };
        for (at, name) in uses(code, path.len()) {
            let used = exported.get(name).map_or(name, String::as_str);
            let is_lower = floor_of.get(used).is_none_or(|it| it < floor);
            if used != module && !is_lower {
                let what = format!("{module} may not use {used}, which is not on a lower floor");
                violations.push(Violation::at(&file.path, source::line_index(code, at), what));
            }
        }
    }
    let missing = floor_of.keys().filter(|module| !sources.is_empty() && !found.contains(*module));
    violations.extend(missing.map(|it| Violation::new(folder, format!("has no module {it}"))));
    violations
}

/// The module that a file is, from the top module on: `["a", "b"]` for `a/b.rs`.
fn module_path(path: &Path) -> Vec<String> {
    let names = path.with_extension("");
    let names: Vec<_> = names.iter().map(|it| it.to_string_lossy().into_owned()).collect();
    match names.split_last() {
        Some((last, folders)) if last == "mod" => folders.to_vec(),
        _ => names,
    }
}

/// Code without comments, literals and the module of unit tests, which ends a file.
fn production_code(text: &str) -> String {
    let mut code = source::code_only(text);
    if let Some(end) = code.find("#[cfg(test)]\nmod ") {
        code.truncate(end);
    }
    code
}

/// The names that `lib.rs` re-exports, with the modules that they are from.
fn exported(code: &str) -> HashMap<String, String> {
    let mut exported = HashMap::new();
    for at in source::word_positions(code, "use") {
        let path = code[at + 3..].split(';').next().unwrap_or("").trim_start();
        let Some((module, names)) = path.split_once("::") else { continue };
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        exported.extend(names.map(|name| (name.to_owned(), module.to_owned())));
    }
    exported
}

/// The first name of each path that begins at the root of the package, with its position. The code is
/// of a module that is `depth` modules below the root.
fn uses(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let of_crate =
        source::word_positions(code, "crate").map(|at| (at, &code[at + "crate".len()..]));
    let first_super = |at: &usize| !code[..*at].ends_with("super::");
    let of_super = source::word_positions(code, "super").filter(first_super).filter_map(|at| {
        let mut rest = &code[at..];
        for step in 0..depth {
            rest = if step == 0 { rest } else { rest.strip_prefix("::")? };
            rest = rest.strip_prefix("super")?;
        }
        Some((at, rest))
    });
    let rests = of_crate.chain(of_super);
    rests.filter_map(|(at, rest)| Some((at, rest.strip_prefix("::")?))).flat_map(names).collect()
}

/// The first names of what follows `crate::`: one, or those of a list in braces.
fn names((at, rest): (usize, &str)) -> Vec<(usize, &str)> {
    let Some(list) = rest.strip_prefix('{') else { return vec![(at, name(rest))] };
    let (mut depth, mut names, mut begins) = (0, Vec::new(), true);
    for (index, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !c.is_whitespace() => {
                names.push((at, name(&list[index..])));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &[&[&str]] = &[&["low"], &["middle", "beside"], &["high"]];

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let all = [
            ("p/src/low.rs", ""),
            ("p/src/middle.rs", ""),
            ("p/src/beside.rs", ""),
            ("p/src/high.rs", ""),
        ];
        let given = |path: &str| files.iter().find(|(it, _)| *it == path).map(|(_, text)| *text);
        let files = all
            .iter()
            .map(|(path, _)| (*path, given(path).unwrap_or("")))
            .chain(files.iter().copied().filter(|(path, _)| !all.iter().any(|(it, _)| it == path)));
        let files: Vec<_> =
            files.map(|(path, text)| File { path: path.into(), text: text.to_owned() }).collect();
        check_package(&files, "p/src", FLOORS).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_import_from_the_same_or_a_higher_floor_is_found_at_its_line() {
        assert_eq!(
            found(&[("p/src/high.rs", "use crate::low::A;\nuse crate::{middle::B, beside};\n")]),
            [""; 0]
        );
        let what =
            |module, used| format!("{module} may not use {used}, which is not on a lower floor");
        for (path, text, expected) in [
            (
                "p/src/low.rs",
                "\nuse crate::high::A;\n",
                format!("p/src/low.rs:2: {}", what("low", "high")),
            ),
            (
                "p/src/middle.rs",
                "use crate::{low::{A, B}, beside::C};",
                format!("p/src/middle.rs:1: {}", what("middle", "beside")),
            ),
            (
                "p/src/low/deep.rs",
                "use super::super::middle::A;",
                format!("p/src/low/deep.rs:1: {}", what("low", "middle")),
            ),
            (
                "p/src/low/mod.rs",
                "fn f() { super::high::g() }",
                format!("p/src/low/mod.rs:1: {}", what("low", "high")),
            ),
            (
                "p/src/low.rs",
                "// crate::high\nfn f(_: crate::high::A) {}",
                format!("p/src/low.rs:2: {}", what("low", "high")),
            ),
        ] {
            assert_eq!(found(&[(path, text)]), [expected]);
        }
    }

    #[test]
    fn names_that_the_root_exports_count_as_of_their_modules() {
        let lib = ("p/src/lib.rs", "mod high;\npub use high::{Top, Other};\n");
        let what = "p/src/low.rs:1: low may not use high, which is not on a lower floor";
        assert_eq!(found(&[lib, ("p/src/low.rs", "use crate::Top;")]), [what]);
        assert_eq!(found(&[lib, ("p/src/low.rs", "use crate::Free;")]), [""; 0]);
    }

    #[test]
    fn tests_and_a_modules_own_parts_are_free() {
        let own = ("p/src/low/deep.rs", "use super::A;\nuse crate::low::B;");
        let test = ("p/src/low.rs", "#[cfg(test)]\nmod tests {\n    use crate::high::A;\n}\n");
        assert_eq!(found(&[own, test, ("p/src/low/tests.rs", "use crate::high::A;")]), [""; 0]);
    }

    #[test]
    fn modules_without_a_floor_and_floors_without_a_module_are_found() {
        let new = found(&[("p/src/new.rs", "")]);
        assert_eq!(new, ["p/src/new.rs:1: new has no floor in xtask/src/tidy/layers.rs"]);
        let files = [File { path: "p/src/low.rs".into(), text: String::new() }];
        assert_eq!(check_package(&files, "p/src", FLOORS).len(), 3);
    }
}
