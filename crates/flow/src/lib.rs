//! The flow table of one core: it remembers flows and the decisions made for them.
//!
//! A [`Table`] keeps a value for each flow key, fetches the flows of a whole burst of packets at
//! once, and drops flows that fell silent. One core owns the table; nothing in it is shared.
//!
//! # Guarantees
//!
//! - All memory is taken from an [`Arena`](hotloop_arena::Arena) when the table is made. Afterwards
//!   nothing allocates, grows or is rehashed.
//! - No operation on a flow, whatever is in the table and however the keys were chosen, touches
//!   more than [`LINES_MAX`] cache lines (with entries of one line): a key's flow can be in 30
//!   places. [`Table::expire`] visits no more places than the caller allows, [`Table::scan`] at most
//!   240.
//! - The table never holds more flows than its capacity. The owner chooses which flow, if any,
//!   makes place for a new one: [`Full`].
//! - A [`Handle`] is valid for as long as its flow stays in its place. After that the table detects
//!   it as stale, even if another flow took the place.
//! - A flow is found until it expires, and no longer found 34 ms after that, whether its place was
//!   cleared or not.
//! - Hashes use a random seed private to the table, so that nobody outside can choose keys that
//!   fall into one place, and other uses of a hash (steering, balancing) leave no parts of the
//!   table unused.
//! - A table behaves the same with every [`Backend`].
//!
//! # Example
//!
//! ```
//! use hotloop_arena::Arena;
//! use hotloop_flow::{Config, Hint, Hints, Table};
//! use hotloop_packet::Instant;
//! use hotloop_packet::flow_key::FlowKeyV4;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new(1_000, 30_000_000_000);
//! let mut backends = Table::new(Arena::on(None)?, config)?;
//!
//! let from = |port| FlowKeyV4::new([192, 0, 2, 1].into(), [203, 0, 113, 10].into(), port, 80, 6);
//! let (alice, bob) = (from(50_000), from(50_001));
//! let now = Instant::from_ns(1_000_000_000);
//! backends.insert(alice, "10.0.0.1", now, &mut |_, _| ())?;
//!
//! let keys = [alice, bob, alice];
//! let mut hints = Hints::new();
//! backends.hint_burst(keys, &mut hints);
//! let (handle, backend) = backends.find(&alice, hints.at(0), now).unwrap();
//! assert_eq!(*backend, "10.0.0.1");
//! backends[handle] = "10.0.0.2"; // without a second search
//! assert_eq!(backends.find(&bob, hints.at(1), now), None);
//!
//! // Half a minute of silence later:
//! let now = now + Duration::from_millis(30_040);
//! assert_eq!(backends.find(&alice, Hint::NONE, now), None);
//! assert_eq!(backends.expire(now, backends.slot_count(), |key, _| assert_eq!(key, alice)), 1);
//! assert!(backends.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Use
//!
//! [`Table::find`] is the lookup: it returns a flow's value and [`Handle`], and marks the flow as
//! seen. [`Table::peek`] only looks, and returns how long the flow has been silent;
//! [`Table::touch`] then marks the flow as seen, by its handle and without a second search.
//! [`Table::insert`] is the insertion: an [`Eviction`], in most cases a closure, gets the flow that
//! leaves for the new one. [`Table::expire`] removes silent flows, a few places in each turn of the
//! core. That is all that a stage needs; the rest saves time:
//!
//! - **Hints.** For the keys of a whole burst, call [`Table::hint_burst`] first. It prefetches
//!   their flows and leaves a [`Hint`] for each key, to pass to `find`. Without a burst, pass
//!   [`Hint::NONE`].
//! - **Vacancies.** If `peek` finds no flow, its error is a [`Vacancy`]: pass it to `insert` in
//!   place of the key, and the key is not searched for again.
//! - **Prefetching for new flows.** After `hint_burst`, [`Table::prefetch_insert`] prefetches the
//!   memory that a new flow will be written to: a few keys before their insertions.
//! - **The time of a burst.** [`Table::find_hinted`] is a `find` that leaves rare cases to a slower
//!   function. It takes the time as a [`SeenAt`], which [`Table::seen_at`] makes once a burst.
//! - **Data that values refer to.** [`Table::likely_value`] returns a value ahead of its lookup, to
//!   prefetch this data with [`prefetch_at`].
//!
//! # How it works
//!
//! The table consists of groups of 15 places. A *control group* of 16 bytes holds an 8-bit tag for
//! each place of its group, taken from the hash of the key there, and a count. Control groups lie
//! close together, 1.07 bytes a place, so that those of millions of flows stay in the third-level
//! cache. Entries, a cache line each, are stored in the order of places. A lookup compares all 15
//! tags with one instruction, and reads the entries with matching tags: usually one.
//!
//! A key has two groups, chosen by independent halves of its hash. Its flow is in the first, or in
//! the second if the first was full. The count is the number of flows of a group that are in their
//! second group. It is 0 in most groups, and their keys are then looked for nowhere else. If both
//! groups are full, one of their flows moves to its other group. There are no tombstones: a place
//! that was left is as if it had never been taken.
//!
//! A burst of keys is hashed first, then all tags are compared, and then all entries are read: the
//! processor fetches the memory of many flows at once instead of waiting for each. The first two
//! steps are [`Table::hint_burst`], which leaves [`Hints`]. The third is [`Table::find`], which
//! reads the entry in the key's hint, and searches anew if another key is there. Each lookup also prefetches the entry of a later key once more,
//! as processors may drop some of many prefetches in a row. In tables with entries that fit a
//! second-level cache (1 MiB), a key is hashed and its tag compared in one step.
//!
//! # Sizes
//!
//! An entry is one cache line if key, value and 8 bytes of the table's own fit 64 bytes: a value of
//! up to 40 bytes with a key of 16, or up to 16 with a key of 40. Otherwise it takes two lines or
//! more. A table has 20 places for 17 flows of its capacity, which makes 76.9 bytes a flow with
//! entries of one line. Small tables, with entries that fit the cache, have 3 places for 2 flows,
//! or 98.0 bytes a flow: spare room makes lookups faster, and costs little there. [`Table::bytes`]
//! returns the exact size.
//!
//! # Limits
//!
//! Places are numbered with 32 bits, so 3.65 billion flows are the maximum. Even in a table that
//! isn't full, a new flow may be refused, or replace another, if its 30 places and those that flows
//! could move to are all taken. By chance, that happens to some tables while they are filled to
//! their capacity for the first time: 15 of 20,000 tables for 20,000 flows refused one flow, as did
//! 8 of 100 tables for 1,000,000. In a full table for 1,000,000 flows, none of 20,000,000 that came
//! for flows removed before was refused. An attacker who knows the seed can fill the places of any
//! key, with some 30 keys of the same two groups.
//!
//! A [`Table`] can be sent to another thread, but not shared between threads.
//!
//! # Unsafe code
//!
//! - `entry.rs`, six blocks: key and value of an entry are initialised exactly while its tenancy
//!   has the `OCCUPIED` bit. That is checked in the same function, or follows because the tenancy
//!   equals a generation, which has the bit. Only this file reads, moves out or drops keys and
//!   values; nothing else of the crate depends on tags being right.
//! - `group/sse2.rs` and `group/neon.rs`, three blocks each: 16 aligned bytes are loaded from a
//!   reference to 16 bytes, with instructions that all processors of the architecture have.
//! - `group/tests.rs`, one block: the comparison compiled for AVX2 is called only if the processor
//!   has it.
//! - `lookup.rs`, one block: the function compiled for AVX2 is called only by tables with the
//!   back-end [`Backend::Avx2`], and such tables can only be made if the processor has AVX2.
//! - `prefetch.rs`, one block for each architecture: a prefetch never faults, whatever the address.
//! - `store_view.rs`, two blocks: the index of a key's first group comes from a multiplication that keeps
//!   it below the number of groups, and every table has at least one; the index of an entry in the
//!   group comes from a mask of its slots.

mod clock;
mod config;
mod entry;
mod eviction;
mod eviction_state;
mod group;
mod hints;
mod insert;
mod key;
#[cfg(test)]
mod lines;
mod lookup;
mod place;
mod prefetch;
mod room;
mod stats;
mod store;
mod store_view;
mod table;
#[cfg(test)]
mod tests;
mod visit;

pub use clock::STEP_NS;
pub use config::{CLASS_COUNT, Class, Classes, Config, FlowError, Full, Refused};
pub use eviction::Eviction;
pub use group::Backend;
pub use hints::{BURST_KEYS_MAX, Hint, Hints, SeenAt, Vacancy};
pub use key::{HashSeed, Key, hash_words};
pub use place::LINES_MAX;
pub use prefetch::{prefetch_at, prefetch_line};
pub use stats::Stats;
pub use store::Handle;
pub use table::Table;
pub use visit::Cursor;
