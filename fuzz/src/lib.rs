//! Fuzz targets: everything that reads foreign bytes.
//!
//! Each target takes arbitrary bytes and panics if a guarantee is broken. `fuzz/run.sh TARGET`
//! looks for such bytes, guided by coverage; its findings are kept in `fuzz/corpus`, and
//! `tests/corpus.rs` runs them again with every `cargo test`.

#![forbid(unsafe_code)]

mod balancer;
mod captures;
#[path = "../../crates/packet/tests/packet/check.rs"]
mod check;
mod configuration;
mod control;
mod device;
mod neighbours;
mod script;
mod sync;

/// Takes arbitrary bytes.
pub type Run = fn(&[u8]);

/// Every target: its name, and its function.
pub const TARGETS: [(&str, Run); 9] = [
    ("headers", check::check),
    ("balancer", balancer::run),
    ("captures", captures::run),
    ("configuration", configuration::run),
    ("control", control::run),
    ("device", device::run),
    ("kernel", hotloop_kernel::check_punted),
    ("neighbours", neighbours::run),
    ("sync", sync::run),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Run> {
    TARGETS.iter().find(|(target, _)| *target == name).map(|(_, run)| *run)
}
