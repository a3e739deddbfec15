//! Tests of the firewall.

mod mutated;
mod program;
mod properties;
mod simulated;
mod states;
mod strange;
mod wall;
