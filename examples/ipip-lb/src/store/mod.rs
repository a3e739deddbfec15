//! One configuration for all nodes of a cluster, from etcd.

mod apply;
mod command;
pub mod copy;
mod difference;
mod error;
pub mod etcd;
mod findings;
mod follower;
mod gateway;
mod generation;
pub mod layout;
mod lease;
pub mod phases;
mod proposal;
mod start;
mod watch;
mod watching;

pub use apply::Apply;
pub use command::{Cluster, ClusterCommand, Place, Show};
pub use error::{StoreError, StoreErrorKind};
pub use gateway::Key;
pub use generation::Generation;
pub use proposal::{Carried, Open, PROPOSAL_S, Proposal};
pub use start::{Patience, start};
pub use watch::{Pace, StoreState, StoreWatch, Task};
pub use watching::{Watched, Watching};
