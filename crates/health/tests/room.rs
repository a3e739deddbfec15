//! The process's limit of open files: raised if that is enough.

use super::probed;
use hotloop_health::Probes;
use hotloop_health::settings::Probe;
use hotloop_test_tools::tool;
use rustix::process::{Resource, getrlimit};
use std::sync::mpsc;

#[test]
fn the_limit_of_open_files_is_raised_where_that_is_needed() {
    let itself = std::env::current_exe().unwrap();
    let test = "exec \"$0\" --exact room::in_a_process_with_few_files --ignored --nocapture";
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
