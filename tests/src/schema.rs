//! The names in programs' interfaces: those of metrics, of drop reasons, and the keys of JSON in
//! reports and in answers to `ctl`.
//!
//! `docs/reference/schema.json` has them, with a version. Each program has a test that runs it and calls
//! [`check`]. After a change, the test fails until it is run with `HOTLOOP_SCHEMA=write`, which
//! writes the current names under the version after [`SCHEMA_VERSION`]; that must be updated by
//! hand.

use crate::prometheus::get;
use crate::{Program, free_address, wait_until};
use hotloop_ops::{METRICS, Metric, MetricKind, SCHEMA_VERSION};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::Command;

/// The path of the schema.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/schema.json");

/// Objects with keys that are names of other things.
const MAPS: [&str; 3] = ["dropped", "gauges", "xstats"];

/// The outputs of a program.
#[derive(Debug)]
pub struct Said {
    /// The metrics, in Prometheus's text format.
    pub metrics: String,
    /// The report.
    pub report: Value,
    /// The answers, each with its command.
    pub answers: Vec<(&'static str, Value)>,
}

/// Runs a program with these arguments, and checks its outputs.
///
/// # Panics
/// As for [`check`].
pub fn run_and_check(name: &str, program: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("there is room for files");
    let control = folder.path().join("program.sock");
    let address = free_address();
    let mut command = Command::new(program);
    command.args(arguments).args(["--report", "json", "--control"]).arg(&control);
    command.args(["--metrics", &address.to_string()]);
    let program = Program::start(command, &control);
    let mut metrics = String::new();
    wait_until("it serves metrics", || {
        metrics = get(address, "/metrics").unwrap_or_default();
        !metrics.is_empty()
    });
    let answers = ["status", "counters", "xstats"];
    let answers = answers
        .map(|command| (command, program.ask(command).expect("the program answers")))
        .to_vec();
    let (report, _) = program.end();
    check(name, &Said { metrics, report, answers });
}

/// Compares a program's outputs with the schema.
///
/// # Panics
/// If they differ, or if the schema was changed without its version.
pub fn check(program: &str, said: &Said) {
    let found = found(said);
    let mut file = File::options().read(true).write(true).open(PATH).expect("there is a schema");
    // Tests of several programs run at the same time.
    file.lock().expect("it can be locked");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("it is text");
    let mut schema: Value = serde_json::from_str(&text).expect("it is JSON");
    let common: BTreeMap<_, _> = METRICS.iter().map(described).collect();
    let is_same = schema["metrics"] == json!(common) && schema["programs"][program] == found;
    if std::env::var_os("HOTLOOP_SCHEMA").is_some_and(|value| value == "write") {
        if !is_same {
            schema["metrics"] = json!(common);
            schema["programs"][program] = found;
            schema["version"] = (SCHEMA_VERSION + 1).into();
            schema["digest"] = digest(&schema).into();
            let text = format!("{schema:#}\n");
            file.set_len(0).and_then(|()| file.rewind()).expect("it can be written");
            file.write_all(text.as_bytes()).expect("it can be written");
        }
        return;
    }
    let what = "HOTLOOP_SCHEMA=write cargo test schema writes what is, with the next version";
    assert_eq!(schema["metrics"], json!(common), "metrics have changed: {what}");
    assert_eq!(schema["programs"][program], found, "{program} has changed: {what}");
    assert_eq!(schema["digest"], digest(&schema), "the schema was changed by hand: {what}");
    assert_eq!(schema["version"], SCHEMA_VERSION, "SCHEMA_VERSION of hotloop-ops has to follow");
}

/// The schema's entry for a metric.
fn described(metric: &Metric) -> (&'static str, String) {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
    };
    (metric.name, format!("{kind} {{{}}}", metric.labels.join(",")))
}

/// The schema's entry for a program.
fn found(said: &Said) -> Value {
    let mut types = BTreeMap::new();
    let mut metrics = BTreeMap::new();
    let mut drop_reasons = BTreeMap::<_, BTreeSet<_>>::new();
    for line in said.metrics.lines() {
        if let Some(line) = line.strip_prefix("# TYPE ") {
            types.extend(line.split_once(' '));
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, labels) = sample(line);
        let names: Vec<_> = labels.iter().map(|(name, _)| *name).collect();
        metrics.insert(name, format!("{} {{{}}}", types[name], names.join(",")));
        if name == "hotloop_packets_dropped_total" {
            drop_reasons.entry(labels[1].1).or_default().insert(labels[2].1);
        }
    }
    for (name, description) in METRICS.iter().map(described) {
        let is_as_listed = metrics.remove(name).is_none_or(|found| found == description);
        assert!(is_as_listed, "{name} is not {description}");
    }
    let answers = said.answers.iter().map(|(command, answer)| (*command, keys(answer)));
    let answers: BTreeMap<_, _> = answers.collect();
    json!({
        "metrics": metrics,
        "drop_reasons": drop_reasons,
        "report": keys(&said.report),
        "ctl": answers,
    })
}

/// The name of a sample, and its labels with their values.
fn sample(line: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, rest)) = line.split_once('{') else {
        return (line.split(' ').next().unwrap_or_default(), Vec::new());
    };
    let (labels, _) = rest.rsplit_once('}').expect("labels end");
    let labels = labels.split("\",").map(|label| {
        let (name, value) = label.split_once("=\"").expect("a label has a value");
        (name, value.trim_end_matches('"'))
    });
    (name, labels.collect())
}

/// The paths of the keys in JSON: `cores[].name`.
fn keys(value: &Value) -> BTreeSet<String> {
    fn add(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let dot = if path.is_empty() { "" } else { "." };
                    let inner = format!("{path}{dot}{key}");
                    if MAPS.contains(&key.as_str()) && member.is_object() {
                        paths.insert(format!("{inner}.*"));
                    } else {
                        add(member, &inner, paths);
                    }
                }
            }
            Value::Array(elements) => {
                let inner = format!("{path}[]");
                // Nothing is known about the elements of a list that is empty here.
                let are_objects = elements.iter().any(Value::is_object);
                elements.iter().for_each(|element| add(element, &inner, paths));
                if !are_objects {
                    paths.insert(inner);
                }
            }
            _ => {
                paths.insert(path.to_owned());
            }
        }
    }
    let mut paths = BTreeSet::new();
    add(value, "", &mut paths);
    paths
}

/// FNV-1a of everything except the digest itself: shows that the version belongs to the rest.
fn digest(schema: &Value) -> String {
    let text = json!([schema["version"], schema["metrics"], schema["programs"]]).to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_and_names_of_other_things_are_none() {
        let value =
            json!({"a": [{"b": 1, "dropped": {"odd": 1}}, {"c": null}], "d": [], "e": [1, 2]});
        let expected = ["a[].b", "a[].c", "a[].dropped.*", "d[]", "e[]"];
        assert_eq!(keys(&value), expected.map(str::to_owned).into());
        assert_eq!(sample("nf_up 1"), ("nf_up", vec![]));
        assert_eq!(sample("nf{a=\"x, y\",b=\"\"} 1"), ("nf", vec![("a", "x, y"), ("b", "")]));
    }

    #[test]
    fn a_digest_is_of_the_version_too() {
        let schema =
            |version: u32, name: &str| json!({"version": version, "metrics": {name: "counter {}"}});
        let one = digest(&schema(1, "a"));
        assert!(one != digest(&schema(2, "a")) && one != digest(&schema(1, "b")));
        assert_eq!(one, digest(&schema(1, "a")));
    }
}
