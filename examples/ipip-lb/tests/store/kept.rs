//! Operators' changes outlast a SIGKILL of a node while the store's revision is the same.

use super::etcd::Server;
use super::node::{start, wait_for, write_node};
use super::shared;
use hotloop_tests::{Program, wait_until};
use std::fs;
use std::process::Command;

#[test]
fn what_operators_have_changed_belongs_to_one_revision() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_node(folder, &server.access(), "a");
    let first = server.write(&shared(2));
    let drained = |program: &Program| {
        let rows = program.ask("backends").unwrap();
        rows.as_array().unwrap().iter().filter(|it| it["state"] == "drained").count()
    };
    let drain = || {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        ctl.current_dir(folder).args(["ctl", "--control", "lb.sock", "drain", "10.0.0.1"]);
        assert!(ctl.output().unwrap().status.success());
    };
    let program = start(folder);
    drain();
    assert_eq!(drained(&program), 2);
    wait_until("the copy is saved", || folder.join("copy.toml").exists());
    drop(program); // By SIGKILL.
    let program = start(folder);
    assert_eq!(drained(&program), 2);
    drop(program);

    // Its copy has the same revision.
    server.kill();
    let program = start(folder);
    assert_eq!(drained(&program), 2);
    drop(program);
    server.restart();

    // The same text again ends the drains on running nodes, and therefore also on one that is down.
    let second = server.force(&shared(2));
    assert_ne!(first, second);
    let program = start(folder);
    wait_for(&program, second, 2);
    assert_eq!(drained(&program), 0);
    wait_until("nothing is kept", || !folder.join("kept.json").exists());
    drain();

    // A revision that comes while the node runs ends them, too.
    let third = server.write(&shared(3));
    wait_for(&program, third, 3);
    assert_eq!(drained(&program), 0);
    wait_until("nothing is kept", || !folder.join("kept.json").exists());
    let (_, errors) = program.end();
    let said = "kept.json: weights: 2 are dropped: another configuration was in force";
    assert_eq!(errors.matches(said).count(), 1, "{errors}");
    assert!(fs::read_to_string(folder.join("copy.toml")).unwrap().starts_with(&shared(3)));
}
