//! Memory for what a core keeps: huge pages where they can be had, on the core's own NUMA node.
//!
//! A table of millions of flows reads memory at random, and every page that the processor doesn't
//! remember costs it a walk through the page tables. Pages of 2 MiB make that rare. An [`Arena`] is
//! a region on the best pages that the system gives, and says which these are rather than assuming
//! it. It is an [`Allocator`], so that any collection that takes one can live in it.
//!
//! # Guarantees
//!
//! - [`Obtained`] is what the kernel reports of the region after its pages were taken, not what was
//!   asked for.
//! - Without huge pages, privileges or several nodes, the same calls succeed on plain pages.
//! - The region neither grows nor moves. An allocation that doesn't fit fails; nothing is taken from
//!   elsewhere.
//! - Allocations start on cache lines of their own. Freed neighbours merge, so that what is wholly
//!   freed can be wholly allocated again.
//! - Handles are counted: the region is there for as long as anything lives in it.
//!
//! # Example
//!
//! ```
//! use std::hash::RandomState;
//!
//! use hashbrown::HashMap;
//! use hotloop_arena::{Arena, Request};
//!
//! # fn main() -> Result<(), hotloop_arena::ArenaError> {
//! let (arena, obtained) = Arena::new(Request::new(8 << 20))?;
//! println!("{obtained}"); // 8192 KiB on transparent huge pages (8192 KiB of it), node 0
//! assert!(obtained.bytes >= 8 << 20);
//!
//! let mut flows = HashMap::with_capacity_and_hasher_in(10_000, RandomState::new(), arena.clone());
//! flows.insert([10, 0, 0, 1], "a backend");
//! assert!(arena.used_bytes() >= 10_000 * size_of::<([u8; 4], &str)>());
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! Linux only. Pages of 1 GiB are not used. The trait is that of `allocator-api2` 0.2, which
//! hashbrown takes. Allocation searches a list of free ranges under a lock: meant for set-up, where
//! a few large tables are made, and not for the packet path. The memory is not locked against
//! swapping.

mod arena;
mod free;
mod mapping;
mod proc;
mod request;

pub use allocator_api2::alloc::Allocator;
pub use arena::Arena;
pub use request::{ArenaError, Obtained, Pages, Refusal, Request};
