//! A change whose store, or proposer, is lost on the way.

use super::change::{apply, said, signal, two_nodes};
use super::etcd::Server;
use super::node::{Node, wait_for};
use super::shared;
use hotloop_tests::wait_until;
use rustix::process::Signal;
use std::process::{Child, Stdio};

/// Proposes a configuration that a stopped node does not prepare.
fn propose(folder: &std::path::Path, server: &Server, nodes: &[Node; 2], within_s: &str) -> Child {
    signal(&nodes[1].program, Signal::STOP);
    let mut command = apply(folder, server, &shared(2));
    command.args(["--within", within_s]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("it is proposed", || nodes[0].store()["proposed"].is_i64());
    child
}

#[test]
fn a_store_that_is_killed_and_comes_back_loses_no_change() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let (nodes, folder, first) = two_nodes(&server);
    let child = propose(folder.path(), &server, &nodes, "60");
    server.restart();
    assert_eq!(nodes[0].in_force(), (first.into(), 1.into()));
    signal(&nodes[1].program, Signal::CONT);
    let (code, out, errors) = said(&child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{errors}");
    let second: i64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    for node in &nodes {
        wait_for(&node.program, second, 2);
    }
    // A store that has lost everything, and begins with lower revisions again.
    server.empty();
    let said = || nodes[0].store()["failure"].as_str().map(str::to_owned);
    wait_until("it is missed", || {
        said().is_some_and(|failure| failure.contains("has no configuration"))
    });
    assert_eq!(nodes[0].in_force(), (second.into(), 2.into()));
    nodes.iter().for_each(Node::wait_until_registered);
    let third = server.write(&shared(3));
    assert!(third < second, "{third} {second}");
    for node in &nodes {
        wait_for(&node.program, third, 3);
    }
    wait_until("all is well", || said().is_none());
}

#[test]
fn without_the_store_nobody_says_what_is_in_force() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let (nodes, folder, first) = two_nodes(&server);
    let child = propose(folder.path(), &server, &nodes, "5");
    server.kill();
    let (code, out, errors) = said(&child.wait_with_output().unwrap());
    assert!(code == Some(2) && out.is_empty(), "{errors}");
    assert!(errors.contains("whether it is in force is not known: "), "{errors}");
    assert_eq!(nodes[0].in_force(), (first.into(), 1.into()));
}

#[test]
fn a_proposal_ends_with_whoever_made_it() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let (nodes, folder, first) = two_nodes(&server);
    let mut child = propose(folder.path(), &server, &nodes, "60");
    child.kill().unwrap();
    child.wait().unwrap();
    let run = || said(&apply(folder.path(), &server, &shared(3)).output().unwrap());
    let (code, _, errors) = run();
    assert!(
        code == Some(1) && errors.contains("another change is being prepared: try again"),
        "{errors}"
    );
    signal(&nodes[1].program, Signal::CONT);
    wait_until("it has ended", || nodes.iter().all(|node| node.store()["proposed"].is_null()));
    for node in &nodes {
        assert_eq!(node.in_force(), (first.into(), 1.into()));
    }
    let (code, out, errors) = run();
    assert_eq!(code, Some(0), "{errors}");
    let second: i64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    for node in &nodes {
        wait_for(&node.program, second, 3);
    }
    assert_eq!(server.part_count(), 1 + 3, "what was left is still there");
}
