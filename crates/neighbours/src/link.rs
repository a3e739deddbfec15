//! Links, and next hops on them.

use crate::key::{Key, LinkId};
use hotloop_packet::ethernet::{self, MacAddress};
use hotloop_packet::{NoRoom, PacketBuf, PortId, arp, nd};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A link and the program's own station there. Frames have no tag of the link's VLAN here: it is
/// removed before and added after.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link<A = IpAddr> {
    /// The port that receives from the link.
    pub port: PortId,
    /// The VLAN, if the link is one.
    pub vlan: Option<u16>,
    /// The own Ethernet address.
    pub mac: MacAddress,
    /// The own IP address, which neighbours ask for and answer to.
    pub address: A,
}

impl<A> Link<A> {
    /// The link's identity, as part of its neighbours' keys.
    #[must_use]
    pub const fn id(&self) -> LinkId {
        LinkId::new(self.port, self.vlan)
    }
}

impl From<Link<Ipv4Addr>> for Link {
    fn from(Link { port, vlan, mac, address }: Link<Ipv4Addr>) -> Self {
        Self { port, vlan, mac, address: address.into() }
    }
}

impl From<Link<Ipv6Addr>> for Link {
    fn from(Link { port, vlan, mac, address }: Link<Ipv6Addr>) -> Self {
        Self { port, vlan, mac, address: address.into() }
    }
}

/// The station that a packet goes to next, and the own station that it leaves from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextHop {
    pub(crate) key: Key,
    pub(crate) own_mac: MacAddress,
    /// The own address, of the neighbour's family; `None` if the system asks.
    own: Option<IpAddr>,
}

/// The stations that get a question for an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Question {
    /// All that may have the address: it is unknown, or its last station does not answer.
    ToAll,
    /// The last station that had the address, to confirm it.
    To(MacAddress),
}

impl NextHop {
    /// The neighbour with this IPv4 address. ARP asks for it.
    #[must_use]
    pub const fn v4(address: Ipv4Addr, link: Link<Ipv4Addr>) -> Self {
        let (id, own) = (link.id(), Some(IpAddr::V4(link.address)));
        Self { key: Key::new(id, IpAddr::V4(address)), own_mac: link.mac, own }
    }

    /// Like [`v4`](Self::v4), for IPv6. Neighbour discovery asks for it.
    #[must_use]
    pub const fn v6(address: Ipv6Addr, link: Link<Ipv6Addr>) -> Self {
        let (id, own) = (link.id(), Some(IpAddr::V6(link.address)));
        Self { key: Key::new(id, IpAddr::V6(address)), own_mac: link.mac, own }
    }

    /// A neighbour that the system asks for, not [`Resolve`](crate::Resolve), which notes requests
    /// for it ([`Neighbours::take_requests`](crate::Neighbours::take_requests)). Packets to it
    /// leave from the station with this Ethernet address.
    #[must_use]
    pub const fn of_system(address: IpAddr, own_mac: MacAddress) -> Self {
        Self { key: Key::new(LinkId::SYSTEM, address), own_mac, own: None }
    }

    /// The neighbour's address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.key.address()
    }

    /// The link that the neighbour is on.
    #[must_use]
    pub const fn link(&self) -> LinkId {
        self.key.link
    }

    /// The link and the own station there, for [`Learn`](crate::Learn). `None` if the system asks.
    #[must_use]
    pub fn station(&self) -> Option<Link> {
        let (port, vlan) = self.key.link.numbers();
        let vlan = (vlan != 0).then_some(vlan);
        Some(Link { port: PortId::new(port), vlan, mac: self.own_mac, address: self.own? })
    }

    /// Appends the frame that asks for the neighbour to an empty packet; nothing if the system
    /// asks.
    ///
    /// # Errors
    /// [`NoRoom`] if the packet has no room for 86 bytes, or for 42 with an IPv4 address. It stays
    /// empty.
    pub fn write_question<P: PacketBuf>(
        &self,
        question: Question,
        packet: &mut P,
    ) -> Result<(), NoRoom> {
        let mac = self.own_mac;
        match (self.own, question) {
            (None, _) => Ok(()),
            (Some(IpAddr::V4(address)), question) => {
                arp::request(packet, arp::Neighbour { mac, address }, self.key.v4())?;
                if let Question::To(station) = question {
                    ethernet::set_addresses(packet, mac, station);
                }
                Ok(())
            }
            (Some(IpAddr::V6(own)), Question::ToAll) => {
                nd::solicit(packet, (own, mac), self.key.v6())
            }
            (Some(IpAddr::V6(own)), Question::To(station)) => {
                nd::solicit_one(packet, (own, mac), (self.key.v6(), station))
            }
        }
    }
}
