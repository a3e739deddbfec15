//! `cargo xtask bench`: one group of benchmarks, beside its peers.

use crate::failure::Failure;
use crate::instructions::{self, Mode};
use crate::process;
use crate::setup::{self, Wanted};
use crate::workspace::Workspace;

/// The package that holds the groups.
pub const PACKAGE: &str = "hotloop-benches";

/// The groups that measure against dpdk-testpmd.
const AGAINST_TESTPMD: [&str; 2] = ["balancer", "forward"];

/// The groups that count instructions.
const BY_VALGRIND: [&str; 2] = ["balancer", instructions::GROUP];

/// Prints the groups there are.
pub fn list(workspace: &Workspace) -> Result<(), Failure> {
    for group in groups(workspace) {
        println!("{group}");
    }
    Ok(())
}

/// What is asked of a group.
pub struct Request<'a> {
    /// The group.
    pub group: &'a str,
    /// Compare with what is kept: only instruction counts are.
    pub check: bool,
    /// What is handed to the benchmark.
    pub arguments: &'a [String],
}

/// Sets up, builds and measures a group. The benchmark itself prints the table and writes the JSON;
/// instructions are counted from here, as callgrind runs the benchmark.
pub fn run(workspace: &Workspace, request: &Request<'_>) -> Result<(), Failure> {
    let Request { group, check, arguments } = *request;
    let groups = groups(workspace);
    if !groups.contains(&group) {
        let known = if groups.is_empty() { "none yet".to_owned() } else { groups.join(", ") };
        return Err(Failure::refused(format!("no benchmark group `{group}`; there are: {known}")));
    }
    let is_count = group == instructions::GROUP;
    if check && !is_count {
        return Err(Failure::refused(format!(
            "only `{}` can be checked: the figures of `{group}` are of this machine and this hour",
            instructions::GROUP
        )));
    }
    if is_count && !arguments.is_empty() {
        return Err(Failure::refused(format!("`{group}` takes no arguments of its own")));
    }
    let testpmd = AGAINST_TESTPMD.contains(&group);
    let valgrind = BY_VALGRIND.contains(&group);
    setup::ensure(Wanted { testpmd, valgrind, ..Wanted::default() })?;
    if is_count {
        return instructions::run(workspace, if check { Mode::Check } else { Mode::Keep });
    }
    let mut command = process::cargo(&["bench", "--package", PACKAGE, "--bench", group, "--"]);
    process::run(command.args(arguments))
}

fn groups(workspace: &Workspace) -> Vec<&str> {
    let benches = workspace.packages.iter().filter(|package| package.name == PACKAGE);
    let targets = benches.flat_map(|package| &package.targets);
    targets.filter(|target| target.is("bench")).map(|target| target.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a group with these flags is refused, before anything is set up.
    fn refusal(group: &str, check: bool, arguments: &[String]) -> String {
        let json = r#"{"workspace_root": "/w", "target_directory": "/w/target", "packages": [{
            "name": "hotloop-benches", "description": null, "manifest_path": "/w/Cargo.toml",
            "dependencies": [], "targets": [
                {"name": "forward", "kind": ["bench"], "src_path": "/w/a.rs"},
                {"name": "instructions", "kind": ["bench"], "src_path": "/w/b.rs"}]}]}"#;
        let workspace = serde_json::from_str(json).unwrap();
        let failure = run(&workspace, &Request { group, check, arguments }).unwrap_err();
        assert_eq!(failure.exit_code, 2);
        failure.to_string()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let unknown = refusal("rings", false, &[]);
        assert_eq!(unknown, "no benchmark group `rings`; there are: forward, instructions");
        assert!(refusal("forward", true, &[]).starts_with("only `instructions` can be checked"));
        assert!(refusal("instructions", true, &["x".into()]).ends_with("no arguments of its own"));
    }
}
