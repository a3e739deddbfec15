//! A stateful firewall for IPv4 and IPv6, a bump in the wire between an inside and an outside.
//!
//! The network function is [`firewall::filtered`], from the packets that two ports receive to the
//! packets that they send. It knows sources and sinks, not DPDK, so its tests run on plain memory.
//!
//! - [`firewall`]: the graph, and the stage that decides about each packet.
//! - [`packet`]: the fields of a packet that decide.
//! - [`connection`]: the states of a connection, and how long each lasts.
//! - [`rules`]: the packets that may open a connection.
//! - [`operator`]: the control thread's part.
#![forbid(unsafe_code)]

pub mod connection;
pub mod firewall;
pub mod operator;
pub mod packet;
pub mod rules;

/// The README's sample, included here to be compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
