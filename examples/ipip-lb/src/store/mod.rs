//! One configuration for all nodes of a cluster, from etcd.

mod command;
mod difference;
mod error;
pub mod etcd;
mod gateway;
pub mod layout;
mod watching;

pub use command::{Apply, Cluster, ClusterCommand, Place, Show};
pub use error::{StoreError, StoreErrorKind};
pub use gateway::Key;
pub use watching::{Watched, Watching};
