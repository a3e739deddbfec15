//! The alert rules for Prometheus: promtool understands them, each fires as its test requires, and
//! the metrics are those of the programs.

use hotloop_test_tools::tool;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const RULES: &str = "ipip-lb.rules.yml";

/// The metrics of a configuration with a store or with announced VIPs, which the schema lacks.
const UNLISTED: [&str; 3] =
    ["ipip_lb_store_revision", "ipip_lb_store_unread_seconds", "ipip_lb_vip_withheld"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The texts after `key` in each line that begins with it.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim_start().strip_prefix(key))
}

/// Runs the tests of the rules with these rules. An error has promtool's output.
fn test(rules: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(RULES), rules).unwrap();
    let file = folder.path().join("test.yml");
    fs::write(&file, read("packaging/prometheus/ipip-lb.test.yml")).unwrap();
    let output = tool("promtool").unwrap().args(["test", "rules"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

#[test]
fn each_alert_fires_as_its_test_requires() {
    let rules = read("packaging/prometheus/ipip-lb.rules.yml");
    let tests = read("packaging/prometheus/ipip-lb.test.yml");
    let alerts: BTreeSet<_> = values(&rules, "- alert: ").collect();
    let tested: BTreeSet<_> = values(&tests, "alertname: ").collect();
    assert!(alerts.len() > 20 && alerts == tested, "{alerts:?} {tested:?}");
    if let Err(why) = tool("promtool") {
        return println!("skipped: {why}");
    }
    assert_eq!(test(&rules), Ok(()));
    for (text, other) in [("> 0.9\n", "> 0.99\n"), ("for: 1h", "for: 3h"), ("== 0 and", "== 1 and")]
    {
        let wrong = rules.replace(text, other);
        assert!(wrong != rules && test(&wrong).unwrap_err().contains("FAILED"), "{text}");
    }
}

#[test]
fn the_metrics_of_alerts_are_those_of_the_programs() {
    let rules = read("packaging/prometheus/ipip-lb.rules.yml");
    let schema = read("docs/reference/schema.json");
    let names = rules.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    let prefixes = ["ipip_lb_", "hotloop_", "process_"];
    let names: BTreeSet<_> =
        names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let is_listed = schema.contains(&format!("\"{name}\""));
        assert!(is_listed || UNLISTED.contains(&name), "{name}");
    }
}
