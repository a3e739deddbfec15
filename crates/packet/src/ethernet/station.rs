//! The frames for a station.

use crate::{
    ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress, network_layer},
    ip_fields::is_host,
};

/// Selects the frames for a station: the ones sent to its address, or all.
///
/// ```
/// use hotloop_packet::{build::udp, ethernet::{MacAddress, Station}};
///
/// let [source, own, other] = [1, 9, 7].map(|last| MacAddress::new([2, 0, 0, 0, 0, last]));
/// let frame = udp().macs(source, own).build();
/// assert!(Station::with(own).takes(&frame) && Station::ANY.takes(&frame));
/// assert!(!Station::with(other).takes(&frame));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Station {
    /// The address in memory order, in the low 48 bits. `mask` selects the bits to compare.
    address: u64,
    mask: u64,
}

/// An address in the low 48 bits.
const ADDRESS_MASK: u64 = (1 << 48) - 1;

impl Station {
    /// A station that takes all frames.
    pub const ANY: Self = Self { address: 0, mask: 0 };

    /// The station with this address.
    pub const fn with(address: MacAddress) -> Self {
        let [a, b, c, d, e, f] = address.bytes();
        Self { address: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), mask: ADDRESS_MASK }
    }

    /// Whether a frame that begins with these addresses is addressed to the station.
    #[inline(always)]
    pub(crate) fn is_addressed(&self, addresses: &[u8; 12]) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *addresses;
        let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        (word ^ self.address) & self.mask == 0
    }

    /// Whether a frame is for the station: addressed to it, or to a group of stations. A packet for
    /// a single host must not come in a frame for a group (RFC 1122, section 3.3.6).
    pub fn takes(&self, frame: &[u8]) -> bool {
        let Some(addresses) = frame.first_chunk() else { return true };
        if self.is_addressed(addresses) {
            return true;
        }
        let is_group = addresses[0] & 1 == 1;
        is_group && !is_to_host(frame)
    }
}

/// Whether a frame carries an IP packet for a single host.
fn is_to_host(frame: &[u8]) -> bool {
    let Some((ethertype, l3_offset)) = network_layer(frame) else { return false };
    let packet = frame.get(l3_offset..).unwrap_or_default();
    match ethertype {
        ETHERTYPE_IPV4 => packet
            .get(16..20)
            .and_then(|octets| octets.first_chunk::<4>())
            .is_some_and(|octets| is_host((*octets).into())),
        ETHERTYPE_IPV6 => packet
            .get(24..40)
            .and_then(|octets| octets.first_chunk::<16>())
            .is_some_and(|octets| is_host((*octets).into())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::udp;

    #[test]
    fn frames_are_for_a_station_or_for_a_group_that_it_may_be_in() {
        let own = MacAddress::new([2, 0, 0, 0, 0, 7]);
        let takes = |to: [u8; 6], packet_to: &str| {
            let mut frame = udp().to(packet_to).build();
            frame[..6].copy_from_slice(&to);
            Station::with(own).takes(&frame)
        };
        let (v4, v6) = ("192.0.2.1:80", "[2001:db8::2]:80");
        for to in [v4, v6] {
            assert!(takes(own.bytes(), to));
            for bit in 0..48 {
                let mut other = own.bytes();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!takes(other, to), "{other:?}");
            }
            assert!(!takes([0xff; 6], to));
        }
        for (group, to) in [
            ([0xff; 6], "255.255.255.255:67"),
            ([1, 0, 0x5e, 0, 0, 5], "224.0.0.5:9"),
            ([0x33, 0x33, 0, 0, 0, 1], "[ff02::1]:9"),
        ] {
            assert!(takes(group, to) && !takes([2; 6], to));
        }
        let mut arp = crate::build::arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        arp[..6].fill(0xff);
        assert!(Station::with(own).takes(&arp));
        arp[..6].fill(2);
        assert!(!Station::with(own).takes(&arp) && Station::ANY.takes(&arp));
    }
}
