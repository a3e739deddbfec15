//! Memory for a core's tables: on huge pages if available, on the core's own NUMA node.
//!
//! A table of millions of flows reads memory at random, and every page that the processor doesn't
//! have in its TLB costs a walk through the page tables. Pages of 2 MiB make that rare. An
//! [`Arena`] is a region on the best pages that the system provides, and reports which these are
//! rather than assuming it. It is an [`Allocator`], so any collection that takes an allocator can
//! live in it.
//!
//! # Guarantees
//!
//! - [`Obtained`] is the kernel's report on the region after its pages were populated, not a copy
//!   of the request: how much of it lies on huge pages, is locked, and on which node. Facts that
//!   the kernel doesn't report are `None`.
//! - Without huge pages, privileges or several nodes, the same calls succeed on plain pages: 1 GiB,
//!   2 MiB, transparent huge and 4 KiB pages are tried in the order of the [`Request`].
//! - Hard requirements are fulfilled or the request fails: [`lock`](Request::lock) means that all
//!   of the memory is locked, [`node_only`](Request::node_only) that all of it lies on that node. A
//!   plain [`node`](Request::node) is a preference; `Obtained` has the result.
//! - Memory is populated before the arena is returned, with [progress](Arena::with_progress) for
//!   callers that display it, so that the packet path never touches a page first. A request for
//!   more memory than available fails, instead of leaving it to the kernel, which would kill the
//!   process.
//! - Each [`ArenaError`] names its remedy: how many pages to reserve and where, which limit to raise.
//! - The region neither grows nor moves. An allocation that doesn't fit fails; there is no
//!   fallback.
//! - Allocations start on cache lines of their own. Freed neighbours merge, so that after
//!   everything was freed, everything can be allocated again.
//! - Handles are counted: the region exists for as long as anything lives in it. An [`ArenaBox`]
//!   has no lifetime, and moves into a stage or a thread like any value.
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
//!
//! let mut counts = arena.boxed_zeroed::<u64>(256)?;
//! counts[17] += 1;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! Linux only, on processors and kernels with pages of 4 KiB, 2 MiB and 1 GiB. The trait is the one
//! of `allocator-api2` 0.2, which hashbrown takes. Allocation searches a list of free ranges under
//! a lock: meant for set-up, which makes a few large tables, and not for the packet path.
//!
//! The available memory is read before any is populated: if a process takes it meanwhile, or if
//! others have filled a memory cgroup, the kernel may still kill processes. An arena has one kind
//! of pages, though transparent ones may be a mixture, which [`Obtained::huge_bytes`] shows. Nodes
//! and locks are read once, when the arena is made: later migrations by the administrator are not
//! followed.
//!
//! # Unsafe code
//!
//! | where | what | relies on |
//! |---|---|---|
//! | `mapping.rs`, `map` | `mmap` | no address is requested, so no other mapping is replaced |
//! | `mapping.rs`, `Mapping::guarded` | `mprotect` | the range lies in a new mapping (two alignments longer, with at most one skipped) that no other code refers to yet |
//! | `mapping.rs`, `Mapping::advise` | `madvise` | the range is cut to the mapping; the advice used doesn't change the memory's content |
//! | `mapping.rs`, `Mapping::touch` | writing a zero to each page (kernels before 5.14) | the offset is below the length; nothing was allocated yet |
//! | `mapping.rs`, `Mapping::lock` | `mlock2` | the range is the mapping; unmapping unlocks |
//! | `mapping.rs`, `Mapping::prefer_node` | `mbind` | the range is the mapping; the mask has the stated length and outlives the call |
//! | `mapping.rs`, `Mapping::first_node` | `get_mempolicy` | it writes one `int`, which outlives the call |
//! | `mapping.rs`, `Drop for Mapping` | `munmap` | address and length are those of `mmap`; the last handle is gone, and with it all allocations |
//! | `mapping.rs`, `Send` and `Sync` | two `impl`s | a mapping belongs to the process; `&Mapping` hands out addresses, and doesn't change the content once it is shared |
//! | `mapping_miri.rs`, in place of `mapping.rs` under Miri | `alloc_zeroed`, `dealloc`, `Send` and `Sync` | the size is not 0; memory is given back once, with its original layout; `&Mapping` reads fields |
//! | `arena.rs`, `Allocator for Arena` | the `impl` | ranges are handed out once until given back, and lie in the mapping; it stays in place until the last handle is dropped; clones share one region; `taken_bytes` is the same for all layouts that fit a block |
//! | `boxed.rs`, `Arena::boxed_zeroed` | `assume_init` | all bytes are set to 0, which is a valid `T` by [`zerocopy::FromZeros`] |
//!
//! Everything else is safe code: free ranges are arithmetic on offsets (`free.rs`), tested against
//! a map of bytes.

mod arena;
mod boxed;
mod error;
mod free;
mod limits;
#[cfg_attr(miri, path = "mapping_miri.rs")]
mod mapping;
mod obtain;
mod obtained;
mod proc;
mod request;

pub use allocator_api2::alloc::Allocator;
pub use arena::Arena;
pub use boxed::ArenaBox;
pub use error::{ArenaError, Refusal};
pub use obtained::{Obtained, Progress};
pub use request::{Pages, Request};
