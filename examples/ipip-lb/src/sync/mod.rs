//! Sessions that all nodes of a cluster know: those that the configuration alone does not tell.

mod merge;
mod record;

pub use merge::{Existing, Verdict, merge};
pub use record::{Change, Record};
