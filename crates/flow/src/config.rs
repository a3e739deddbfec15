//! A table's configuration, and the errors of making one.

use crate::group::Backend;

/// Number of classes of flows, each with its own idle timeout.
pub const CLASS_COUNT: usize = 8;

/// The size and idle timeouts of a [`Table`](crate::Table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of flows: 1 to 3,650,722,200.
    pub capacity: usize,
    /// How long a flow of each class is kept after its last packet, in nanoseconds: rounded up, by
    /// less than two steps of [`STEP_NS`](crate::STEP_NS). `u64::MAX`, like anything from 2^56 on
    /// (2.28 years), keeps flows forever.
    pub idle_ns: [u64; CLASS_COUNT],
    /// [`find_hinted`](crate::Table::find_hinted) skips flows that have been silent for this long or
    /// longer, in nanoseconds, and leaves them unchanged for [`peek`](crate::Table::peek), which
    /// returns how long they were silent. `u64::MAX` to find all flows.
    pub recent_ns: u64,
    /// Policy for new flows when there is no place for them.
    pub full: Full,
}

impl Config {
    /// Room for `capacity` flows, which are kept for `idle_ns` nanoseconds after their last packets
    /// whatever their class. `find_hinted` skips none of them, and a full table refuses new ones.
    #[must_use]
    pub const fn new(capacity: usize, idle_ns: u64) -> Self {
        let idle_ns = [idle_ns; CLASS_COUNT];
        Self { capacity, idle_ns, recent_ns: u64::MAX, full: Full::Refuse }
    }
}

/// Policy of a full table for new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Refuses new flows. No flow has to leave for another.
    Refuse,
    /// Replaces another flow. Of four sampled flows, an expired one leaves, or else the longest
    /// silent one in these classes. If none of the four may leave, the others of the 30 possible
    /// places are tried. If no flow there may leave either, the new flow is refused.
    ///
    /// If flows have ranks, those of rank 0 leave [first](crate::Table::insert).
    Evict(Classes),
}

/// One of [`CLASS_COUNT`] kinds of flows, each with its own idle timeout: half-open and established
/// connections, for example.
///
/// New flows begin in class 0, the default, unless an [`Eviction`](crate::Eviction) of the owner's
/// returns another one. [`Table::set_class`](crate::Table::set_class) moves a flow later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// The class with this index.
    ///
    /// # Panics
    /// If `index` is not less than [`CLASS_COUNT`].
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index < CLASS_COUNT, "there is no such class of flows");
        Self(index as u8)
    }

    /// The class's index, less than [`CLASS_COUNT`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize % CLASS_COUNT
    }

    /// The class in the lowest bits of `word`.
    #[inline(always)]
    pub(crate) const fn of_word(word: u32) -> Self {
        Self((word % CLASS_COUNT as u32) as u8)
    }
}

/// A set of classes.
///
/// All flows begin in one class, those of UDP, too, where class 0 stands for half-open TCP. To put
/// a flow into another class, call [`set_class`](crate::Table::set_class) after its insertion, or
/// return the class from [`Eviction::class`](crate::Eviction::class), which costs less.
///
/// ```
/// use hotloop_arena::Arena;
/// use hotloop_flow::{Class, Classes, Config, Full, Table};
/// use hotloop_packet::Instant;
///
/// const HALF_OPEN: Class = Class::new(0);
/// const UDP: Class = Class::new(1);
/// const CLOSED: Class = Class::new(2);
///
/// let expendable = Classes::of(&[HALF_OPEN, CLOSED]);
/// let config = Config { full: Full::Evict(expendable), ..Config::new(100, u64::MAX) };
/// let mut table = Table::new(Arena::on(None)?, config)?;
/// let flow = table.insert([1], "a query", Instant::from_ns(0), &mut |_, _| ())?;
/// assert_eq!(table.class(flow), Some(HALF_OPEN));
/// table.set_class(flow, UDP);
/// assert!(!expendable.contains(UDP));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u8);

impl Classes {
    /// All classes.
    pub const ALL: Self = Self(u8::MAX);
    /// No class: only expired flows make place for others.
    pub const NONE: Self = Self(0);

    /// The set of these classes.
    #[must_use]
    pub const fn of(classes: &[Class]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < classes.len() {
            bits |= 1 << classes[index].0;
            index += 1;
        }
        Self(bits)
    }

    /// Whether the set has `class`.
    #[must_use]
    #[inline(always)]
    pub const fn contains(self, class: Class) -> bool {
        self.0 & (1 << class.index()) != 0
    }

    /// A bit for each class, from the lowest on.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }
}

/// Why a table can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The capacity is 0.
    #[error("a flow table for 0 flows was asked for: give it a capacity of at least 1")]
    NoCapacity,
    /// The capacity exceeds the number range of handles, or the memory exceeds the address space.
    #[error(
        "a flow table for {capacity} flows was asked for: the most is 3650722200, \
         or less where its entries are very large"
    )]
    TooLarge {
        /// Number of flows requested.
        capacity: usize,
    },
    /// The arena has no room for the table.
    #[error(
        "a flow table for {capacity} flows takes {needed_bytes} bytes, and its arena has at most \
         {free_bytes_max} bytes in one piece: make the arena larger, or the capacity smaller"
    )]
    NoMemory {
        /// Number of flows requested.
        capacity: usize,
        /// Bytes that the table takes.
        needed_bytes: usize,
        /// Bytes of the largest free piece of the arena.
        free_bytes_max: usize,
    },
    /// The processor lacks the instructions of the requested back-end.
    #[error(
        "a flow table of the {backend:?} back-end was asked for, which this processor can't run"
    )]
    NoBackend {
        /// The requested back-end.
        backend: Backend,
    },
}

/// A new flow was refused: there is no place for it, and [`Config::full`] lets no other flow leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flow table is full: give it more capacity, or let flows go sooner")]
pub struct Refused;
