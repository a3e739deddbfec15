//! The program's limit of open files: raised if that is enough, and reported if not.

use super::probed;
use hotloop_tests::tool;
use ipip_lb::config::Probe;
use ipip_lb::health::Probes;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::sync::mpsc;

const BACKENDS: u64 = 200;

/// The program's message about its health checks with this `ulimit`.
fn said(ulimit: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let backend = |number| format!("[[service.backend]]\naddress = \"127.3.0.{number}\"\n");
    let config = r#"
        [engine]
        [balancer]
        source_v4 = "192.0.2.1"
        source_v6 = "2001:db8::1"
        mtu = 1500
        decapsulate = ["192.0.2.1"]
        [[port]]
        name = "uplink"
        device = "net_null0"
        next_hop_mac = "02:00:00:00:00:01"
        [[service]]
        name = "web"
        address = "203.0.113.10"
        protocol = "tcp"
        ports = "80"
        [service.health]
        kind = "tcp"
    "#;
    let config = config.to_owned() + &(1..=BACKENDS).map(backend).collect::<String>();
    fs::write(folder.path().join("lb.toml"), config).unwrap();
    let run = "exec \"$0\" run --config lb.toml --control lb.sock --duration 0.1";
    let output = tool("sh")
        .unwrap()
        .args(["-c", &format!("{ulimit}; {run}"), env!("CARGO_BIN_EXE_ipip-lb")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn the_program_says_how_many_files_it_may_open() {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let said = said("ulimit -Sn 600");
    let expected = format!(
        "health: backends probed: {BACKENDS}, each over one connection at most; open files allowed: \
         {hard}\n"
    );
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn the_limit_of_open_files_is_raised_where_that_is_needed() {
    let itself = std::env::current_exe().unwrap();
    let test =
        "exec \"$0\" --exact health::room::in_a_process_with_few_files --ignored --nocapture";
    let output = tool("sh")
        .unwrap()
        .args(["-c", &format!("ulimit -Sn 600; {test}")])
        .arg(itself)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("1 passed"));
}

#[test]
#[ignore = "the one above runs it, with a limit of its own"]
fn in_a_process_with_few_files() {
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, Some(600));
    let mut probes = Probes::start(mpsc::channel().0).unwrap();
    let mut room = |count| {
        let backend = |number| probed(&format!("127.3.0.{number}"), 1, Probe::Tcp, 60_000);
        probes.set((1..=count).map(backend).collect())
    };
    assert_eq!((room(80).files_max, getrlimit(Resource::Nofile)), (600, limit));
    let raised = room(200);
    assert_eq!((raised.files_max_before, Some(raised.files_max)), (600, limit.maximum));
    assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    assert!(raised.is_enough() && raised.to_string().ends_with(" (raised from 600)"), "{raised}");
}

#[test]
fn a_limit_that_is_too_low_is_said_with_what_to_do() {
    let said = said("ulimit -n 600");
    for part in ["open files allowed: 600, which is too few", "hard limit to 712", "LimitNOFILE="] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
