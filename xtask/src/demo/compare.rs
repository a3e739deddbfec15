//! Compares the packets of two runs: the same bytes, equally often, in the same order within each
//! flow.

use std::collections::{BTreeMap, HashMap};

use super::capture;

/// Compares two runs, each a list of Ethernet frames in output order. Returns the number of packets
/// and flows of each, or the difference.
pub fn compare(left: &[Vec<u8>], right: &[Vec<u8>]) -> Result<(usize, usize), String> {
    let mut surplus: HashMap<&[u8], isize> = HashMap::new();
    left.iter().for_each(|packet| *surplus.entry(packet).or_default() += 1);
    right.iter().for_each(|packet| *surplus.entry(packet).or_default() -= 1);
    if let Some((packet, _)) = surplus.iter().find(|(_, count)| **count != 0) {
        let bytes: Vec<_> = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        let left_only: isize = surplus.values().filter(|count| **count > 0).sum();
        let right_only: isize = -surplus.values().filter(|count| **count < 0).sum::<isize>();
        return Err(format!(
            "{left_only} only in the first, {right_only} only in the second, one of them: {}",
            bytes.join(" ")
        ));
    }
    let (left, right) = (by_flow(left), by_flow(right));
    for (flow, left) in &left {
        if let Some(index) = left.iter().zip(&right[flow]).position(|(left, right)| left != right) {
            return Err(format!("packet {index} differs in the flow {flow:?}"));
        }
    }
    Ok((left.values().map(Vec::len).sum(), left.len()))
}

/// By flow, `None` for packets other than IP. Equal packets always have the same flow.
fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<Option<capture::Flow>, Vec<&[u8]>> {
    let mut flows: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for packet in packets {
        flows.entry(capture::flow(packet).map(|(flow, _)| flow)).or_default().push(packet);
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::super::capture::tests::tunnelled;
    use super::*;

    /// Ten packets of each of three flows, interleaved.
    fn run() -> Vec<Vec<u8>> {
        (0..30).map(|n| tunnelled(n % 3, &[n, 0xaa, 0xbb])).collect()
    }

    #[test]
    fn flows_may_interleave_in_any_way() {
        let left = run();
        let mut right = left.clone();
        right.sort_by_key(|packet| capture::flow(packet).unwrap());
        assert_ne!(left, right);
        assert_eq!(compare(&left, &right), Ok((30, 3)));
    }

    #[test]
    fn a_changed_lost_or_doubled_packet_and_a_changed_order_are_seen() {
        let left = run();
        let difference = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut right = left.clone();
            change(&mut right);
            compare(&left, &right).unwrap_err()
        };
        for index in 0..left[17].len() {
            let seen = difference(&|right| right[17][index] ^= 1);
            assert!(seen.starts_with("1 only in the first, 1 only in the second"), "{seen}");
        }
        let lost = difference(&|right| drop(right.remove(0)));
        assert!(lost.starts_with("1 only in the first, 0 only"), "{lost}");
        let doubled = difference(&|right| right.push(right[4].clone()));
        assert!(doubled.starts_with("0 only in the first, 1 only"), "{doubled}");
        let swapped = difference(&|right| right.swap(6, 9));
        assert!(swapped.starts_with("packet 2 differs in the flow Some"), "{swapped}");
    }
}
