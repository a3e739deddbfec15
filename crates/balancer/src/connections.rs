//! The connections that a worker remembers.

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

/// How many places of each table one [`Connections::age`] looks at.
const AGE_BUDGET: usize = 15;

/// A worker's connection tables, one for each IP version: keys are directed from client to VIP.
#[derive(Debug)]
pub struct Connections {
    /// Each keeps the outer header of its packets.
    v4: Family<FlowKeyV4, Kept>,
    /// These keep none, since an entry would take two cache lines.
    v6: Family<FlowKeyV6, ()>,
    /// Those of the packets of IPv4 that the fast path takes, by place in the burst that hints were made for.
    keys: [FlowKeyV4; BURST_KEYS_MAX],
    /// How long connections are remembered after their last packets, by state.
    idle_ns: [u64; CLASS_COUNT],
    journal: Journal,
    /// Of connections in the journal, which are looked up without them.
    journal_hints: Hints,
    /// How many packets the burst has that hints were made for.
    burst_len: usize,
    /// The index after the last of them for which a slot was prefetched.
    prefetched_end: usize,
    obtained: Obtained,
}

/// How many packets ahead slots for new connections are prefetched. Prefetching those of a whole burst at once is
/// slower: there are more lines than a core can have on the way.
const AHEAD: usize = 8;

/// Whether a packet is for the connection of its key, whatever else it is.
#[inline(always)]
const fn is_followed(layout: Layout, protocol: u8) -> bool {
    layout.is_plain() && matches!(protocol, protocol::TCP | protocol::UDP)
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In the table of IPv4.
    V4(Handle),
    /// In the table of IPv6.
    V6(Handle),
}

/// A key without a connection, as a search has found.
#[derive(Clone, Copy, Debug)]
pub enum Vacancy {
    /// In the table of IPv4.
    V4(flow::Vacancy<FlowKeyV4>),
    /// In the table of IPv6.
    V6(flow::Vacancy<FlowKeyV6>),
}

/// How far a walk through all connections has come.
#[derive(Clone, Copy, Debug)]
pub enum Walk {
    /// In the table of IPv4.
    V4(Cursor),
    /// In the table of IPv6.
    V6(Cursor),
}

impl Default for Walk {
    fn default() -> Self {
        Self::V4(Cursor::default())
    }
}

impl Connections {
    /// Tables for `capacity` connections of each IP version, in memory of `node` where that is known, which hash by
    /// `table_seed`, or each by a random seed of its own.
    ///
    /// # Errors
    /// There is not so much memory.
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

    /// What memory both tables got.
    #[must_use]
    pub const fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// The memory that tables for `capacity` connections take; none where it can't be addressed.
    #[must_use]
    pub fn bytes(capacity: usize) -> Option<usize> {
        let v4 = Table::<FlowKeyV4, (Connection, Kept)>::bytes(capacity)?;
        v4.checked_add(Table::<FlowKeyV6, (Connection, ())>::bytes(capacity)?)
    }

    /// Sets how long connections are remembered from now on, by state.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.v4.table.set_idle_ns(idle_ns);
        self.v6.table.set_idle_ns(idle_ns);
        self.idle_ns = idle_ns;
    }

    /// Asks for the memory of the connections of a burst of 64 packets at most, before they are found. `key_of` returns
    /// the key of a packet that the [fast path](Layout::is_fast_v4) takes, and leaves in each what it is. Returns whether
    /// [`hint_burst_v6`](Self::hint_burst_v6) is to follow.
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

    /// The rest of [`hint_burst`](Self::hint_burst), which stays small where it is inlined.
    #[inline(never)]
    pub fn hint_burst_v6<P: PacketBuf>(&mut self, burst: &[Classified<P>]) {
        let v6_keys = burst.iter().map(|packet| {
            let key = packet.tag().fast_key_v6(packet.packet.data());
            key.or_else(|| any_key_v6(packet))
        });
        self.v6.table.hint_burst(v6_keys, &mut self.v6.hints);
    }

    /// Prefetches slots for the new connections of IPv4 among the next few packets of the burst that hints were
    /// made for, from `index` on.
    #[inline]
    pub fn prefetch_new(&mut self, index: usize) {
        // As many at a time as half of those ahead.
        if self.prefetched_end <= index + AHEAD / 2 {
            self.prefetch_next(index);
        }
    }

    /// Apart from [`prefetch_new`](Self::prefetch_new), which most of the time has nothing to do.
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
        // At the end of the burst there is nothing left to do.
        self.prefetched_end = if end == self.burst_len { usize::MAX } else { end };
    }

    /// The target of the connection of the packet at `index` of the burst that hints were made for: most
    /// likely, to prefetch it.
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

    /// The connection of the packet at `index` of the burst that hints were made for, which the
    /// [fast path](Layout::is_fast_v4) takes, and what is kept with it. It has a packet now. One that an earlier packet of
    /// the burst began may be left to [`find`](Self::find).
    #[inline(always)]
    pub fn found_fast(&mut self, index: usize, seen_at: SeenAt) -> Option<&(Connection, Kept)> {
        let found =
            self.v4.table.find_seen_at(self.keys.get(index)?, self.v4.hints.at(index), seen_at);
        found.map(|(_, connection)| connection)
    }

    /// The connection of the packet at `index` of the burst that hints were made for, which has a packet
    /// now: of whole TCP and UDP packets outside tunnels. Whether others are for their connections is yet
    /// to be seen, and to look these up would keep them from being forgotten. `None` as well for a packet
    /// with extension headers: there, it may state an encapsulation limit.
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
                // It is of its connection all the same, which has been seen.
                let connection = self.v6.found(&key, index, now)?;
                let header_end = layout.l3_offset() + ipv6::HEADER_BYTES;
                (layout.l4_offset(frame)? <= header_end).then_some(connection)
            }
        }
    }

    /// The connection of a key, which has a packet now, and for how long it had none, in nanoseconds:
    /// exactly enough to compare it with [`ABANDONED_NS`].
    ///
    /// # Errors
    /// There is no connection of this key: [`insert`](Self::insert) takes the [`Vacancy`].
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

    /// [`find`](Self::find) for IPv4, by the key of the packet at `index` of the burst that hints were made for.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    #[inline(always)]
    pub fn find_v4(
        &mut self,
        key: FlowKeyV4,
        index: usize,
        now: Instant,
    ) -> Result<(Handle, u64), flow::Vacancy<FlowKeyV4>> {
        self.v4.table.get_silent(key, self.v4.hints.at(index), now.as_ns())
    }

    /// The connection of a key, without counting it as seen.
    #[must_use]
    pub fn peek(&self, key: &FlowKey, now: Instant) -> Option<Connection> {
        match key {
            FlowKey::V4(key) => self.v4.peek(key, now),
            FlowKey::V6(key) => self.v6.peek(key, now),
        }
    }

    /// The connection in a place; none where it has left it.
    #[inline(always)]
    #[must_use]
    pub fn connection(&self, place: Place) -> Option<Connection> {
        match place {
            Place::V4(handle) => self.v4.table.value(handle).map(|it| it.0),
            Place::V6(handle) => self.v6.table.value(handle).map(|it| it.0),
        }
    }

    /// Renews the header that a connection keeps. `frame` is one of its packets, which the
    /// [fast path](Layout::is_fast_v4) takes.
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

    /// Changes the connection of a key in its place, which it must not have left, and which had its last packet at
    /// `seen`. What other nodes need to know of that is journalled.
    ///
    /// # Panics
    /// When it has.
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

    /// Inserts a new connection, which has a packet now, and what is kept with one of IPv4. If another is evicted for it,
    /// `on_removed` gets the target of that one. `None` if there is no room.
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

    /// Forgets connections that fell silent, in a bounded step: a few places of each table.
    /// `on_removed` gets their targets.
    #[inline]
    pub fn age(&mut self, now: Instant, mut on_removed: impl FnMut(TargetId)) {
        self.v4.table.age(now.as_ns(), AGE_BUDGET, |_, (left, _)| on_removed(left.target));
        self.v6.table.age(now.as_ns(), AGE_BUDGET, |_, (left, _)| on_removed(left.target));
    }

    /// How many connections there are, those included that fell silent and were not forgotten yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the connections in the next `budget` places, with the hashes of their flows where these are kept, and says where
    /// to go on, or none at the end. Those that come, go or move meanwhile may be missed or met twice.
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

/// Whether a packet of any kind has the key of a connection of IPv4, which `place` then is; notes whether it is
/// one of IPv6.
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

/// The key of a connection of IPv6 by a packet of any kind.
#[inline(never)]
fn any_key_v6<P: PacketBuf>(packet: &Classified<P>) -> Option<FlowKeyV6> {
    let layout = packet.tag();
    let FlowKey::V6(key) = layout.key(packet.packet.data())? else { return None };
    is_followed(layout, key.protocol()).then_some(key)
}
