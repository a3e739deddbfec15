//! The packages: the dependencies that each may have, and its description and page.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::workspace::{Package, Workspace};

use super::Violation;

/// Every package, with the workspace packages that it may depend on. A package comes after those it
/// depends on, so the graph has no cycle. Dependencies of tests and builds are free.
#[rustfmt::skip]
const ALLOWED: &[(&str, &[&str])] = &[
    ("hotloop-packet", &[]),
    ("hotloop-ring", &[]),
    ("hotloop-arena", &[]),
    ("hotloop-dpdk-sys", &[]),
    ("hotloop-privileges", &[]),
    ("hotloop-capture", &[]),
    ("hotloop-files", &[]),
    ("hotloop-flow", &["hotloop-arena", "hotloop-packet"]),
    ("hotloop-stage", &["hotloop-packet", "hotloop-ring"]),
    ("hotloop-neighbours", &["hotloop-packet", "hotloop-stage"]),
    ("hotloop-watch", &["hotloop-stage", "hotloop-ring"]),
    ("hotloop-engine", &["hotloop-stage", "hotloop-ring", "hotloop-watch"]),
    ("hotloop-dpdk", &["hotloop-stage", "hotloop-packet", "hotloop-dpdk-sys"]),
    ("hotloop-testing", &["hotloop-stage", "hotloop-engine", "hotloop-packet"]),
    ("hotloop-machine", &["hotloop-engine"]),
    // hotloop-dpdk only under its feature.
    ("hotloop-kernel", &["hotloop-packet", "hotloop-stage", "hotloop-ring", "hotloop-neighbours",
        "hotloop-engine", "hotloop-dpdk", "hotloop-privileges"]),
    // hotloop-dpdk only under its feature.
    ("hotloop-ops", &["hotloop-stage", "hotloop-engine", "hotloop-dpdk", "hotloop-privileges",
        "hotloop-capture", "hotloop-machine"]),
    ("hotloop-top", &["hotloop-ops"]),
    // hotloop-kernel only under its feature.
    ("hotloop-doctor", &["hotloop-kernel", "hotloop-machine", "hotloop-ops"]),
    // hotloop-testing only under its feature, for the tests of the library's users.
    ("hotloop", &["hotloop-packet", "hotloop-ring", "hotloop-arena", "hotloop-flow", "hotloop-stage",
        "hotloop-neighbours", "hotloop-engine", "hotloop-dpdk", "hotloop-testing", "hotloop-privileges",
        "hotloop-capture", "hotloop-machine", "hotloop-ops", "hotloop-doctor"]),
    ("hotloop-balancer", &["hotloop"]),
    ("hotloop-cluster", &["hotloop", "hotloop-balancer", "hotloop-files", "hotloop-privileges"]),
    ("hello-forward", &["hotloop", "hotloop-ops"]),
    ("nat44", &["hotloop", "hotloop-ops"]),
    ("rate-limit", &["hotloop", "hotloop-ops"]),
    ("ipip-lb", &["hotloop", "hotloop-balancer", "hotloop-capture", "hotloop-cluster", "hotloop-files",
        "hotloop-kernel", "hotloop-ops", "hotloop-privileges"]),
    ("ipip-endpoint", &["hotloop", "hotloop-ops"]),
    ("udp", &["hotloop", "hotloop-ops"]),
    ("hotloop-measure", &[]),
    ("hotloop-benches", &["hotloop", "hotloop-balancer", "hotloop-capture", "hotloop-cluster",
        "hotloop-measure", "hotloop-ops", "ipip-lb", "udp"]),
    ("hotloop-instructions", &["hotloop"]),
    ("hotloop-fuzz", &["hotloop", "hotloop-balancer", "hotloop-capture", "hotloop-cluster",
        "hotloop-dpdk", "hotloop-kernel", "hotloop-ops", "hotloop-packet", "ipip-lb"]),
    ("hotloop-test-tools", &[]),
    ("hotloop-tests", &["hotloop", "hotloop-balancer", "hotloop-capture", "hotloop-kernel",
        "hotloop-ops", "hotloop-privileges", "hotloop-test-tools", "ipip-lb"]),
    ("hotloop-packaging", &["hotloop-doctor", "hotloop-ops", "hotloop-top", "ipip-lb",
        "ipip-endpoint", "udp"]),
    ("xtask", &[]),
];

/// The minimum number of lines of a library's page.
const PAGE_LINES_MIN: usize = 5;

/// Checks every package.
pub fn check(workspace: &Workspace) -> Result<Vec<Violation>, Failure> {
    let root = &workspace.workspace_root;
    let mut violations = Vec::new();
    for package in &workspace.packages {
        violations.extend(dependencies(package));
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

/// Checks the normal dependencies of a package on others of the workspace.
fn dependencies(package: &Package) -> Vec<Violation> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
        let what = "not in the table of xtask/src/tidy/packages.rs";
        return vec![Violation::new(&package.name, what)];
    };
    let normal = package.dependencies.iter().filter(|it| it.kind.is_none() && it.path.is_some());
    normal
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| {
            Violation::new(&package.name, format!("may not depend on {}", dependency.name))
        })
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

    /// The violations of a package with one dependency.
    fn found(name: &str, on: &str, kind: &str) -> Vec<Violation> {
        let json = format!(
            r#"{{"workspace_root": "/w", "target_directory": "/w/target", "packages": [{{
                "name": "{name}", "description": " ", "manifest_path": "/w/Cargo.toml",
                "dependencies": [{{"name": "{on}", "kind": {kind}, "path": "/w/x"}}],
                "targets": []}}]}}"#
        );
        check(&serde_json::from_str(&json).unwrap()).unwrap()
    }

    #[test]
    fn forbidden_dependencies_unknown_packages_and_missing_descriptions_are_found() {
        let undescribed = |name| Violation::new(name, "has no description");
        let violations = found("hotloop-engine", "hotloop-dpdk", "null");
        let forbidden = Violation::new("hotloop-engine", "may not depend on hotloop-dpdk");
        assert_eq!(violations, [forbidden, undescribed("hotloop-engine")]);
        for (name, on, kind) in [
            ("hotloop-engine", "hotloop-ring", "null"),
            ("hotloop-engine", "hotloop-testing", "\"dev\""),
        ] {
            assert_eq!(found(name, on, kind), [undescribed(name)]);
        }
        assert_eq!(found("hotloop-extra", "hotloop-ring", "null").len(), 2);
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for below in *allowed {
                let stands_above = ALLOWED[..index].iter().any(|(other, _)| other == below);
                assert!(stands_above, "{name} -> {below}");
            }
        }
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
