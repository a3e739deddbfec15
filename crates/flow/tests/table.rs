//! The table's promises one by one.

use hotloop_arena::{Arena, Pages, Request};
use hotloop_flow::{Config, FlowError, Full, Handle, Table};
use hotloop_packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};

type Numbers = Table<[u64; 2], u64>;

fn arena(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

fn numbers(capacity: usize, idle_ns: u64) -> Numbers {
    Table::with_seed(arena(1 << 20), Config { capacity, idle_ns }, 1).unwrap()
}

#[test]
fn a_table_that_can_not_be_says_why() {
    let make = |bytes, capacity| {
        Numbers::new(arena(bytes), Config { capacity, idle_ns: 1 }).map(drop).unwrap_err()
    };
    assert_eq!(make(4096, 0), FlowError::NoCapacity);
    for capacity in [u32::MAX as usize, usize::MAX] {
        assert_eq!(make(4096, capacity), FlowError::TooLarge { capacity });
        assert_eq!(Numbers::bytes(capacity), None);
    }
    let needed_bytes = Numbers::bytes(1_000).unwrap();
    let no_memory = FlowError::NoMemory { capacity: 1_000, needed_bytes, free_bytes_max: 4096 };
    assert_eq!(make(4096, 1_000), no_memory);
    assert!(no_memory.to_string().contains(&format!("takes {needed_bytes} bytes")), "{no_memory}");
}

#[test]
fn a_table_takes_as_many_bytes_as_it_says() {
    for capacity in [1, 2, 63, 64, 65, 1_000] {
        let arena = arena(Numbers::bytes(capacity).unwrap());
        let table = Numbers::new(arena.clone(), Config { capacity, idle_ns: 1 }).unwrap();
        assert_eq!(arena.used_bytes(), Numbers::bytes(capacity).unwrap());
        assert_eq!(table.capacity(), capacity);
        drop(table);
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn exactly_the_capacity_fits_whatever_was_there_before() {
    let mut table = numbers(100, u64::MAX);
    for round in 0..5 {
        for number in 0..100 {
            table.insert([round, number], number, 0_u64).unwrap();
        }
        assert_eq!(table.insert([round, 100], 100, 0_u64), Err(Full));
        assert_eq!(table.get_or_insert_with([round, 101], 0_u64, || unreachable!()), Err(Full));
        for number in (0..100).rev() {
            assert_eq!(table.remove(&[round, number]), Some(number));
        }
        assert!(table.is_empty());
    }
    assert_eq!(table.stats().refused_count, 10);
}

#[test]
fn time_is_up_to_the_nanosecond() {
    let mut table = numbers(4, 100);
    let handle = table.insert([1, 1], 7, 1_000_u64).unwrap();
    assert_eq!(table.get(&[1, 1], 1_100_u64), Some(handle));
    assert_eq!(table.age(1_200_u64, 4, |_, _| unreachable!()), 0);
    assert_eq!(table.get(&[1, 1], 1_201_u64), None);
    assert_eq!((table.len(), table.value(handle)), (1, Some(&7)));

    let again = table.insert([1, 1], 8, 1_201_u64).unwrap();
    assert_ne!(again, handle);
    assert_eq!((table.value(handle), table[again], table.len()), (None, 8, 1));
    assert_eq!(table.age(1_302_u64, 4, |key, value| assert_eq!((key, value), ([1, 1], 8))), 1);
    assert_eq!(table.value(again), None);
}

#[test]
fn a_packet_from_the_past_makes_no_flow_older() {
    let mut table = numbers(4, 100);
    let handle = table.insert([1, 1], 7, 1_000_u64).unwrap();
    assert_eq!(table.get(&[1, 1], 5_u64), Some(handle));
    assert_eq!(table.get(&[1, 1], 1_100_u64), Some(handle));
}

#[test]
fn no_end_of_time_expires_what_is_kept_for_ever() {
    let mut table = numbers(4, u64::MAX);
    table.insert([1, 1], 7, 0_u64).unwrap();
    assert_eq!(table.age(u64::MAX, 4, |_, _| unreachable!()), 0);
    assert!(table.get(&[1, 1], u64::MAX).is_some());
}

#[test]
fn ageing_goes_round_in_small_steps() {
    let mut table = numbers(100, 10);
    for number in 0..100 {
        table.insert([number, 0], number, number).unwrap();
    }
    // At 60 those last seen before 50 have gone silent.
    let mut expired = Vec::new();
    for _ in 0..15 {
        let before_count = expired.len();
        let count = table.age(60_u64, 7, |_, value| expired.push(value));
        assert_eq!(count, expired.len() - before_count);
        assert!(count <= 7);
    }
    expired.sort_unstable();
    assert!(expired.into_iter().eq(0..50));
    assert_eq!(table.len(), 50);
}

#[test]
fn one_call_of_age_visits_each_place_once() {
    let mut table = numbers(3, 0);
    for number in 0..3 {
        table.insert([number, 0], number, 0_u64).unwrap();
    }
    let mut expired = Vec::new();
    assert_eq!(table.age(1_u64, usize::MAX, |key, _| expired.push(key[0])), 3);
    assert_eq!(expired, [0, 1, 2]);
    assert_eq!(table.age(1_u64, usize::MAX, |_, _| unreachable!()), 0);
}

#[test]
fn a_burst_takes_keys_or_options_of_keys() {
    let mut table = numbers(8, 10);
    let one = table.insert([1, 0], 1, 0_u64).unwrap();
    let two = table.insert([2, 0], 2, 0_u64).unwrap();
    let mut found = [Some(one); 64];
    table.lookup_burst([[2, 0], [3, 0], [2, 0]], 5_u64, &mut found);
    assert_eq!(found[..3], [Some(two), None, Some(two)]);
    assert_eq!(found[3..], [None; 61]);
    table.lookup_burst(
        (0..64).map(|number| (number % 2 == 0).then_some([number, 0])),
        5_u64,
        &mut found,
    );
    let expected: [Option<Handle>; 64] = std::array::from_fn(|number| (number == 2).then_some(two));
    assert_eq!(found, expected);
    // The second was seen at 5, the first wasn't.
    assert_eq!(table.age(11_u64, 8, |key, _| assert_eq!(key, [1, 0])), 1);
    table.lookup_burst([[0; 2]; 0], 11_u64, &mut found);
    assert_eq!(found, [None; 64]);
}

#[test]
#[should_panic(expected = "more than 64 keys")]
fn a_burst_has_its_limit() {
    numbers(8, 10).lookup_burst([[0; 2]; 65], 0_u64, &mut [None; 64]);
}

#[test]
#[should_panic(expected = "has left the table")]
fn reading_through_a_stale_handle_is_a_mistake() {
    let mut table = numbers(8, 10);
    let handle = table.insert([1, 0], 1, 0_u64).unwrap();
    table.remove(&[1, 0]);
    table.insert([2, 0], 2, 0_u64).unwrap();
    let _ = table[handle];
}

#[test]
#[should_panic(expected = "has left the table")]
fn writing_through_a_stale_handle_is_a_mistake() {
    let mut table = numbers(8, 10);
    let handle = table.insert([1, 0], 1, 0_u64).unwrap();
    table.remove(&[1, 0]);
    table[handle] = 3;
}

#[test]
fn a_handle_of_a_larger_table_is_stale_in_a_smaller_one() {
    let mut large = numbers(100, 10);
    let handles: Vec<_> = (0..100).map(|key| large.insert([key, 0], key, 0_u64).unwrap()).collect();
    let small = numbers(1, 10);
    assert!(handles.into_iter().all(|handle| small.value(handle).is_none()));
}

#[test]
fn a_panic_while_making_a_value_changes_nothing() {
    let mut table = numbers(1, 10);
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.get_or_insert_with([1, 0], 0_u64, || std::panic::resume_unwind(Box::new("make")))
    }));
    assert!(made.is_err());
    assert!(table.is_empty() && table.get(&[1, 0], 0_u64).is_none());
    assert!(table.insert([2, 0], 2, 0_u64).is_ok());
}

#[test]
fn flows_of_both_families_share_a_table() {
    let mut table = Table::new(arena(1 << 20), Config { capacity: 8, idle_ns: 10 }).unwrap();
    let v4 = FlowKeyV4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1_000, 80, 6);
    let v6 = FlowKeyV6::new([1; 16].into(), [2; 16].into(), 1_000, 80, 6);
    let keys = [FlowKey::V4(v4), FlowKey::V4(v4.reversed()), FlowKey::V6(v6)];
    for (number, key) in keys.into_iter().enumerate() {
        table.insert(key, number, 0_u64).unwrap();
    }
    let mut found = [None; 64];
    table.lookup_burst(keys, 0_u64, &mut found);
    assert!((0..3).all(|number| table[found[number].unwrap()] == number));
}
