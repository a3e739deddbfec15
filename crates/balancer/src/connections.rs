//! The connections that a worker remembers. Uses memory allocated at the start and prefetch hints
//! of the current burst; shared with no other thread. Every change that other nodes need goes
//! through the journal.

mod family;
mod journal;
mod kept;
mod shared;

use crate::connection::{ABANDONED_NS, Connection, State};
use crate::services::{ServiceTable, TargetId};
use family::Family;
pub(crate) use family::new_table;
use hotloop::arena::{Arena, Obtained, Request};
use hotloop::flow::{
    self, BURST_KEYS_MAX, CLASS_COUNT, Classes, Config, Cursor, Full, Handle, Hint, Hints, SeenAt,
    Table,
};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipv6;
use hotloop::stage::{Classified, Error, Instant};
pub use journal::Journal;
pub(crate) use journal::{NO_KEY, room_for};
pub use kept::Kept;

/// Number of slots of each table that one [`Connections::age`] examines.
const AGE_BUDGET: usize = 15;

/// A worker's connection tables, one for each IP version: keys are directed from client to VIP.
#[derive(Debug)]
pub struct Connections {
    /// Each IPv4 connection keeps the outer header of its packets.
    v4: Family<FlowKeyV4, Kept>,
    /// IPv6 connections keep no header, since an entry would take two cache lines.
    v6: Family<FlowKeyV6, ()>,
    /// The keys of the burst's fast-path IPv4 packets, by index in the burst that hints were made
    /// for.
    keys: [FlowKeyV4; BURST_KEYS_MAX],
    /// How long connections are remembered after their last packets, for each state.
    idle_ns: [u64; CLASS_COUNT],
    journal: Journal,
    /// Hints for connections in the journal, which are looked up outside bursts.
    journal_hints: Hints,
    /// Number of packets in the burst that hints were made for.
    burst_len: usize,
    /// The index after the last packet that a slot was prefetched for.
    prefetched_end: usize,
    obtained: Obtained,
}

/// Prefetch distance for slots of new connections, in packets. Prefetching those of a whole burst
/// at once is slower: that is more lines than a core can have in flight.
const AHEAD: usize = 8;

/// Whether a packet belongs to the connection of its key, whatever its kind.
#[inline(always)]
const fn is_followed(layout: Layout, protocol: u8) -> bool {
    layout.is_plain() && matches!(protocol, protocol::TCP | protocol::UDP)
}

/// A connection's position in the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In the IPv4 table.
    V4(Handle),
    /// In the IPv6 table.
    V6(Handle),
}

/// A free position for a key, as found by a search.
#[derive(Clone, Copy, Debug)]
pub enum Vacancy {
    /// In the IPv4 table.
    V4(flow::Vacancy<FlowKeyV4>),
    /// In the IPv6 table.
    V6(flow::Vacancy<FlowKeyV6>),
}

/// The position of a walk through all connections.
#[derive(Clone, Copy, Debug)]
pub enum Walk {
    /// In the IPv4 table.
    V4(Cursor),
    /// In the IPv6 table.
    V6(Cursor),
}

impl Default for Walk {
    fn default() -> Self {
        Self::V4(Cursor::default())
    }
}

impl Connections {
    /// Makes tables for `capacity` connections of each IP version, in memory of `node` if that is
    /// known. They hash with `table_seed`, or each with its own random seed.
    ///
    /// # Errors
    /// If there isn't enough memory.
    pub fn new(
        capacity: usize,
        idle_ns: [u64; CLASS_COUNT],
        node: Option<u32>,
        table_seed: Option<u64>,
    ) -> Result<Self, Error> {
        let bytes = Self::bytes(capacity)
            .ok_or_else(|| Error::message(format!("{capacity} connections: too many")))?;
        let (arena, obtained) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let full = Full::Evict(Classes::ALL);
        let config = Config { capacity, idle_ns, recent_ns: ABANDONED_NS, full };
        Ok(Self {
            v4: Family::new(arena.clone(), config, table_seed)?,
            v6: Family::new(arena, config, table_seed)?,
            keys: [FlowKeyV4::from_words([0; 2]); BURST_KEYS_MAX],
            idle_ns,
            journal: Journal::default(),
            journal_hints: Hints::new(),
            burst_len: 0,
            prefetched_end: 0,
            obtained,
        })
    }

    /// The kind of memory that both tables got.
    #[must_use]
    pub const fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// The memory that tables for `capacity` connections take; `None` if that can't be addressed.
    #[must_use]
    pub fn bytes(capacity: usize) -> Option<usize> {
        let v4 = Table::<FlowKeyV4, (Connection, Kept)>::bytes(capacity)?;
        v4.checked_add(Table::<FlowKeyV6, (Connection, ())>::bytes(capacity)?)
    }

    /// Sets how long connections are remembered from now on, for each state.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.v4.table.set_idle_ns(idle_ns);
        self.v6.table.set_idle_ns(idle_ns);
        self.idle_ns = idle_ns;
    }

    /// Prefetches the memory of the connections of a burst of at most 64 packets, before they are
    /// looked up. `key_of` stores each packet's layout in the packet, and returns its key if the
    /// [fast path](Layout::is_fast_v4) takes it. Returns whether the caller must call
    /// [`hint_burst_v6`](Self::hint_burst_v6) next.
    #[inline]
    #[must_use]
    pub fn hint_burst<'a, P: PacketBuf + 'a>(
        &mut self,
        burst: impl ExactSizeIterator<Item = &'a mut Classified<P>>,
        mut key_of: impl FnMut(&mut Classified<P>) -> Option<FlowKeyV4>,
    ) -> bool {
        (self.burst_len, self.prefetched_end) = (burst.len(), 0);
        let mut any_v6 = false;
        let Family { table, hints, .. } = &mut self.v4;
        let v4_keys = burst.zip(&mut self.keys).map(|(packet, place)| match key_of(packet) {
            Some(key) => {
                *place = key;
                Some(key)
            }
            None => has_any_v4(packet, place, &mut any_v6).then_some(*place),
        });
        table.hint_burst(v4_keys, hints);
        any_v6
    }

    /// The rest of [`hint_burst`](Self::hint_burst), which must stay small because it is inlined.
    #[inline(never)]
    pub fn hint_burst_v6<P: PacketBuf>(&mut self, burst: &[Classified<P>]) {
        let v6_keys = burst.iter().map(|packet| {
            let key = packet.tag().fast_key_v6(packet.packet.data());
            key.or_else(|| any_key_v6(packet))
        });
        self.v6.table.hint_burst(v6_keys, &mut self.v6.hints);
    }

    /// Prefetches slots for new IPv4 connections among the next few packets of the burst that hints
    /// were made for, starting at `index`.
    #[inline]
    pub fn prefetch_new(&mut self, index: usize) {
        // Half of the prefetch distance at a time.
        if self.prefetched_end <= index + AHEAD / 2 {
            self.prefetch_next(index);
        }
    }

    /// Separate from [`prefetch_new`](Self::prefetch_new), which usually has nothing to do.
    #[cold]
    #[inline(never)]
    fn prefetch_next(&mut self, index: usize) {
        let end = self.burst_len.min(index + AHEAD);
        let Family { table, hints, .. } = &mut self.v4;
        for index in self.prefetched_end.max(index)..end {
            if let Some(key) = self.keys.get(index) {
                table.prefetch_insert(key, hints, index);
            }
        }
        // At the end of the burst nothing is left to prefetch.
        self.prefetched_end = if end == self.burst_len { usize::MAX } else { end };
    }

    /// The probable target of the packet at `index` of the burst that hints were made for, to
    /// prefetch it.
    #[must_use]
    pub fn likely_target(&self, index: usize, layout: Layout) -> Option<TargetId> {
        match layout.kind() {
            Kind::Ipv6 => self.v6.likely_target(index),
            _ => self.v4.likely_target(index),
        }
    }

    /// Sets the clock of the IPv4 connections to the time of a burst, for [`found_fast`](Self::found_fast).
    #[inline(always)]
    pub fn seen_at(&mut self, now: Instant) -> SeenAt {
        self.v4.table.seen_at(now.as_ns())
    }

    /// The connection of the packet at `index` of the burst that hints were made for, and the value
    /// stored with it. The [fast path](Layout::is_fast_v4) must take the packet. The connection
    /// counts as seen now. A connection that an earlier packet of the burst began may be left to
    /// [`find`](Self::find).
    #[inline(always)]
    pub fn found_fast(&mut self, index: usize, seen_at: SeenAt) -> Option<&(Connection, Kept)> {
        let found =
            self.v4.table.find_seen_at(self.keys.get(index)?, self.v4.hints.at(index), seen_at);
        found.map(|(_, connection)| connection)
    }

    /// The connection of the packet at `index` of the burst that hints were made for, which counts
    /// as seen now. Only for whole TCP and UDP packets outside tunnels: other packets may not
    /// belong to their key's connection, and looking it up would keep it from being forgotten. Also
    /// `None` for a packet with extension headers, which may state an encapsulation limit.
    #[inline]
    #[must_use]
    pub fn found(
        &mut self,
        index: usize,
        layout: Layout,
        frame: &[u8],
        now: Instant,
    ) -> Option<&Connection> {
        if let Some(key) = layout.fast_key_v6(frame) {
            return self.v6.found(&key, index, now);
        }
        match layout.key(frame).filter(|key| is_followed(layout, key.protocol()))? {
            FlowKey::V4(key) => self.v4.found(&key, index, now),
            FlowKey::V6(key) => {
                // The packet still belongs to its connection, which counts as seen.
                let connection = self.v6.found(&key, index, now)?;
                let header_end = layout.l3_offset() + ipv6::HEADER_BYTES;
                (layout.l4_offset(frame)? <= header_end).then_some(connection)
            }
        }
    }

    /// The connection of a key, which counts as seen now, and its silence before, in nanoseconds:
    /// exact enough to compare with [`ABANDONED_NS`].
    ///
    /// # Errors
    /// If there is no connection of this key: [`insert`](Self::insert) takes the [`Vacancy`].
    #[inline]
    pub fn find(&mut self, key: &FlowKey, now: Instant) -> Result<(Place, u64), Vacancy> {
        match key {
            FlowKey::V4(key) => {
                let found = self.v4.table.get_silent(*key, Hint::default(), now.as_ns());
                found.map(|(it, silent_ns)| (Place::V4(it), silent_ns)).map_err(Vacancy::V4)
            }
            FlowKey::V6(key) => {
                let found = self.v6.table.get_silent(*key, Hint::default(), now.as_ns());
                found.map(|(it, silent_ns)| (Place::V6(it), silent_ns)).map_err(Vacancy::V6)
            }
        }
    }

    /// [`find`](Self::find) for IPv4, with the key of the packet at `index` of the burst that hints
    /// were made for.
    ///
    /// # Errors
    /// Like [`find`](Self::find).
    #[inline(always)]
    pub fn find_v4(
        &mut self,
        key: FlowKeyV4,
        index: usize,
        now: Instant,
    ) -> Result<(Handle, u64), flow::Vacancy<FlowKeyV4>> {
        self.v4.table.get_silent(key, self.v4.hints.at(index), now.as_ns())
    }

    /// The connection of a key. It does not count as seen.
    #[must_use]
    pub fn peek(&self, key: &FlowKey, now: Instant) -> Option<Connection> {
        match key {
            FlowKey::V4(key) => self.v4.peek(key, now),
            FlowKey::V6(key) => self.v6.peek(key, now),
        }
    }

    /// The connection in a place; `None` if it has left the place.
    #[inline(always)]
    #[must_use]
    pub fn connection(&self, place: Place) -> Option<Connection> {
        match place {
            Place::V4(handle) => self.v4.table.value(handle).map(|it| it.0),
            Place::V6(handle) => self.v6.table.value(handle).map(|it| it.0),
        }
    }

    /// Renews the header that a connection keeps. `frame` is one of its packets, which the [fast
    /// path](Layout::is_fast_v4) must take.
    #[cold]
    #[inline(never)]
    pub fn renew_header(
        &mut self,
        services: &ServiceTable,
        (layout, frame): (Layout, &[u8]),
        now: Instant,
    ) {
        let Some(key) = layout.fast_key_v4(frame) else { return };
        let Some(handle) = self.v4.table.peek(&key, now.as_ns()) else { return };
        let (connection, kept) = &mut self.v4.table[handle];
        kept.renew(services, connection.target);
    }

    /// Changes the connection of a key in its place. Its last packet came at `seen`. Changes that
    /// other nodes need are journalled.
    ///
    /// # Panics
    /// If the connection has left the place.
    pub fn set(
        &mut self,
        (place, key): (Place, &FlowKey),
        mut connection: Connection,
        seen: Instant,
    ) {
        if self.journal.is_kept() {
            self.journal_change((place, key), &mut connection, seen);
        }
        match place {
            Place::V4(handle) => self.v4.set(handle, connection, Kept::forget_header),
            Place::V6(handle) => self.v6.set(handle, connection, |()| ()),
        }
    }

    /// Inserts a new connection, which counts as seen now, with a kept header for IPv4. If another
    /// connection is evicted, `on_removed` gets its target. `None` if there is no room.
    #[inline(always)]
    pub fn insert(
        &mut self,
        (vacancy, kept): (Vacancy, Kept),
        connection: Connection,
        now: Instant,
        on_removed: impl FnMut(TargetId),
    ) -> Option<Place> {
        let times = (now, self.idle_ns[State::Opening as usize]);
        let Self { v4, v6, journal, .. } = self;
        match vacancy {
            Vacancy::V4(key) => {
                v4.insert(key, (connection, kept), times, journal, on_removed).map(Place::V4)
            }
            Vacancy::V6(key) => {
                v6.insert(key, (connection, ()), times, journal, on_removed).map(Place::V6)
            }
        }
    }

    /// Removes connections that fell silent, in a bounded step: a few slots of each table.
    /// `on_removed` gets their targets.
    #[inline]
    pub fn age(&mut self, now: Instant, mut on_removed: impl FnMut(TargetId)) {
        self.v4.table.age(now.as_ns(), AGE_BUDGET, |_, (left, _)| on_removed(left.target));
        self.v6.table.age(now.as_ns(), AGE_BUDGET, |_, (left, _)| on_removed(left.target));
    }

    /// Number of connections, including silent ones that were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    /// Whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the connections in the next `budget` slots, with the hashes of their flows if these
    /// are kept. Returns where to continue, or `None` at the end. Connections that come, go or move
    /// meanwhile may be missed or visited twice.
    pub fn scan(
        &self,
        walk: Walk,
        budget: usize,
        mut visit: impl FnMut(FlowKey, Connection, Option<u32>),
    ) -> Option<Walk> {
        match walk {
            Walk::V4(cursor) if !self.v4.table.is_empty() => {
                let next = self.v4.table.scan(cursor, budget, |key, (it, kept)| {
                    visit(FlowKey::V4(*key), *it, Some(kept.flow_hash()));
                });
                Some(next.map_or(Walk::V6(Cursor::default()), Walk::V4))
            }
            Walk::V4(_) => Some(Walk::V6(Cursor::default())),
            Walk::V6(_) if self.v6.table.is_empty() => None,
            Walk::V6(cursor) => {
                let next = self.v6.table.scan(cursor, budget, |key, (it, ())| {
                    visit(FlowKey::V6(*key), *it, None);
                });
                next.map(Walk::V6)
            }
        }
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, Connection)> {
        let v4 = self.v4.table.iter().map(|(key, it)| (FlowKey::V4(*key), it.0));
        v4.chain(self.v6.table.iter().map(|(key, it)| (FlowKey::V6(*key), it.0)))
    }
}

/// Whether a packet of any kind has the key of an IPv4 connection, which is then stored in `place`;
/// notes if it has one of IPv6.
#[cold]
#[inline(never)]
fn has_any_v4<P: PacketBuf>(
    packet: &Classified<P>,
    place: &mut FlowKeyV4,
    any_v6: &mut bool,
) -> bool {
    let layout = packet.tag();
    if layout.kind() == Kind::Ipv6 {
        *any_v6 = true;
        return false;
    }
    let Some(FlowKey::V4(key)) = layout.key(packet.packet.data()) else { return false };
    *place = key;
    is_followed(layout, key.protocol())
}

/// The key of an IPv6 connection from a packet of any kind.
#[inline(never)]
fn any_key_v6<P: PacketBuf>(packet: &Classified<P>) -> Option<FlowKeyV6> {
    let layout = packet.tag();
    let FlowKey::V6(key) = layout.key(packet.packet.data())? else { return None };
    is_followed(layout, key.protocol()).then_some(key)
}
