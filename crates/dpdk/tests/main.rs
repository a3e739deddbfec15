//! The tests that share one EAL, in one program, since linking one takes longer than compiling it.
//! Those that start processes with an EAL of their own, or look at all memory of theirs, have theirs.

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
