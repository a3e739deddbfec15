//! Keys of the store that another program has written: each is named, and a node's invalid state
//! affects only that node.

use super::etcd::Server;
use super::node::{Node, status};
use super::shared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hotloop_cluster::store::Key;
use hotloop_cluster::store::etcd::Operation;
use hotloop_tests::wait_until;
use serde_json::json;

/// Values from other programs: invalid text, nothing, a number, and JSON of another kind.
const WRITTEN: [&[u8]; 4] =
    [b"\xff\x00\xfe\x80 random", b"", b"99999999999999999999", b"{\"down\": 7}"];

/// A store with a configuration, and a node that follows it.
fn followed() -> Result<(Server, Node), String> {
    let server = Server::start()?;
    server.write(&shared(1));
    let node = Node::start(&server, "a");
    Ok((server, node))
}

/// Writes bytes to a key.
fn put(server: &Server, key: &str, value: &[u8]) {
    let url = format!("http://{}/v3/kv/put", server.address().endpoints()[0]);
    let request = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
    ureq::post(&url).send(request.to_string()).unwrap();
}

/// The reason that the store is not followed, once there is one.
fn failure(node: &Node) -> String {
    wait_until("there is a failure", || node.store()["failure"].is_string());
    node.store()["failure"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_in_force_is_named_by_its_key_and_mended_by_a_change() {
    let (server, node) = match followed() {
        Ok(both) => both,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    for written in WRITTEN {
        for is_part in [false, true] {
            let revision = server.force(&shared(2));
            wait_until("it is in force", || node.in_force() == (json!(revision), json!(2)));
            wait_until("it is well", || node.store()["failure"].is_null());
            let parts = Key::From("/ipip-lb/parts/", "/ipip-lb/parts0");
            let part = etcd.page(parts, 0, 1).unwrap().values.remove(0).key;
            let current =
                etcd.page(Key::One("/ipip-lb/current"), 0, 1).unwrap().values.remove(0).value;
            if is_part {
                put(&server, &part, written);
                // Parts are read when `current` changes.
                etcd.transact(&[], &[Operation::Put("/ipip-lb/current", &current)]).unwrap();
            } else {
                put(&server, "/ipip-lb/current", written);
            }
            let why = failure(&node);
            let folder = part.rsplit_once('/').unwrap().0;
            let named = if is_part { folder } else { "/ipip-lb/current: not understood" };
            assert!(why.contains(named) && why.contains("cluster apply"), "{written:?}: {why}");
            assert!(!is_part || written.first() != Some(&0xff) || why.contains(&part), "{why}");
            assert!(!why.contains("not reachable") && !why.contains("etcd's"), "{why}");
            assert_eq!(status(&node.program)["services"], 2);
        }
    }
}

#[test]
fn what_a_node_says_affects_that_node_alone() {
    let (server, node) = match followed() {
        Ok(both) => both,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    etcd.transact(&[], &[Operation::Put("/ipip-lb/health/b", "{\"down\": []}")]).unwrap();
    wait_until("two nodes count", || status(&node.program)["health"]["nodes"] == 2);
    for (index, written) in WRITTEN.into_iter().enumerate() {
        put(&server, "/ipip-lb/health/c", written);
        put(&server, "/ipip-lb/phases/nodes/c", written);
        put(&server, "/ipip-lb/phases/members", written);
        // A forced change, because no node answers for c.
        let revision = server.force(&shared(index + 2));
        wait_until("it is in force", || node.in_force().0 == json!(revision));
        assert_eq!(status(&node.program)["health"]["nodes"], 2, "{written:?}");
        assert_eq!(node.store()["failure"], json!(null), "{written:?}");
        // It writes its own key again.
        put(&server, "/ipip-lb/phases/nodes/a", written);
        node.wait_until_registered();
    }
    let Node { program, .. } = node;
    let (_, log) = program.end();
    let named = "/ipip-lb/health/c: not understood: what this node finds does not count";
    assert!(log.contains(named) && !log.contains("not reachable"), "{log}");
}
