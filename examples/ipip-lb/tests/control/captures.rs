//! `ctl capture`: the comments of packets.

use super::program::{Program, config};
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
    let captured = |at: &str, count: usize| {
        let file = format!("{at}.pcapng");
        let count_arg = count.to_string();
        let done = program.ctl(&["capture", "--at", at, "--count", &count_arg, "-w", &file]);
        assert!(done.status.success(), "{done:?}");
        let packets = packets(&fs::read(program.folder.path().join(file)).unwrap());
        assert_eq!(packets.len(), count);
        packets
    };
    assert!(captured("rx", 100).iter().all(|(_, comment)| comment.is_none()));
    let mut backends = BTreeSet::new();
    for (frame, comment) in captured("tx", 1000) {
        let backend = tunnel(&frame);
        assert_eq!(comment, backend.map(|backend| format!("to backend {backend}")));
        backends.extend(backend);
    }
    let expected = [1, 2].map(|number| Ipv4Addr::new(10, 0, 0, number));
    assert_eq!(backends, expected.into());
    program.end("-INT");
}
