//! The flow table of one core: which hosts talk to each other, and what was decided for them.
//!
//! A [`Table`] keeps a value for each flow key, fetches the flows of a whole burst of packets at once,
//! and lets go of flows that fell silent. One core owns it; nothing in it is shared.
//!
//! # Guarantees
//!
//! - All memory is taken from an [`Arena`](hotloop_arena::Arena) when the table is made. Afterwards
//!   nothing allocates, grows or is rehashed.
//! - No operation on a flow, whatever is in the table and however the keys were chosen, touches more than
//!   [`LINES_MAX`] cache lines of it (with entries of one line): there are 30 places where a key's
//!   flow can be. [`Table::age`] and [`Table::scan`] look at no more places than the caller allows.
//! - Never more flows are in the table than its capacity. Which flow makes place for a new one, if
//!   any, is the owner's choice: [`Full`].
//! - A [`Handle`] is valid for as long as its flow stays in its place, and is noticed as stale
//!   afterwards, also when another flow took the place.
//! - A flow is found until its time is up, and not found when it was up for 34 ms, whether its place
//!   was cleared or not.
//! - Hashes take a random seed that is the table's own, so that nobody outside can choose keys that
//!   fall into one place, and no other use of a hash (steering, balancing) leaves parts of the
//!   table unused.
//! - Whatever instructions it uses ([`Backend`]), a table does the same.
//!
//! # Example
//!
//! ```
//! use hotloop_arena::Arena;
//! use hotloop_flow::{Config, Hints, Table};
//! use hotloop_packet::flow_key::FlowKeyV4;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new(1_000, 30_000_000_000);
//! let mut backends = Table::new(Arena::on(None)?, config)?;
//!
//! let from = |port| FlowKeyV4::new([192, 0, 2, 1].into(), [203, 0, 113, 10].into(), port, 80, 6);
//! let (alice, bob) = (from(50_000), from(50_001));
//! let now_ns = 1_000_000_000_u64;
//! backends.insert(alice, "10.0.0.1", now_ns)?;
//!
//! let keys = [alice, bob, alice];
//! let mut hints = Hints::new();
//! backends.hint_burst(keys, &mut hints);
//! let (handle, backend) = backends.find(&alice, hints.at(0), now_ns).unwrap();
//! assert_eq!(*backend, "10.0.0.1");
//! backends[handle] = "10.0.0.2"; // without a second search
//! assert_eq!(backends.find(&bob, hints.at(1), now_ns), None);
//!
//! // Half a minute of silence later:
//! let now_ns = now_ns + 30_040_000_000;
//! assert_eq!(backends.get(&alice, now_ns), None);
//! assert_eq!(backends.age(now_ns, backends.slot_count(), |key, _| assert_eq!(key, alice)), 1);
//! assert!(backends.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! The table is made of groups of 15 places. A *control group* of 16 bytes holds a tag of 8 bits for
//! each place of its group, taken from the hash of the key there, and a count. Control groups lie
//! close together, 1.07 bytes a place, so that those of millions of flows stay in the third-level
//! cache. Entries, a cache line each, lie where their place says. A lookup compares all 15 tags with
//! one instruction, and reads the entries whose tag is right: one as a rule.
//!
//! A key has two groups, chosen by independent halves of its hash. Its flow is in the first, or in
//! the second when the first was full; the count says how many flows of a group are in their second,
//! and is 0 in most groups, whose keys are then not looked for elsewhere. When both are full, a flow
//! of them moves to its other group. There are no tombstones: a place that was left is as if it had
//! never been taken.
//!
//! A burst of keys is hashed first, then all tags are compared, and then all entries are read: the
//! processor fetches the memory of many flows at once instead of waiting for each. The first two steps
//! are [`Table::hint_burst`], and leave [`Hints`]; the third is [`Table::find`], which reads the entry that
//! the hint for its key says, and where that is another key's searches anew, unless the hint says that there
//! is none. Each search also asks for the entry of a later key once more, as processors may drop some of many
//! prefetches in a row. In tables whose entries fit a second-level cache (1 MiB), a key is hashed and its tag compared
//! in one step.
//!
//! # Sizes
//!
//! An entry is a cache line when key, value and 8 bytes of the table's own fit 64 bytes: a value of
//! up to 40 bytes beside a key of 16, of up to 16 beside a key of 40. Otherwise it is two lines, or
//! as many as are needed. A table has 20 places for 17 flows of its capacity, which makes 76.9 bytes
//! a flow with entries of one line. Small tables, whose entries fit the cache, have 3 places for
//! 2 flows, or 98.0 bytes a flow: there room makes lookups quicker, and costs little.
//! [`Table::bytes`] says exactly.
//!
//! # Limits
//!
//! Places are numbered with 32 bits: 3.65 billion flows are the most. Of a table that isn't
//! full, a new flow may be refused, or take the place of another, when 30 places and those that
//! flows could move to are all taken. Chance doesn't do that to a table of 0.85 load in tens of
//! millions of insertions; an attacker who knows the seed can, with some 30 keys of the same two groups.
//! A [`Table`] can be sent to another thread, but not shared between threads.
//!
//! # Unsafe code
//!
//! - `entry.rs`, six blocks: key and value of an entry are initialised exactly while its tenancy
//!   has the `OCCUPIED` bit, which is checked in the same function, or which the generation has that
//!   the tenancy is equal to. All that reads, moves out or drops them is there; nothing else of the
//!   crate depends on tags being right.
//! - `group/sse2.rs` and `group/neon.rs`, three blocks each: 16 aligned bytes are loaded from a
//!   reference to as many, with instructions that all processors of the kind have.
//! - `group/tests.rs`, one block: the comparison compiled for AVX2 is called where the processor has it.
//! - `lookup.rs`, one block: the function compiled for AVX2 is called only by tables whose back-end
//!   is [`Backend::Avx2`], and none is made where the processor hasn't got it.
//! - `prefetch.rs`, one block for each kind of processor: a prefetch never faults, whatever the
//!   address.
//! - `view.rs`, two blocks: a key's first group is taken by an index that a multiplication keeps below the number of
//!   groups, of which every table has one, and an entry of it by one that a mask of its slots gives.

mod clock;
mod config;
mod entry;
mod group;
mod hand;
mod insert;
mod key;
#[cfg(test)]
mod lines;
mod lookup;
mod place;
mod prefetch;
mod ranked;
mod stats;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod visit;

pub use clock::STEP_NS;
pub use config::{CLASS_COUNT, Class, Classes, Config, FlowError, Full, Refused};
pub use group::Backend;
pub use key::{HashSeed, Key, hash_words};
pub use lookup::{Hint, Hints, SeenAt, Vacancy};
pub use place::LINES_MAX;
pub use prefetch::{prefetch_at, prefetch_line};
pub use ranked::Eviction;
pub use stats::Stats;
pub use table::{BURST_KEYS_MAX, Handle, Table};
pub use visit::Cursor;
