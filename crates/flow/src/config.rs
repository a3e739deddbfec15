//! What a table is made with, and why it may not be made.

/// The size and patience of a [`Table`](crate::Table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most flows at once: 1 to 2^32 − 2.
    pub capacity: usize,
    /// How long a flow is kept after its last packet, in nanoseconds. `u64::MAX` keeps it for ever.
    pub idle_ns: u64,
}

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The capacity is 0.
    #[error("a flow table for 0 flows was asked for: give it a capacity of at least 1")]
    NoCapacity,
    /// The capacity is more than a handle can number, or its memory more than can be addressed.
    #[error(
        "a flow table for {capacity} flows was asked for: the most is 4294967294, \
         or less where its entries are very large"
    )]
    TooLarge {
        /// Flows asked for.
        capacity: usize,
    },
    /// The arena has no room for it.
    #[error(
        "a flow table for {capacity} flows takes {needed_bytes} bytes, and its arena has at most \
         {free_bytes_max} bytes in one piece: make the arena larger, or the capacity smaller"
    )]
    NoMemory {
        /// Flows asked for.
        capacity: usize,
        /// Bytes that the table takes.
        needed_bytes: usize,
        /// Bytes of the largest piece that was free in the arena.
        free_bytes_max: usize,
    },
}

/// A new flow was refused: the table holds as many as its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flow table is full: give it more capacity, or let flows go sooner")]
pub struct Full;

/// What happened to a table's flows since it was made.
///
/// At any time `inserted_count = removed_count + expired_count + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// New flows.
    pub inserted_count: u64,
    /// Flows taken out by [`remove`](crate::Table::remove).
    pub removed_count: u64,
    /// Flows whose time was up: handed out by [`age`](crate::Table::age), or replaced by a new flow
    /// of the same key.
    pub expired_count: u64,
    /// New flows refused because the table was full.
    pub refused_count: u64,
    /// The most flows at once.
    pub len_max: usize,
}
