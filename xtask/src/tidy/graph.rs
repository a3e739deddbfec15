//! The crates' graph: who may depend on whom.

use crate::workspace::Workspace;

use super::Violation;

/// Every package, with all of ours that it may normally depend on. A package stands below those it
/// depends on, so the graph has no cycle. What tests and builds depend on is free.
const ALLOWED: [(&str, &[&str]); 20] = [
    ("hotloop-packet", &[]),
    ("hotloop-ring", &[]),
    ("hotloop-arena", &[]),
    ("hotloop-dpdk-sys", &[]),
    ("hotloop-flow", &["hotloop-arena", "hotloop-packet"]),
    ("hotloop-stage", &["hotloop-packet"]),
    ("hotloop-engine", &["hotloop-stage", "hotloop-ring"]),
    ("hotloop-dpdk", &["hotloop-stage", "hotloop-packet", "hotloop-dpdk-sys"]),
    ("hotloop-testing", &["hotloop-stage", "hotloop-engine", "hotloop-packet"]),
    (
        "hotloop",
        &[
            "hotloop-packet",
            "hotloop-ring",
            "hotloop-arena",
            "hotloop-flow",
            "hotloop-stage",
            "hotloop-engine",
            "hotloop-dpdk",
            // Only under its feature, for the tests of those who use the library.
            "hotloop-testing",
        ],
    ),
    ("hotloop-ops", &["hotloop-stage", "hotloop-ring", "hotloop-engine", "hotloop-dpdk"]),
    ("hello-forward", &["hotloop", "hotloop-ops"]),
    ("ipip-lb", &["hotloop", "hotloop-ops"]),
    ("ipip-endpoint", &["hotloop", "hotloop-ops"]),
    ("udp-sink", &["hotloop", "hotloop-ops"]),
    ("udp-source", &["hotloop", "hotloop-ops", "udp-sink"]),
    ("hotloop-benches", &["hotloop", "ipip-lb"]),
    ("hotloop-fuzz", &["hotloop", "hotloop-dpdk", "hotloop-ops", "hotloop-packet", "ipip-lb"]),
    ("hotloop-tests", &["hotloop", "hotloop-ops", "ipip-lb"]),
    ("xtask", &[]),
];

/// Checks every normal dependency between packages of the workspace.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &workspace.packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            let what = "not in tidy's table of what may depend on what";
            violations.push(Violation::new(&package.name, what));
            continue;
        };
        let normal = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.is_none() && dependency.path.is_some());
        for dependency in normal.filter(|dependency| !allowed.contains(&dependency.name.as_str())) {
            let what = format!("may not depend on {}", dependency.name);
            violations.push(Violation::new(&package.name, what));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of one package with one dependency.
    fn depending(name: &str, on: &str, kind: &str) -> Workspace {
        let json = format!(
            r#"{{"workspace_root": "/w", "target_directory": "/w/target", "packages": [{{
                "name": "{name}", "description": null, "manifest_path": "/w/Cargo.toml",
                "dependencies": [{{"name": "{on}", "kind": {kind}, "path": "/w/x"}}],
                "targets": []}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_forbidden_edge_is_found() {
        let violations = check(&depending("hotloop-engine", "hotloop-dpdk", "null"));
        assert_eq!(
            violations,
            [Violation::new("hotloop-engine", "may not depend on hotloop-dpdk")]
        );
        assert_eq!(check(&depending("hotloop-ring", "hotloop-stage", "null")).len(), 1);
    }

    #[test]
    fn allowed_edges_and_those_of_tests_pass() {
        assert_eq!(check(&depending("hotloop-engine", "hotloop-ring", "null")), []);
        assert_eq!(check(&depending("hotloop-engine", "hotloop-testing", "\"dev\"")), []);
    }

    #[test]
    fn an_unknown_package_is_found() {
        assert_eq!(check(&depending("hotloop-extra", "hotloop-ring", "null")).len(), 1);
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
}
