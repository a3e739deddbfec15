//! The kernel beside a program that has taken its NIC.
//!
//! - [`KernelFollower`] follows the kernel's links, addresses, routes and neighbours, and looks up
//!   where packets go next.
//! - [`VipRoutes`] installs and deletes the routes by which routing daemons announce VIPs.

mod follower;
mod netlink;
mod tables;
mod vip_routes;

pub use follower::{EVENT_BUFFER_BYTES, KernelFollower};
pub use tables::{
    ChangeCounts, DEFAULT, Hop, InterfaceAddress, KernelNeighbour, KernelTables, LOCAL, Link,
    Lookup, MAIN, NeighbourState, NextHop, Prefix, Route, RouteKind,
};
pub use vip_routes::{ROUTE_PROTOCOL, VIP_METRIC, VipRouteError, VipRoutes};
