//! Tests that can share one process, in one program, since linking takes longer than compiling.
//! Tests that start themselves again, send signals or look at their own process have programs of
//! their own.

mod numbers;

mod ask;
mod listing;
mod operate;
mod paths;
