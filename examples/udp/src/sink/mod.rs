//! Receives UDP datagrams, over any number of RX queues or from the kernel's sockets, and prints
//! each second how many came.
//!
//! The network function is two typed parts: [`ToPorts`](filter::ToPorts) drops, by reason,
//! everything except datagrams to the requested ports, and [`Delivery`](delivery::Delivery), where
//! applications would read payloads, counts and frees. Neither knows DPDK; the tests run both on
//! plain memory. The kernel's [`sockets`] are a source of the same engine, so both kinds of I/O are
//! counted, verified and reported alike.
//!
//! Nothing is sent, so ARP requests and neighbour solicitations get no answer: the sender must know
//! the MAC address. Checksums are not verified.

pub mod cli;
pub mod delivery;
pub mod filter;
pub mod graph;
pub mod ports;
pub mod run;
pub mod sockets;
pub mod spread;
pub mod with_source;
