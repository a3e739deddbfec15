//! The flow table of one core: who talks to whom, and what was decided for them.
//!
//! A [`Table`] keeps a value for each flow key, finds the flows of a whole burst of packets at once,
//! and lets go of flows that fell silent. One core owns it; nothing in it is shared.
//!
//! # Guarantees
//!
//! - All memory is taken from an [`Arena`](hotloop_arena::Arena) when the table is made. Afterwards
//!   nothing allocates, grows or is rehashed, and exactly [`Table::capacity`] flows fit.
//! - A flow stays in its place: a [`Handle`] is valid for as long as its flow is there, and is
//!   noticed as stale afterwards, also when another flow took the place.
//! - A flow is found until its time is up, to the nanosecond, and not after.
//! - Hashes take a random seed that is the table's own, so that nobody outside can choose keys that
//!   fall into one bucket, and no other use of a hash (steering, balancing) leaves parts of the
//!   table unused.
//! - [`Table::age`] does a bounded piece of work at a time.
//!
//! # Example
//!
//! ```
//! use hotloop_arena::Arena;
//! use hotloop_flow::{Config, Table};
//! use hotloop_packet::flow_key::FlowKeyV4;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config { capacity: 1_000, idle_ns: 30_000_000_000 };
//! let mut backends = Table::new(Arena::on(None)?, config)?;
//!
//! let from = |port| FlowKeyV4::new([192, 0, 2, 1].into(), [203, 0, 113, 10].into(), port, 80, 6);
//! let (alice, bob) = (from(50_000), from(50_001));
//! let now_ns = 1_000_000_000_u64;
//! backends.insert(alice, "10.0.0.1", now_ns)?;
//!
//! let mut found = [None; 64];
//! backends.lookup_burst([alice, bob, alice], now_ns, &mut found);
//! assert_eq!(backends[found[0].unwrap()], "10.0.0.1");
//! assert_eq!(found[1], None);
//! assert_eq!(found[2], found[0]);
//!
//! // Half a minute of silence later:
//! let now_ns = now_ns + 30_000_000_001;
//! assert_eq!(backends.get(&alice, now_ns), None);
//! assert_eq!(backends.age(now_ns, 1_000, |key, _| assert_eq!(key, alice)), 1);
//! assert!(backends.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! A full table refuses new flows; it evicts none. All flows of a table have one idle time. An
//! entry takes `size_of::<(K, V)>()` and about 24 bytes, a bucket 4. Who knows the seed can make a
//! lookup as long as the table is large.

#![forbid(unsafe_code)]

mod chains;
mod config;
mod key;
mod table;

pub use config::{Config, FlowError, Full, Stats};
pub use key::{Key, hash_words};
pub use table::{BURST_KEYS_MAX, Handle, Table};
