//! All tests of nat44, in one program: each links DPDK's wrapper and the engine anew.

mod lab;

mod connections;
mod deployments;
mod early;
mod fragments;
mod hairpin;
mod listing;
mod malformed;
mod mapping;
mod messages;
mod requirements;
mod schema;
mod tcp;
