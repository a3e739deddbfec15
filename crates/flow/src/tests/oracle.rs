//! Any sequence of operations on a table has the same results as on a hash map with times.

mod model;

use model::{Model, Shape};
use proptest::prelude::*;

use super::{Random, backends};
use crate::{Backend, Class, Classes, Full};

/// The fraction of a million operations that a debug build runs, and Miri.
const OPERATION_COUNT: u64 = match (cfg!(miri), cfg!(debug_assertions)) {
    (true, _) => 400,
    (false, true) => 40_000,
    (false, false) => 1_000_000,
};

const EXPENDABLE: Classes = Classes::of(&[Class::new(0), Class::new(2)]);

const POLICIES: [Full; 4] =
    [Full::Refuse, Full::Evict(Classes::NONE), Full::Evict(EXPENDABLE), Full::Evict(Classes::ALL)];

/// A run of random operations, with the invariants checked after every `check_every`-th.
fn run(shape: Shape, count: u64, check_every: u64, random: &mut Random) {
    let mut model = Model::new(shape, Backend::best());
    for number in 0..count {
        model.apply(random.next());
        if number % check_every == 0 {
            model.check();
        }
    }
    model.finish();
}

#[test]
fn small_tables_checked_after_each_operation() {
    let mut random = Random::new();
    for full in POLICIES {
        for capacity in [1, 2, 12, 13, 25, 26, 60] {
            let key_count = capacity as u64 * 2 + 3;
            let count = OPERATION_COUNT / 100;
            run(Shape { capacity, key_count, full, hash_bits: 64 }, count, 1, &mut random);
        }
    }
}

#[test]
fn keys_of_few_hashes() {
    let mut random = Random::new();
    for full in POLICIES {
        for hash_bits in [0, 1, 2, 4] {
            let shape = Shape { capacity: 100, key_count: 150, full, hash_bits };
            run(shape, OPERATION_COUNT / 100, 1, &mut random);
        }
    }
}

#[test]
fn a_large_table_that_is_full() {
    let mut random = Random::new();
    for full in POLICIES {
        let shape = Shape { capacity: 5_000, key_count: 7_000, full, hash_bits: 64 };
        run(shape, OPERATION_COUNT / 2, OPERATION_COUNT / 100, &mut random);
    }
}

#[test]
fn a_large_table_with_room() {
    let mut random = Random::new();
    let shape = Shape { capacity: 20_000, key_count: 19_000, full: Full::Refuse, hash_bits: 64 };
    run(shape, OPERATION_COUNT, OPERATION_COUNT / 20, &mut random);
}

/// All back-ends behave the same, handles included.
#[test]
fn all_backends_do_the_same() {
    let mut random = Random::new();
    for full in POLICIES {
        for (capacity, hash_bits) in [(20, 64), (100, 2), (2_000, 64)] {
            let key_count = capacity as u64 * 3 / 2;
            let shape = Shape { capacity, key_count, full, hash_bits };
            let count = OPERATION_COUNT / 40;
            let operations: Vec<u64> = (0..count).map(|_| random.next()).collect();
            let traces = backends().map(|backend| {
                let mut model = Model::new(shape, backend);
                operations.iter().for_each(|&operation| model.apply(operation));
                model.finish()
            });
            let traces: Vec<_> = traces.collect();
            assert!(traces.windows(2).all(|two| two[0] == two[1]), "{shape:?}");
        }
    }
}

proptest! {
    /// The same, for proptest to find the shortest sequence that fails.
    #[test]
    fn short_sequences(
        capacity in 1..80_usize,
        hash_bits in prop::sample::select(vec![0, 1, 3, 64]),
        full in prop::sample::select(POLICIES.to_vec()),
        operations in prop::collection::vec(any::<u64>(), 0..if cfg!(miri) { 16 } else { 300 }),
    ) {
        let mut model = Model::new(Shape { capacity, key_count: 100, full, hash_bits }, Backend::best());
        for operation in operations {
            model.apply(operation);
            model.check();
        }
        model.finish();
    }
}
