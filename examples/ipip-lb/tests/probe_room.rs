//! The program's message about its limit of open files, which bounds its probes.

use crate::web_config::WEB;
use hotloop_tests::tool;
use rustix::process::{Resource, getrlimit};
use std::fs;

const BACKENDS: u64 = 200;

/// The program's messages with this `ulimit`, one of them about its health checks.
fn report(ulimit: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let backend = |number| format!("[[service.backend]]\naddress = \"127.3.0.{number}\"\n");
    let health = "[service.health]\nkind = \"tcp\"\n";
    let config =
        format!("[engine]\n{WEB}{health}") + &(1..=BACKENDS).map(backend).collect::<String>();
    fs::write(folder.path().join("lb.toml"), config).unwrap();
    let run = "exec \"$0\" run --config lb.toml --control lb.sock --duration 0.1";
    let output = tool("sh")
        .unwrap()
        .args(["-c", &format!("{ulimit}; {run}"), env!("CARGO_BIN_EXE_ipip-lb")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report}");
    report
}

#[test]
fn the_program_says_how_many_files_it_may_open() {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let report = report("ulimit -Sn 600");
    let expected = format!(
        "health: backends probed: {BACKENDS}, each over one connection at most; open files allowed: \
         {hard}\n"
    );
    assert!(report.contains(&expected), "{report}");
}

#[test]
fn a_limit_that_is_too_low_is_said_with_what_to_do() {
    let report = report("ulimit -n 600");
    for part in ["open files allowed: 600, which is too few", "hard limit to 712", "LimitNOFILE="] {
        assert!(report.contains(part), "{part}: {report}");
    }
}
