//! The stage that decides about each packet.

use crate::connection::{self, Connection};
use crate::datagram::{self, Datagram, DatagramKey};
use crate::flow::{Meaning, Received};
use crate::reject::{RATE, reject};
use crate::rules::{Action, Rules};
use crate::side::Side;
use hotloop::flow::{Cursor, Hint};
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::fragment::FragmentView;
use hotloop::packet::tcp::are_flags_possible;
use hotloop::prelude::*;
use hotloop::stage::{Counter, Gauge, TokenBucket};
use std::sync::Arc;

/// Places of a table that each turn looks through for what has expired.
const EXPIRE_BUDGET: usize = 15;

drop_reasons! {
    /// Why the firewall drops.
    pub enum FirewallDrop {
        /// A header is cut or inconsistent.
        Malformed = "malformed",
        /// Neither IP nor ARP.
        NotIp = "not_ip",
        /// TCP flags that no working TCP sends together.
        BadFlags = "bad_flags",
        /// A fragment that no working host sends, or that overlaps another.
        BadFragment = "bad_fragment",
        /// A later fragment of a datagram whose first has not passed.
        NoFirstFragment = "no_first_fragment",
        /// An ICMP error about no connection or for another host than its sender, or a redirect.
        StrayError = "stray_error",
        /// A rule allows the packet, but it neither belongs to a connection nor opens one.
        NoConnection = "no_connection",
        /// No rule matches.
        NoRule = "no_rule",
        /// By a rule's action.
        ByRule = "by_rule",
        /// By a rule's action, with an answer unless there were too many.
        Rejected = "rejected",
        /// A table has no room.
        TableFull = "table_full",
    }
}

/// A row of the listing: the key from the inside to the outside, and the connection.
pub type Row = (FlowKey, Connection);

/// The firewall on one core.
pub struct Firewall {
    inside: PortId,
    core: usize,
    rules: Subscriber<Rules>,
    connections: Table<FlowKey, Connection>,
    datagrams: Table<DatagramKey, Datagram>,
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
            datagrams: Table::new(arena, datagram::config())?,
            answers: TokenBucket::default(),
            lister,
            gauge: Arc::default(),
        })
    }

    /// Decides about a frame. Only IP packets have to do with rules; ARP is the link's.
    fn judge(&mut self, side: Side, layout: Layout, frame: &[u8], now: Instant) -> Fate {
        let key = match layout.kind() {
            Kind::Arp => return Ok(()),
            Kind::Malformed(_) => return Err(FirewallDrop::Malformed),
            _ => layout.key(frame).ok_or(FirewallDrop::NotIp)?,
        };
        let packet = Received { side, layout, key, frame };
        if packet.is_of_the_link() {
            Ok(())
        } else if layout.is_icmp_error() {
            self.judge_error(packet, now)
        } else if let Some(fragment) = FragmentView::of_frame(frame) {
            self.judge_fragment(packet, &fragment, now)
        } else {
            self.judge_packet(packet, now)
        }
    }

    /// An error passes if it is about a packet of a connection that went the opposite way, and goes to
    /// that packet's sender. It keeps no connection alive, as anybody can send one.
    fn judge_error(&self, error: Received<'_>, now: Instant) -> Fate {
        let tracked = error.side.other().oriented(error.key);
        let is_known = self.connections.peek(&tracked, Hint::NONE, now).is_ok();
        let is_for_sender = error.error_destination() == Some(error.key.source());
        if is_known && is_for_sender { Ok(()) } else { Err(FirewallDrop::StrayError) }
    }

    /// A first fragment is judged like a packet, and later ones pass if it has passed.
    fn judge_fragment(
        &mut self,
        packet: Received<'_>,
        fragment: &FragmentView<'_>,
        now: Instant,
    ) -> Fate {
        fragment.check().map_err(|_| FirewallDrop::BadFragment)?;
        let id = datagram::key_of(fragment.id(), packet.side);
        if self.datagrams.find(&id, Hint::NONE, now).is_none() {
            if fragment.offset_bytes() > 0 {
                return Err(FirewallDrop::NoFirstFragment);
            }
            self.judge_packet(packet, now)?;
            let inserted = self.datagrams.insert(id, Datagram::EMPTY, now, &mut |_, _| ());
            inserted.map_err(|_| FirewallDrop::TableFull)?;
        }
        self.add_fragment(id, fragment, now)
    }

    /// Passes a fragment of a known datagram, which is forgotten once it is complete.
    fn add_fragment(&mut self, id: DatagramKey, fragment: &FragmentView<'_>, now: Instant) -> Fate {
        let found = self.datagrams.find(&id, Hint::NONE, now);
        let (handle, _) = found.ok_or(FirewallDrop::NoFirstFragment)?;
        if !self.datagrams[handle].add(fragment) {
            return Err(FirewallDrop::BadFragment);
        }
        if self.datagrams[handle].is_complete() {
            self.datagrams.remove(&id);
        }
        Ok(())
    }

    /// A packet passes if it is one of a connection, or if a rule allows it.
    fn judge_packet(&mut self, packet: Received<'_>, now: Instant) -> Fate {
        let meaning = packet.meaning().ok_or(FirewallDrop::Malformed)?;
        if matches!(meaning, Meaning::Segment(flags) if !are_flags_possible(flags)) {
            return Err(FirewallDrop::BadFlags);
        }
        let Received { side, key, .. } = packet;
        if self.go_on(side, key, meaning, now) {
            return Ok(());
        }
        let rule = self.rules.current().first_match(side, &key).ok_or(FirewallDrop::NoRule)?;
        if rule.action == Action::Allow && !meaning.opens() && meaning != Meaning::Message {
            return Err(FirewallDrop::NoConnection);
        }
        rule.count_on(self.core);
        match rule.action {
            Action::Drop => Err(FirewallDrop::ByRule),
            Action::Reject => Err(FirewallDrop::Rejected),
            Action::Allow if meaning == Meaning::Message => Ok(()),
            Action::Allow => self.open(side, key, meaning, now),
        }
    }

    /// Whether a packet is one of a connection, which then goes on. Any other packet changes nothing.
    fn go_on(&mut self, side: Side, key: FlowKey, meaning: Meaning, now: Instant) -> bool {
        let key = side.oriented(key);
        let Ok((handle, _)) = self.connections.peek(&key, Hint::NONE, now) else { return false };
        let connection = self.connections[handle];
        let has_it = connection.has(side, meaning);
        if has_it {
            self.connections.find(&key, Hint::NONE, now);
            self.put(handle, connection.after(side, meaning));
        }
        has_it
    }

    /// Opens a connection. Where a ping from the other side has the same identifier, both go on.
    fn open(&mut self, side: Side, key: FlowKey, meaning: Meaning, now: Instant) -> Fate {
        let key = side.oriented(key);
        let mut connection = Connection::opened_by(side, meaning);
        if meaning == Meaning::Request && self.connections.peek(&key, Hint::NONE, now).is_ok() {
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
            let (key, now) = (packet.key(), cx.now());
            let is_inside = packet.packet.ingress() == Some(self.inside);
            let side = if is_inside { Side::Inside } else { Side::Outside };
            match (self.judge(side, packet.tag(), packet.packet.data(), now), key) {
                (Ok(()), _) => out.push(Routed { packet: packet.packet, route: side.other() }),
                (Err(reason @ FirewallDrop::Rejected), Some(key)) => {
                    let mut packet = cx.reuse(packet, reason).packet;
                    if self.answers.take(&RATE, 1, now) && reject(&mut packet, &key).is_ok() {
                        out.push_created(Routed { packet, route: side });
                    }
                }
                (Err(reason), _) => drop(cx.drop::<_, ()>(packet, reason)),
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
