//! A table's counters.

/// Counts of a table's flows since it was made.
///
/// At any time `inserted_count = removed_count + expired_count + evicted_count + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Flows in the table now, including expired flows that were not cleared yet.
    pub len: usize,
    /// Maximum number of flows so far.
    pub len_max: usize,
    /// Present flows that are in their second groups, which makes lookups slower.
    pub overflow_len: usize,
    /// New flows.
    pub inserted_count: u64,
    /// Flows taken out by [`remove`](crate::Table::remove).
    pub removed_count: u64,
    /// Expired flows: handed out by [`expire`](crate::Table::expire), or replaced by a new flow of the
    /// same key or another.
    pub expired_count: u64,
    /// Flows that had to leave for new ones before they expired.
    pub evicted_count: u64,
    /// New flows refused.
    pub refused_count: u64,
    /// Flows moved to their other group, to make place for new ones.
    pub moved_count: u64,
}
