//! A stateful firewall for IPv4 and IPv6, a bump in the wire between an inside and an outside.
//!
//! [`network`] is the graph, [`firewall`] the stage that decides about packets, by [`rules`] and by
//! the [`connection`]s and [`datagram`]s that a core knows. [`operator`] is the control thread's part.

pub mod connection;
pub mod datagram;
pub mod firewall;
pub mod flow;
pub mod network;
pub mod operator;
pub mod reject;
pub mod rules;
pub mod side;
