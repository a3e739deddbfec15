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

pub use changes::{Change, Saved};
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
