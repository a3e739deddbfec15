//! Sessions that all nodes of a cluster know: those that the configuration alone does not tell.

mod record;

pub use record::{Change, Record};
