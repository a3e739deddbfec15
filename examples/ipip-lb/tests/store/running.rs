//! A node that takes its configuration from a store, and runs without it.

use super::etcd::Server;
use super::node::{run, start, status, wait_for, write_node};
use super::shared;
use hotloop_tests::prometheus::get;
use hotloop_tests::{Program, wait_until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn check(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(["check", "--config", "node.toml"]).output().unwrap()
}

/// A store, and a folder with the file of a node; prints that the test is skipped if there can be
/// no store.
fn server_and_node() -> Option<(Server, TempDir)> {
    let server = Server::start().inspect_err(|why| println!("skipped: {why}")).ok()?;
    let folder = tempfile::tempdir().unwrap();
    write_node(folder.path(), &server.access(), "a");
    Some((server, folder))
}

#[test]
fn a_node_follows_its_store_and_goes_on_without_it() {
    let Some((mut server, folder)) = server_and_node() else { return };
    let folder = folder.path();
    let first = server.write(&shared(1));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = listener.local_addr().unwrap();
    drop(listener);
    let mut command = run(folder);
    command.args(["--metrics", &metrics.to_string()]);
    let program = Program::start(command, &folder.join("lb.sock"));
    wait_for(&program, first, 1);
    let second = server.write(&shared(20));
    wait_for(&program, second, 20);

    // A configuration that this node can't use changes nothing, and is reported.
    let v6 = server.force(&shared(2).replace("10.0.0.1", "2001:db8::1"));
    wait_until("it is refused", || status(&program)["reload_failure"].is_string());
    let refused = status(&program);
    assert!(refused["reload_failure"].as_str().unwrap().contains("source_v6: missing"));
    assert_eq!(
        (&refused["store"]["revision"], &refused["store"]["newest"]),
        (&second.into(), &v6.into())
    );
    assert_eq!(refused["services"], 20);
    let metrics = get(metrics, "/metrics").unwrap();
    assert!(metrics.contains(&format!("ipip_lb_store_revision {second}\n")), "{metrics}");
    assert!(metrics.contains("ipip_lb_store_pending 1\n"), "{metrics}");
    assert!(metrics.contains("ipip_lb_store_unread_seconds 0\n"), "{metrics}");

    // The store goes away, and comes back.
    server.kill();
    wait_until("it is said", || status(&program)["store"]["failure"].is_string());
    let alone = status(&program);
    assert!(alone["store"]["failure"].as_str().unwrap().contains("start etcd"), "{alone}");
    assert!(alone["store"]["unread_s"].is_u64(), "{alone}");
    assert_eq!((&alone["services"], &alone["store"]["revision"]), (&20.into(), &second.into()));
    server.restart();
    let third = server.write(&shared(3));
    wait_for(&program, third, 3);
    wait_until("it is read again", || status(&program)["store"]["failure"].is_null());
    assert!(status(&program)["reload_failure"].is_null());
    wait_until("the copy is saved", || {
        let copy = fs::read_to_string(folder.join("copy.toml")).unwrap();
        copy.starts_with(&shared(3)) && copy.contains(&format!("# ipip-lb: revision {third} of "))
    });
    let (_, errors) = program.end();
    assert!(errors.contains("what is in force stays in force"), "{errors}");
}

#[test]
fn a_start_takes_the_copy_where_the_store_is_away_or_has_what_is_refused() {
    let Some((mut server, folder)) = server_and_node() else { return };
    let folder = folder.path();
    let third = server.write(&shared(3));
    let program = start(folder);
    wait_until("the copy is saved", || folder.join("copy.toml").exists());
    let _ = program.end();

    // The store's newest configuration is taken once the store is back.
    server.kill();
    let program = start(folder);
    wait_for(&program, third, 3);
    assert!(check(folder).status.success());
    server.restart();
    wait_until("changes wait for it", || status(&program)["store"]["is_registered"] == true);
    assert_eq!(status(&program)["reloads"], 0, "the copy is what the store has");
    let fourth = server.write(&shared(4));
    wait_for(&program, fourth, 4);
    wait_until("the copy is saved", || {
        fs::read_to_string(folder.join("copy.toml")).unwrap().starts_with(&shared(4))
    });
    let (_, errors) = program.end();
    assert!(errors.contains(&format!("copy.toml, revision {third}, is used instead")), "{errors}");

    // A start with a configuration that this node can't use.
    server.force(&shared(2).replace("10.0.0.1", "2001:db8::1"));
    let program = start(folder);
    wait_for(&program, fourth, 4);
    wait_until("it is refused", || status(&program)["reload_failure"].is_string());
    let (_, errors) = program.end();
    assert!(errors.contains("source_v6: missing"), "{errors}");
}

#[test]
fn a_node_without_a_copy_waits_for_its_store() {
    let Some((mut server, folder)) = server_and_node() else { return };
    let folder = folder.path();
    let wrong = check(folder);
    let errors = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && errors.contains("has no configuration"), "{errors}");
    server.kill();
    let wrong = check(folder);
    let errors = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        wrong.status.code() == Some(2) && errors.contains("nor is there a copy in"),
        "{errors}"
    );

    let mut child = run(folder)
        .args(["--duration", "2"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = lines.find(|line| line.contains("waiting for a configuration"));
    assert!(waits.is_some_and(|line| line.contains("start etcd")));
    server.restart();
    server.write(&shared(1));
    assert!(lines.any(|line| line.contains("running: ")));
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}
