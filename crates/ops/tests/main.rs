//! The tests that can run in one process, in one program, since linking one takes longer than compiling
//! it. Those that start themselves again, send signals or look at their own process have theirs.

mod numbers;

mod ask;
mod operate;
mod paths;
