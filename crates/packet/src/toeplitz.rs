//! The Toeplitz hash, by which network cards spread packets over RX queues (RSS).
//!
//! It steers cards only. With the symmetric key both directions of a flow meet on one queue, at the
//! price of a hash that has only 65,536 values and is linear: flows are spread over workers and
//! backends by [`crate::seed::Seed`].

use crate::flow_key::FlowKey;

/// Length in bytes of the keys below, as most network cards take it.
pub const KEY_BYTES: usize = 40;

/// The key of Microsoft's RSS documentation, which its published vectors use.
pub const MICROSOFT_KEY: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The key under which both directions of a flow have one hash: 0x6d5a throughout (Woo and Park,
/// "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012).
pub const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
    let mut key = [0x6d; KEY_BYTES];
    let mut index = 1;
    while index < KEY_BYTES {
        key[index] = 0x5a;
        index += 2;
    }
    key
};

/// What of a packet a network card hashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fields {
    /// The two addresses: so that fragments stay with their flow.
    Addresses,
    /// The two addresses and the two ports.
    AddressesAndPorts,
}

/// The hash of `input` under `key`. A key shorter than the input and four bytes more goes on in
/// zeroes, where a card would refuse it.
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let key_byte = |index: usize| u64::from(key.get(index).copied().unwrap_or(0));
    // The key's next 40 bits at each byte of input: one window of 32 for each of its bits.
    let mut window = (0..4).fold(0, |window, index| window << 8 | key_byte(index));
    let mut hash = 0;
    for (index, byte) in input.iter().enumerate() {
        window = window << 8 & 0xff_ffff_ffff | key_byte(index + 4);
        for bit in 0..8 {
            if byte & 0x80 >> bit != 0 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

/// What a network card makes of a packet of this flow: source before destination, addresses before
/// ports.
///
/// ```
/// use hotloop_packet::{flow_key::FlowKey, toeplitz::{Fields, SYMMETRIC_KEY, rss_hash}};
///
/// let key = FlowKey::new("10.0.0.1:1000".parse()?, "192.0.2.1:80".parse()?, 6).unwrap();
/// let hash = rss_hash(&SYMMETRIC_KEY, &key, Fields::AddressesAndPorts);
/// assert_eq!(rss_hash(&SYMMETRIC_KEY, &key.reversed(), Fields::AddressesAndPorts), hash);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn rss_hash(key: &[u8], flow: &FlowKey, fields: Fields) -> u32 {
    use zerocopy::IntoBytes;

    // A flow key begins with what a card hashes, in its order.
    let (bytes, address_bytes) = match flow {
        FlowKey::V4(flow) => (flow.as_bytes(), 8),
        FlowKey::V6(flow) => (flow.as_bytes(), 32),
    };
    match fields {
        Fields::Addresses => toeplitz(key, &bytes[..address_bytes]),
        Fields::AddressesAndPorts => toeplitz(key, &bytes[..address_bytes + 4]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Microsoft's vectors ("Verifying the RSS Hash Calculation"): destination, source, hash of the
    /// addresses, hash of addresses and ports.
    const VECTORS: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    #[test]
    fn published_vectors() {
        for (destination, source, addresses, with_ports) in VECTORS {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let flow = FlowKey::new(source, destination, 6).unwrap();
            assert_eq!(rss_hash(&MICROSOFT_KEY, &flow, Fields::Addresses), addresses, "{flow}");
            let hash = rss_hash(&MICROSOFT_KEY, &flow, Fields::AddressesAndPorts);
            assert_eq!(hash, with_ports, "{flow}");
        }
    }

    #[test]
    fn the_symmetric_key() {
        assert!(SYMMETRIC_KEY.chunks(2).all(|pair| pair == [0x6d, 0x5a]));
        for (destination, source, ..) in VECTORS {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let flow = FlowKey::new(source, destination, 6).unwrap();
            for fields in [Fields::Addresses, Fields::AddressesAndPorts] {
                let hash = rss_hash(&SYMMETRIC_KEY, &flow, fields);
                assert_eq!(rss_hash(&SYMMETRIC_KEY, &flow.reversed(), fields), hash);
                // 16 bits, twice.
                assert_eq!(hash >> 16, hash & 0xffff);
            }
        }
    }

    proptest! {
        /// Against the definition: bit by bit.
        #[test]
        fn equals_the_definition(
            key in prop::collection::vec(any::<u8>(), 0..64),
            input in prop::collection::vec(any::<u8>(), 0..48),
        ) {
            let bit = |bytes: &[u8], at: usize| {
                bytes.get(at / 8).is_some_and(|byte| byte & 0x80 >> (at % 8) != 0)
            };
            let mut hash = 0u32;
            for at in (0..input.len() * 8).filter(|&at| bit(&input, at)) {
                let window =
                    (0..32).fold(0u32, |window, i| window << 1 | u32::from(bit(&key, at + i)));
                hash ^= window;
            }
            prop_assert_eq!(toeplitz(&key, &input), hash);
        }
    }
}
