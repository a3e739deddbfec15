//! The packages: the dependencies that each may have, and its description and page.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::workspace::{Package, Workspace};

use super::Violation;

/// The page that draws every package. A package may depend only on those in lower rows, so the graph
/// has no cycle. Dependencies of tests and builds are free.
const DRAWING_PAGE: &str = "docs/architecture.md";

/// The heading above the drawing.
const DRAWING_HEADING: &str = "## The crates";

/// The minimum number of lines of a library's page.
const PAGE_LINES_MIN: usize = 5;

/// Checks every package.
pub fn check(workspace: &Workspace) -> Result<Vec<Violation>, Failure> {
    let root = &workspace.workspace_root;
    let path = root.join(DRAWING_PAGE);
    let architecture = fs::read_to_string(&path).map_err(Failure::file("read", &path))?;
    let mut violations = graph(&workspace.packages, &architecture);
    for package in &workspace.packages {
        if package.description.as_ref().is_none_or(|text| text.trim().is_empty()) {
            violations.push(Violation::new(&package.name, "has no description"));
        }
        let is_library = package.folder().starts_with(root.join("crates"));
        for target in package.targets.iter().filter(|target| target.is("lib") || target.is("bin")) {
            let path = &target.src_path;
            let text = fs::read_to_string(path).map_err(Failure::file("read", path))?;
            violations.extend(page(path.strip_prefix(root).unwrap_or(path), &text, is_library));
        }
    }
    Ok(violations)
}

/// Compares the normal dependencies between packages of the workspace with the drawing.
fn graph(packages: &[Package], architecture: &str) -> Vec<Violation> {
    let rows = rows(architecture);
    let short = |name: &str| name.strip_prefix("hotloop-").unwrap_or(name).to_owned();
    let is_package = |drawn: &str| packages.iter().any(|package| short(&package.name) == drawn);
    let unknown = rows.keys().filter(|drawn| !is_package(drawn));
    let mut violations: Vec<_> = unknown
        .map(|drawn| Violation::new(DRAWING_PAGE, format!("draws {drawn}, which is no package")))
        .collect();
    for package in packages {
        let Some(row) = rows.get(&*short(&package.name)) else {
            let what = format!("is not in the drawing of {DRAWING_PAGE}");
            violations.push(Violation::new(&package.name, what));
            continue;
        };
        let normal = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.is_none() && dependency.path.is_some());
        for dependency in normal {
            if rows.get(&*short(&dependency.name)).is_none_or(|lower| lower >= row) {
                let name = &dependency.name;
                let what =
                    format!("may not depend on {name}: no lower row of {DRAWING_PAGE} has it");
                violations.push(Violation::new(&package.name, what));
            }
        }
    }
    violations
}

/// The rows of the drawing, by package, counted from the lowest. Names stand before the line's `│`.
fn rows(architecture: &str) -> HashMap<&str, usize> {
    let below_heading = architecture.split_once(DRAWING_HEADING).map_or("", |(_, below)| below);
    // The first line is the rest of the fence's.
    let lines = below_heading.split("```").nth(1).unwrap_or_default().lines().skip(1);
    let lines: Vec<_> = lines.filter_map(|line| line.split('│').next()).collect();
    let lowest_first = lines.iter().rev().enumerate();
    lowest_first
        .flat_map(|(row, line)| line.split_whitespace().map(move |name| (name, row)))
        .collect()
}

/// The first line of a program describes it; a library has a page with an example.
fn page(path: &Path, text: &str, is_library: bool) -> Option<Violation> {
    let page: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let what = if page.is_empty() {
        "does not begin with `//!`"
    } else if is_library && page.len() < PAGE_LINES_MIN {
        "its page is too short to say what it is, what it guarantees and what it does not"
    } else if is_library && !page.iter().any(|line| line.contains("```")) {
        "its page has no example"
    } else {
        return None;
    };
    Some(Violation::at(path, 0, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str =
        "## The crates\n\n```text\n engine  dpdk │ on stages\n ring │ below\n```\n";

    fn package(name: &str, on: &str, kind: &str) -> Package {
        let json = format!(
            r#"{{"name": "{name}", "description": "", "manifest_path": "/w/Cargo.toml", "targets": [],
                "dependencies": [{{"name": "{on}", "kind": {kind}, "path": "/w/x"}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    /// The violations in a workspace of the drawn packages, one of them with a dependency.
    fn found(name: &str, on: &str, kind: &str) -> Vec<String> {
        let mut packages = vec![package(name, on, kind)];
        let others = ["hotloop-engine", "hotloop-dpdk", "hotloop-ring"]
            .iter()
            .filter(|other| **other != name);
        packages.extend(others.map(|other| package(other, "x", "\"dev\"")));
        graph(&packages, DRAWING).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn forbidden_dependencies_unknown_packages_and_missing_descriptions_are_found() {
        for (name, on) in [("engine", "dpdk"), ("ring", "engine"), ("ring", "extra")] {
            let expected = format!(
                "hotloop-{name}: may not depend on hotloop-{on}: no lower row of docs/architecture.md has it"
            );
            let found = found(&format!("hotloop-{name}"), &format!("hotloop-{on}"), "null");
            assert_eq!(found, [expected]);
        }
        assert_eq!(found("hotloop-engine", "hotloop-ring", "null"), [""; 0]);
        assert_eq!(found("hotloop-ring", "hotloop-engine", "\"dev\""), [""; 0]);

        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        fs::write(root.path().join(DRAWING_PAGE), DRAWING.replace("engine  dpdk", "")).unwrap();
        let workspace = Workspace {
            packages: vec![package("hotloop-ring", "x", "\"dev\"")],
            workspace_root: root.path().to_path_buf(),
            target_directory: root.path().join("target"),
        };
        let undescribed = Violation::new("hotloop-ring", "has no description");
        assert_eq!(check(&workspace).unwrap(), [undescribed]);
    }

    #[test]
    fn packages_that_are_not_drawn_and_drawn_names_without_a_package_are_found() {
        let expected = ["hotloop-extra: is not in the drawing of docs/architecture.md"];
        assert_eq!(found("hotloop-extra", "hotloop-ring", "null"), expected);
        let packages =
            [package("hotloop-engine", "x", "\"dev\""), package("hotloop-ring", "x", "\"dev\"")];
        let expected = Violation::new(DRAWING_PAGE, "draws dpdk, which is no package");
        assert_eq!(graph(&packages, DRAWING), [expected]);
    }

    #[test]
    fn a_missing_or_short_page_is_found() {
        let what = |text: &str, is_library| {
            page(Path::new("lib.rs"), text, is_library).map(|violation| violation.what)
        };
        let page = "//! A ring.\n//!\n//! ```\n//! ring();\n//! ```\n\nmod ring;\n";
        assert_eq!(what(page, true), None);
        assert!(what("mod ring;\n//! Late.\n", true).unwrap().contains("begin with"));
        assert!(what("//! Stub.\n", true).unwrap().contains("too short"));
        assert!(what(&page.replace("```", ""), true).unwrap().contains("no example"));
        assert_eq!(what("//! Forwards.\nfn main() {}\n", false), None);
        assert!(what("fn main() {}\n", false).is_some());
    }
}
