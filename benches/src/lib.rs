//! Shared code of the benchmarks: short slices that alternate, the table, the JSON file.
//!
//! Cores of a shared machine are moved about and slowed by neighbours, so absolute figures mean
//! little. Every row is therefore measured beside its peer in one run ([`contest`]), and a row that
//! was disturbed too often is marked as unsettled.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

pub mod alternate;
pub mod bare_lines;
pub mod bars;
pub mod beside_testpmd;
pub mod contest;
pub mod cores;
pub mod cpu_time;
pub mod distance;
pub mod figure;
pub mod forwarder;
pub mod hugepages;
pub mod instrument;
pub mod interrupts;
pub mod peers;
pub mod row;
mod slices;
pub mod svg;
pub mod table;
pub mod testpmd;
pub mod traffic;
pub mod watch;
