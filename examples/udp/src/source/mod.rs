//! Sends small UDP datagrams over any number of TX queues, as fast as it can or at a rate.
//!
//! Every datagram is its flow's headers, and a payload that all share but for its beginning ([`datagrams`]): its
//! number in its flow and when it left, by which udp-sink verifies and measures. Nothing is allocated while it sends.
//! It sends several flows, so that a receiver's RSS has something to spread. Without a device it sends by the
//! kernel's [`sockets`], one for each flow, on the same engine.
//!
//! # In the ledger
//!
//! The graph is a [`Generator`](generator::Generator) and the TX queue. The generator is a source that
//! creates its packets: it takes blank mbufs from a [`pool`] of its own and writes a datagram into
//! each, so nothing is *received* and every datagram is *created*. In the end created = sent +
//! dropped, `sent` is compared with the port's own counter, and the pool must have each mbuf back.
//!
//! Nothing is dropped while it runs: where the TX queue is full, the core waits in
//! [`Patient`](patient::Patient), and makes no more until what it has is sent. Only what cannot be
//! sent for half of `--worker-stall-ms-max`, or for a while after the end (the link went down), is
//! dropped, as `tx_full`.
//!
//! # Limits
//!
//! By a device, it receives nothing once it sends, so nobody's ARP is answered. It waits for a link, but a net_memif
//! client needs its server's socket to be there when it starts.

pub mod cli;
pub mod datagrams;
pub mod flows;
pub mod generator;
pub mod graph;
pub mod make;
pub mod pace;
pub mod patient;
pub mod pool;
pub mod resolve;
pub mod run;
pub mod sockets;
