//! The program itself: its commands in both deployments, and the names in its output.

use hotloop_tests::schema::run_and_check;
use hotloop_tests::{Program, alone};
use serde_json::json;
use std::process::Command;

const RULE: &str = "[[rule]]\nname = \"all\"\nfrom = \"inside\"\naction = \"allow\"\n";

#[test]
fn the_program_answers_in_both_deployments() {
    let folder = tempfile::tempdir().unwrap();
    let [rules, control] = ["rules.toml", "fw.sock"].map(|name| folder.path().join(name));
    for deployment in [["--run-to-completion", "2"], ["--pipeline", "1,2"]] {
        std::fs::write(&rules, RULE).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_firewall"));
        command.args(["--inside", "net_null0,size=60", "--outside", "net_null1,size=60"]);
        command.args(deployment).args(["--connections", "100", "--report", "json"]);
        command.arg("--rules").arg(&rules).arg("--control").arg(&control);
        alone(|| {
            let program = Program::start(command, &control);
            assert_eq!(
                program.ask("rules"),
                Some(json!([{ "rule": "all", "from": "inside", "action": "allow", "packets": 0 }]))
            );
            assert_eq!(
                program.ask("connections"),
                Some(json!({ "matching": 0, "connections": [] }))
            );
            std::fs::write(&rules, RULE.to_owned() + &RULE.replace("\"all\"", "\"more\"")).unwrap();
            assert_eq!(program.ask("reload"), Some(json!(2)));
            std::fs::write(&rules, "wrong").unwrap();
            assert_eq!(program.ask("reload"), None);
            let (report, _) = program.end();
            assert!(
                report["received"].as_u64() > Some(0) && report["balanced"] == true,
                "{report}"
            );
        });
    }
}

#[test]
fn the_schema_has_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, RULE).unwrap();
    let rules = rules.to_str().unwrap();
    let line = "--inside net_null0 --outside net_null1 --idle pause --rules";
    let arguments: Vec<_> = line.split_whitespace().chain([rules]).collect();
    run_and_check("firewall", env!("CARGO_BIN_EXE_firewall"), &arguments);
}
