//! All tests of hello-forward, in one program: each links DPDK's wrapper and the engine anew.

mod cpus;
mod ctl;
mod privileges;
mod program;
mod schema;
mod silent_resolver;
