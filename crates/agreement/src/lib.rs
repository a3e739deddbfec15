//! The rules of a cluster that keeps connections on their backends: functions from a node's knowledge of a
//! connection to its next knowledge, without clocks, sockets and tables.
//!
//! # The invariant
//!
//! > A packet of a connection that a node doesn't know goes to the backend in the reference table. Every
//! > connection on another backend is known to every node that receives packets.
//!
//! All nodes share the *reference table*, which changes seldom, by a [move](barrier) in which all of them take
//! part. Each node chooses the backends of new connections by its own *current table*, which follows drains,
//! weights, health and reloads, in any order on any node. A connection that differs from the reference table
//! is an *exception*, and is claimed to all peers from its birth.
//!
//! | file | rules |
//! |---|---|
//! | `known.rs` | a node's knowledge of one connection: SYNs, packets, claims, ends |
//! | `barrier.rs` | moves of the reference table |
//! | `standing.rs` | which reference tables a node uses, and when they move |
//! | `join.rs` | the start of a node, which needs all exceptions |
//!
//! # Guarantees
//!
//! A connection that has been answered, and whose claim (if it needs one) has been acknowledged by all nodes that
//! receive packets, stays on its backend, whichever node gets its packets, until it is silent for the idle timeout
//! or its backend goes. Nodes may end at any time and start again without memory, messages may be late, lost and
//! in any order, and clocks may differ by a factor of two in their rates.
//!
//! `tests/search` explores all orders of events in clusters of three nodes and one or two connections, and has
//! to find the fault when any rule is left out.
//!
//! # Example
//!
//! ```
//! use hotloop_agreement::{Birth, Choice, Known, Reason};
//!
//! // This node drains backend 1, the connection's backend in the reference table.
//! let choice =
//!     Choice { current: 2, reference: 1, is_reference_gone: false, other: None, is_loose: false };
//! let opened = Known::Nothing.after_syn(&choice, Birth::new(7));
//! assert_eq!(opened.known.backend(&choice), 2);
//! assert_eq!(opened.claim, Some(Reason::Exception));
//!
//! // A connection in its midst that the node doesn't know stays on the backend in the reference table.
//! assert_eq!(Known::Nothing.after_packet(&choice).known.backend(&choice), 1);
//! ```
//!
//! # Limits
//!
//! Not promised are connections that have lost their only claim with its node; one connection attempt that
//! reaches two nodes with different current tables; a port that is used again before all nodes have heard of the
//! last connection's end; and, across a partition, connections that began in it and are exceptions.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod barrier;
mod join;
mod known;
mod standing;

pub use barrier::{Action, Member, Phase, Step};
pub use join::{Joining, Nodes};
pub use known::{Birth, Choice, Circumstances, Claim, Entry, Known, Outcome, Reason, Stage};
pub use standing::{Decision, Peer, Situation, Standing};
