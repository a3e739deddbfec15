//! All tests of the endpoint, in one program: each links DPDK's wrapper and the engine anew.

mod endpoint;
mod malformed;
mod privileges;
mod program;
mod schema;
