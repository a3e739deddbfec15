//! All tests of nat44, in one program: each links DPDK's wrapper and the engine anew.

mod lab;

mod connections;
mod deployments;
mod early;
mod malformed;
mod messages;
mod schema;
