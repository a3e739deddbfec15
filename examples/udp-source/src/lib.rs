//! Sends small UDP datagrams over any number of TX queues, as fast as it can or at a rate.
//!
//! Every datagram is copied from one frame, in which only the source port and the checksum differ
//! from flow to flow ([`datagrams`]); nothing is allocated and no checksum is summed while it sends.
//! It sends several flows, so that a receiver's RSS has something to spread.
//!
//! # In the ledger
//!
//! The graph is a [`Generator`](generator::Generator) and the TX queue. The generator is a source that
//! creates its packets: it takes blank mbufs from a [`pool`] of its own and copies a datagram into
//! each, so nothing is *received* and every datagram is *created*. In the end created = sent +
//! dropped, `sent` is compared with the port's own counter, and the pool must have each mbuf back.
//!
//! Nothing is dropped while it runs: where the TX queue is full, the core waits in
//! [`Patient`](patient::Patient), and makes no more until what it has is sent. Only what cannot be
//! sent for a while after the end (the link went down) is dropped, as `tx_full`.
//!
//! # Limits
//!
//! One destination. It resolves no addresses (no ARP, no neighbour discovery) and receives nothing,
//! so a device that must have as many RX as TX queues, such as net_tap, does not start. It waits for a
//! link, but a net_memif client needs its server's socket to be there when it starts.

#![forbid(unsafe_code)]

pub mod cli;
pub mod datagrams;
pub mod generator;
pub mod graph;
pub mod pace;
pub mod patient;
pub mod pool;
pub mod run;
