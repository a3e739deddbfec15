//! The peers that aren't safe Rust: DPDK's structures in C, and code that reads memory as directly
//! as possible.

pub mod floor;
pub mod forward;
pub mod katran;
pub mod lines;
pub mod parse;
pub mod rte_hash;
pub mod rte_ring;
