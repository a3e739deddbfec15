//! What is not safe Rust among the peers: DPDK's structures in C, and code that reads memory as directly
//! as can be.

pub mod buffer;
pub mod floor;
pub mod forward;
pub mod katran;
pub mod lines;
pub mod parse;
pub mod rte_hash;
pub mod rte_ring;
