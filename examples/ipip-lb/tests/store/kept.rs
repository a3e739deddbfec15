//! Operators' changes outlast a SIGKILL of a node, and other revisions of the store.

use super::etcd::Server;
use super::node::{start, wait_for, write_node};
use super::shared;
use hotloop_tests::{Program, wait_until};
use std::fs;
use std::process::Command;

#[test]
fn operators_changes_outlast_revisions_and_end_with_their_services() {
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

    // Another revision while the node is down.
    let second = server.force(&shared(2));
    assert_ne!(first, second);
    let program = start(folder);
    wait_for(&program, second, 2);
    assert_eq!(drained(&program), 2);

    // Another one while it runs: the new service's backend is drained by no operator.
    let third = server.write(&shared(3));
    wait_for(&program, third, 3);
    assert_eq!(drained(&program), 2);
    let fourth = server.write(&shared(1));
    wait_for(&program, fourth, 1);
    assert_eq!(drained(&program), 1);
    let fifth = server.write(&shared(3));
    wait_for(&program, fifth, 3);
    assert_eq!(drained(&program), 1, "it does not come back with its service");
    let (_, errors) = program.end();
    for said in [
        "the store's configuration was reloaded: 3 services with 3 backends; \
         changed: service web2 is new; operators' changes kept: weights: 2",
        "operators' changes kept: weights: 1; operators' changes undone: weights: 1",
    ] {
        assert_eq!(errors.matches(said).count(), 1, "{errors}");
    }
    assert!(fs::read_to_string(folder.join("copy.toml")).unwrap().starts_with(&shared(3)));
}
