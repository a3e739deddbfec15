//! A hand-written flow key parser: each field is loaded once, straight from its place.

/// Bytes of the Ethernet and IPv4 headers of a common packet, and of a UDP or TCP header after
/// them.
const L4_OFFSET: usize = 34;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 20;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// The key of a common packet, as the words of our `FlowKeyV4`: IPv4 without options or
/// fragmentation, untagged Ethernet, whole TCP or UDP header, all lengths valid. `None` for any
/// other frame.
#[inline]
#[must_use]
pub fn key_v4(frame: &[u8]) -> Option<[u64; 2]> {
    if frame.len() < L4_OFFSET + UDP_BYTES {
        return None;
    }
    // SAFETY: bytes 12 to 15 of at least 42. The type of service among them may be anything.
    let start: u32 = unsafe { read(frame, 12) };
    // SAFETY: bytes 20 and 21 of at least 42.
    let fragment = u16::from_be(unsafe { read(frame, 20) });
    let is_ipv4 = start & u32::from_le_bytes([0xff, 0xff, 0xff, 0])
        == u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
    if !is_ipv4 || fragment & 0x3fff != 0 {
        return None;
    }
    // SAFETY: bytes 16 and 17 of at least 42.
    let total_bytes = usize::from(u16::from_be(unsafe { read(frame, 16) }));
    if total_bytes + 14 > frame.len() {
        return None;
    }
    // SAFETY: byte 23 of at least 42.
    let protocol: u8 = unsafe { read(frame, 23) };
    // SAFETY: at least 42 bytes, as compared above.
    let is_whole = unsafe { is_transport_whole(frame, protocol, total_bytes as isize - 20) };
    if !is_whole {
        return None;
    }
    // SAFETY: bytes 26 to 33 of at least 42.
    let addresses: u64 = unsafe { read(frame, 26) };
    // SAFETY: bytes 34 to 37 of at least 42.
    let ports: u32 = unsafe { read(frame, 34) };
    Some([addresses, u64::from(ports) | u64::from(protocol) << 32])
}

/// Whether there is a TCP or UDP header that fits `l4_bytes`.
///
/// # Safety
/// The frame has at least 42 bytes.
#[inline(always)]
unsafe fn is_transport_whole(frame: &[u8], protocol: u8, l4_bytes: isize) -> bool {
    if protocol == TCP {
        if frame.len() < L4_OFFSET + TCP_BYTES {
            return false;
        }
        // SAFETY: byte 46 of at least 54, as just compared.
        let words: u8 = unsafe { read(frame, 46) };
        let header_bytes = isize::from(words >> 4) * 4;
        header_bytes >= TCP_BYTES as isize && header_bytes <= l4_bytes
    } else if protocol == UDP {
        // SAFETY: bytes 38 and 39 of at least 42, by contract.
        let udp_bytes = u16::from_be(unsafe { read(frame, 38) }) as isize;
        udp_bytes >= UDP_BYTES as isize && udp_bytes <= l4_bytes
    } else {
        false
    }
}

/// A number type that accepts any bits.
trait Number: Copy {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}

/// The number at `offset`.
///
/// # Safety
/// All its bytes lie in `frame`.
#[inline(always)]
unsafe fn read<T: Number>(frame: &[u8], offset: usize) -> T {
    debug_assert!(offset + size_of::<T>() <= frame.len());
    let place = frame.as_ptr().wrapping_add(offset).cast::<T>();
    // SAFETY: 1. By contract. 2. The place may be unaligned. 3. Any bits are a number.
    unsafe { place.read_unaligned() }
}
