//! One configuration for all nodes of a cluster, from etcd.

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
mod watch;
mod watching;

pub use error::{StoreError, StoreErrorKind, nothing_in};
pub use findings::Finding;
pub use gateway::Key;
pub use generation::Generation;
pub use proposal::{Carried, Open, PROPOSAL_S, Proposal};
pub use watch::{Pace, StoreState, StoreWatch, Task};
pub use watching::{Watched, Watching};
