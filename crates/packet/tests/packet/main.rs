//! The crate's guarantees: no panics, packets of a flow that meet, tunnels and fragments that
//! return the original packet, answers that others understand.

mod answers;
mod captures;
mod check;
mod decapsulate;
mod fast_path;
mod flows;
mod fragment_views;
mod fragments;
mod frames;
mod headers;
mod ipip;
mod nat;
mod never_panic;
mod reference;
mod replies;
mod segmented;
mod spread;
mod tunnel_sources;
mod write;
mod write_refusals;
