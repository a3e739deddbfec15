//! Nodes of a cluster of balancers: the connections that they share, and the store of their configuration.
//!
//! Several balancers of one configuration choose backends alike, so a node needs to know little of the others. This
//! crate carries it:
//!
//! - [`sync`]: [exceptions](hotloop_balancer::exceptions), connections on another backend than the configuration chooses,
//!   between each pair of nodes over TLS.
//! - [`store`]: one configuration for all nodes, in etcd, which they prepare and then put in force in two phases; and
//!   the findings of each node's probes.
//! - [`replace`]: one program takes over from another, as if they were two nodes.
//! - [`settings`]: the nodes and the store, as a configuration names them.
//! - [`random`]: random numbers of both.
//!
//! It may use `hotloop-balancer` for the values that nodes exchange, and knows nothing of the configuration's file or of
//! the command line.
//!
//! # Guarantees
//!
//! - Nothing here is called on the packet path, apart from the [gate](replace::Gate) of a program's sources.
//! - [`sync`] and [`store`] have threads of their own, so callers never wait for the network.
//! - A peer that stops reading does not delay other peers: its queue is bounded, and a new snapshot takes its place.
//! - A configuration comes into force on all nodes or on no node, unless an operator forces it.
//!
//! # Example
//!
//! ```
//! use hotloop_cluster::settings::StoreAddress;
//!
//! let address: StoreAddress = "etcd://10.0.0.1:2379,10.0.0.2:2379/lb".parse()?;
//! assert_eq!(address.endpoints().len(), 2);
//! assert_eq!(address.prefix(), "/lb/");
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

mod pem;
pub mod random;
pub mod replace;
pub mod settings;
pub mod store;
pub mod sync;
