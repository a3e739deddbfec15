//! Connections on another backend than the configuration chooses, as nodes of a cluster exchange them.
//!
//! A [`Record`] describes such a connection to other nodes, and a [`Change`] claims or ends one.
//! [`merge`] decides between a peer's claim and the local connection. This module is only values
//! and pure functions: [`balance`](crate::balance) finds and enters exceptions, and the program's
//! cluster carries them between nodes.

mod merge;
mod record;

pub use merge::{Existing, MOVES, Verdict, is_ahead, merge};
pub(crate) use record::left_ms;
pub use record::{Change, Record};
