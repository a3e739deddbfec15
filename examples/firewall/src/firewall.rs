//! The stage that decides about each packet.

use crate::connection::{self, Connection, State};
use crate::packet::{Meaning, Packet, Side};
use crate::rules::{Action, Rules};
use hotloop::flow::{Config, Cursor};
use hotloop::packet::answer::{IcmpError, icmp_error, tcp_reset};
use hotloop::packet::classify::Kind;
use hotloop::packet::fragment::{FragmentView, Pieces};
use hotloop::packet::ip::{is_truncated, protocol};
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::tcp::are_flags_possible;
use hotloop::prelude::*;
use hotloop::stage::{Counter, Gauge, TokenBucket, TokenRate};
use std::sync::Arc;

/// The firewall, from received packets to packets with the side that they leave by. Both directions
/// of a connection, its fragments and the errors about it meet on the core that their two addresses
/// select, by the secret `seed`. `make` makes the firewall of a core.
pub fn filtered<P: PacketBuf + Send>(
    chain: impl Chain<Out = P>,
    seed: u64,
    make: impl Fn(&Core) -> hotloop::Result<Firewall> + Sync,
) -> impl Chain<Out = Routed<P, Side>> {
    chain
        .stage(move |_| Classify::outermost().seeded(seed))
        .shard_by(|packet: &Classified<P>| packet.shard())
        .try_burst_stage(make)
}

/// Limits the answers of a core, since senders may be forged (RFC 1812, section 4.3.2.8).
const ANSWER_RATE: TokenRate = TokenRate::per_second(1000, 100);

/// Maximum number of datagrams in fragments that a core knows. Each takes a kilobyte.
const DATAGRAMS_MAX: usize = 2_000;

/// How long a datagram's fragments are waited for, in nanoseconds: as long as Linux waits.
const DATAGRAM_IDLE_NS: u64 = 30_000_000_000;

/// Places of a table that each turn looks through for what has expired.
const EXPIRE_BUDGET: usize = 15;

drop_reasons! {
    /// Why the firewall drops.
    pub enum FirewallDrop {
        /// A header is cut, or is inconsistent in itself or with the headers around it.
        Malformed = "malformed",
        /// Shorter than its IP header states, as the device has cut it.
        Truncated = "truncated",
        /// Neither IP nor ARP.
        NotIp = "not_ip",
        /// TCP flags that no working TCP sends together.
        BadFlags = "bad_flags",
        /// A fragment that no working host sends, or that overlaps another.
        BadFragment = "bad_fragment",
        /// A later fragment of a datagram whose first has not passed.
        NoFirstFragment = "no_first_fragment",
        /// An ICMP error about no connection, or for another host than the quoted packet's sender; a
        /// redirect or a source quench.
        StrayError = "stray_error",
        /// A rule allows the packet, but it neither belongs to a connection nor opens one.
        NoConnection = "no_connection",
        /// No rule matches.
        NoRule = "no_rule",
        /// By a rule that drops.
        ByRule = "by_rule",
        /// By a rule that rejects, with an answer unless there were too many.
        Rejected = "rejected",
        /// The core has no room for another connection or datagram.
        TableFull = "table_full",
    }
}

/// A row of `ctl connections`: the key from the inside to the outside, and the connection.
pub type Row = (FlowKey, Connection);

/// The firewall on one core.
pub struct Firewall {
    inside: PortId,
    core: usize,
    rules: Subscriber<Rules>,
    connections: Table<FlowKey, Connection>,
    /// The pieces that have passed of datagrams in fragments, by a fragment's id and its side.
    datagrams: Table<[u64; 6], Pieces>,
    answers: TokenBucket,
    lister: Lister<(), Cursor, Row>,
    gauge: Arc<Counter>,
}

/// A packet's fate: it passes, or is dropped for a reason.
type Fate = Result<(), FirewallDrop>;

impl Firewall {
    /// The firewall of this core, with an empty table for this many connections. Packets that come from
    /// another port than `inside` come from the outside.
    ///
    /// # Errors
    /// There isn't enough memory for the tables.
    pub fn new(
        core: &Core,
        inside: PortId,
        connections_max: usize,
        rules: Subscriber<Rules>,
        lister: Lister<(), Cursor, Row>,
    ) -> hotloop::Result<Self> {
        let arena = Arena::on(core.node())?;
        Ok(Self {
            inside,
            core: core.index(),
            rules,
            connections: Table::new(arena.clone(), connection::config(connections_max))?,
            datagrams: Table::new(arena, Config::new(DATAGRAMS_MAX, DATAGRAM_IDLE_NS))?,
            answers: TokenBucket::default(),
            lister,
            gauge: Arc::default(),
        })
    }

    /// Decides about a frame. Only IP packets have to do with rules; ARP is the link's.
    fn judge<P: PacketBuf>(&mut self, side: Side, p: &Classified<P>, now: Instant) -> Fate {
        let (layout, frame) = (p.tag(), p.packet.data());
        let key = match layout.kind() {
            Kind::Arp => return Ok(()),
            Kind::Malformed(_) if is_truncated(frame, p.total_bytes()) => {
                return Err(FirewallDrop::Truncated);
            }
            Kind::Malformed(_) => return Err(FirewallDrop::Malformed),
            _ => layout.key(frame).ok_or(FirewallDrop::NotIp)?,
        };
        let own = OwnHeader::of(frame).ok_or(FirewallDrop::Malformed)?;
        let packet = Packet { side, key, own, frame };
        if own.is_between_neighbours(frame) {
            Ok(())
        } else if layout.is_icmp_error() {
            self.judge_error(packet, now)
        } else if let Some(fragment) = FragmentView::of_frame(frame) {
            self.judge_fragment(packet, &fragment, now)
        } else {
            self.judge_packet(packet, now)
        }
    }

    /// An error passes if it is about a packet of a connection that went the opposite way, and goes
    /// to that packet's sender. It keeps no connection alive, as anybody can send one.
    fn judge_error(&self, error: Packet<'_>, now: Instant) -> Fate {
        let Packet { side, key, own, frame } = error;
        let tracked = side.other().oriented(key);
        let is_known = self.connections.peek(&tracked, Hint::NONE, now).is_ok();
        let is_for_sender = own.destination == key.source() && !own.is_hop_by_hop(frame);
        if is_known && is_for_sender { Ok(()) } else { Err(FirewallDrop::StrayError) }
    }

    /// A first fragment is judged like a packet, and later ones pass if it has passed. A datagram is
    /// forgotten once it is complete.
    fn judge_fragment(
        &mut self,
        packet: Packet<'_>,
        fragment: &FragmentView<'_>,
        now: Instant,
    ) -> Fate {
        fragment.check().map_err(|_| FirewallDrop::BadFragment)?;
        let [a, b, c, d, e] = fragment.id().words();
        let id = [a, b, c, d, e, packet.side as u64];
        let handle = match self.datagrams.find(&id, Hint::NONE, now) {
            Some((handle, _)) => handle,
            None if fragment.offset_bytes() > 0 => return Err(FirewallDrop::NoFirstFragment),
            None => {
                self.judge_packet(packet, now)?;
                let inserted = self.datagrams.insert(id, Pieces::default(), now, &mut |_, _| ());
                inserted.map_err(|_| FirewallDrop::TableFull)?
            }
        };
        let datagram = &mut self.datagrams[handle];
        if !datagram.add(fragment) {
            return Err(FirewallDrop::BadFragment);
        }
        if datagram.are_complete() {
            self.datagrams.remove(&id);
        }
        Ok(())
    }

    /// A packet passes if it is one of a connection, or if a rule allows it.
    fn judge_packet(&mut self, packet: Packet<'_>, now: Instant) -> Fate {
        let (Packet { side, key, .. }, meaning) = (packet, packet.meaning());
        if matches!(meaning, Meaning::Segment(flags) if !are_flags_possible(flags)) {
            return Err(FirewallDrop::BadFlags);
        }
        if self.go_on(side, key, meaning, now) {
            return Ok(());
        }
        let rule = self.rules.current().first_match(side, &key).ok_or(FirewallDrop::NoRule)?;
        rule.packets.add(self.core, 1);
        match (rule.action, Connection::opened_by(side, meaning)) {
            (Action::Drop, _) => Err(FirewallDrop::ByRule),
            (Action::Reject, _) => Err(FirewallDrop::Rejected),
            (Action::Allow, Some(connection)) => self.open(side.oriented(key), connection, now),
            (Action::Allow, None) if meaning == Meaning::Message => Ok(()),
            (Action::Allow, None) => Err(FirewallDrop::NoConnection),
        }
    }

    /// Whether a packet is one of a connection, which then goes on. Any other packet changes nothing.
    fn go_on(&mut self, side: Side, key: FlowKey, meaning: Meaning, now: Instant) -> bool {
        let key = side.oriented(key);
        let Ok((handle, _)) = self.connections.peek(&key, Hint::NONE, now) else { return false };
        let Some(after) = self.connections[handle].after(side, meaning) else { return false };
        self.connections.touch(handle, now);
        self.put(handle, after);
        true
    }

    /// Opens a connection. If a ping from the other side has the same identifier, both go on.
    fn open(&mut self, key: FlowKey, mut connection: Connection, now: Instant) -> Fate {
        let has_asked = connection.state == State::Echoes;
        if has_asked && self.connections.peek(&key, Hint::NONE, now).is_ok() {
            connection.done = [true; 2];
        }
        let inserted = self.connections.insert(key, connection, now, &mut |_, _| ());
        self.put(inserted.map_err(|_| FirewallDrop::TableFull)?, connection);
        Ok(())
    }

    /// Writes a connection, and its state as its class, which has the timeout.
    fn put(&mut self, handle: Handle, connection: Connection) {
        self.connections[handle] = connection;
        self.connections.set_class(handle, connection.state.class());
    }
}

/// Turns a packet into its answer: a reset for TCP, an ICMP error otherwise, as if the destination had
/// sent it, as the firewall has no address. Returns false if the packet gets no answer.
fn reject<P: PacketBuf>(packet: &mut P) -> bool {
    let Some(own) = OwnHeader::of(packet.data()) else { return false };
    if own.protocol == protocol::TCP {
        return tcp_reset(packet).is_ok();
    }
    let is_done = icmp_error(packet, own.destination, IcmpError::Prohibited).is_ok();
    ethernet::swap_addresses(packet);
    is_done
}

impl<P: PacketBuf> BurstStage<Classified<P>> for Firewall {
    type Out = Routed<P, Side>;
    type Drop = FirewallDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, FirewallDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Side>>,
    ) {
        input.fetch();
        while let Some(packet) = input.pop() {
            let is_inside = packet.packet.ingress() == Some(self.inside);
            let side = if is_inside { Side::Inside } else { Side::Outside };
            match self.judge(side, &packet, cx.now()) {
                Ok(()) => out.push(Routed { packet: packet.packet, route: side.other() }),
                Err(reason) => {
                    let mut packet = cx.reuse(packet, reason).packet;
                    if reason == FirewallDrop::Rejected
                        && self.answers.take(&ANSWER_RATE, 1, cx.now())
                        && reject(&mut packet)
                    {
                        out.push_created(Routed { packet, route: side });
                    }
                }
            }
        }
    }

    /// Once a turn of the core: takes up new rules, forgets what has expired, lists connections.
    fn tick(&mut self, cx: &mut Cx<'_, FirewallDrop>, _: &mut Output<'_, Routed<P, Side>>) {
        self.rules.take_up();
        self.connections.expire(cx.now(), EXPIRE_BUDGET, |_, _| ());
        self.datagrams.expire(cx.now(), EXPIRE_BUDGET, |_, _| ());
        self.gauge.set(self.connections.len() as u64);
        let Self { connections, lister, .. } = self;
        lister.tick(|(), from, budget, rows| {
            connections.scan(from, budget, |key, connection| rows.push((*key, *connection)))
        });
    }

    /// A listing in progress keeps an idle core awake.
    fn has_work(&self) -> bool {
        self.lister.has_work()
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("connections", &self.gauge)]
    }
}
