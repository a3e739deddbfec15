//! The program's part in the store of a cluster: `ipip-lb cluster`, the start from the store, and the node's copy.

mod apply;
mod command;
pub mod copy;
mod difference;
mod start;

pub use apply::Apply;
pub use command::{Cluster, ClusterCommand, Place, Show};
pub use start::{Patience, start};
