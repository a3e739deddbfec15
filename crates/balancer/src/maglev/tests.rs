use super::*;
use proptest::prelude::*;

const SLOT_COUNT: usize = SLOT_COUNT_DEFAULT as usize;

fn backends(weights: &[u32]) -> Vec<(IpAddr, u32)> {
    let address = |index: u32| IpAddr::from((0x0A00_0001 + index).to_be_bytes());
    (0_u32..).zip(weights).map(|(index, weight)| (address(index), *weight)).collect()
}

/// Checks that every backend's number of slots is within two, or one per cent, of its weight's
/// share.
fn assert_shares(weights: &[u32], slot_count: usize) {
    let backends = backends(weights);
    let maglev = Maglev::new(&backends, slot_count);
    let shares = shares(&backends, slot_count);
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let mut counts = vec![0_usize; weights.len()];
    maglev.slots.iter().for_each(|slot| counts[usize::from(*slot)] += 1);
    for (index, weight) in weights.iter().enumerate() {
        let due = slot_count as f64 * f64::from(*weight) / sum as f64;
        let allowed = f64::max(2.0, due / 100.0);
        let count = counts[index];
        let off = (count as f64 - due).abs();
        assert!(off <= allowed, "{count} slots for {weight} of {sum}, due {due}");
        assert_eq!(shares[index], count as f64 / slot_count as f64, "{index} of {weights:?}");
    }
}

/// Table 1 of the paper: three backends, seven slots, then without the second.
#[test]
fn the_papers_table_1_comes_out() {
    let turn = |backend, next, skip| FillTurn {
        backend,
        permutation: Permutation { next, skip, slot_count: 7 },
        pace: Pace::of(1, 1),
    };
    let order = |mut turn: FillTurn| std::array::from_fn(|_| turn.permutation.next());
    assert_eq!(order(turn(0, 3, 4)), [3, 0, 4, 1, 5, 2, 6]);
    assert_eq!(order(turn(1, 0, 2)), [0, 2, 4, 6, 1, 3, 5]);
    assert_eq!(order(turn(2, 3, 1)), [3, 4, 5, 6, 0, 1, 2]);
    let before = filled(vec![turn(0, 3, 4), turn(1, 0, 2), turn(2, 3, 1)], 7);
    assert_eq!(*before, [1, 0, 1, 0, 2, 2, 0]);
    let after = filled(vec![turn(0, 3, 4), turn(2, 3, 1)], 7);
    assert_eq!(*after, [0, 0, 0, 0, 2, 2, 2]);
}

#[test]
fn slots_are_in_proportion_to_weights() {
    let heavy_among_many: Vec<u32> = std::iter::once(65_535).chain([1; 649]).collect();
    let all_different: Vec<u32> = (1..=650).collect();
    for weights in [
        &[1, 1, 1][..],
        &[1, 2, 3, 4],
        &[100, 1],
        &[65_535, 1],
        &[65_535, 1, 30_000],
        &[7; 10],
        &[7; 100],
        &[7; 650],
        &heavy_among_many,
        &all_different,
        &[0, 5, 0, 10],
    ] {
        assert_shares(weights, SLOT_COUNT);
    }
    assert_shares(&[3, 1], 251);
    assert_shares(&[1; 3], 1_000_003);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_weights_get_their_shares(weights in prop::collection::vec(0_u32..=65_535, 2..80)) {
        prop_assume!(weights.iter().filter(|weight| **weight > 0).count() > 1);
        assert_shares(&weights, 9_973);
    }
}

/// The slots that moved between the remaining backends when the one at `index` goes, in per cent of
/// their slots.
fn moved_percent(all: &[(IpAddr, u32)], before: &Maglev, index: usize) -> f64 {
    let mut rest = all.to_vec();
    rest.remove(index);
    let after = Maglev::new(&rest, SLOT_COUNT);
    let kept =
        before.slots.iter().zip(&after.slots).filter(|(before, _)| usize::from(**before) != index);
    let (mut kept_count, mut moved_count) = (0_usize, 0_usize);
    for (before, after) in kept {
        let after = if usize::from(*after) < index { *after } else { after + 1 };
        kept_count += 1;
        moved_count += usize::from(*before != after);
    }
    moved_count as f64 * 100.0 / kept_count as f64
}

/// Each backend goes in turn; with 650 backends, every thirteenth.
#[test]
fn removing_a_backend_moves_at_most_one_per_cent_of_the_others_slots() {
    for (count, step) in [(3, 1), (10, 1), (100, 1), (650, 13)] {
        let all = backends(&vec![1; count]);
        let before = Maglev::new(&all, SLOT_COUNT);
        for index in (0..count).step_by(step) {
            let moved = moved_percent(&all, &before, index);
            assert!(moved <= 1.0, "{moved} % moved when {index} of {count} went");
        }
    }
}

/// A table of one slot for the last backend is equivalent to one of 65,537.
#[test]
fn a_backend_that_is_alone_gets_everything() {
    for weights in [&[0, 9, 0][..], &[0, 1]] {
        let maglev = Maglev::new(&backends(weights), SLOT_COUNT);
        assert_eq!((maglev.backend(0), maglev.backend(u32::MAX)), (Some(1), Some(1)));
        assert_eq!(maglev.memory_bytes(), memory_bytes(1, SLOT_COUNT_DEFAULT));
        assert_eq!(shares(&backends(weights), SLOT_COUNT)[1], 1.0);
    }
}

#[test]
fn each_slot_is_reached_by_some_hash_and_no_other() {
    let maglev = Maglev::new(&backends(&[1, 1]), SLOT_COUNT);
    let mut counts = [0_usize; 2];
    for hash in (0..=u32::MAX).step_by(1 << 14) {
        counts[maglev.backend(hash).unwrap()] += 1;
    }
    assert_eq!(counts.iter().sum::<usize>(), 1 << 18);
    assert!(counts.iter().all(|count| count.abs_diff(1 << 17) < 1 << 10), "{counts:?}");
    assert_eq!(maglev.backend(0), Some(usize::from(maglev.slots[0])));
    assert_eq!(maglev.backend(u32::MAX), Some(usize::from(maglev.slots[SLOT_COUNT - 1])));
    assert_eq!(maglev.slot_count(0) + maglev.slot_count(1), SLOT_COUNT);
    assert_eq!(maglev.memory_bytes(), memory_bytes(2, SLOT_COUNT_DEFAULT));
}

#[test]
fn the_order_in_the_file_does_not_matter() {
    let mut forward = backends(&[3, 1, 2, 5]);
    forward.push(("2001:db8::7".parse().unwrap(), 2));
    let backward: Vec<_> = forward.iter().rev().copied().collect();
    let (a, b) = (Maglev::new(&forward, SLOT_COUNT), Maglev::new(&backward, SLOT_COUNT));
    let last = forward.len() - 1;
    let pairs = a.slots.iter().zip(&b.slots);
    assert!(pairs.into_iter().all(|(a, b)| usize::from(*a) + usize::from(*b) == last));
    let mut reversed = shares(&backward, SLOT_COUNT);
    reversed.reverse();
    assert_eq!(shares(&forward, SLOT_COUNT), reversed);
}

#[test]
fn without_weight_there_is_no_backend() {
    for none in [&[][..], &backends(&[0, 0])] {
        let maglev = Maglev::new(none, SLOT_COUNT);
        assert_eq!(maglev.backend(u32::MAX), None);
        assert_eq!(maglev.memory_bytes(), memory_bytes(0, SLOT_COUNT_DEFAULT));
        assert!(shares(none, SLOT_COUNT).iter().all(|share| *share == 0.0));
    }
}

#[test]
fn equal_bits_of_the_two_families_are_different_backends() {
    let v4 = Permutation::of("0.0.0.5".parse().unwrap(), SLOT_COUNT);
    let v6 = Permutation::of("0:0:0:4::5".parse().unwrap(), SLOT_COUNT);
    assert_ne!((v4.next, v4.skip), (v6.next, v6.skip));
}

#[test]
fn primes_are_distinguished_from_other_numbers() {
    let primes: Vec<_> = (0..32).filter(|number| is_prime(*number)).collect();
    assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31]);
    assert!(is_prime(65_537) && is_prime(1_000_003) && is_prime(4_294_967_291));
    assert_eq!((prime_from(65_536), prime_from(65_537), prime_from(0)), (65_537, 65_537, 2));
    assert_eq!((slots_for(2), slots_for(650)), (211, 65_003));
    assert!(!is_prime(65_536) && !is_prime(997 * 1_009) && !is_prime(u32::MAX));
}

#[test]
#[should_panic(expected = "65536 slots: not a prime")]
fn slots_that_are_no_prime_are_refused() {
    let _ = Maglev::new(&backends(&[1, 1]), 65_536);
}
