//! No input causes a panic, and no failure changes a packet.

use hotloop_packet::{
    build::{tcp, udp},
    classify::{Depth, Kind, Layout, classify, classify_packet},
    ethernet, ipv4, ipv6,
    memory::MemPacket,
};
use proptest::prelude::*;

use crate::check::{SEED, check};
use crate::frames;

#[test]
fn every_frame_cut_at_every_byte() {
    let frames = frames::frames();
    assert!(frames.len() > 100);
    for frame in &frames {
        for length in 0..=frame.len() {
            check(&frame[..length]);
        }
    }
}

#[test]
fn whole_frames_are_well_formed_and_cut_ones_are_not() {
    for frame in frames::frames() {
        let layout = classify(&frame, Depth::Innermost, &SEED);
        assert!(!matches!(layout.kind(), Kind::Malformed(_)), "{layout:?} {frame:02x?}");
        let (_, l3_offset) = ethernet::network_layer(&frame).unwrap();
        let total = match ipv4::Ipv4View::parse(&frame[l3_offset..]) {
            Ok(view) => usize::from(view.total_length()),
            Err(_) if layout.is_ip() => {
                40 + usize::from(
                    ipv6::Ipv6View::parse(&frame[l3_offset..]).unwrap().payload_length(),
                )
            }
            Err(_) => continue,
        };
        for length in 0..l3_offset + total {
            let kind = classify(&frame[..length], Depth::Innermost, &SEED).kind();
            assert!(matches!(kind, Kind::Malformed(_)), "{length} bytes: {kind:?}");
        }
    }
}

#[test]
fn payloads_may_go_on_in_other_segments() {
    let frame = tcp().payload([7; 2000]).build();
    let whole = classify(&frame, Depth::Innermost, &SEED);
    assert_eq!(Layout::of(&frame[..54], frame.len(), Depth::Innermost, &SEED), whole);
    assert_eq!(classify_packet(&MemPacket::new(&frame), Depth::Innermost, &SEED), whole);
    assert!(matches!(classify(&frame[..54], Depth::Innermost, &SEED).kind(), Kind::Malformed(_)));
    assert!(matches!(
        Layout::of(&frame[..53], frame.len(), Depth::Innermost, &SEED).kind(),
        Kind::Malformed(_)
    ));

    let frame = udp().to("[2001:db8::2]:53").payload([7; 2000]).build();
    assert_eq!(
        Layout::of(&frame[..62], frame.len(), Depth::Innermost, &SEED),
        classify(&frame, Depth::Innermost, &SEED)
    );
}

/// A frame of the builders with some bytes changed, and cut.
fn mutated_frame() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let frame = prop::sample::select(frames::frames());
    (frame, prop::collection::vec(change, 0..6), prop::option::of(any::<prop::sample::Index>()))
        .prop_map(|(mut frame, changes, length)| {
            for (index, byte) in changes {
                // Mostly headers, because only they are read.
                let index = index.index(frame.len().min(120));
                frame[index] = byte;
            }
            if let Some(length) = length {
                frame.truncate(length.index(frame.len() + 1));
            }
            frame
        })
}

/// Any eight bytes as a layout, or the right one with other bytes around.
fn any_layout() -> impl Strategy<Value = Layout> {
    any::<[u8; 8]>().prop_map(Layout::from_metadata)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&frame);
    }

    #[test]
    fn random_bytes_after_an_ethertype(
        mut frame in prop::collection::vec(any::<u8>(), 16..200),
        ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88a8, 0x0806]),
        version in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60]),
    ) {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[14] = version;
        check(&frame);
    }

    #[test]
    fn mutated_frames(frame in mutated_frame()) {
        check(&frame);
    }

    #[test]
    fn any_layout_over_any_bytes(
        layout in any_layout(),
        frame in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = (layout.kind(), layout.fragment(), layout.is_tunnel(), layout.l4_offset(&frame));
        prop_assert_eq!(Layout::from_metadata(layout.to_metadata()), layout);
        if layout.key(&frame).is_some() {
            prop_assert!(layout.is_ip());
        }
    }

    #[test]
    fn any_layout_over_real_frames(layout in any_layout(), frame in mutated_frame()) {
        layout.key(&frame);
        // The layout of another frame.
        let mut stale = layout.to_metadata();
        stale[4..].copy_from_slice(&classify(&frame, Depth::Innermost, &SEED).to_metadata()[4..]);
        Layout::from_metadata(stale).key(&frame[..frame.len() / 2]);
    }
}
