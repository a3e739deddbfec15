//! What the crate promises as a whole: no panics, packets of a flow that meet, tunnels that give back
//! what went in.

mod decapsulate;
mod flows;
mod frames;
mod ipip;
mod never_panic;
mod spread;
