//! The fields that tell flows apart: two addresses, two ports, a protocol.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// A key with the layout of headers.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Wire<A> {
    addresses: A,
    rest: [u8; 8],
}

macro_rules! flow_key {
    ($(#[$doc:meta])* $name:ident, $address:ty, $address_bytes:literal, $words:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            source: [u8; $address_bytes],
            destination: [u8; $address_bytes],
            source_port: U16,
            destination_port: U16,
            protocol: u8,
            /// Zero in every key that was made from its fields.
            filler: [u8; 3],
        }

        impl $name {
            /// A key from its fields.
            #[inline]
            pub const fn new(
                source: $address,
                destination: $address,
                source_port: u16,
                destination_port: u16,
                protocol: u8,
            ) -> Self {
                Self {
                    source: source.octets(),
                    destination: destination.octets(),
                    source_port: U16::new(source_port),
                    destination_port: U16::new(destination_port),
                    protocol,
                    filler: [0; 3],
                }
            }

            /// A key from a header's bytes: both addresses, both ports.
            #[inline]
            pub(crate) fn from_wire(
                addresses: [u8; 2 * $address_bytes],
                ports: [u8; 4],
                protocol: u8,
            ) -> Self {
                // As one word, so that it is also stored as one.
                let rest = u64::from(u32::from_le_bytes(ports)) | u64::from(protocol) << 32;
                zerocopy::transmute!(Wire { addresses, rest: rest.to_le_bytes() })
            }

            /// The sender's address.
            #[inline]
            pub const fn source(&self) -> $address {
                <$address>::from_octets(self.source)
            }

            /// The receiver's address.
            #[inline]
            pub const fn destination(&self) -> $address {
                <$address>::from_octets(self.destination)
            }

            /// The source's port; an echo's identifier; 0 if the packet has no ports.
            #[inline]
            pub const fn source_port(&self) -> u16 {
                self.source_port.get()
            }

            /// The destination's port; an echo's identifier; 0 if the packet has no ports.
            #[inline]
            pub const fn destination_port(&self) -> u16 {
                self.destination_port.get()
            }

            /// The protocol: see [`crate::ip::protocol`].
            #[inline]
            pub const fn protocol(&self) -> u8 {
                self.protocol
            }

            /// The key of packets in the opposite direction.
            #[inline]
            #[must_use]
            pub const fn reversed(self) -> Self {
                Self {
                    source: self.destination,
                    destination: self.source,
                    source_port: self.destination_port,
                    destination_port: self.source_port,
                    ..self
                }
            }

            /// The key's bytes as whole words, for a table to hash or compare. Their values depend
            /// on the machine's byte order.
            #[inline]
            pub const fn words(self) -> [u64; $words] {
                zerocopy::transmute!(self)
            }

            /// The inverse of [`words`](Self::words).
            #[inline]
            pub const fn from_words(words: [u64; $words]) -> Self {
                zerocopy::transmute!(words)
            }
        }

        impl Eq for $name {}

        impl Hash for $name {
            #[inline]
            fn hash<H: Hasher>(&self, state: &mut H) {
                for word in self.words() {
                    state.write_u64(word);
                }
            }
        }

        impl Ord for $name {
            #[inline]
            fn cmp(&self, other: &Self) -> Ordering {
                self.as_bytes().cmp(other.as_bytes())
            }
        }

        impl PartialOrd for $name {
            #[inline]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&FlowKey::from(*self), f)
            }
        }
    };
}

flow_key! {
    /// The key of an IPv4 flow: 16 bytes, in network order. See [`FlowKey`].
    ///
    /// ```
    /// use hotloop_packet::flow_key::FlowKeyV4;
    ///
    /// let key = FlowKeyV4::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 1000, 80, 6);
    /// assert_eq!(key.reversed().source_port(), 80);
    /// assert_eq!(key.reversed().reversed(), key);
    /// ```
    FlowKeyV4, Ipv4Addr, 4, 2
}

flow_key! {
    /// The key of an IPv6 flow: 40 bytes, in network order. See [`FlowKey`].
    FlowKeyV6, Ipv6Addr, 16, 5
}

impl PartialEq for FlowKeyV4 {
    /// Compares one number, so that the compiler uses 16-byte vectors when both keys are in memory.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let [whole, other]: [u128; 2] = [zerocopy::transmute!(*self), zerocopy::transmute!(*other)];
        whole == other
    }
}

impl PartialEq for FlowKeyV6 {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

/// The fields that tell flows apart.
///
/// Source and destination are those of the keyed header: the quoted one of an ICMP error, the inner
/// one of an IP-in-IP packet at [`Depth::Innermost`](crate::classify::Depth), else the packet's own.
/// So the key of an error is the key of the packet *that caused it*, which went the opposite way;
/// and the key of a reply is the [`reversed`](Self::reversed) key of its request. If both directions of a flow share an
/// entry, look up the key and, failing that, its reverse; the hashes of [`Seed`](crate::seed::Seed)
/// are the same for both.
///
/// No VLAN is in a key, nor in the hashes: the same addresses and ports in two VLANs are one flow. A
/// function on a trunk of VLANs that reuse addresses needs a key of its own.
///
/// Keys are in the order of their families (IPv4 first), sources, destinations, source ports,
/// destination ports and protocols. The smaller of a key and its reverse is the same for both
/// directions:
///
/// ```
/// use hotloop_packet::flow_key::FlowKey;
///
/// let request = FlowKey::new("10.0.0.1:1000".parse()?, "192.0.2.1:80".parse()?, 6).unwrap();
/// let reply = request.reversed();
/// assert_eq!(reply.min(reply.reversed()), request.min(request.reversed()));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FlowKey {
    /// IPv4.
    V4(FlowKeyV4),
    /// IPv6.
    V6(FlowKeyV6),
}

impl FlowKey {
    /// The key of packets from `source` to `destination`. `None` if the two are of different
    /// families.
    pub const fn new(source: SocketAddr, destination: SocketAddr, protocol: u8) -> Option<Self> {
        let ports = (source.port(), destination.port());
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::V4(FlowKeyV4::new(source, destination, ports.0, ports.1, protocol)))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6(FlowKeyV6::new(source, destination, ports.0, ports.1, protocol)))
            }
            _ => None,
        }
    }

    /// The sender's address.
    #[inline]
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(key) => IpAddr::V4(key.source()),
            Self::V6(key) => IpAddr::V6(key.source()),
        }
    }

    /// The receiver's address.
    #[inline]
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(key) => IpAddr::V4(key.destination()),
            Self::V6(key) => IpAddr::V6(key.destination()),
        }
    }

    /// The source's port; an echo's identifier; 0 if the packet has no ports.
    #[inline]
    pub const fn source_port(&self) -> u16 {
        match self {
            Self::V4(key) => key.source_port(),
            Self::V6(key) => key.source_port(),
        }
    }

    /// The destination's port; an echo's identifier; 0 if the packet has no ports.
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        match self {
            Self::V4(key) => key.destination_port(),
            Self::V6(key) => key.destination_port(),
        }
    }

    /// The protocol: see [`crate::ip::protocol`].
    #[inline]
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::V4(key) => key.protocol(),
            Self::V6(key) => key.protocol(),
        }
    }

    /// The key of packets in the opposite direction.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.reversed()),
            Self::V6(key) => Self::V6(key.reversed()),
        }
    }
}

impl From<FlowKeyV4> for FlowKey {
    #[inline]
    fn from(key: FlowKeyV4) -> Self {
        Self::V4(key)
    }
}

impl From<FlowKeyV6> for FlowKey {
    #[inline]
    fn from(key: FlowKeyV6) -> Self {
        Self::V6(key)
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = SocketAddr::new(self.source(), self.source_port());
        let destination = SocketAddr::new(self.destination(), self.destination_port());
        write!(f, "{source} > {destination} protocol {}", self.protocol())
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(source: &str, destination: &str) -> FlowKey {
        FlowKey::new(source.parse().unwrap(), destination.parse().unwrap(), 17).unwrap()
    }

    #[test]
    fn sizes_and_fields() {
        assert_eq!((size_of::<FlowKeyV4>(), size_of::<FlowKeyV6>()), (16, 40));
        for (source, destination) in
            [("10.0.0.1:1000", "192.0.2.1:53"), ("[2001:db8::1]:1000", "[2001:db8::2]:53")]
        {
            let key = key(source, destination);
            assert_eq!((key.source_port(), key.destination_port(), key.protocol()), (1000, 53, 17));
            assert_eq!(key.to_string(), format!("{source} > {destination} protocol 17"));
            let reversed = key.reversed();
            assert_eq!(reversed.to_string(), format!("{destination} > {source} protocol 17"));
            assert_eq!(reversed.reversed(), key);
            assert_ne!(reversed, key);
        }
        let families = ("10.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert_eq!(FlowKey::new(families.0, families.1, 6), None);
    }

    #[test]
    fn keys_lie_in_network_order() {
        let FlowKey::V4(key) = key("10.0.0.1:4660", "192.0.2.1:53") else { unreachable!() };
        let bytes = [10, 0, 0, 1, 192, 0, 2, 1, 0x12, 0x34, 0, 53, 17, 0, 0, 0];
        assert_eq!(key.as_bytes(), bytes);
        let words: [u64; 2] = zerocopy::transmute!(bytes);
        assert_eq!(key.words(), words);
    }

    #[test]
    fn keys_are_in_the_order_of_their_fields() {
        let in_order = [
            ("9.255.255.255:65535", "10.0.0.2:2"),
            ("10.0.0.1:65535", "9.0.0.1:2"),
            ("10.0.0.1:1", "10.0.0.2:2"),
            ("10.0.0.1:1", "10.0.0.2:256"),
            ("10.0.0.1:256", "10.0.0.2:1"),
            ("[::1]:1", "[::2]:2"),
            ("[2001:db8::1]:1", "[::2]:2"),
        ];
        let keys = in_order.map(|(source, destination)| key(source, destination));
        assert!(keys.is_sorted() && !keys.iter().rev().is_sorted());
        for key in keys {
            assert_eq!(key.min(key.reversed()), key.reversed().min(key));
            assert_ne!(key.cmp(&key.reversed()), Ordering::Equal);
        }
        let fields = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let [tcp, udp] = [6, 17].map(|it| FlowKeyV4::new(fields.0, fields.1, 7, 7, it));
        assert!(tcp < udp);
    }

    #[test]
    fn every_field_counts() {
        let base = FlowKeyV6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 1, 2, 6);
        let mut keys = HashSet::from([base]);
        for at in 0..37 {
            let mut bytes: [u8; 40] = zerocopy::transmute!(base);
            bytes[at] ^= 0x80;
            let changed: FlowKeyV6 = zerocopy::transmute!(bytes);
            assert!(keys.insert(changed), "byte {at}");
        }
        assert!(!keys.insert(base));
    }
}
