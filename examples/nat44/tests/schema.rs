//! The names in the program's output.

use crate::listing::{command, listed};
use hotloop_tests::prometheus::get;
use hotloop_tests::schema::{Said, check};
use hotloop_tests::{Program, free_address, wait_until};

#[test]
fn the_schema_has_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let (control, address) = (folder.path().join("nat.sock"), free_address());
    let mut command = command(folder.path(), &control, ["--run-to-completion", "1"], 1);
    command.args(["--metrics", &address.to_string()]);
    let program = Program::start(command, &control);
    let mut metrics = String::new();
    wait_until("it serves metrics", || {
        metrics = get(address, "/metrics").unwrap_or_default();
        !metrics.is_empty()
    });
    let common = ["status", "counters", "xstats"];
    let common = common.map(|command| (command, program.ask(command).expect("an answer")));
    let answers = common.into_iter().chain([("connections", listed(&program))]).collect();
    let (report, _) = program.end();
    check("nat44", &Said { metrics, report, answers });
}
