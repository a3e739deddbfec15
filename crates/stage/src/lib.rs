//! The vocabulary of a network function.
//!
//! A [`Source`] fills a [`Burst`], each [`Stage`] turns a packet into the next stage's input or
//! drops it for a named reason through [`Cx::drop`], and a [`Sink`] sends the rest. Nothing here
//! depends on threads, rings or devices: the engine that drives the stages provides those.
//!
//! - Every packet ends in one output or one counted drop: only [`Cx::drop`] makes a [`Dropped`].
//! - A burst owns its items: items left in it are dropped with it, once.
//!
//! ```
//! use hotloop_stage::{Carries, Counters, Cx, DropReason, Stage, Instant, Verdict, drop_reasons};
//!
//! drop_reasons! {
//!     /// Why small packets are dropped.
//!     pub enum SizeDrop { TooSmall = "too_small" }
//! }
//!
//! /// Drops what is shorter than an Ethernet frame may be.
//! struct MinimumSize;
//!
//! impl<P: Carries> Stage<P> for MinimumSize {
//!     type Out = P;
//!     type Drop = SizeDrop;
//!
//!     fn packet(&mut self, cx: &mut Cx<'_, SizeDrop>, packet: P) -> Verdict<P> {
//!         if packet.bytes().len() < 60 { cx.drop(packet, SizeDrop::TooSmall) } else { Ok(packet) }
//!     }
//! }
//! ```
//!
//! # Unsafe code
//!
//! Only `burst`, in 16 blocks, and one more in its `tests`: exactly the slots of a [`Burst`] from
//! `front` to `end` hold items, and `front <= end <= 64`. An item is read after `front` has passed
//! its slot, or before anything can panic in between; it is included by `end` after it was written.
//! A driver that fills the spare slots from outside states the number of written slots with
//! [`Burst::assume_pushed`].

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "a burst owns slots that are not always initialised")]
mod burst;
mod classify;
mod core;
mod counters;
mod error;
mod gauge;
mod io;
mod stage;
pub mod tap;
mod token_bucket;
mod verdict;

pub use burst::{BURST_CAPACITY, Burst, Carries, Drain, Tagged};
pub use classify::{Classified, Classify};
pub use core::{Core, Limits};
pub use counters::{Counter, Counters};
pub use error::Error;
pub use gauge::{Gauge, GaugeName};
pub use hotloop_packet::Instant;
pub use io::{Device, DeviceCounters, LinkState, Reopening, Sink, Source};
pub use stage::{BurstStage, Each, Output, Stage, Tally, each};
pub use token_bucket::{SharedTokenBucket, TokenBucket, TokenRate};
pub use verdict::{Cx, DropReason, Dropped, NoDrops, Outgoing, Verdict};
