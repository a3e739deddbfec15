//! The tests that share one EAL, in one program, since linking one takes longer than compiling it.
//! Tests that start processes with an EAL of their own, or that check all memory of a process, are
//! programs of their own.

mod common;

mod errors;
mod filter;
mod forwarding;
mod freeing;
mod lifecycle;
mod malformed;
mod memif;
mod ownership;
mod packets;
mod stack;
