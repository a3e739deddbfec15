//! Whether two runs put out the same packets: the same bytes, equally often, in the same order within
//! each flow.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::wire::{self, Flow};

/// What two equal runs have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Packets in each.
    pub packet_count: usize,
    /// Flows in each.
    pub flow_count: usize,
}

/// In what two runs differ.
#[derive(Debug, PartialEq, Eq)]
pub enum Difference {
    /// Not the same packets.
    Packets {
        /// Packets that the left run has and the right one hasn't, copies counted.
        left_only_count: usize,
        /// The other way round.
        right_only_count: usize,
        /// One of them.
        example: Vec<u8>,
    },
    /// The same packets, but not in the same order within a flow.
    Order {
        /// The flow; `None` for what is not IP.
        flow: Option<Flow>,
        /// Where in the flow the first difference is, from 0.
        packet_index: usize,
    },
}

/// Compares two runs, each a list of Ethernet frames in the order they were put out.
pub fn compare(left: &[Vec<u8>], right: &[Vec<u8>]) -> Result<Agreement, Difference> {
    same_packets(left, right)?;
    let (left, right) = (by_flow(left), by_flow(right));
    for (flow, ours) in &left {
        let theirs = &right[flow];
        if let Some(packet_index) =
            ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs)
        {
            return Err(Difference::Order { flow: flow.clone(), packet_index });
        }
    }
    let packet_count = left.values().map(Vec::len).sum();
    Ok(Agreement { packet_count, flow_count: left.len() })
}

fn same_packets(left: &[Vec<u8>], right: &[Vec<u8>]) -> Result<(), Difference> {
    let mut surplus: HashMap<&[u8], isize> = HashMap::new();
    for packet in left {
        *surplus.entry(packet).or_default() += 1;
    }
    for packet in right {
        *surplus.entry(packet).or_default() -= 1;
    }
    let Some(example) = surplus.iter().find(|(_, count)| **count != 0) else { return Ok(()) };
    let count = |wanted: fn(isize) -> isize| {
        surplus.values().map(|count| wanted(*count).max(0).unsigned_abs()).sum()
    };
    Err(Difference::Packets {
        left_only_count: count(|count| count),
        right_only_count: count(|count| -count),
        example: example.0.to_vec(),
    })
}

/// The flow is read from the packet's own bytes, so equal packets are always in the same one.
fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<Option<Flow>, Vec<&[u8]>> {
    let mut flows: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for packet in packets {
        flows.entry(wire::read(packet).map(|read| read.flow)).or_default().push(packet);
    }
    flows
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets { left_only_count, right_only_count, example } => {
                write!(f, "{left_only_count} packets only in the first, ")?;
                writeln!(f, "{right_only_count} only in the second, one of them:")?;
                for row in example.chunks(16) {
                    let row: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
                    writeln!(f, "  {}", row.join(" "))?;
                }
                Ok(())
            }
            Self::Order { flow: Some(flow), packet_index } => write!(
                f,
                "packet {packet_index} of the flow {} -> {} (protocol {}, ports {:?}) is another",
                flow.source, flow.destination, flow.protocol, flow.ports
            ),
            Self::Order { flow: None, packet_index } => {
                write!(f, "packet {packet_index} of what is not IP is another")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::{tunnelled, udp_frame};
    use super::*;

    /// Ten packets of each of three flows, interleaved.
    fn run() -> Vec<Vec<u8>> {
        let client = |host| [198, 51, 100, host];
        (0..30)
            .map(|n| {
                tunnelled(&udp_frame(client(n % 3), [203, 0, 113, 20], 4000, &[n, 0xaa, 0xbb]))
            })
            .collect()
    }

    #[test]
    fn flows_may_interleave_otherwise() {
        let left = run();
        let mut right = left.clone();
        right.sort_by_key(|packet| wire::read(packet).unwrap().flow);
        assert_ne!(left, right);
        assert_eq!(compare(&left, &right), Ok(Agreement { packet_count: 30, flow_count: 3 }));
    }

    #[test]
    fn one_flipped_byte_anywhere_is_seen() {
        let left = run();
        for index in 0..left[17].len() {
            let mut right = left.clone();
            right[17][index] ^= 1;
            let Err(Difference::Packets { left_only_count, right_only_count, example }) =
                compare(&left, &right)
            else {
                panic!("byte {index} flipped, and nothing seen");
            };
            assert_eq!((left_only_count, right_only_count), (1, 1));
            assert!([&left[17], &right[17]].contains(&&example));
        }
    }

    #[test]
    fn a_lost_and_a_doubled_packet_are_seen() {
        let left = run();
        let lost = left[1..].to_vec();
        let doubled = [left.clone(), vec![left[4].clone()]].concat();
        let only = |left_only_count, right_only_count, example: &[u8]| {
            Err(Difference::Packets {
                left_only_count,
                right_only_count,
                example: example.to_vec(),
            })
        };
        assert_eq!(compare(&left, &lost), only(1, 0, &left[0]));
        assert_eq!(compare(&left, &doubled), only(0, 1, &left[4]));
    }

    #[test]
    fn two_packets_of_a_flow_swapped_are_seen() {
        let left = run();
        let mut right = left.clone();
        right.swap(6, 9);
        let Err(Difference::Order { flow: Some(flow), packet_index }) = compare(&left, &right)
        else {
            panic!("a swap, and nothing seen");
        };
        assert_eq!((flow.ports, packet_index), (Some((4000, 53)), 2));
    }
}
