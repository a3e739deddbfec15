//! Frames that no correct sender sends.

use crate::Rng;
use hotloop_packet::build::{
    arp_request, echo_request, protocol, tcp, time_exceeded, too_big, udp, unreachable,
};

/// Minimum length of a frame in bytes: the kernel drops a shorter one with a VLAN tag before any
/// socket, and counts it nowhere.
const FRAME_BYTES_MIN: usize = 20;

/// Maximum length of a frame in bytes that an interface with an MTU of 1,500 bytes sends.
const FRAME_BYTES_MAX: usize = 1514;

/// Frames made from packets of all kinds, each [mutated]: the same for the same seed. Most are
/// packets to 203.0.113.10 and 2001:db8:1::10, or tunnel packets between 192.0.2.1 and 10.0.0.1.
///
/// ```
/// use hotloop_packet::ethernet::EthernetView;
/// use hotloop_testing::malformed_frames;
///
/// for frame in malformed_frames(1, 1000) {
///     // A parser never panics, whatever the bytes.
///     let _ = EthernetView::parse(&frame);
/// }
/// ```
#[must_use]
pub fn malformed_frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let (mut rng, whole) = (Rng::seeded(seed), templates());
    let mut frame = || {
        let frame = whole[rng.index(whole.len())].clone();
        mutated(&mut rng, frame)
    };
    (0..count).map(|_| frame()).collect()
}

/// Packets to a service at 203.0.113.10 and 2001:db8:1::10, of tunnels to 10.0.0.1 and back, whole
/// and in fragments, with tags and options, and ICMP about them.
fn templates() -> Vec<Vec<u8>> {
    let web = || tcp().from("198.51.100.7:4000").to("203.0.113.10:80").payload([7; 100]);
    let web6 = || tcp().from("[2001:db8:c::7]:4000").to("[2001:db8:1::10]:80").payload([7; 100]);
    let dns = || udp().from("198.51.100.8:5000").to("203.0.113.10:53").payload([9; 60]);
    let answer = || tcp().from("203.0.113.10:80").to("198.51.100.7:4000").payload([5; 80]);
    let sent = web().build();
    let mut frames = vec![
        web().build(),
        web().ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]).build(),
        web().tcp_options(&[2, 4, 5, 180]).tcp_flags(2).build(),
        web().vlan(7).build(),
        web().qinq(7, 8).build(),
        web().tunnelled("192.0.2.1", "10.0.0.1").build(),
        answer().tunnelled("10.0.0.1", "192.0.2.1").build(),
        web6().build(),
        web6().extension(60, &[1, 4, 0, 0, 0, 0]).build(),
        web6().tunnelled("2001:db8::1", "2001:db8:b::1").build(),
        web6().tunnelled("192.0.2.1", "10.0.0.1").build(),
        dns().build(),
        dns().padded().build(),
        echo_request(1, 1).to("203.0.113.10").build(),
        protocol(132).to("203.0.113.10").build(),
        unreachable(&sent).to("203.0.113.10").build(),
        time_exceeded(&sent).to("203.0.113.10").build(),
        too_big(&sent, 1400).to("203.0.113.10").build(),
        arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        web().payload(vec![3; 1400]).build(),
    ];
    for packet in [dns(), udp().from("[2001:db8:c::8]:5000").to("[2001:db8:1::10]:53")] {
        frames.extend(packet.identification(7).payload(vec![1; 2000]).build_fragments(1400));
    }
    frames
}

/// Changes up to four bytes of a frame's headers, but not of its Ethernet addresses, and now and
/// then its length. The result is padded or cut to 20 to 1,514 bytes, which an interface of the
/// kernel sends.
#[must_use]
pub fn mutated(rng: &mut Rng, mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(FRAME_BYTES_MIN), 0);
    for _ in 0..rng.below(5) {
        let at = 12 + rng.index(frame.len().min(90) - 12);
        let any = rng.next_u64() as u8;
        frame[at] = if rng.below(2) == 0 { any } else { frame[at] ^ (1 << rng.below(8)) };
    }
    match rng.below(6) {
        0 => frame.truncate(rng.index(frame.len())),
        1 => frame.resize(frame.len() + rng.index(200), rng.next_u64() as u8),
        _ => {}
    }
    let len = frame.len().clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX);
    frame.resize(len, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_keep_their_addresses_and_can_be_sent() {
        let mut rng = Rng::seeded(1);
        let (mut change_count, mut lengths) = (0, [0; 2]);
        for len in (0..2000).flat_map(|len| [len; 5]) {
            let frame = vec![7; len];
            let sent = mutated(&mut rng, frame.clone());
            assert!((FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&sent.len()), "{len}");
            // A frame that was cut is padded.
            let is_kept = |(sent, before): (&u8, &u8)| sent == before || *sent == 0;
            assert!(sent.iter().zip(&frame).take(12).all(is_kept), "{len}");
            change_count += usize::from(sent != frame);
            lengths[usize::from(sent.len() < len)] += usize::from(sent.len() != len);
        }
        assert!(change_count > 8_000 && lengths.iter().all(|count| *count > 1_000), "{lengths:?}");
    }

    #[test]
    fn a_seed_always_makes_the_same_frames() {
        let frames = malformed_frames(1, 500);
        assert_eq!(frames, malformed_frames(1, 500));
        assert_ne!(frames, malformed_frames(2, 500));
        let of_template = |frame: &Vec<u8>| templates().contains(frame);
        assert!(frames.iter().filter(|frame| !of_template(frame)).count() > 300);
    }
}
