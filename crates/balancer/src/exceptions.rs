//! Connections on another backend than the reference table has, as nodes of a cluster exchange them.
//!
//! A [`Record`] claims such a connection to other nodes. The rules for claims are
//! [`Known`](hotloop_agreement::Known)'s; this module is only values:
//! [`balance`](crate::balance) finds and enters exceptions, and the program's cluster carries them
//! between nodes.

mod record;

pub(crate) use record::left_ms;
pub use record::{Change, Record};
