//! Hints find the flows of a burst, and an outdated hint never hides one.

use hotloop_arena::{Arena, Pages, Request};
use hotloop_flow::{
    BURST_KEYS_MAX, Backend, Config, Handle, Hint, Hints, Key, Refused, STEP_NS, Table,
};
use plainly::{Plainly, at};

mod plainly;

type Numbers = Table<[u64; 2], u64>;

fn arena(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

/// Tables with the flows of these numbers: one that fits the cache and one that does not, for each
/// back-end.
fn tables(numbers: u64) -> impl Iterator<Item = Numbers> {
    let backends = Backend::ALL.into_iter().filter(|backend| backend.is_available());
    let shapes = backends.flat_map(|backend| [10_000, 20_000].map(|capacity| (backend, capacity)));
    shapes.map(move |(backend, capacity)| {
        let arena = arena(Numbers::bytes(capacity).unwrap());
        let config = Config::new(capacity, 10 * STEP_NS);
        let mut table = Numbers::with_backend(arena, config, 1, backend).unwrap();
        for number in 0..numbers {
            table.put([number, 0], number, 0).unwrap();
        }
        table
    })
}

/// The hints for all keys of a burst.
fn all(hints: &Hints) -> impl Iterator<Item = Hint> {
    (0..BURST_KEYS_MAX).map(|index| hints.at(index))
}

#[test]
fn hints_are_for_keys_or_options_of_keys() {
    for mut table in tables(30) {
        let mut hints = Hints::new();
        table.hint_burst([[2, 0], [33, 0], [2, 0]], &mut hints);
        let are_absent = [0, 1, 2, 3].map(|index| hints.at(index).is_absent());
        assert_eq!(are_absent, [false, true, false, false]);
        let keys = |number| [number, 0];
        table.hint_burst(
            (0..64).map(|number| (number % 2 == 0).then_some(keys(number))),
            &mut hints,
        );
        for (number, hint) in (0..64).zip(all(&hints)) {
            let expected = (number < 30).then_some(&number);
            let found = table.find(&keys(number), hint, at(5 * STEP_NS));
            assert_eq!(found.map(|(_, value)| value), expected);
            if number % 2 == 0 {
                assert_eq!(table.likely_value(hint), expected);
            }
            if number % 2 == 1 {
                assert!(!hint.is_absent());
            } else {
                assert_eq!(hint.is_absent(), number >= 30);
            }
        }
        // The flows found were seen in step 5.
        assert_eq!(table.expire(at(12 * STEP_NS), usize::MAX, |_, _| unreachable!()), 0);
        table.hint_burst([[0; 2]; 0], &mut hints);
        assert!(!hints.at(0).is_absent());
        // Keys beyond the burst get none.
        table.hint_burst((0..100).map(keys), &mut hints);
        assert!((0..30).all(|number| !hints.at(number).is_absent()));
    }
}

#[test]
fn what_is_found_does_not_depend_on_the_hint() {
    for mut table in tables(5_000) {
        let mut hints = Hints::new();
        table.hint_burst((4_968..5_032).map(|number| [number, 0]), &mut hints);
        // Each flow with the places of all the others; and absent keys.
        for number in 4_990..5_010 {
            let expected = (number < 5_000).then_some(number);
            for hint in all(&hints).filter(|hint| !hint.is_absent()) {
                let found = table.find(&[number, 0], hint, at(0));
                assert_eq!(found.map(|(_, value)| *value), expected);
            }
        }
    }
}

#[test]
fn a_hint_to_the_flow_of_another_key_becomes_one_of_an_absent_key() {
    for mut table in tables(9_000) {
        let (mut hints, mut misled_count) = (Hints::new(), 0);
        let key = |number| [number, 0];
        for start in (0..18_000).step_by(BURST_KEYS_MAX) {
            table.hint_burst((start..).take(BURST_KEYS_MAX).map(key), &mut hints);
            for (index, number) in (start..).take(BURST_KEYS_MAX).enumerate() {
                let is_there = number < 9_000;
                misled_count += u32::from(!is_there && !hints.at(index).is_absent());
                table.prefetch_insert(&key(number), &mut hints, index);
                assert_eq!(hints.at(index).is_absent(), !is_there);
                let found = table.find(&key(number), hints.at(index), at(0));
                assert_eq!(found.map(|(_, value)| *value), is_there.then_some(number));
            }
        }
        assert!((100..1_000).contains(&misled_count), "{misled_count}");
        // Beyond the burst there is no hint to change.
        table.prefetch_insert(&key(0), &mut hints, BURST_KEYS_MAX);
    }
}

#[test]
fn by_a_hint_from_before_it_came_a_flow_is_found_and_none_that_left() {
    for mut table in tables(1_000) {
        let mut hints = Hints::new();
        let key = |number| [number, 0];
        table.hint_burst((968..1_032).map(key), &mut hints);
        for (number, hint) in (968..1_032).zip(all(&hints)) {
            assert_eq!(hint.is_absent(), number >= 1_000);
            let seen_at = table.seen_at(at(0));
            if number < 1_000 {
                assert_eq!(table.remove(&key(number)), Some(number));
                assert_eq!(table.find(&key(number), hint, at(0)), None);
                // The flow may get the place in the hint, or another.
                table.put(key(number + 10_000), 0, 0).unwrap();
                assert_eq!(table.find(&key(number), hint, at(0)), None);
                assert_eq!(table.find_hinted(&key(number), hint, seen_at), None);
            } else {
                assert_eq!(table.find(&key(number), hint, at(0)), None);
                let handle = table.put(key(number), 7, 0).unwrap();
                assert_eq!(table.find(&key(number), hint, at(0)), Some((handle, &7)));
                assert_eq!(table.peek(&key(number), hint, at(0)).ok(), Some((handle, 0)));
                // Except by this function.
                assert_eq!(table.find_hinted(&key(number), hint, seen_at), None);
            }
        }
    }
}

#[test]
fn what_is_found_is_the_same_with_the_time_of_a_burst() {
    for mut table in tables(1_000) {
        let mut hints = Hints::new();
        table.hint_burst((968..1_032).map(|number| [number, 0]), &mut hints);
        let seen_at = table.seen_at(at(5 * STEP_NS));
        for (number, hint) in (968..1_032).zip(all(&hints)) {
            let found = table.find_hinted(&[number, 0], hint, seen_at);
            assert_eq!(found.map(|(_, value)| *value), (number < 1_000).then_some(number));
        }
        // The flows that were found were seen in step 5.
        assert_eq!(table.expire(at(12 * STEP_NS), usize::MAX, |key, _| assert!(key[0] < 968)), 968);
    }
}

#[test]
fn a_flow_that_a_peek_did_not_find_needs_no_second_search() {
    for mut table in tables(1_000) {
        // More than in a group: some places are not in the first group of their keys.
        let vacancies: Vec<_> = (1_000..1_064)
            .map(|number| table.peek(&[number, 0], Hint::NONE, at(0)).unwrap_err())
            .collect();
        for (number, vacancy) in (1_000..1_064).zip(vacancies) {
            assert_eq!(vacancy.key(), [number, 0]);
            let handle = table.insert(vacancy, number, at(0), &mut |_, _| ()).unwrap();
            // The vacancy is outdated now.
            assert_eq!(table.insert(vacancy, number + 1, at(0), &mut |_, _| ()), Ok(handle));
            assert_eq!(table[handle], number + 1);
        }
        assert_eq!(table.len(), 1_064);
    }
}

#[test]
fn hints_of_a_larger_table_do_no_harm_in_a_smaller_one() {
    let mut hints = Hints::new();
    let mut small = Numbers::new(arena(1 << 16), Config::new(10, u64::MAX)).unwrap();
    small.put([1, 0], 1, 0).unwrap();
    for larger in tables(64) {
        larger.hint_burst((0..64).map(|number| [number, 0]), &mut hints);
        for (number, hint) in (0..64).zip(all(&hints)) {
            let found = small.find(&[number, 0], hint, at(0));
            assert_eq!(found.map(|(_, value)| *value), (number == 1).then_some(1));
            assert!(small.likely_value(hint).is_none_or(|value| *value == 1));
        }
    }
}
