//! Tests of the whole engine that may allocate, in one program: each links DPDK's wrapper, the
//! engine and the programs anew.

mod capture;
mod cycles;
mod devices;
mod functions;
mod kernel;
mod ledger;
mod project;
mod samples;
mod soak;
mod tutorial;
