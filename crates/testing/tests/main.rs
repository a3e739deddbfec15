//! The tests that allocate as they like, in one program, since linking one takes longer than compiling it.

mod bench;
mod faults;
mod planted;
mod simulator;
