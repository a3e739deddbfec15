//! What an arena claims, against what the kernel says: every kind of pages, and every way in which
//! it can be refused. Limits of the process are lowered in processes of their own; pools of reserved
//! pages are filled and restored where the machine allows it. None depends on what it has reserved.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

mod child;
mod claims;
mod memlock;
mod refusals;
mod reserved;
mod smaps;
