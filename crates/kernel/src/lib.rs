//! Works with the kernel beside a program that has taken its NIC.
//!
//! - [`KernelFollower`] follows the kernel's links, addresses, routes and neighbours, and looks up
//!   next hops.
//! - [`KernelNextHops`] brings next hops to the packet path, and has the kernel resolve neighbours.
//!   [`PacketRoutes`] gives them to a stage that resolves packets' next hops.
//! - [`KernelPort`] carries packets between cores and the kernel, through a [`Tap`] interface.
//! - [`Takeover`] moves an interface's addresses and routes to another; [`restore`] moves them back
//!   for a program that was killed.
//! - [`VipRoutes`] installs and deletes routes to VIPs, which routing daemons announce.
//!   [`VipAnnouncer`] does so as VIPs become ready, and holds those that flap.
//! - A successor process adopts these: [`Tap::adopt`], [`VipRoutes::adopt`], [`Takeover::adopt`].
//! - [`VipGuard`] has another process delete the routes if this one hangs.
//!
//! ```
//! use hotloop_kernel::{KernelFollower, Lookup};
//!
//! # fn main() -> std::io::Result<()> {
//! let kernel = KernelFollower::start()?;
//! let gateway = kernel.read(|tables| match tables.lookup([192, 0, 2, 1].into()) {
//!     Lookup::Via(hop) => tables.neighbour(hop.interface_index, hop.address),
//!     _ => None,
//! });
//! println!("{gateway:?}");
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - No core waits for the kernel: frames and next hops cross in rings and published tables.
//!   Threads of this crate read and write netlink sockets and TAP interfaces.
//! - Each of these threads gives up the capabilities that it does not need
//!   ([`keep`](hotloop_privileges::keep)).
//! - A frame for the kernel is sent, or counted under the reason for its drop. Each reason and each
//!   peer has limits of its own.
//! - The settings of an interface are in a file before the first one is moved, so that [`restore`]
//!   can move them back after a SIGKILL.
//!
//! # Unsafe code
//!
//! - `tun`: the request that makes a TAP interface; Rust's libraries have no safe form of it. The
//!   code relies on `tuntap.rst` and netdevice(7) for the bytes that the kernel reads and writes.
//!
//! # Limits
//!
//! Linux only. This crate knows stages, rings and packets, but not the arguments and the control socket of
//! a program.
#![deny(unsafe_code)]

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
mod vips;

pub use follower::{EVENT_BUFFER_BYTES, KernelFollower};
pub use local::local_addresses;
pub use next_hops::{
    CoreRoutes, HopChange, Hops, KernelHop, KernelNextHops, PacketRoutes, RoutedPort, Way,
};
#[cfg(feature = "dpdk")]
pub use port::Mbufs;
#[cfg(feature = "fuzzing")]
pub use port::check_punted;
pub use port::{
    EachReason, FRAME_COUNT, KernelPort, KernelPortCounters, KernelSink, KernelSource,
    PortOrKernel, PuntLimit, PuntLimits, PuntPeer, PuntReason, Supply,
};
pub use routes::{KernelRoutes, RouteTarget};
pub use tables::{
    ChangeCounts, DEFAULT, Hop, InterfaceAddress, KernelNeighbour, KernelTables, LOCAL, Link,
    Lookup, MAIN, NeighbourState, NextHop, Route, RouteKind,
};
pub use takeover::{Takeover, TakeoverError, restore};
pub use tap::{Tap, TapConfig, TapError};
pub use vips::{
    HangReporter, ROUTE_PROTOCOL, VIP_HOLD_MAX, VIP_METRIC, VipAnnouncer, VipGuard, VipRouteError,
    VipRoutes, VipStates, Withheld, guard_vips,
};
