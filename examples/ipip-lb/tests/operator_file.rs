//! Operators' changes outlast a SIGKILL and other configurations.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{BALANCER, SILENT_PORT, command, service, start, with_operator_file};
use hotloop_tests::prometheus::get;
use hotloop_tests::{Program, free_address, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A node whose peers are absent, in a folder of its own.
struct Node {
    folder: tempfile::TempDir,
    config: String,
}

impl Node {
    /// A node with these peers, which keeps operators' changes in a folder called `kept`.
    fn with_peers(peers: &str) -> Self {
        let cluster = format!(
            "[cluster]\nnode = \"a\"\ntrusted_network = true\n\
             peers = [{{ name = \"a\", address = \"{}\" }}{peers}]\n",
            free_address()
        );
        Self::with(&cluster)
    }

    /// A balancer with this section `[cluster]`, or none.
    fn with(cluster: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let backends = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let service = service("web", "203.0.113.10 tcp 80", "", &backends);
        let config = [BALANCER, SILENT_PORT, cluster, &service].concat();
        let config = with_operator_file(&config, &folder.path().join("kept/a.json"));
        Self { folder, config }
    }

    fn alone() -> Self {
        Self::with_peers("")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("kept/a.json")
    }

    fn kept(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap()
    }

    fn start(&self) -> Program {
        start(self.path(), &self.config)
    }

    /// Runs `ctl`, which must succeed, and returns its output.
    fn ctl(&self, arguments: &str) -> String {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        ctl.current_dir(self.path()).arg("ctl").args(arguments.split(' '));
        let output = ctl.args(["--control", "lb.sock"]).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Checks that it refuses to start, and returns its message.
    fn refusal(&self) -> String {
        let output = command(self.path(), &self.config).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Each backend with its weight, its state, and the end of its drain.
fn backends(program: &Program) -> Value {
    let rows = program.ask("backends").unwrap();
    let rows = rows.as_array().unwrap().iter();
    let row = |it: &Value| json!([it["weight"], it["state"], it["draining"]["until_empty"]]);
    rows.map(row).collect()
}

/// The remaining time of each blocked prefix.
fn blocks(program: &Program) -> Vec<(String, Option<u64>)> {
    let rows = program.ask("blocks").unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|it| (it["prefix"].as_str().unwrap().to_owned(), it["left_s"].as_u64())).collect()
}

/// All backends as configured.
fn configured() -> Value {
    json!([[1, "up", null], [1, "up", null], [1, "up", null], [1, "up", null]])
}

#[test]
fn each_change_outlasts_a_sigkill_and_so_does_its_end() {
    let node = Node::alone();
    let mut program = node.start();
    assert!(!node.file().exists(), "nothing has changed");
    node.ctl("drain 10.0.0.1 --for 1h");
    node.ctl("weight 10.0.0.2 7");
    node.ctl("remove 10.0.0.3");
    node.ctl("remove 10.0.0.4 --flush");
    node.ctl("block 198.51.100.0/24 --for 1h");
    node.ctl("block 192.0.2.77");
    let changed =
        json!([[0, "drained", false], [7, "up", null], [0, "removed", null], [0, "flushed", null]]);
    assert_eq!(backends(&program), changed);
    assert_eq!(fs::metadata(node.file()).unwrap().permissions().mode() & 0o777, 0o600);
    for _ in 0..2 {
        drop(program); // By SIGKILL.
        program = node.start();
        assert_eq!(backends(&program), changed);
        let blocks = blocks(&program);
        let names: Vec<_> =
            blocks.iter().map(|(prefix, left)| (&**prefix, left.is_some())).collect();
        assert_eq!(names, [("192.0.2.77", false), ("198.51.100.0/24", true)]);
        let left = program.ask("backends").unwrap()[0]["draining"]["left_s"].as_u64();
        assert!(left.is_some_and(|it| (1..=3600).contains(&it)), "{left:?}");
    }
    // The state matches the last command.
    node.ctl("weight 10.0.0.1 3");
    node.ctl("unblock 198.51.100.0/24");
    drop(program);
    program = node.start();
    assert_eq!(backends(&program)[0], json!([3, "up", null]));
    assert_eq!(blocks(&program), [("192.0.2.77".to_owned(), None)]);
    let (_, errors) = program.end();
    let said =
        "kept/a.json: as operators have changed it: weights: 2, removed backends: 2, blocks: 1";
    assert!(errors.contains(said), "{errors}");
    // A reset ends all of it.
    program = node.start();
    let text = node.ctl("reload --reset");
    let said = "operators' changes undone: weights: 2, removed backends: 2, blocks: 1";
    assert!(text.contains(said), "{text}");
    assert!(!node.file().exists(), "nothing has changed");
    drop(program);
    program = node.start();
    assert_eq!((backends(&program), blocks(&program)), (configured(), Vec::new()));
}

/// Without a section `[cluster]`.
#[test]
fn a_balancer_without_a_cluster_keeps_changes_too() {
    let node = Node::with("");
    let program = node.start();
    node.ctl("weight 10.0.0.1 7");
    drop(program);
    let program = node.start();
    assert_eq!(backends(&program)[0], json!([7, "up", null]));
    // The configuration's own weight is no change.
    node.ctl("weight 10.0.0.1 1");
    assert!(!node.file().exists(), "nothing has changed");
}

#[test]
fn what_is_over_while_the_node_is_away_is_over() {
    let node = Node::alone();
    let program = node.start();
    node.ctl("drain 10.0.0.1 --for 1d");
    node.ctl("block 192.0.2.77 --for 1d");
    node.ctl("block 192.0.2.78 --for 3d");
    drop(program);
    // The state two days later.
    let mut kept = node.kept();
    kept["at_ms"] = json!(kept["at_ms"].as_u64().unwrap() - 2 * 86_400_000);
    fs::write(node.file(), kept.to_string()).unwrap();
    let program = node.start();
    wait_until("the drain ends", || backends(&program)[0] == json!([0, "removed", null]));
    let [(prefix, Some(left))] = &blocks(&program)[..] else { panic!("{:?}", blocks(&program)) };
    assert!(prefix == "192.0.2.78" && (86_000..=86_400).contains(left), "{left}");
    // The file is written a moment later.
    wait_until("the file has no drain", || node.kept()["standings"]["drains"] == json!([]));
    drop(program);
    assert_eq!(backends(&node.start())[0], json!([0, "removed", null]));
}

/// With a peer that never came: connections that either has forgotten may be alive for twice the idle
/// timeouts.
#[test]
fn a_drain_until_a_backend_is_empty_waits_for_what_a_restart_has_forgotten() {
    let peer = format!(", {{ name = \"b\", address = \"{}\" }}", free_address());
    let mut node = Node::with_peers(&peer);
    node.config = node.config.replace(
        "[balancer]",
        "[balancer.timeouts_s]\ntcp_established = 6\nudp = 6\nother = 6\n[balancer]",
    );
    let program = node.start();
    node.ctl("drain 10.0.0.1 --until-empty");
    drop(program);
    let (program, begin) = (node.start(), Instant::now());
    let mut has_waited = false;
    wait_until("it is removed", || {
        let cluster = program.ask("cluster").unwrap();
        let state = backends(&program)[0].clone();
        let is_removed = state == json!([0, "removed", null]);
        assert!(is_removed || state == json!([0, "drained", true]), "{state}");
        has_waited |= !is_removed && cluster["is_ready"] == true && cluster["is_waiting"] == true;
        is_removed
    });
    assert!(has_waited && begin.elapsed() >= Duration::from_secs(11), "{:?}", begin.elapsed());
}

#[test]
fn another_configuration_undoes_only_the_changes_of_backends_that_it_lacks() {
    let mut node = Node::alone();
    let program = node.start();
    node.ctl("drain 10.0.0.1");
    node.ctl("remove 10.0.0.2");
    node.ctl("weight 10.0.0.3 5");
    node.ctl("drain 10.0.0.4 --for 1h");
    node.ctl("block 192.0.2.77");
    drop(program);
    let first = node.config.clone();
    node.config = first.replace("10.0.0.4\"\nweight = 1", "10.0.0.9\"\nweight = 2");
    assert_ne!(node.config, first);
    let program = node.start();
    let expected =
        json!([[0, "drained", null], [0, "removed", null], [5, "up", null], [2, "up", null]]);
    assert_eq!(backends(&program), expected);
    assert_eq!(blocks(&program).len(), 1);
    wait_until("the file has no drain", || node.kept()["standings"]["drains"] == json!([]));
    // A reload does the same.
    node.ctl("drain 10.0.0.9 --for 1h");
    fs::write(node.path().join("lb.toml"), &first).unwrap();
    let text = node.ctl("reload");
    for line in [
        "changed: service web: backend 10.0.0.4 is new, service web: backend 10.0.0.9 is gone",
        "operators' changes kept: weights: 2, removed backends: 1, blocks: 1",
        "operators' changes undone: weights: 1, drains that end: 1",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let expected =
        json!([[0, "drained", null], [0, "removed", null], [5, "up", null], [1, "up", null]]);
    assert_eq!(backends(&program), expected);
    let (_, errors) = program.end();
    for said in [
        "the configuration has no backend 10.0.0.4 of web",
        "drain: 10.0.0.9 of web is no longer to be removed: it is not in the configuration any more",
    ] {
        assert!(errors.contains(said), "{errors}");
    }
    node.config = first;
    assert_eq!(backends(&node.start()), expected, "nothing comes back");
}

#[test]
fn a_node_does_not_start_with_a_file_that_it_does_not_understand() {
    let node = Node::alone();
    let program = node.start();
    node.ctl("drain 10.0.0.1 --for 1h");
    node.ctl("block 192.0.2.77");
    drop(program);
    let good = fs::read_to_string(node.file()).unwrap();
    let kept: Value = serde_json::from_str(&good).unwrap();
    let left = format!("\"for_s\":{}", kept["standings"]["drains"][0]["is"]["for_s"]);
    for (bad, why) in [
        (good[..good.len() / 2].to_owned(), "EOF while parsing"),
        (String::new(), "EOF while parsing"),
        (good.replace("\"version\":1", "\"version\":2"), "it is of version 2"),
        (good.replace("\"at_ms\"", "\"at\""), "it lacks at_ms or standings"),
        (good.replace("192.0.2.77", "192.0.2.777"), "blocks no prefix"),
        (good.replace(&left, "\"for_s\":0"), "give a time from 1 to"),
        (good.replace(&left, "\"for_s\":null"), "is no end of a drain"),
        (good.replace("\"is\":0", "\"is\":65536"), "is a weight above 65535"),
        (good.replace("10.0.0.1", "ten"), "names no backend"),
    ] {
        assert_ne!(bad, good, "{why}");
        fs::write(node.file(), bad).unwrap();
        let refusal = node.refusal();
        assert!(refusal.contains("kept/a.json: balancer.operator_file: "), "{refusal}");
        assert!(refusal.contains(why) && refusal.contains("delete it to start by"), "{refusal}");
    }
    fs::remove_file(node.file()).unwrap();
    fs::create_dir(node.file()).unwrap();
    assert!(
        node.refusal().contains("kept/a.json is a folder, and only a regular file is replaced")
    );
    fs::remove_dir(node.file()).unwrap();
    assert_eq!(backends(&node.start()), configured());

    // A missing backend is no reason to refuse.
    fs::write(node.file(), good.replace("10.0.0.1", "10.0.0.9")).unwrap();
    let program = node.start();
    assert_eq!(backends(&program), configured());
    let (_, errors) = program.end();
    assert!(errors.contains("the configuration has no backend 10.0.0.9 of web"), "{errors}");
}

#[test]
fn a_change_that_can_not_be_kept_is_in_force_and_says_so_until_it_is_kept() {
    let node = Node::alone();
    let metrics = free_address();
    let mut command = command(node.path(), &node.config);
    command.args(["--metrics", &metrics.to_string()]);
    let program = Program::start(command, &node.path().join("lb.sock"));
    let has_failed = || {
        let metrics = get(metrics, "/metrics").unwrap();
        let line = metrics.lines().find_map(|it| it.strip_prefix("ipip_lb_operator_file_failed "));
        line.unwrap() == "1"
    };
    assert!(!has_failed());
    let in_the_way = node.path().join("kept");
    fs::write(&in_the_way, "").unwrap();
    let said = node.ctl("weight 10.0.0.1 9");
    assert!(said.contains("has weight 9"), "{said}");
    assert!(
        said.contains("warning: this is in force, but a restart of the node undoes it: "),
        "{said}"
    );
    let answer: Value = serde_json::from_str(&node.ctl("drain 10.0.0.2 --json")).unwrap();
    assert!(answer["unsaved"].as_str().unwrap().contains("balancer.operator_file: "), "{answer}");
    assert_eq!(backends(&program)[0], json!([9, "up", null]));
    assert!(has_failed());
    let status = node.ctl("status");
    assert!(status.contains("changes by operators: a restart of the node undoes"), "{status}");

    // The write is tried again.
    fs::remove_file(&in_the_way).unwrap();
    wait_until("it is kept", || !has_failed());
    assert!(program.ask("status").unwrap()["operator_failure"].is_null());
    assert_eq!(node.ctl("weight 10.0.0.3 2").lines().count(), 1);
    drop(program);
    let changed = json!([[9, "up", null], [0, "drained", null], [2, "up", null], [1, "up", null]]);
    assert_eq!(backends(&node.start()), changed);
}

#[test]
fn a_program_that_takes_over_keeps_what_it_was_handed() {
    let node = Node::alone();
    let program = node.start();
    node.ctl("weight 10.0.0.1 9");
    // The running program's state takes precedence.
    fs::remove_file(node.file()).unwrap();
    let mut command = command(node.path(), &node.config);
    command.arg("--replace");
    let next = Program::start(command, &node.path().join("lb.sock"));
    let _ = program.wait();
    wait_until("it is kept", || node.file().exists());
    drop(next);
    assert_eq!(backends(&node.start())[0], json!([9, "up", null]));
}

#[test]
fn what_is_no_regular_file_is_refused_by_check_and_at_the_start_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    fs::write(folder.path().join("target"), "as it was").unwrap();
    std::os::unix::fs::symlink("target", folder.path().join("link")).unwrap();
    let link = format!("{path}/link");
    for (file, what) in [
        ("/dev/null", "a device, a pipe or a socket"),
        (&*link, "a symbolic link"),
        ("/var", "a folder"),
        ("/tmp/same", "store_copy too"),
    ] {
        for key in ["operator_file", "store_copy"] {
            let other = if what == "store_copy too" { file } else { "/tmp/none/other" };
            let [operator_file, copy] =
                ["operator_file", "store_copy"].map(|it| if it == key { file } else { other });
            let cluster = format!(
                "[cluster]\nnode = \"a\"\nstore = \"etcd://127.0.0.1:9\"\nstore_copy = \"{copy}\"\n"
            );
            let config = [&BALANCER.replace("mtu = 1500\n", ""), SILENT_PORT, &cluster].concat();
            let config = with_operator_file(&config, Path::new(operator_file));
            let run = command(folder.path(), &config);
            let mut check = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
            check.current_dir(folder.path()).args(["check", "--config", "lb.toml"]);
            for mut command in [check, run] {
                let output = command.output().unwrap();
                let errors = errors(&output);
                assert_eq!(output.status.code(), Some(2), "{key} = {file}: {errors}");
                let named = match key {
                    "store_copy" if other != file => "cluster.store_copy: ",
                    _ => "balancer.operator_file: ",
                };
                let parts = [named, file, what];
                assert!(
                    parts.iter().all(|part| errors.contains(*part)),
                    "{key} = {file}: {errors}"
                );
            }
        }
    }
    assert_eq!(fs::read_to_string(folder.path().join("target")).unwrap(), "as it was");
}
