//! One configuration for all nodes of a cluster, from etcd.

mod command;
pub mod copy;
mod difference;
mod error;
pub mod etcd;
mod gateway;
pub mod layout;
pub mod phases;
mod start;
mod watch;
mod watching;

pub use command::{Apply, Cluster, ClusterCommand, Place, Show};
pub use error::{StoreError, StoreErrorKind};
pub use gateway::Key;
pub use start::{Patience, start};
pub use watch::{Pace, StoreState, StoreWatch};
pub use watching::{Watched, Watching};
