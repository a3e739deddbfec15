//! `ctl capture`: what the comments of packets say.

use crate::program::{Program, config};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

const ENHANCED_PACKET: usize = 6;
const OPTION_COMMENT: usize = 1;

/// The packets of a pcapng file, each with its comment.
fn packets(file: &[u8]) -> Vec<(Vec<u8>, Option<String>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().unwrap()));
    let (mut packets, mut block) = (Vec::new(), 0);
    while block < file.len() {
        let end = block + word(block + 4);
        if word(block) == ENHANCED_PACKET {
            let (data, length) = (block + 28, word(block + 20));
            let (mut option, mut comment) = (data + length.next_multiple_of(4), None);
            while option < end - 4 {
                let text = &file[option + 4..option + 4 + half(option + 2)];
                if half(option) == OPTION_COMMENT {
                    comment = Some(String::from_utf8(text.to_vec()).unwrap());
                }
                option += 4 + text.len().next_multiple_of(4);
            }
            packets.push((file[data..data + length].to_vec(), comment));
        }
        block = end;
    }
    packets
}

/// The receiver of a packet that is in a tunnel of IPv4 over Ethernet without VLAN tags.
fn tunnel(frame: &[u8]) -> Option<Ipv4Addr> {
    let is_tunnel = frame[12..14] == [0x08, 0x00] && frame[23] == 4;
    is_tunnel.then(|| <[u8; 4]>::try_from(&frame[30..34]).unwrap().into())
}

#[test]
fn a_comment_says_which_backend_a_packet_goes_to() {
    let once = "rx_pcap=clients.pcap";
    let program = Program::start_with(&config().replace(once, &format!("{once},infinite_rx=1")));
    let captured = program.ctl(&["capture", "--at", "all", "--count", "2000", "-w", "all.pcapng"]);
    assert!(captured.status.success(), "{captured:?}");
    let packets = packets(&fs::read(program.folder.path().join("all.pcapng")).unwrap());
    assert_eq!(packets.len(), 2000);
    let mut backends = BTreeSet::new();
    let mut plain_count = 0;
    for (frame, comment) in &packets {
        let dropped = comment.as_ref().is_some_and(|comment| comment.starts_with("dropped as "));
        match tunnel(frame) {
            Some(backend) => {
                let said = format!("to backend {backend}");
                assert!(comment.as_ref().is_some_and(|it| it.ends_with(&said)), "{comment:?}");
                backends.insert(backend);
            }
            None if dropped => {}
            None => {
                assert_eq!(*comment, None);
                plain_count += 1;
            }
        }
    }
    let expected = [1, 2].map(|number| Ipv4Addr::new(10, 0, 0, number));
    assert_eq!(backends, expected.into());
    assert!(plain_count > 0, "those that were received");
    program.end("-INT");
}
