//! All tests of rate-limit, in one program: each links DPDK's wrapper and the engine anew.

mod deployments;
mod limiter;
mod program;
