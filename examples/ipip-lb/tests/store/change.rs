//! A change that nodes prepare before it is in force, and nodes that refuse it or do not answer.

use super::etcd::Server;
use super::node::{Node, wait_for};
use super::shared;
use hotloop_tests::{Program, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Output};

/// `ipip-lb cluster apply` with this configuration, run in `folder`.
pub fn apply(folder: &std::path::Path, server: &Server, text: &str) -> Command {
    fs::write(folder.join("lb.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(["cluster", "apply", "--config", "lb.toml", "--store"]);
    command.arg(server.address().to_string());
    command
}

/// Its exit code, standard output and standard error.
pub fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

pub fn signal(program: &Program, signal: Signal) {
    let id = Pid::from_raw(program.id().cast_signed()).unwrap();
    kill_process(id, signal).unwrap();
}

/// Two nodes with one service, a folder for the applied configuration, and the revision.
pub fn two_nodes(server: &Server) -> ([Node; 2], tempfile::TempDir, i64) {
    let first = server.write(&shared(1));
    let nodes = ["a", "b"].map(|name| Node::start(server, name));
    (nodes, tempfile::tempdir().unwrap(), first)
}

#[test]
fn a_change_is_prepared_by_all_nodes_and_one_that_refuses_stops_it() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let ([a, b], folder, first) = two_nodes(&server);
    let (code, out, errors) = said(&apply(folder.path(), &server, &shared(3)).output().unwrap());
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.ends_with(&format!(" replaces revision {first}: 3 services\n")), "{out}");
    let second: i64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    for node in [&a, &b] {
        wait_for(&node.program, second, 3);
    }
    // All nodes know each other's revisions.
    wait_until("both say so", || {
        let cluster = a.program.ask("cluster").unwrap();
        let nodes = cluster["store"]["nodes"].as_array().unwrap().clone();
        nodes.len() == 2 && nodes.iter().all(|node| node["revision"] == second)
    });
    let mut asking = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    let asking = asking.current_dir(a.folder.path()).args(["ctl", "cluster", "--control"]);
    let (code, shown, errors) = said(&asking.arg("lb.sock").output().unwrap());
    assert_eq!(code, Some(0), "{errors}");
    assert!(shown.starts_with("node a: shares no connections"), "{shown}");
    assert!(shown.contains(&format!("revision {second} in force\n")), "{shown}");
    assert!(shown.lines().last().unwrap().starts_with("b "), "{shown}");

    // One node can't switch to any configuration, another not to this one.
    let file = b.folder.path().join("node.toml");
    let node = fs::read_to_string(&file).unwrap();
    fs::write(&file, node.replace("workers = 1", "workers = 2")).unwrap();
    let run = |text: &str, more: &[&str]| {
        said(&apply(folder.path(), &server, text).args(more).output().unwrap())
    };
    let (code, out, errors) = run(&shared(4), &[]);
    let expected = "nothing has changed: node b refuses it: [engine] can't change";
    assert!(code == Some(1) && out.is_empty() && errors.contains(expected), "{errors}");
    fs::write(&file, &node).unwrap();
    let (code, _, errors) = run(&shared(4).replace("10.0.0.1", "2001:db8::1"), &[]);
    assert!(code == Some(1) && errors.contains("refuses it: "), "{errors}");
    assert!(errors.contains("source_v6: missing"), "{errors}");
    for node in [&a, &b] {
        assert_eq!(node.in_force(), (second.into(), 3.into()));
        wait_until("it is given up", || node.store()["proposed"].is_null());
    }
    assert_eq!(server.part_count(), 1 + 3, "what was refused is left");

    // With force, the nodes switch that can.
    fs::write(&file, node.replace("workers = 1", "workers = 2")).unwrap();
    let (code, out, errors) = run(&shared(5), &["--force", "--within", "2"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("connections may break: b (refuses it: [engine]"), "{errors}");
    assert!(errors.contains("waiting up to 2 s"), "{errors}");
    let third: i64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    wait_for(&a.program, third, 5);
    wait_until("it is refused", || b.program.ask("status").unwrap()["reload_failure"].is_string());
    assert_eq!(b.in_force(), (second.into(), 3.into()));
    assert_eq!(server.part_count(), 1 + 5, "what is no longer in force is left");
    let (_, errors) = a.program.end();
    assert!(errors.contains("is prepared") && !errors.contains("was not prepared"), "{errors}");
}

#[test]
fn a_node_that_does_not_answer_stops_a_change_unless_it_is_forced() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let ([a, b], folder, first) = two_nodes(&server);
    signal(&b.program, Signal::STOP);
    let run = |more: &[&str]| {
        said(&apply(folder.path(), &server, &shared(2)).args(more).output().unwrap())
    };
    let (code, out, errors) = run(&["--within", "2"]);
    assert!(code == Some(1) && out.is_empty(), "{errors}");
    assert!(errors.contains("nodes that have not prepared it: b"), "{errors}");
    assert!(errors.contains("nothing has changed: no answer within 2 s from b;"), "{errors}");
    assert_eq!(a.in_force(), (first.into(), 1.into()));
    let (code, out, errors) = run(&["--within", "2", "--force"]);
    assert_eq!(code, Some(0), "{errors}");
    let second: i64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    wait_for(&a.program, second, 2);
    signal(&b.program, Signal::CONT);
    wait_for(&b.program, second, 2);
}

#[test]
fn a_node_that_was_killed_is_missed_until_it_is_known_to_be_gone() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let ([a, b], folder, first) = two_nodes(&server);
    let node = |name: &str| {
        format!("{{ name = \"{name}\", address = \"127.0.0.{}:4790\" }}", name.len() + 1)
    };
    // The file of a node with both as peers.
    let own = fs::read_to_string(a.folder.path().join("node.toml")).unwrap();
    let peers = format!(
        "[cluster]\npeers = [{}]\nlisten = \"127.0.0.1:4790\"\ntrusted_network = true\n",
        node("b")
    );
    fs::write(folder.path().join("peered.toml"), own.replace("[cluster]\n", &peers)).unwrap();
    let run = |text: &str, more: &[&str]| {
        said(&apply(folder.path(), &server, text).args(more).output().unwrap())
    };
    let by_node = |text: &str| {
        fs::write(folder.path().join("lb.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command.args(["cluster", "apply", "--config", "lb.toml", "--node", "peered.toml"]);
        said(&command.current_dir(folder.path()).output().unwrap())
    };
    // A node that starts again at once counts from then on.
    signal(&b.program, Signal::KILL);
    let again = super::node::start(b.folder.path());
    let b = Node { folder: b.folder, program: again };
    b.wait_until_registered();
    let (code, _, errors) = by_node(&shared(2));
    assert_eq!(code, Some(0), "{errors}");
    let known = b.in_force();
    assert!(known.0.as_i64() > Some(first) && known.1 == 2, "{known:?}");

    signal(&b.program, Signal::KILL);
    let (code, _, errors) = run(&shared(3), &[]);
    let expected = "nothing has changed: nodes that should be there are not: b; start them";
    assert!(code == Some(1) && errors.contains(expected), "{errors}");
    // It is gone, and only a node's file requires its presence.
    let (code, _, errors) = by_node(&shared(3));
    assert!(code == Some(1) && errors.contains(expected), "{errors}");
    assert_eq!(a.in_force(), known);
    let (code, _, errors) = run(&shared(3), &[]);
    assert_eq!(code, Some(0), "{errors}");
    let (revision, _) = a.in_force();
    wait_for(&a.program, revision.as_i64().unwrap(), 3);
    // A node that is stopped on purpose is not waited for.
    let _ = a.program.end();
    let nodes =
        hotloop_cluster::store::Key::From("/ipip-lb/phases/nodes/", "/ipip-lb/phases/nodes0");
    assert_eq!(server.client().page(nodes, 0, 10).unwrap().values, []);
}

#[test]
fn of_two_nodes_with_one_name_changes_wait_for_the_one_that_came_later() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let first = server.write(&shared(1));
    let (older, newer) = (Node::start(&server, "a"), Node::start(&server, "a"));
    wait_until("it is seen", || older.store()["is_replaced"] == true);
    assert_eq!(newer.store()["is_replaced"], false);
    let second = server.write(&shared(2));
    assert!(second > first);
    for node in [&older, &newer] {
        wait_for(&node.program, second, 2);
    }
    let _ = newer.program.end();
    older.wait_until_registered();
    assert_eq!(older.store()["is_replaced"], false);
    let (_, errors) = older.program.end();
    assert_eq!(errors.matches("another node called a has started").count(), 1, "{errors}");
}
