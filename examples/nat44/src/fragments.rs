//! The key of each packet's connection. Of a fragmented datagram, only the first fragment has
//! ports: the later ones get its key.

use hotloop::flow::{Classes, Config, Full};
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop::packet::fragment::{FragmentId, FragmentView};
use hotloop::prelude::*;

/// The side that a packet came from, [`Side::Lan`] or [`Side::Wan`], and the key of its connection,
/// as in packets to the WAN before translation; for a packet from the WAN, the key it would have
/// there after translation. No key if the packet is not IPv4, or is a fragment of unknown ports.
pub type Origin = (Side, Option<FlowKeyV4>);

/// A packet with its origin.
pub type Keyed<P> = Routed<Classified<P>, Origin>;

/// Number of datagrams that a core knows. Of more, those without fragments for longest leave.
const DATAGRAMS_MAX: usize = 1024;

/// How long the key of a datagram is known: RFC 791, section 3.2.
const PATIENCE_NS: u64 = 15_000_000_000;

/// A side of the NAT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The side of the hosts that share an address.
    Lan,
    /// The side of all other hosts.
    Wan,
    /// A loop: packets from a host of the LAN to another's port of the WAN address leave by it, and
    /// come back as packets from the WAN.
    Hairpin,
}

/// The stage that finds the key of each packet's connection, on the core that receives it.
pub struct Fragments {
    lan_port: PortId,
    /// The keys in the first fragments of datagrams.
    keys: Table<FragmentId, FlowKeyV4>,
}

impl Fragments {
    /// Knows no datagrams yet.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(core: &Core, lan_port: PortId) -> hotloop::Result<Self> {
        let full = Full::Evict(Classes::ALL);
        let config = Config { full, ..Config::new(DATAGRAMS_MAX, PATIENCE_NS) };
        Ok(Self { lan_port, keys: Table::new(Arena::on(core.node())?, config)? })
    }

    /// The key of a packet that may be a fragment, and has this key of its own.
    #[inline(never)]
    fn find(&mut self, frame: &[u8], own: FlowKeyV4, now: Instant) -> Option<FlowKeyV4> {
        let Some(fragment) = FragmentView::of_frame(frame) else { return Some(own) };
        fragment.check().ok()?;
        if fragment.offset_bytes() == 0 {
            self.keys.insert(fragment.id(), own, now, &mut |_, _| ()).ok()?;
        }
        let found = self.keys.peek(&fragment.id(), Hint::NONE, now);
        found.ok().map(|(handle, _)| self.keys[handle])
    }
}

impl<P: PacketBuf> Stage<Classified<P>> for Fragments {
    type Out = Keyed<P>;
    type Drop = NoDrops;

    fn packet(&mut self, cx: &mut Cx<'_, NoDrops>, packet: Classified<P>) -> Verdict<Keyed<P>> {
        let is_lan = packet.packet.ingress() == Some(self.lan_port);
        let side = if is_lan { Side::Lan } else { Side::Wan };
        // The key of an error is the quoted packet's, which went the opposite way.
        let is_outward = is_lan != packet.tag().is_icmp_error();
        let Some(FlowKey::V4(key)) = packet.key() else {
            return Ok(Routed { packet, route: (side, None) });
        };
        let own = if is_outward { key } else { key.reversed() };
        let is_whole = packet.tag().is_fast_v4();
        let key = if is_whole { Some(own) } else { self.find(packet.bytes(), own, cx.now()) };
        Ok(Routed { packet, route: (side, key) })
    }
}
