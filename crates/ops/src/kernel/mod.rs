//! The kernel beside a program that has taken its NIC.
//!
//! - [`KernelFollower`] follows the kernel's links, addresses, routes and neighbours, and looks up
//!   where packets go next.
//! - [`KernelNextHops`] brings that to the packet path, and has the kernel resolve neighbours.
//! - [`KernelPort`] carries packets between cores and the kernel, by a [`Tap`] interface.
//! - [`Takeover`] moves an interface's addresses and routes to another, and [`restore`] puts back what a
//!   program left that was killed.
//! - [`VipRoutes`] installs and deletes the routes by which routing daemons announce VIPs.
//! - A program that takes over from another one adopts these: [`Tap::adopt`], [`VipRoutes::adopt`],
//!   [`Takeover::adopt`].
//! - [`VipGuard`] has them deleted by another process where this one hangs.

mod follower;
mod local;
mod netlink;
mod next_hops;
mod port;
mod routes;
mod tables;
mod takeover;
mod tap;
#[allow(unsafe_code, reason = "TAP interfaces are made by a request that Rust has no safe form of")]
mod tun;
mod vip_guard;
mod vip_routes;

pub use follower::{EVENT_BUFFER_BYTES, KernelFollower};
pub use local::local_addresses;
pub use next_hops::{Hops, KernelHop, KernelNextHops, Way};
#[cfg(feature = "dpdk")]
pub use port::Mbufs;
#[cfg(feature = "fuzzing")]
pub use port::check_punted;
pub use port::{
    EachReason, FRAME_COUNT, KernelPort, KernelPortCounters, KernelSink, KernelSource,
    PortOrKernel, PuntLimit, PuntLimits, PuntPeer, PuntReason, Supply,
};
pub use routes::{KernelRoutes, Onward};
pub use tables::{
    ChangeCounts, DEFAULT, Hop, InterfaceAddress, KernelNeighbour, KernelTables, LOCAL, Link,
    Lookup, MAIN, NeighbourState, NextHop, Prefix, Route, RouteKind,
};
pub use takeover::{Takeover, TakeoverError, restore};
pub use tap::{Tap, TapConfig, TapError};
pub use vip_guard::{VipGuard, guard_vips};
pub use vip_routes::{ROUTE_PROTOCOL, VIP_METRIC, VipRouteError, VipRoutes};
