//! The whole engine over virtual devices, in every deployment.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod by_time;
mod captures;
mod hop;
mod kernel;
mod loops;
mod report;
mod shapes;
mod traffic;
