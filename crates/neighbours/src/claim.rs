//! The claim that a frame makes about a neighbour.

use crate::key::Key;
use crate::link::Link;
use hotloop_packet::arp::{self, ArpMessage};
use hotloop_packet::ethernet::{
    self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, MacAddress,
};
use hotloop_packet::ip::{is_host, protocol};
use hotloop_packet::nd::{self, NdMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A station's own claim to have an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Claim {
    pub key: Key,
    /// The station; an advertisement to one that knows it may leave it out.
    pub mac: Option<MacAddress>,
    pub kind: Kind,
    /// Whether the station is a router, if the message contains that.
    pub is_router: Option<bool>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The message answers a question of this station's.
    Answer,
    /// The message asks for this station.
    Request,
    /// The message wasn't requested (RFC 5227, section 3; RFC 4861, section 7.2.6).
    Announcement,
    /// RFC 826, RFC 5227 or RFC 4861 forbids the message, or it is for another station.
    Invalid,
}

/// Whether a frame may be ARP or neighbour discovery. A quick check, since most frames aren't.
#[inline(always)]
pub(crate) fn may_be_one(frame: &[u8]) -> bool {
    let Some(start) = frame.first_chunk::<21>() else { return false };
    match u16::from_be_bytes([start[12], start[13]]) {
        ETHERTYPE_IPV4 => false,
        ETHERTYPE_IPV6 => start[20] == protocol::ICMPV6,
        ETHERTYPE_ARP => true,
        ETHERTYPE_VLAN => has_priority_alone(frame),
        _ => false,
    }
}

/// Whether a frame's only tag has no VLAN (802.1Q, section 9.6: a priority tag).
#[cold]
fn has_priority_alone(frame: &[u8]) -> bool {
    ethernet::vlan(frame) == Some(0) && ethernet::l3_offset(frame) == Some(18)
}

/// Whether a frame is a neighbour discovery message that RFC 4861, section 7.1, forbids. It may be
/// about any address.
pub(crate) fn is_forbidden(frame: &[u8]) -> bool {
    may_be_one(frame) && nd::is_message(frame) && NdMessage::of_frame(frame).is_none()
}

impl Claim {
    /// The claim in a frame from this link. `None` if the frame makes no claim.
    pub fn of(link: &Link, frame: &[u8]) -> Option<Self> {
        if !may_be_one(frame) {
            return None;
        }
        let to = MacAddress::new(*frame.first_chunk()?);
        let claim = match link.address {
            IpAddr::V4(own) => Self::of_arp(link, own, to, ArpMessage::of_frame(frame)?),
            IpAddr::V6(own) => Self::of_nd(link, own, to, &NdMessage::of_frame(frame)?),
        }?;
        let address = claim.key.address();
        let is_station = |mac: MacAddress| {
            !mac.is_multicast() && mac != MacAddress::default() && mac != link.mac
        };
        let is_valid = address != link.address && claim.mac.is_none_or(is_station);
        is_host(address).then_some(if is_valid { claim } else { claim.invalid() })
    }

    fn invalid(self) -> Self {
        Self { kind: Kind::Invalid, ..self }
    }

    /// Follows RFC 826; announcements are those of RFC 5227, section 3.
    fn of_arp(link: &Link, own: Ipv4Addr, to: MacAddress, message: &ArpMessage) -> Option<Self> {
        let (sender, target) = (message.sender(), message.target().address);
        let is_reached = to == link.mac || to == MacAddress::BROADCAST;
        let kind = match message.operation() {
            _ if !is_reached => Kind::Invalid,
            arp::operation::REQUEST if target == own => Kind::Request,
            arp::operation::REPLY if target == own => Kind::Answer,
            arp::operation::REQUEST | arp::operation::REPLY if target == sender.address => {
                Kind::Announcement
            }
            // The message asks for another station.
            arp::operation::REQUEST if to == MacAddress::BROADCAST => return None,
            _ => Kind::Invalid,
        };
        let key = Key::new(link.id(), sender.address.into());
        Some(Self { key, mac: Some(sender.mac), kind, is_router: None })
    }

    /// Follows RFC 4861, section 7.2; [`NdMessage`] has checked the requirements of section 7.1.
    fn of_nd(link: &Link, own: Ipv6Addr, to: MacAddress, message: &NdMessage) -> Option<Self> {
        let destination = message.destination();
        let is_reached = if destination == own {
            to == link.mac
        } else {
            let groups = [nd::ALL_NODES, nd::group_of(own)];
            groups.contains(&destination) && to == nd::mac_of_group(destination)
        };
        let source = message.source();
        let is_own = source == own || !is_host(source.into());
        let (address, kind, is_router) = if message.is_solicitation() {
            if message.target() != own || message.mac().is_none() {
                return None;
            }
            (source, Kind::Request, None)
        } else {
            let is_answer = message.is_solicited();
            let kind = if is_answer { Kind::Answer } else { Kind::Announcement };
            (message.target(), kind, Some(message.is_router()))
        };
        // ARP handles IPv4 addresses.
        if address.to_ipv4_mapped().is_some() {
            return None;
        }
        let key = Key::new(link.id(), address.into());
        let claim = Self { key, mac: message.mac(), kind, is_router };
        Some(if is_reached && !is_own { claim } else { claim.invalid() })
    }
}
