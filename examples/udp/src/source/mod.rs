//! Sends small UDP datagrams over any number of TX queues, as fast as possible or at a rate.
//!
//! Every datagram is its flow's headers and a payload that all share except its beginning
//! ([`datagrams`]): its number in its flow and its sending time, which udp-sink uses to verify and
//! measure. Nothing is allocated while sending. There are several flows, so that a receiver's RSS
//! has something to spread. Without a device, the program sends through the kernel's [`sockets`],
//! one for each flow, on the same engine.
//!
//! # In the ledger
//!
//! The graph is a [`Generator`](generator::Generator) and the TX queue. The generator is a source
//! that creates its packets: it takes blank mbufs from a [`pool`] of its own and writes a datagram
//! into each, so nothing is *received* and every datagram is *created*. At the end created = sent +
//! dropped, `sent` is compared with the port's own counter, and the pool must have all mbufs back.
//!
//! Nothing is dropped during the run: if the TX queue is full, the core waits in
//! [`Patient`](patient::Patient), and makes no more packets until the present ones are sent. Only
//! packets that cannot be sent for half of `--worker-stall-ms-max`, or for a while after the end
//! (the link went down), are dropped, as `tx_full`.
//!
//! # Limits
//!
//! With a device, the program receives nothing once it sends, so ARP requests get no answer. It
//! waits for a link, but a net_memif client needs its server's socket to exist when it starts.

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
