//! `ipip-lb cluster`: the operator's end of the store of a cluster.

mod apply;
mod command;

pub use apply::Apply;
pub use command::{Cluster, ClusterCommand, Named, Place, Show, StoreFiles};
