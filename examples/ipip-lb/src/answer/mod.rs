//! The answers of a balancer to `ipip-lb ctl`, each once: [`control`](crate::control) fills them in,
//! and [`ctl`](crate::ctl) reads them from their JSON and prints them as text.
//!
//! The names of members are those of the JSON. A member that a later version adds is an `Option`, so
//! that `ctl` also reads the answers of programs that lack it.

mod changes;
mod cluster;
mod connections;
mod members;
mod status;

pub use changes::{Change, ChangeCounts, Effect, Saved};
pub use cluster::{Among, Cluster, Peer, Store, StoreNode};
pub use connections::{Connection, Connections, Lookup};
pub use members::{Backend, Block, Difference, NextHop, Probe, Probes, Service};
pub use status::{Health, Held, Status};

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;

/// A table with these columns, of a row for each element.
macro_rules! table {
    ($rows:expr, $row:ident => $($head:ident: $cell:expr),+) => {{
        let mut table = hotloop_ops::Table::new([$(stringify!($head)),+]);
        for $row in $rows {
            table.row([$($crate::answer::cell(&$cell)),+]);
        }
        table.to_string()
    }};
}
use table;

/// Text and numbers as they are, `-` for `None`.
fn cell(member: &impl Serialize) -> String {
    match json!(member) {
        Value::Null => "-".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// A count with its noun.
fn counted<N: Display + From<u8> + PartialEq>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// A list of texts.
fn listed(texts: impl IntoIterator<Item: ToString>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| text.to_string()).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// A VIP that is ready and not announced yet.
fn held_text(vip: impl Display, left_s: u64) -> String {
    format!("{vip}: held for {left_s} s, as it was withdrawn")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// The text of an answer, which must be written as it was read.
    fn text<A: DeserializeOwned + Serialize>(answer: Value, text: impl Fn(&A) -> String) -> String {
        let read: A = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(json!(read), answer);
        text(&read)
    }

    #[test]
    fn each_change_is_read_as_itself_with_null_or_absent_members() {
        let ending = json!({ "left_s": 9, "until_empty": true });
        let counts = |weights, withdrawn: bool| {
            json!({
                "weights": weights, "removed": 0, "drains": 0, "blocks": 1,
                "withdrawn": withdrawn,
            })
        };
        for (answer, expected) in [
            (
                json!({ "changed": 1, "weight": 0, "draining": null }),
                "a gets no new connections in 1 service",
            ),
            (
                json!({ "changed": 2, "weight": 0, "draining": ending }),
                "a gets no new connections in 2 services, and is removed in 9 s, or once it has no \
                 connections",
            ),
            (json!({ "changed": 1, "weight": 7 }), "a has weight 7 in 1 service"),
            (
                json!({ "removed": 1, "flush": true }),
                "a is taken out of 1 service, and its connections end",
            ),
            (json!({ "prefix": "b", "for_s": null }), "a is blocked until it is unblocked"),
            (json!({ "prefix": "b", "for_s": 9 }), "a is blocked for 9 s"),
            (json!({ "prefix": "b" }), "a is no longer blocked"),
            (json!({ "services": 1, "backends": 2 }), "reloaded: 1 service with 2 backends"),
            (
                json!({
                    "services": 1, "backends": 2,
                    "changes": ["service web: its settings", "[limits]"], "change_count": 5,
                    "kept": counts(2, true), "undone": counts(1, false),
                }),
                "reloaded: 1 service with 2 backends\n\
                 changed: service web: its settings, [limits], and 3 more\n\
                 operators' changes kept: weights: 2, blocks: 1, VIPs are withdrawn\n\
                 operators' changes undone: weights: 1, blocks: 1",
            ),
            (json!({ "withdrawn": ["10.0.0.1", "::1"] }), "withdrawn: 10.0.0.1, ::1"),
            (
                json!({ "withdrawn": [], "leaving": ending, "connections": 1 }),
                "withdrawn: none\nthe program ends in 9 s, or once no connection is left: 1 \
                 connection now",
            ),
            (json!({ "ready": [] }), "announced again: none"),
            (
                json!({ "prefix": "b", "unsaved": "no room" }),
                "a is no longer blocked\nwarning: this is in force, but a restart of the node \
                 undoes it: no room",
            ),
        ] {
            assert_eq!(text(answer, |saved: &Saved<Change>| saved.text("a")), expected);
        }
    }

    #[test]
    fn rows_of_backends_leave_out_what_most_of_them_lack() {
        let row = json!({
            "service": "web", "address": "10.0.0.1", "weight": 1, "configured_weight": 2,
            "state": "up", "is_probed": false, "probe": null, "packets": 3, "connections": 4,
        });
        let expected = "service  address   weight       state  connections  packets  probe\n\
                        web      10.0.0.1  1 (file: 2)  up               4        3      -";
        assert_eq!(text(json!([row]), Backend::text), expected);
        let mut probed = row;
        probed["probes"] = json!([{ "via": "tunnel", "is_up": true, "last": null }]);
        probed["verdict"] = Value::Null;
        assert_eq!(text(json!([probed]), Backend::text), expected);
        probed["verdict"] = "silent".into();
        probed["draining"] = json!({ "left_s": null, "until_empty": false });
        let difference = json!({ "is_up_here": true, "down_on": ["a"], "nodes": 3, "needed": 2 });
        probed["health"] = difference;
        let lines = "10.0.0.1 of web: silent\n\
                     10.0.0.1 of web: counts as down, and this node finds it up: of 3 nodes, 2 must \
                     find it down; that do: a\n\
                     10.0.0.1 of web: drained, with 4 connections left";
        assert_eq!(text(json!([probed]), Backend::text), format!("{expected}\n{lines}"));
    }

    #[test]
    fn the_age_of_a_next_hop_is_absent_if_it_is_never_asked_and_null_before_its_first_answer() {
        let row = |age_s| {
            let state = "unknown".to_owned();
            NextHop {
                port: Some("0".into()),
                address: None,
                mac: None,
                state,
                age_s,
                backends: None,
            }
        };
        let rows = vec![row(None), row(Some(None)), row(Some(Some(7)))];
        let ages = json!(rows);
        let ages: Vec<_> = (0..3).map(|index| ages[index].get("age_s").cloned()).collect();
        assert_eq!(ages, [None, Some(Value::Null), Some(json!(7))]);
        let expected = "port  address  mac  state    age_s  backends\n\
                        \x20  0        -    -  unknown      -         -\n\
                        \x20  0        -    -  unknown      -         -\n\
                        \x20  0        -    -  unknown      7         -";
        assert_eq!(NextHop::text(&rows), expected);
    }

    #[test]
    fn a_node_without_peers_has_a_store_alone() {
        let store = json!({
            "address": "etcd", "revision": 3, "newest": 4, "proposed": null, "is_registered": true,
            "is_replaced": false, "unread_s": 5, "failure": "no route", "copy_failure": null,
            "nodes": [{ "name": "a", "revision": 3, "answer_to": null, "refused": null }],
        });
        let answer = json!({ "node": "a", "peers": [], "store": store });
        let expected = "node a: shares no connections (it has no cluster.peers)\n\n\
                        store etcd: revision 3 in force, 4 refused or under way; not read for 5 s: \
                        no route\n\
                        name  revision  answer_to  refused\n\
                        a            3          -        -";
        assert_eq!(text(answer, Cluster::to_string), expected);
    }

    #[test]
    fn a_node_among_peers_has_both_nodes_states() {
        let peer = json!({
            "name": "b", "address": "192.0.2.2:1", "state": "in-sync", "revision": 3,
            "tables": null, "is_ready": null, "reference": 4, "is_waiting": true,
            "has_its_snapshot": true, "is_caught_up": false, "lag_records": 1, "lag_ms": 2,
            "to_enter": 0, "sent": 5, "received": 6,
            "sent_bytes": 0, "received_bytes": 0, "snapshots_sent": 0,
            "snapshots_received": 0, "overflows": 0, "last_error": "closed",
        });
        let answer = json!({
            "node": "a", "listen": "192.0.2.1:1", "is_ready": true, "certificate_not_after": null,
            "tables": "0f", "references": [3, 4], "is_waiting": true, "is_marked": false, "waiting": 1, "stale": 2, "refused": 3,
            "peers": [peer], "store": null,
        });
        let text = text(answer, Cluster::to_string);
        let begin = "node a at 192.0.2.1:1, tables 0f: ready; not all exceptions are handed over, 1 \
                     change waiting\nreference table 3, moving (4); lost connections may be alive\nof \
                     peers: 2 stale, 3 refused\nname  address      state";
        assert!(text.starts_with(begin) && text.ends_with("\nb: closed"), "{text}");
    }
}
