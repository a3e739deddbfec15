//! Rings between cores: one writer, one reader, bursts, no locks.
//!
//! [`ring`] makes a bounded queue with one [`Producer`] and one [`Consumer`], each of which may live
//! on its own core. A [`Mesh`] is a ring from each of several dispatchers to each of several
//! workers, so that packets of many receive queues reach many workers and every ring still has one
//! writer and one reader.
//!
//! # Guarantees
//!
//! - Items come out in the order they went in, each exactly once. Exactly as many as the capacity
//!   fit.
//! - Every operation ends in a bounded number of steps, whatever the other end does: nothing waits,
//!   locks, allocates or makes a system call after [`ring`].
//! - A burst is published by one store, and taken with at most one look at the other core's index:
//!   each end remembers the other's index and looks again only when what it remembers is not
//!   enough.
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
//! One producer and one consumer: neither is `Clone`. The slots are rounded up to a power of two,
//! `size_of::<T>()` bytes each, from the global allocator. An end can't wait for the other; who
//! wants to sleep brings their own way of waking.
//!
//! The ring's atomics are loom's under `--cfg loom`, with which its tests explore the interleavings
//! of small rings:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p hotloop-ring --test loom`.

mod consumer;
mod mesh;
mod producer;
mod shared;
mod sync;

pub use consumer::Consumer;
pub use mesh::{Column, Mesh, Row};
pub use producer::Producer;

/// Makes a ring that holds up to `capacity` items; one of 0 takes none.
///
/// # Panics
/// When `capacity` is above 2^63, or there isn't memory for that many items.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let shared = sync::Arc::new(shared::Shared::new(capacity));
    (Producer::new(shared.clone()), Consumer::new(shared))
}
