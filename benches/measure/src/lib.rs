//! Compares ways of doing the same work on a machine that is never quiet.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

pub mod alternate;
pub mod bare_lines;
pub mod bars;
pub mod contest;
pub mod cores;
pub mod cpu_time;
pub mod distance;
pub mod figure;
pub mod hugepages;
pub mod instrument;
pub mod interactive;
pub mod program;
pub mod random;
pub mod row;
mod slices;
pub mod svg;
pub mod table;
pub mod watch;
