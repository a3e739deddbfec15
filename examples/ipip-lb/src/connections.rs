//! The connections that a worker remembers.

use crate::connection::{Connection, State};
use crate::directory::TargetId;
use hotloop::arena::{Arena, Obtained, Request};
use hotloop::flow::{
    BURST_KEYS_MAX, CLASS_COUNT, Class, Classes, Config, Cursor, Full, Handle, Table,
};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop::packet::ip::protocol;
use hotloop::stage::{Classified, Error, Tick};

/// Of how many connections of a full table one must be opening, for one to be looked for.
const OPENING_SHARE: usize = 16;

/// How many places of each table one [`Connections::age`] looks at.
const AGE_BUDGET: usize = 15;

/// A worker's connection tables, one for each IP version: keys are directed from client to VIP.
#[derive(Debug)]
pub struct Connections {
    v4: Table<FlowKeyV4, Connection>,
    v6: Table<FlowKeyV6, Connection>,
    /// How many of each are opening: of IPv4, then of IPv6.
    opening_counts: [usize; 2],
    /// What [`prepare`](Self::prepare) found, by place in the burst.
    found: [Option<Handle>; BURST_KEYS_MAX],
    obtained: Obtained,
}

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
    /// Tables for `capacity` connections of each IP version, in memory of `node` where that is known.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn new(
        capacity: usize,
        idle_ns: [u64; CLASS_COUNT],
        node: Option<u32>,
    ) -> Result<Self, Error> {
        let bytes = Self::bytes(capacity)
            .ok_or_else(|| Error::message(format!("{capacity} connections: too many")))?;
        let (arena, obtained) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let full = Full::Evict(Classes::of(&[Class::new(State::Opening as usize)]));
        let config = Config { capacity, idle_ns, recent_ns: u64::MAX, full };
        Ok(Self {
            v4: Table::new(arena.clone(), config)?,
            v6: Table::new(arena, config)?,
            opening_counts: [0; 2],
            found: [None; BURST_KEYS_MAX],
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
        let v4 = Table::<FlowKeyV4, Connection>::bytes(capacity)?;
        v4.checked_add(Table::<FlowKeyV6, Connection>::bytes(capacity)?)
    }

    /// Sets how long connections are remembered from now on, by state.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.v4.set_idle_ns(idle_ns);
        self.v6.set_idle_ns(idle_ns);
    }

    /// Looks up the connections of a burst, for [`found`](Self::found): those of whole TCP and UDP
    /// packets outside tunnels. Whether others are for their connections is yet to be seen, and to look
    /// these up would keep them from being forgotten.
    ///
    /// # Panics
    /// With more than 64 packets.
    #[inline]
    pub fn prepare<P: PacketBuf>(&mut self, burst: &[Classified<P>], now: Tick) {
        let mut any_v6 = false;
        let v4_keys = burst.iter().map(|packet| {
            let layout = packet.tag();
            let key = layout.usual_key_v4(packet.packet.data());
            key.or_else(|| {
                any_v6 |= layout.kind() == Kind::Ipv6;
                any_key_v4(packet)
            })
        });
        self.v4.lookup_burst(v4_keys, now.as_ns(), &mut self.found);
        if any_v6 {
            self.prepare_v6(burst, now);
        }
        if self.found[..burst.len()].contains(&None) {
            self.prepare_new(burst);
        }
    }

    /// Asks for the places of connections of IPv4 that are new, so that they don't have to be waited for
    /// one by one.
    #[inline(never)]
    fn prepare_new<P: PacketBuf>(&self, burst: &[Classified<P>]) {
        for (packet, found) in burst.iter().zip(&self.found) {
            if found.is_none()
                && let Some(key) = packet.tag().usual_key_v4(packet.packet.data())
            {
                self.v4.prefetch_insert(&key);
            }
        }
    }

    fn prepare_v6<P: PacketBuf>(&mut self, burst: &[Classified<P>], now: Tick) {
        let mut found = [None; BURST_KEYS_MAX];
        let v6_keys = burst.iter().map(any_key_v6);
        self.v6.lookup_burst(v6_keys, now.as_ns(), &mut found);
        for (index, packet) in burst.iter().enumerate() {
            if packet.tag().kind() == Kind::Ipv6 {
                self.found[index] = found[index];
            }
        }
    }

    /// The connection of the packet at `index` of the burst that was prepared, whose layout is of
    /// `kind`, as it was then: a packet ahead of it may have entered or changed it since.
    #[inline(always)]
    #[must_use]
    pub fn found(&self, index: usize, kind: Kind) -> Option<Place> {
        let handle = self.found[index]?;
        Some(if kind == Kind::Ipv6 { Place::V6(handle) } else { Place::V4(handle) })
    }

    /// As [`found`](Self::found), of a packet of IPv4: the connection itself.
    #[inline(always)]
    #[must_use]
    pub fn found_v4(&self, index: usize) -> Option<&Connection> {
        self.v4.value(self.found[index % BURST_KEYS_MAX]?)
    }

    /// The connection of a key, which has a packet now.
    pub fn find(&mut self, key: &FlowKey, now: Tick) -> Option<Place> {
        match key {
            FlowKey::V4(key) => self.v4.get(key, now.as_ns()).map(Place::V4),
            FlowKey::V6(key) => self.v6.get(key, now.as_ns()).map(Place::V6),
        }
    }

    /// The connection of a key, for somebody who only wants to know.
    #[must_use]
    pub fn peek(&self, key: &FlowKey, now: Tick) -> Option<Connection> {
        match key {
            FlowKey::V4(key) => self.v4.peek(key, now.as_ns()).map(|handle| self.v4[handle]),
            FlowKey::V6(key) => self.v6.peek(key, now.as_ns()).map(|handle| self.v6[handle]),
        }
    }

    /// The connection in a place; none where it has left it.
    #[inline(always)]
    #[must_use]
    pub fn connection(&self, place: Place) -> Option<Connection> {
        match place {
            Place::V4(handle) => self.v4.value(handle).copied(),
            Place::V6(handle) => self.v6.value(handle).copied(),
        }
    }

    /// Changes the connection in a place, which it must not have left.
    ///
    /// # Panics
    /// When it has.
    pub fn set(&mut self, place: Place, connection: Connection) {
        let class = class(&connection);
        let (before, opening_count) = match place {
            Place::V4(handle) => {
                self.v4.set_class(handle, class);
                (std::mem::replace(&mut self.v4[handle], connection), &mut self.opening_counts[0])
            }
            Place::V6(handle) => {
                self.v6.set_class(handle, class);
                (std::mem::replace(&mut self.v6[handle], connection), &mut self.opening_counts[1])
            }
        };
        *opening_count += is_opening(&connection);
        *opening_count -= is_opening(&before);
    }

    /// Remembers a connection that isn't there, which has a packet now. Where another leaves for it,
    /// `on_leave` has the target of that. None where there is no room.
    ///
    /// A full table has room where one in 16 of its connections is opening: to look for the last few
    /// of them, for each new one of a flood, would cost more than they are worth.
    pub fn insert(
        &mut self,
        key: &FlowKey,
        connection: Connection,
        now: Tick,
        mut on_leave: impl FnMut(TargetId),
    ) -> Option<Place> {
        let (now, class) = (now.as_ns(), class(&connection));
        let [v4_count, v6_count] = &mut self.opening_counts;
        let (place, opening_count) = match key {
            FlowKey::V4(key) => {
                let table = &mut self.v4;
                if table.len() >= table.capacity() && *v4_count < table.capacity() / OPENING_SHARE {
                    return None;
                }
                let placed = table.insert_ranked(
                    *key,
                    connection,
                    class,
                    now,
                    |_, _, _| Some(0),
                    |_, left| {
                        *v4_count -= is_opening(&left);
                        on_leave(left.target);
                    },
                );
                (placed.map(Place::V4), v4_count)
            }
            FlowKey::V6(key) => {
                let table = &mut self.v6;
                if table.len() >= table.capacity() && *v6_count < table.capacity() / OPENING_SHARE {
                    return None;
                }
                let placed = table.insert_ranked(
                    *key,
                    connection,
                    class,
                    now,
                    |_, _, _| Some(0),
                    |_, left| {
                        *v6_count -= is_opening(&left);
                        on_leave(left.target);
                    },
                );
                (placed.map(Place::V6), v6_count)
            }
        };
        let place = place.ok()?;
        *opening_count += is_opening(&connection);
        Some(place)
    }

    /// Forgets connections that fell silent, in a bounded step: a few places of each table.
    /// `on_leave` has their targets.
    #[inline]
    pub fn age(&mut self, now: Tick, mut on_leave: impl FnMut(TargetId)) {
        let [v4_count, v6_count] = &mut self.opening_counts;
        self.v4.age(now.as_ns(), AGE_BUDGET, |_, left| {
            *v4_count -= is_opening(&left);
            on_leave(left.target);
        });
        self.v6.age(now.as_ns(), AGE_BUDGET, |_, left| {
            *v6_count -= is_opening(&left);
            on_leave(left.target);
        });
    }

    /// How many connections there are, those included that fell silent and were not forgotten yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the connections in the next `budget` places, and says where to go on, or none at the
    /// end. Those that come, go or move meanwhile may be missed or met twice.
    pub fn scan(
        &self,
        walk: Walk,
        budget: usize,
        mut visit: impl FnMut(FlowKey, Connection),
    ) -> Option<Walk> {
        match walk {
            Walk::V4(cursor) => {
                let next = self.v4.scan(cursor, budget, |key, it| visit(FlowKey::V4(*key), *it));
                Some(next.map_or(Walk::V6(Cursor::default()), Walk::V4))
            }
            Walk::V6(cursor) => {
                let next = self.v6.scan(cursor, budget, |key, it| visit(FlowKey::V6(*key), *it));
                next.map(Walk::V6)
            }
        }
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, Connection)> {
        let v4 = self.v4.iter().map(|(key, it)| (FlowKey::V4(*key), *it));
        v4.chain(self.v6.iter().map(|(key, it)| (FlowKey::V6(*key), *it)))
    }
}

/// The key of a connection of IPv4 by a packet of any kind.
#[inline(never)]
fn any_key_v4<P: PacketBuf>(packet: &Classified<P>) -> Option<FlowKeyV4> {
    let layout = packet.tag();
    let FlowKey::V4(key) = layout.key(packet.packet.data())? else { return None };
    is_followed(layout, key.protocol()).then_some(key)
}

/// The key of a connection of IPv6 by a packet of any kind.
fn any_key_v6<P: PacketBuf>(packet: &Classified<P>) -> Option<FlowKeyV6> {
    let layout = packet.tag();
    let FlowKey::V6(key) = layout.key(packet.packet.data())? else { return None };
    is_followed(layout, key.protocol()).then_some(key)
}

/// The class of a connection's entry.
const fn class(connection: &Connection) -> Class {
    Class::new(connection.state() as usize)
}

/// 1 for a connection that is opening, 0 for any other.
fn is_opening(connection: &Connection) -> usize {
    usize::from(connection.state() == State::Opening)
}
