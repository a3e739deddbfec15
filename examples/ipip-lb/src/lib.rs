//! The program `ipip-lb` as a library, for its tests and benchmarks: a layer-4 load balancer that
//! tunnels to its backends by IP in IP. The data path is the crate `hotloop-balancer`. This package
//! is the program around it, described in its README.
//!
//! - [`config`]: the operator's configuration. [`check`]: the configuration as understood.
//! - [`network_function`]: the graph around the balancer. [`exception`], [`next_hops`]: its ways to the kernel.
//! - [`control`]: changing and asking a balancer that runs, and [`ctl`], the operator's end of that. [`request`]: the
//!   requests between the two. Health checks are the crate `hotloop-health`.
//! - [`store`]: `ipip-lb cluster`; the cluster itself is `hotloop-cluster`.
//! - [`replace`]: one program takes over from another.
//! - [`replay`], [`run`]: the program's two ways to run the graph, on captures and on devices.
//!
//! # Guarantees
//!
//! Those of [`hotloop_balancer`], and:
//!
//! - Every error in a configuration, a capture or an argument is reported in one line with its
//!   place and a remedy.
//!
//! # Example
//!
//! The graph of a configuration:
//!
//! ```
//! use hotloop::packet::ethernet::MacAddress;
//! use ipip_lb::{config::Config, network_function::NetworkFunction};
//! use hotloop_balancer::balance::{Egress, Egresses, Route};
//!
//! let config = Config::parse("lb.toml", r#"
//!     [balancer]
//!     source_v4 = "192.0.2.1"
//!     mtu = 1500
//!     decapsulate = []
//!     [[port]]
//!     name = "uplink"
//!     device = "net_null0"
//!     next_hop_mac = "02:00:00:00:00:01"
//!     [[service]]
//!     name = "web"
//!     address = "203.0.113.10"
//!     protocol = "tcp"
//!     ports = "80"
//!     backend = [{ address = "10.0.0.1" }]
//! "#)?;
//! let egress = Egress {
//!     route: Route(0),
//!     source: MacAddress::new([2, 0, 0, 0, 0, 2]),
//!     destination: config.ports[0].next_hop.mac(),
//! };
//! let egresses = Egresses { clients: egress, backends: egress };
//! let (function, _steering) = NetworkFunction::new(&config, egresses)?;
//! assert_eq!(function.summary().services.all()[0].choices.len(), 1);
//! # Ok::<(), hotloop::Error>(())
//! ```
//!
//! # Limits
//!
//! The counts of round-robin, least connections and ICMP's rates are not handed over to a program
//! that [takes over](replace).

#![forbid(unsafe_code)]

pub mod announce;
mod answer;
pub mod check;
pub mod cli;
pub mod config;
pub mod control;
pub mod ctl;
pub mod detach;
mod dropped;
pub mod exception;
pub mod failure;
mod hugepages;
pub mod network_function;
pub mod next_hops;
pub mod outcome;
pub mod overrides;
pub mod port_hops;
pub mod reference;
pub mod replace;
pub mod replay;
pub mod request;
pub mod run;
pub mod source;
pub mod store;
pub mod until;
pub mod vip_guard;
