//! The replies of a host that show its presence.

use std::net::IpAddr;

use crate::{
    PacketBuf,
    answer::echo_reply,
    arp::{self, ArpMessage},
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress},
    ipv4::Ipv4View,
    ipv6::Ipv6View,
    nd::{self, NdMessage},
};

/// Turns a request that every host answers into its reply: an ARP request (RFC 826) or a neighbour
/// solicitation (RFC 4861, section 7.2.4) for one of the host's addresses, or an
/// [echo request](echo_reply) to one. Returns whether the packet is a reply now; any other packet is
/// unchanged.
///
/// The reply goes from the station `mac` to the sender of the request.
///
/// ```
/// use hotloop_packet::{PacketBuf, answer, build::echo_request, ethernet::MacAddress, memory::MemPacket};
/// use std::net::IpAddr;
///
/// let own: IpAddr = "203.0.113.10".parse()?;
/// let mut ping = MemPacket::from(echo_request(1, 1).to("203.0.113.10"));
/// assert!(answer::as_host(&mut ping, MacAddress::new([2, 0, 0, 0, 0, 9]), |address| address == own));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn as_host<P: PacketBuf>(
    packet: &mut P,
    mac: MacAddress,
    is_own: impl Fn(IpAddr) -> bool,
) -> bool {
    let frame = packet.data();
    if let Some(message) = ArpMessage::of_frame(frame) {
        return is_own(message.target().address.into()) && arp::reply(packet, mac);
    }
    if let Some(message) = NdMessage::of_frame(frame) {
        return is_own(message.target().into()) && nd::advertise(packet, mac) == Ok(true);
    }
    let is_to_own = destination(frame).is_some_and(is_own);
    let client = frame.get(6..).and_then(<[u8]>::first_chunk).copied();
    let is_reply = is_to_own && echo_reply(packet).is_ok();
    if let Some(client) = client.filter(|_| is_reply) {
        ethernet::set_addresses(packet, mac, MacAddress::new(client));
    }
    is_reply
}

fn destination(frame: &[u8]) -> Option<IpAddr> {
    let (ethertype, offset) = ethernet::network_layer(frame)?;
    let packet = frame.get(offset..)?;
    match ethertype {
        ETHERTYPE_IPV4 => Some(Ipv4View::parse_cut(packet).ok()?.destination().into()),
        ETHERTYPE_IPV6 => Some(Ipv6View::parse_cut(packet).ok()?.destination().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{arp_request, echo_request, udp},
        icmp::IcmpView,
        memory::MemPacket,
    };

    const MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 9]);
    const CLIENT: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 7]);

    fn is_answered(packet: &mut MemPacket, own: &str) -> bool {
        let own: IpAddr = own.parse().unwrap();
        let before = packet.data().to_vec();
        let is_answered = as_host(packet, MAC, |address| address == own);
        if is_answered {
            assert_eq!(
                (&packet.data()[..6], &packet.data()[6..12]),
                (&CLIENT.bytes()[..], &MAC.bytes()[..])
            );
        } else {
            assert_eq!(packet.data(), before);
        }
        is_answered
    }

    #[test]
    fn requests_for_own_addresses_alone_are_answered() {
        let mut solicitation = MemPacket::new(&[]);
        let client = ("fe80::7".parse().unwrap(), CLIENT);
        nd::solicit(&mut solicitation, client, "2001:db8::1".parse().unwrap()).unwrap();
        let mut arp = MemPacket::new(&arp_request([10, 0, 0, 7].into(), [10, 0, 0, 1].into()));
        arp.data_mut()[6..12].copy_from_slice(&CLIENT.bytes());
        arp.data_mut()[22..28].copy_from_slice(&CLIENT.bytes());
        let ping = |to: &str| {
            let from = if to.contains(':') { "2001:db8::7" } else { "10.0.0.7" };
            MemPacket::from(echo_request(1, 1).from(from).to(to).macs(CLIENT, MAC))
        };
        for (packet, own) in [
            (solicitation, "2001:db8::1"),
            (arp, "10.0.0.1"),
            (ping("10.0.0.1"), "10.0.0.1"),
            (ping("2001:db8::1"), "2001:db8::1"),
        ] {
            assert!(!is_answered(&mut packet.clone(), "10.0.0.2"));
            assert!(is_answered(&mut packet.clone(), own));
        }
        let mut reply = ping("10.0.0.1");
        assert!(is_answered(&mut reply, "10.0.0.1"));
        assert_eq!(IcmpView::parse(&reply.data()[34..]).unwrap().kind(), 0);
        assert!(!is_answered(&mut reply, "10.0.0.7"));
        assert!(!is_answered(&mut MemPacket::from(udp().to("10.0.0.1:7")), "10.0.0.1"));
    }
}
