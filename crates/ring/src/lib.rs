//! Rings between cores: one writer, one reader, bursts, no locks.
//!
//! [`ring`] makes a bounded queue with one [`Producer`] and one [`Consumer`], each of which may live
//! on its own core. A [`Mesh`] is a ring from each core of one group to each core of
//! another, so that packets of many receive queues reach many workers and every ring still has one
//! writer and one reader.
//!
//! Items travel in cache lines that say how many they hold: a line of 64 bytes is a header and the
//! items after it, seven of 8 bytes. So an item and the news of it cross to the other core together,
//! one line for seven items. The only index that crosses is the consumer's, which it writes every
//! eighth of the ring.
//!
//! # Guarantees
//!
//! - Items come out in the order they went in, each exactly once.
//! - While fewer than [`capacity`](Producer::capacity) items are in the ring, a push succeeds. Since
//!   the consumer gives lines back late and whole, the ring has some slots more: never more than
//!   [`slot_count`](Producer::slot_count) items are in it, fewer than an eighth of the capacity or a line's
//!   items above the capacity, whichever is more.
//! - Every operation ends in a bounded number of steps, whatever the other end does: nothing waits,
//!   locks, allocates or makes a system call after [`ring`], whose memory is written to when made.
//! - A line is published by one store when the items that a push has for it are in, and read only
//!   by the consumer, which learns by one load what it holds. A burst of several lines appears line
//!   by line.
//! - When one end is dropped, the other one learns it ([`Producer::is_closed`],
//!   [`Consumer::is_finished`]). What is left in the ring is dropped with the last end, on that
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
//! lines of 64 bytes, as many as fit beside the 8 of the header; each larger one has a line of its
//! own, rounded up to 64. The memory is the global allocator's. An end can't wait for the other; a
//! program that wants to sleep brings its own way of waking. Between two stages of one core, where no line has
//! to cross, a plain ring of slots costs less.
//!
//! # Unsafe code
//!
//! All of it rests on which end owns a slot, which the header and the count of items given back say: the
//! producer owns the slots of lines given back that aren't shown yet, the consumer those that are
//! shown and not given back, and has taken those before its cursor.
//!
//! - `slots`: the write and the read of a slot (`write`, `take`). They rely on the slot being one of
//!   the line's, and on the caller's owning it. `slots_loom` has the same two for loom.
//! - `producer`: the writes of `push` and `push_burst`. There is room for what is written, by the
//!   count given back as last read, so the slots from the cursor on are the producer's.
//! - `consumer`: the moves out of `pop` and `pop_burst`. The header shows the slots, and the cursor
//!   passes each before anything can panic.
//! - `shared`: the moves out of items left when both ends are gone, after those popped; and `Send`
//!   and `Sync` of the shared part, whose items go from thread to thread and are never seen by two.
//! - `lines`: the instructions that fetch a line ahead of time, hints.
//!
//! The ring's atomics are loom's under `--cfg loom`, with which its tests explore the interleavings
//! of small rings, and find each ordering that is made weaker than it is:
//! `RUSTFLAGS="--cfg loom" cargo test -p hotloop-ring --test loom`.

mod consumer;
mod lines;
mod mesh;
mod producer;
mod shared;
#[cfg_attr(loom, path = "slots_loom.rs")]
mod slots;
mod sync;

pub use consumer::Consumer;
pub use lines::prefetch;
pub use mesh::{Consumers, Mesh, Producers};
pub use producer::Producer;
#[cfg(loom)]
#[doc(hidden)]
pub use sync::planted;

/// Makes a ring that always has room for `capacity` items; one of 0 takes none.
///
/// It may hold up to [`slot_count`](Producer::slot_count) at times: `capacity` plus what the consumer
/// has taken and not given back yet, an eighth of the capacity or a line's items, whichever is more.
///
/// # Panics
/// When `capacity` is above a quarter of what `usize` holds (2^62), or there isn't memory for that
/// many items.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let shared = sync::Arc::new(shared::Shared::new(capacity, 0));
    (Producer::new(shared.clone()), Consumer::new(shared))
}
