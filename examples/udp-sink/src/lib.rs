//! Receives UDP datagrams over any number of RX queues and says each second how many came.
//!
//! The network function is two typed parts: [`ToPorts`](filter::ToPorts) drops, by reason, whatever
//! is no datagram to a port that was asked for, and [`Delivery`](delivery::Delivery), where
//! applications would read payloads, counts and frees. Neither knows DPDK; the tests run both on
//! plain memory.
//!
//! Nothing is sent, so nobody's ARP or neighbour solicitations are answered: the sender has to know
//! the MAC address. Checksums are not verified.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod cli;
pub mod delivery;
pub mod filter;
pub mod graph;
pub mod output;
pub mod ports;
pub mod rate;
pub mod run;
