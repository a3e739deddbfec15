//! Rings between cores: one writer, one reader, bursts, no locks.
//!
//! [`ring`] makes a bounded queue with one [`Producer`] and one [`Consumer`], each of which may
//! live on its own core. A [`Mesh`] has a ring from each core of one group to each core of another,
//! so that packets of many receive queues reach many workers and every ring still has one writer
//! and one reader.
//!
//! Items travel in cache lines that include their own count: a line of 64 bytes is a header and the
//! items after it, seven of 8 bytes. So items and the news of them cross to the other core
//! together, one line for seven items. Many items that lie in one piece ([`Producer::push_from`])
//! become a record of several lines under one header, so that they are moved by a copy. The only
//! index that crosses is the consumer's, which it writes every eighth of the ring.
//!
//! # Guarantees
//!
//! - Items come out in the order they went in, each exactly once.
//! - While fewer than [`capacity`](Producer::capacity) items are in the ring, a push succeeds.
//!   Since the consumer gives items back late, the ring has spare slots: it holds up to
//!   [`slot_count`](Producer::slot_count) items, which exceeds the capacity by less than an eighth
//!   or less than a line's items, whichever is more.
//! - Every operation ends in a bounded number of steps, whatever the other end does. After
//!   [`ring`], which also touches the memory, nothing waits, locks, allocates or makes a system
//!   call.
//! - A line, or a record of several lines, is published by one store once all items that a push has
//!   for it are written, and read only by the consumer, which learns their number from one load. A
//!   burst of several lines appears line by line.
//! - When one end is dropped, the other can see it ([`Producer::is_closed`],
//!   [`Consumer::is_finished`]). Items left in the ring are dropped with the last end, on that
//!   end's thread.
//! - A panic in a closure or in an item's drop never drops an item twice, and loses none.
//!
//! # Example
//!
//! ```
//! let (mut tx, mut rx) = hotloop_ring::ring(256);
//! let sender = std::thread::spawn(move || {
//!     let mut numbers = 0..1_000_u64;
//!     while !numbers.is_empty() {
//!         tx.push_burst(32.min(numbers.clone().count()), || numbers.next().unwrap());
//!         std::thread::yield_now();
//!     }
//! });
//! let mut sum = 0;
//! while !rx.is_finished() {
//!     rx.pop_burst(32, |number| sum += number);
//!     std::thread::yield_now();
//! }
//! sender.join().unwrap();
//! assert_eq!(sum, 499_500);
//! ```
//!
//! # Limits
//!
//! One producer and one consumer: neither is `Clone`. Items of up to 56 bytes and alignment 8 share
//! lines of 64 bytes, as far as they fit beside the 8 bytes of the header; each larger item has a
//! line of its own, rounded up to 64. A record of several lines leaves a part of the last one
//! empty, and the ring has more lines to make up for that: a ring for 1,024 items of 8 bytes has
//! 227, or 14 KiB. The memory comes from the global allocator. An end can't wait for the other; a
//! program that wants to sleep needs its own wake-up. Between two stages of one core, where no line
//! has to cross, a plain ring of slots costs less.
//!
//! # Unsafe code
//!
//! All of it depends on which end owns a slot, as determined by the header and the count of items
//! given back: the producer owns the slots of items given back and those not shown yet, the
//! consumer those that are shown and not taken. The header of the consumer's current record is
//! unchanged until the consumer moves on.
//!
//! - `memory`: writes and reads of items (`write`, `take`, `copy_in`, `copy_out`) and of headers.
//!   They require that the place is in the ring's lines, and that the caller owns it. `memory_loom`
//!   has the same for loom. Also the instructions that fetch a line ahead of time, which are hints.
//! - `producer`: the writes of a push. There is room for them, according to the count given back as
//!   last read, so the slots from the cursor on are the producer's.
//! - `consumer`: the moves out of a pop. The header shows the slots, and the cursor passes each before anything
//!   can panic.
//! - `moves`: traits that move many items at once out of the caller's memory or into it.
//! - `shared`: the moves of items left when both ends are gone, after those popped; and `Send` and
//!   `Sync` of the shared part, whose items go from thread to thread and are never visible to two.
//!
//! The ring's atomics are loom's under `--cfg loom`. The tests then explore the interleavings of
//! small rings, and detect each ordering that is weakened: `RUSTFLAGS="--cfg loom" cargo test -p
//! hotloop-ring --test loom`.

mod consumer;
#[cfg_attr(loom, path = "memory_loom.rs")]
mod memory;
mod mesh;
mod moves;
mod producer;
mod record;
mod shared;
mod sync;

pub use consumer::Consumer;
pub use memory::prefetch;
pub use mesh::{Consumers, Mesh, Producers};
pub use moves::{MoveIn, MoveOut};
pub use producer::Producer;
#[cfg(loom)]
#[doc(hidden)]
pub use sync::planted;

/// Makes a ring that always has room for `capacity` items. With a capacity of 0, every push fails.
///
/// The ring may hold up to [`slot_count`](Producer::slot_count) items at times: `capacity` plus the
/// items that the consumer has taken and not given back yet, up to an eighth of the capacity or a
/// line's items, whichever is more.
///
/// # Panics
/// If `capacity` is above a quarter of `usize`'s range (2^62), or if the memory can't be allocated.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let shared = sync::Arc::new(shared::Shared::new(capacity));
    (Producer::new(shared.clone()), Consumer::new(shared))
}
