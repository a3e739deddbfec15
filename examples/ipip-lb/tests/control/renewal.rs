//! A node's certificates, which a reload reads again.

use super::nodes::node;
use super::program::{Program, config};
use crate::sync::authority::Authority;
use hotloop_tests::{free_address, prometheus::get};
use rcgen::date_time_ymd;
use serde_json::Value;
use std::fs;

fn peer(program: &Program) -> Value {
    program.json(&["cluster"])["peers"][0].clone()
}

fn is_in_sync(program: &Program) -> bool {
    let peer = peer(program);
    peer["state"] == "in-sync" && peer["is_caught_up"] == true
}

fn snapshot_count(program: &Program) -> u64 {
    peer(program)["snapshots_received"].as_u64().unwrap()
}

#[test]
fn a_reload_takes_new_certificates_and_none_that_peers_would_not_accept() {
    let addresses = [free_address(), free_address()];
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("all nodes"));
    let folder = folder.path();
    let nodes = [1, 2].map(|number| {
        let node = node(number, addresses, (folder, &authority));
        Program::start_and_take_all(&(config() + &node))
    });
    let [first, second] = &nodes;
    let wait = |what: &str| first.wait_until(what, |_| nodes.iter().all(is_in_sync));
    wait("they are in sync");
    let before = snapshot_count(second);

    first.json(&["reload"]);
    let key = fs::read(folder.join("lb-1.key")).unwrap();
    authority.signed(folder, "lb-1", "lb-1", |params| params.not_after = date_time_ymd(2040, 1, 1));
    let new_key = fs::read(folder.join("lb-1.key")).unwrap();
    fs::write(folder.join("lb-1.key"), key).unwrap();
    let refusal = first.refusal(&["reload"], 1);
    assert!(refusal.contains("lb-1.pem: not for the key in "), "{refusal}");
    first.signal("-HUP");
    first.wait_until("SIGHUP is refused, too", |it| {
        it.has_said("SIGHUP: nothing has changed: cluster: ")
    });
    let status = first.json(&["status"]);
    assert_eq!(status["reloads"], 1);
    assert!(status["reload_failure"].as_str().unwrap().contains("lb-1.pem: not for the key in "));
    assert!(is_in_sync(first) && snapshot_count(second) == before);

    fs::write(folder.join("lb-1.key"), new_key).unwrap();
    first.json(&["reload"]);
    first.wait_until("made anew", |_| snapshot_count(second) > before);
    wait("they are in sync again");
    // 2040-01-01, by date(1).
    let end = 2_208_988_800_u64;
    assert_eq!(first.json(&["cluster"])["certificate_not_after"], end);
    let text = first.text(&["cluster"]);
    assert!(text.contains("\nthe certificate ends in ") && text.contains(" days\n"), "{text}");
    let metrics = get(first.metrics_address(), "/metrics").unwrap();
    let metric = "ipip_lb_cluster_certificate_not_after_timestamp_seconds";
    assert!(metrics.contains(&format!("\n{metric} {end}\n")), "{metrics}");

    let before = snapshot_count(first);
    authority.signed(folder, "lb-2", "lb-2", |_| {});
    second.signal("-HUP");
    first.wait_until("made anew", |it| snapshot_count(it) > before);
    wait("they are in sync once more");
    for node in nodes {
        node.end("-INT");
    }
}
