//! One configuration for all nodes of a cluster, from etcd.

mod access;
pub mod copy;
mod difference;
mod error;
pub mod etcd;
mod etcd_watch;
mod findings;
mod gateway;
mod generation;
pub mod layout;
mod lease;
mod phase_thread;
pub mod phases;
mod proposal;
mod start;
mod store_watch;

pub use difference::changes;
pub use error::{StoreError, StoreErrorKind, nothing_in};
pub use etcd_watch::{EtcdWatch, WatchEvent};
pub use findings::Finding;
pub use gateway::Key;
pub use generation::Generation;
pub use proposal::{Carried, Open, PROPOSAL_S, Proposal};
pub use start::{Patience, start};
pub use store_watch::{Pace, StoreState, StoreWatch, Task};
