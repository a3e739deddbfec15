//! A small network function, and an independent definition of its expected output.

use hotloop::packet::checksum::checksum;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4};
use hotloop::packet::ipv4::Ipv4Header;
use hotloop::packet::ipv6::Ipv6Header;
use hotloop::prelude::*;
use hotloop::testing::Frame;

drop_reasons! {
    /// Why a hop drops.
    pub enum HopDrop {
        /// Neither IPv4 nor IPv6.
        NotIp = "not_ip",
        /// The packet may not be forwarded once more.
        TtlExpired = "ttl_expired",
    }
}

/// A router's hop: swaps the Ethernet addresses and decrements the TTL.
pub struct Hop;

impl<P: PacketBuf> Stage<Classified<P>> for Hop {
    type Out = P;
    type Drop = HopDrop;

    fn packet(&mut self, cx: &mut Cx<'_, HopDrop>, classified: Classified<P>) -> Verdict<P> {
        if classified.key().is_none() {
            return cx.drop(classified, HopDrop::NotIp);
        }
        let mut packet = classified.packet;
        if !spend_hop(packet.data_mut()) {
            return cx.drop(packet, HopDrop::TtlExpired);
        }
        ethernet::swap_addresses(&mut packet);
        Ok(packet)
    }
}

fn spend_hop(frame: &mut [u8]) -> bool {
    let Some((ethertype, offset)) = ethernet::network_layer(frame) else { return false };
    let packet = &mut frame[offset..];
    if ethertype == ETHERTYPE_IPV4 {
        Ipv4Header::parse_mut(packet).is_ok_and(|header| header.ttl() > 1 && header.decrement_ttl())
    } else {
        Ipv6Header::parse_mut(packet)
            .is_ok_and(|header| header.hop_limit() > 1 && header.decrement_hop_limit())
    }
}

/// The expected output for the frame, byte by byte: the header's checksum is computed from scratch.
pub fn expected(frame: &Frame) -> Result<Vec<u8>, HopDrop> {
    let mut bytes = frame.bytes.clone();
    let ttl_at = match bytes[12..14] {
        [0x08, 0x00] => 22,
        [0x86, 0xdd] => 21,
        _ => return Err(HopDrop::NotIp),
    };
    if bytes[ttl_at] <= 1 {
        return Err(HopDrop::TtlExpired);
    }
    bytes[ttl_at] -= 1;
    bytes[..12].rotate_left(6);
    if ttl_at == 22 {
        bytes[24..26].fill(0);
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(bytes)
}
