//! Compares an arena's claims with the kernel's reports: every kind of pages, and every reason to
//! refuse them. Limits of the process are lowered in processes of their own; pools of reserved
//! pages are filled and restored if the machine allows it. No test depends on the machine's
//! reserved pages.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

mod child;
mod claims;
mod memlock;
mod refusals;
mod reserved;
mod smaps;
