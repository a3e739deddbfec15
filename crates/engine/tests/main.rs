//! The tests that can run in one process, in one program, since linking one takes longer than
//! compiling it. Tests that count allocations or threads, send signals or subscribe to events have
//! their own programs.

mod common;

mod assembly;
mod burst_stages;
mod capture;
mod clock;
mod control;
mod device_ledger;
mod exits;
mod groups;
mod idle;
mod ledger;
mod load;
mod lossless;
mod mailbox;
mod order;
mod outlets;
mod panics;
mod placement;
mod publish_oracle;
mod publish_threads;
mod snapshot;
mod start;
