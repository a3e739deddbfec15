//! Maglev's consistent hashing, weighted.
//!
//! Every backend has a permutation of the slots of its own, made from its address alone. The
//! backends take turns at claiming the next free slot of their permutations until none is left
//! ("Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4). A backend
//! of half the greatest weight takes a turn in every other round. So
//!
//! - the slots of a backend are in proportion to its weight, to within a slot or two;
//! - every balancer with the same backends has the same table, in whatever order they are written;
//! - when a backend comes or goes, few of the others' slots move.

use std::net::IpAddr;

/// How many slots a table has: a prime, a hundred times more than there are backends.
pub const SLOT_COUNT: usize = 65_537;

/// The permutation of `0..slot_count` that starts at `offset` and goes on in steps of `skip`. It
/// reaches every slot, since `slot_count` is prime.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    next: usize,
    skip: usize,
    slot_count: usize,
}

impl Permutation {
    fn of(address: IpAddr, slot_count: usize) -> Self {
        let (high, low) = match address {
            IpAddr::V4(address) => (4, u64::from(address.to_bits())),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                ((bits >> 64) as u64, bits as u64)
            }
        };
        // An IPv6 address that starts with 0:0:0:4 would hash as an IPv4 one if it were not for
        // the family.
        let family = u64::from(address.is_ipv6());
        let hash = |salt: u64| mixed(mixed(mixed(salt ^ family) ^ high) ^ low);
        let offset = hash(0x6F66_6673_6574_0000) % slot_count as u64;
        let skip = hash(0x736B_6970_0000_0000) % (slot_count as u64 - 1) + 1;
        Self { next: offset as usize, skip: skip as usize, slot_count }
    }

    fn next(&mut self) -> usize {
        let slot = self.next;
        self.next = (slot + self.skip) % self.slot_count;
        slot
    }
}

/// The number with its bits spread over all 64: the finaliser of SplitMix64.
const fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Which backend has which slot. Read-only once it is made.
#[derive(Clone, Debug)]
pub struct Maglev {
    /// Indices of backends; empty where none has a weight above 0.
    slots: Box<[u16]>,
}

impl Maglev {
    /// The table of the backends given with their weights. Those of weight 0 get no slot.
    ///
    /// # Panics
    /// With more than 65,535 backends.
    #[must_use]
    pub fn new(backends: &[(IpAddr, u32)]) -> Self {
        assert!(backends.len() <= usize::from(u16::MAX), "{} backends", backends.len());
        let mut turns: Vec<_> =
            (0_u16..).zip(backends).filter(|(_, (_, weight))| *weight > 0).collect();
        // Turns are taken in the order of the addresses: that of the file must not matter.
        turns.sort_by_key(|(_, (address, _))| *address);
        let turns = turns.into_iter().map(|(index, (address, weight))| Turn {
            backend: index,
            permutation: Permutation::of(*address, SLOT_COUNT),
            weight: u64::from(*weight),
            credit: 0,
        });
        Self { slots: filled(turns.collect(), SLOT_COUNT) }
    }

    /// The index of the backend for flows of this hash; none where no backend has a slot.
    #[inline]
    #[must_use]
    pub fn backend(&self, hash: u32) -> Option<usize> {
        // Multiplying maps the hash onto the slots without a division.
        let slot = (u64::from(hash) * self.slots.len() as u64) >> 32;
        self.slots.get(slot as usize).map(|index| usize::from(*index))
    }

    /// How many slots the backend at `index` has.
    #[must_use]
    pub fn slot_count(&self, index: usize) -> usize {
        self.slots.iter().filter(|slot| usize::from(**slot) == index).count()
    }
}

/// A backend's place in the rounds.
struct Turn {
    backend: u16,
    permutation: Permutation,
    weight: u64,
    /// Grows by the weight each round; the greatest weight buys a slot.
    credit: u64,
}

fn filled(mut turns: Vec<Turn>, slot_count: usize) -> Box<[u16]> {
    let Some(price) = turns.iter().map(|turn| turn.weight).max() else { return Box::default() };
    let mut slots: Vec<Option<u16>> = vec![None; slot_count];
    let mut free_count = slot_count;
    'rounds: loop {
        for turn in &mut turns {
            turn.credit += turn.weight;
            if turn.credit < price {
                continue;
            }
            turn.credit -= price;
            let mut slot = turn.permutation.next();
            while slots[slot].is_some() {
                slot = turn.permutation.next();
            }
            slots[slot] = Some(turn.backend);
            free_count -= 1;
            if free_count == 0 {
                break 'rounds;
            }
        }
    }
    slots.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(weights: &[u32]) -> Vec<(IpAddr, u32)> {
        let address = |index: u32| IpAddr::from((0x0A00_0001 + index).to_be_bytes());
        (0_u32..).zip(weights).map(|(index, weight)| (address(index), *weight)).collect()
    }

    /// Table 1 of the paper: three backends, seven slots, then without the second.
    #[test]
    fn the_papers_example_comes_out() {
        let turn = |backend, next, skip| Turn {
            backend,
            permutation: Permutation { next, skip, slot_count: 7 },
            weight: 1,
            credit: 0,
        };
        let before = filled(vec![turn(0, 3, 4), turn(1, 0, 2), turn(2, 3, 1)], 7);
        assert_eq!(*before, [1, 0, 1, 0, 2, 2, 0]);
        let after = filled(vec![turn(0, 3, 4), turn(2, 3, 1)], 7);
        assert_eq!(*after, [0, 0, 0, 0, 2, 2, 2]);
    }

    #[test]
    fn slots_are_in_proportion_to_weights() {
        for weights in [
            &[1, 1, 1][..],
            &[1, 2, 3, 4],
            &[100, 1],
            &[65_535, 1, 30_000],
            &[7; 512],
            &[0, 5, 0, 10],
        ] {
            let maglev = Maglev::new(&backends(weights));
            let sum: u32 = weights.iter().sum();
            for (index, weight) in weights.iter().enumerate() {
                let due = SLOT_COUNT as f64 * f64::from(*weight) / f64::from(sum);
                let count = maglev.slot_count(index) as f64;
                assert!(
                    (count - due).abs() <= 2.0,
                    "{count} slots for {weight} of {sum}, due {due}"
                );
            }
        }
    }

    #[test]
    fn each_slot_is_reached_by_some_hash_and_no_other() {
        let maglev = Maglev::new(&backends(&[1, 1]));
        let mut counts = [0_usize; 2];
        for hash in (0..=u32::MAX).step_by(1 << 14) {
            counts[maglev.backend(hash).unwrap()] += 1;
        }
        assert_eq!(counts.iter().sum::<usize>(), 1 << 18);
        assert!(counts.iter().all(|count| count.abs_diff(1 << 17) < 1 << 10), "{counts:?}");
        assert_eq!(maglev.backend(0), Some(usize::from(maglev.slots[0])));
        assert_eq!(maglev.backend(u32::MAX), Some(usize::from(maglev.slots[SLOT_COUNT - 1])));
    }

    #[test]
    fn the_order_in_the_file_does_not_matter() {
        let mut forward = backends(&[3, 1, 2, 5]);
        forward.push(("2001:db8::7".parse().unwrap(), 2));
        let backward: Vec<_> = forward.iter().rev().copied().collect();
        let (a, b) = (Maglev::new(&forward), Maglev::new(&backward));
        let last = forward.len() - 1;
        assert!(
            (0..SLOT_COUNT)
                .all(|slot| usize::from(a.slots[slot]) + usize::from(b.slots[slot]) == last)
        );
    }

    #[test]
    fn removing_a_backend_moves_few_of_the_others_slots() {
        let all = backends(&[1; 20]);
        let (before, after) = (Maglev::new(&all), Maglev::new(&all[..19]));
        let pairs = before.slots.iter().zip(&after.slots);
        let moved = pairs.filter(|(before, after)| **before != 19 && before != after).count();
        // The paper's figure 12 shows as much: with 65,537 slots about two per cent move.
        assert!(moved * 20 < SLOT_COUNT, "{moved} of {SLOT_COUNT} slots moved");
    }

    #[test]
    fn without_weight_there_is_no_backend() {
        assert_eq!(Maglev::new(&[]).backend(7), None);
        assert_eq!(Maglev::new(&backends(&[0, 0])).backend(u32::MAX), None);
    }

    #[test]
    fn equal_bits_of_the_two_families_are_different_backends() {
        let v4 = Permutation::of("0.0.0.5".parse().unwrap(), SLOT_COUNT);
        let v6 = Permutation::of("0:0:0:4::5".parse().unwrap(), SLOT_COUNT);
        assert_ne!((v4.next, v4.skip), (v6.next, v6.skip));
    }
}
