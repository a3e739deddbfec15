//! What the benchmarks have in common: alternating rounds, the table, the JSON file.
//!
//! Cores of a shared machine are moved about and slowed by neighbours, so absolute figures mean
//! little. Every row is therefore measured beside its peer in alternating rounds of one run, and what
//! counts is the median of the rounds' ratios.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

pub mod bare_lines;
pub mod contest;
pub mod cores;
pub mod cpu_time;
pub mod forwarder;
pub mod hugepages;
pub mod peers;
pub mod row;
pub mod testpmd;
pub mod traffic;
