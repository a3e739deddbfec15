//! The parts that several benchmarks need: the network functions that are measured, their traffic, and the
//! peers.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

pub mod bed;
pub mod buffer;
pub mod configuration;
pub mod datagrams;
pub mod engines;
pub mod forwarder;
pub mod peers;
pub mod testpmd;
pub mod traffic;
