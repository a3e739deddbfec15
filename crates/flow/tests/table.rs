//! Tests of each guarantee of the table.

use hotloop_arena::{Arena, Pages, Request};
use hotloop_flow::{
    Backend, CLASS_COUNT, Class, Config, Cursor, Eviction, FlowError, Handle, Hint, Hints, Key,
    Refused, STEP_NS, Stats, Table,
};
use hotloop_packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use plainly::{Plainly, at};

mod plainly;

type Numbers = Table<[u64; 2], u64>;

fn arena(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

fn numbers(capacity: usize, idle_ns: u64) -> Numbers {
    Table::with_seed(arena(1 << 20), Config::new(capacity, idle_ns), 1).unwrap()
}

#[test]
fn a_table_that_can_not_be_says_why() {
    let make = |bytes, capacity| {
        Numbers::new(arena(bytes), Config::new(capacity, 1)).map(drop).unwrap_err()
    };
    assert_eq!(make(4096, 0), FlowError::NoCapacity);
    for capacity in [3_650_722_201, u32::MAX as usize, usize::MAX] {
        assert_eq!(make(4096, capacity), FlowError::TooLarge { capacity });
        assert_eq!(Numbers::bytes(capacity), None);
    }
    assert!(Numbers::bytes(3_650_722_200).is_some());
    let needed_bytes = Numbers::bytes(1_000).unwrap();
    let no_memory = FlowError::NoMemory { capacity: 1_000, needed_bytes, free_bytes_max: 4096 };
    assert_eq!(make(4096, 1_000), no_memory);
    assert!(no_memory.to_string().contains(&format!("takes {needed_bytes} bytes")), "{no_memory}");
}

#[test]
fn a_table_takes_as_many_bytes_as_it_says() {
    for capacity in [1, 2, 63, 64, 65, 1_000] {
        let arena = arena(Numbers::bytes(capacity).unwrap());
        let table = Numbers::new(arena.clone(), Config::new(capacity, 1)).unwrap();
        assert_eq!(arena.used_bytes(), Numbers::bytes(capacity).unwrap());
        assert_eq!(table.capacity(), capacity);
        drop(table);
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn a_flow_of_one_line_takes_77_bytes() {
    let bytes = |capacity| Table::<[u64; 2], [u64; 5]>::bytes(capacity).unwrap();
    assert_eq!(bytes(8_000_000) / 8_000_000, 76);
    assert_eq!(Table::<[u64; 5], [u64; 2]>::bytes(8_000_000), Some(bytes(8_000_000)));
    let larger = Table::<[u64; 2], [u64; 6]>::bytes(8_000_000).unwrap();
    assert_eq!(larger / 8_000_000, 152);
}

#[test]
fn exactly_the_capacity_fits_whatever_was_there_before() {
    let mut table = numbers(100, u64::MAX);
    for round in 0..5 {
        for number in 0..100 {
            table.put([round, number], number, 0).unwrap();
        }
        assert_eq!(table.put([round, 100], 100, 0), Err(Refused));
        for number in (0..100).rev() {
            assert_eq!(table.remove(&[round, number]), Some(number));
        }
        assert!(table.is_empty());
    }
    let stats = table.stats();
    assert_eq!((stats.refused_count, stats.inserted_count, stats.removed_count), (5, 500, 500));
    assert_eq!((stats.len, stats.len_max, stats.overflow_len), (0, 100, 0));
}

#[test]
fn time_is_up_to_two_steps() {
    let idle_ns = 10 * STEP_NS;
    let mut table = numbers(4, idle_ns);
    let handle = table.put([1, 1], 7, STEP_NS / 2).unwrap();
    assert_eq!(table.get(&[1, 1], STEP_NS / 2 + idle_ns), Some(handle));
    let seen_ns = STEP_NS / 2 + idle_ns;
    assert_eq!(table.expire(at(seen_ns + idle_ns), 1_000, |_, _| unreachable!()), 0);
    let late_ns = seen_ns + idle_ns + 2 * STEP_NS;
    assert_eq!(table.get(&[1, 1], late_ns), None);
    assert_eq!((table.len(), table.value(handle)), (1, Some(&7)));

    let again = table.put([1, 1], 8, late_ns).unwrap();
    assert_ne!(again, handle);
    assert_eq!((table.value(handle), table[again], table.len()), (None, 8, 1));
    let end_ns = late_ns + idle_ns + 2 * STEP_NS;
    assert_eq!(
        table.expire(at(end_ns), 1_000, |key, value| assert_eq!((key, value), ([1, 1], 8))),
        1
    );
    assert_eq!(table.value(again), None);
}

#[test]
fn a_flow_that_is_peeked_at_was_not_seen() {
    let idle_ns = 10 * STEP_NS;
    for backend in Backend::ALL.into_iter().filter(|backend| backend.is_available()) {
        let config = Config::new(4, idle_ns);
        let mut table: Numbers = Table::with_backend(arena(1 << 20), config, 1, backend).unwrap();
        let handle = table.put([1, 1], 7, 0).unwrap();
        assert_eq!(table.look(&[1, 1], idle_ns), Some((handle, 9 * STEP_NS)));
        assert_eq!(table.look(&[2, 2], 0), None);
        let late_ns = idle_ns + 2 * STEP_NS;
        assert_eq!(table.look(&[1, 1], late_ns), None);
        // The entry's time isn't the table's clock either.
        assert_eq!(table.get(&[1, 1], 5 * STEP_NS), Some(handle));
        assert_eq!(table.look(&[1, 1], late_ns), Some((handle, 6 * STEP_NS)));
        assert_eq!(table.get(&[2, 2], late_ns), None);
        let earlier = table.look(&[1, 1], 0);
        assert_eq!(earlier, Some((handle, 6 * STEP_NS)), "an earlier time is the latest");
        assert_eq!(table.expire(at(u64::MAX), 1_000, |_, _| ()), 1);
    }
}

#[test]
fn no_flow_seems_silent_for_longer_than_it_is() {
    let mut table = numbers(4, u64::MAX);
    for seen_ns in [0, 1, STEP_NS - 1, STEP_NS, 7 * STEP_NS + 77] {
        for silent_ns in [0, 1, STEP_NS - 1, STEP_NS, 2 * STEP_NS - 1, 1 << 40] {
            let seen_ns = (1 << 50) + 2 * table.stats().inserted_count * (1 << 40) + seen_ns;
            let handle = table.put([1, 1], 7, seen_ns).unwrap();
            let (found, shown_ns) = table.look(&[1, 1], seen_ns + silent_ns).unwrap();
            assert_eq!(found, handle);
            assert!(shown_ns <= silent_ns && silent_ns < shown_ns + 2 * STEP_NS, "{shown_ns}");
            table.remove(&[1, 1]);
        }
    }
}

#[test]
fn a_flow_whose_packets_were_seen_elsewhere_has_what_is_left_of_its_time() {
    // Soon after the clock's start: the last packet may have come before the start.
    for start_ns in [0, 5 * STEP_NS, 1 << 50] {
        let mut table = numbers(4, 10 * STEP_NS);
        let handle = table.put([1, 1], 7, start_ns).unwrap();
        assert!(table.set_silent_ns(handle, 7 * STEP_NS + STEP_NS / 2));
        assert_eq!(table.look(&[1, 1], start_ns), Some((handle, 6 * STEP_NS)));
        let end_ns = start_ns + 3 * STEP_NS;
        assert_eq!(table.look(&[1, 1], end_ns), Some((handle, 9 * STEP_NS)));
        assert_eq!(table.look(&[1, 1], end_ns + STEP_NS), None);
        // A packet renews the flow.
        assert_eq!(table.get(&[1, 1], end_ns), Some(handle));
        assert_eq!(table.look(&[1, 1], end_ns), Some((handle, 0)));
        assert!(table.set_silent_ns(handle, u64::MAX));
        assert_eq!(table.expire(at(end_ns), 100, |key, _| assert_eq!(key, [1, 1])), 1);
        assert!(!table.set_silent_ns(handle, 0));
    }
}

#[test]
fn a_flow_is_marked_as_seen_by_its_handle_unless_it_has_gone() {
    let mut table = numbers(4, 10 * STEP_NS);
    let handle = table.put([1, 1], 7, 0).unwrap();
    assert_eq!(table.look(&[1, 1], 9 * STEP_NS), Some((handle, 8 * STEP_NS)));
    assert!(table.touch(handle, at(9 * STEP_NS)));
    assert_eq!(table.look(&[1, 1], 9 * STEP_NS), Some((handle, 0)));
    // The call advances the clock.
    assert!(table.touch(handle, at(0)));
    assert_eq!(table.look(&[1, 1], 18 * STEP_NS), Some((handle, 8 * STEP_NS)));
    // A flow that has expired does not come back, even while its place was not cleared.
    assert!(!table.touch(handle, at(21 * STEP_NS)));
    assert_eq!(table.look(&[1, 1], 21 * STEP_NS), None);
    assert_eq!(table.expire(at(21 * STEP_NS), 100, |_, _| ()), 1);
    table.put([1, 1], 8, 21 * STEP_NS).unwrap();
    assert!(!table.touch(handle, at(21 * STEP_NS)));
}

#[test]
fn idle_times_change_for_flows_that_are_there() {
    let mut table = numbers(4, 10 * STEP_NS);
    let handle = table.put([1, 1], 7, 0).unwrap();
    let other = table.put([2, 2], 8, 0).unwrap();
    table.set_class(other, Class::new(1));
    let mut idle_ns = [10 * STEP_NS; CLASS_COUNT];
    idle_ns[0] = 3 * STEP_NS;
    table.set_idle_ns(idle_ns);
    let now_ns = 5 * STEP_NS;
    assert_eq!(table.look(&[1, 1], now_ns), None);
    assert_eq!(table.look(&[2, 2], now_ns), Some((other, 4 * STEP_NS)));
    idle_ns[0] = 20 * STEP_NS;
    table.set_idle_ns(idle_ns);
    let now_ns = 15 * STEP_NS;
    assert_eq!(table.look(&[1, 1], now_ns), Some((handle, 14 * STEP_NS)));
    assert_eq!(table.look(&[2, 2], now_ns), None);
    assert_eq!(table.expire(at(now_ns), 1_000, |key, _| assert_eq!(key, [2, 2])), 1);
}

#[test]
fn a_flow_can_begin_in_any_class() {
    let mut idle_ns = [2 * STEP_NS; CLASS_COUNT];
    idle_ns[3] = 20 * STEP_NS;
    let mut table: Numbers =
        Table::with_seed(arena(1 << 20), Config { idle_ns, ..Config::new(4, 0) }, 1).unwrap();
    /// Flows begin in this class, and all stay.
    struct In(Class, Option<u64>);
    impl Eviction<[u64; 2], u64> for In {
        fn class(&self, _: &u64) -> Class {
            self.0
        }
        fn rank(&mut self, _: &u64, _: Class, _: u64) -> Option<u8> {
            None
        }
        fn leaves(&mut self, _: [u64; 2], value: u64) {
            self.1 = Some(value);
        }
    }
    let class = Class::new(3);
    let handle = table.insert([1, 1], 7, at(0), &mut In(class, None)).unwrap();
    assert_eq!((table.class(handle), table[handle]), (Some(class), 7));
    assert_eq!(table.get(&[1, 1], 10 * STEP_NS), Some(handle));
    // If the flow is there already, its class stays.
    table.insert([1, 1], 8, at(11 * STEP_NS), &mut In(Class::new(1), None)).unwrap();
    assert_eq!((table.class(handle), table[handle]), (Some(Class::new(3)), 8));
    // If the flow has expired, it begins anew, and the old one is handed out.
    let mut eviction = In(Class::new(2), None);
    let anew = table.insert([1, 1], 9, at(40 * STEP_NS), &mut eviction).unwrap();
    assert_eq!((table.class(anew), eviction.1), (Some(Class::new(2)), Some(8)));
}

#[test]
fn an_earlier_time_counts_as_the_latest() {
    let mut table = numbers(4, 100);
    let handle = table.put([1, 1], 7, 5 * STEP_NS).unwrap();
    assert_eq!(table.get(&[1, 1], 5), Some(handle));
    assert_eq!(table.get(&[1, 1], 6 * STEP_NS), Some(handle));
    let other = table.put([2, 2], 8, 0).unwrap();
    assert_eq!(table.get(&[2, 2], 7 * STEP_NS), Some(other));
}

#[test]
fn no_end_of_time_expires_what_is_kept_for_ever() {
    let mut table = numbers(4, u64::MAX);
    table.put([1, 1], 7, 0).unwrap();
    for now_ns in [1 << 40, (1 << 56) - 1, 1 << 56, u64::MAX] {
        assert_eq!(table.expire(at(now_ns), 1_000, |_, _| unreachable!()), 0);
    }
    assert!(table.get(&[1, 1], u64::MAX).is_some());
}

#[test]
fn each_class_has_its_own_time() {
    let idle_ns = std::array::from_fn(|class| (class as u64 + 1) * 10 * STEP_NS);
    let config = Config { idle_ns, ..Config::new(100, 0) };
    let mut table: Numbers = Table::with_seed(arena(1 << 20), config, 1).unwrap();
    for class in 0..CLASS_COUNT {
        let handle = table.put([class as u64, 0], 0, 0).unwrap();
        assert_eq!(table.class(handle), Some(Class::new(0)));
        assert!(table.set_class(handle, Class::new(class)));
        assert_eq!(table.class(handle), Some(Class::new(class)));
    }
    for class in 0..CLASS_COUNT as u64 {
        let up_ns = (class + 1) * 10 * STEP_NS;
        assert_eq!(table.expire(at(up_ns), 1_000, |_, _| unreachable!()), 0);
        let expired =
            table.expire(at(up_ns + 2 * STEP_NS), 1_000, |key, _| assert_eq!(key[0], class));
        assert_eq!(expired, 1);
    }
    // A flow that comes back begins as every flow does.
    let handle = table.put([7, 0], 0, 0).unwrap();
    assert_eq!(table.class(handle), Some(Class::default()));
    table.remove(&[7, 0]);
    assert!(!table.set_class(handle, Class::new(3)));
    assert_eq!(table.class(handle), None);
}

#[test]
fn ageing_goes_round_in_small_steps() {
    let mut table = numbers(100, 10 * STEP_NS);
    for number in 0..100 {
        table.put([number, 0], number, number * STEP_NS).unwrap();
    }
    // At step 60 those last seen before step 50 have gone silent; seven places a call.
    let mut expired = Vec::new();
    for _ in 0..table.slot_count().div_ceil(7) {
        let before_count = expired.len();
        let count = table.expire(at(100 * STEP_NS), 7, |_, value| expired.push(value));
        assert_eq!(count, expired.len() - before_count);
        assert!(count <= 7);
    }
    expired.sort_unstable();
    assert!(expired.into_iter().eq(0..90));
    assert_eq!(table.len(), 10);
}

#[test]
fn one_call_of_age_visits_each_place_once() {
    let mut table = numbers(3, 0);
    for number in 0..3 {
        table.put([number, 0], number, 0).unwrap();
    }
    let mut expired = Vec::new();
    assert_eq!(table.expire(at(STEP_NS), usize::MAX, |key, _| expired.push(key[0])), 3);
    expired.sort_unstable();
    assert_eq!(expired, [0, 1, 2]);
    assert_eq!(table.expire(at(STEP_NS), usize::MAX, |_, _| unreachable!()), 0);
}

#[test]
fn a_scan_in_steps_shows_what_iter_shows() {
    let mut table = numbers(100, 10);
    for number in 0..70 {
        table.put([number, 0], number, 0).unwrap();
    }
    let whole: Vec<_> = table.iter().map(|(key, value)| (*key, *value)).collect();
    assert_eq!(whole.len(), 70);
    for budget in [1, 7, 15, 119, 120, usize::MAX] {
        let mut shown = Vec::new();
        let (mut cursor, mut step_count) = (Some(Cursor::default()), 0);
        while let Some(from) = cursor {
            let before_count = shown.len();
            cursor = table.scan(from, budget, |key, value| shown.push((*key, *value)));
            assert!(shown.len() - before_count <= budget);
            step_count += 1;
        }
        assert_eq!(shown, whole);
        // The places after the last flow may take another step.
        assert!(step_count - 70_usize.div_ceil(budget) <= 1, "{budget}: {step_count}");
    }
}

#[test]
fn a_scan_passes_over_empty_places_a_few_hundred_at_a_time() {
    let mut table = numbers(10_000, 10);
    let (slot_count, step_count) = (table.slot_count(), |table: &Numbers| {
        let (mut cursor, mut step_count) = (Some(Cursor::default()), 0);
        while let Some(from) = cursor {
            cursor = table.scan(from, 8, |_, _| ());
            step_count += 1;
        }
        step_count
    });
    assert_eq!(step_count(&table), slot_count.div_ceil(240));
    for number in 0..400 {
        table.put([number, 0], number, 0).unwrap();
    }
    assert!(step_count(&table) <= slot_count.div_ceil(240) + 400 / 8);
}

#[test]
fn a_scan_can_change_values_and_nobody_is_seen_by_it() {
    let mut table = numbers(100, 10);
    for number in 0..70 {
        table.put([number, 0], number, 0).unwrap();
    }
    let (mut cursor, mut shown_count) = (Some(Cursor::default()), 0);
    while let Some(from) = cursor {
        let before_count = shown_count;
        cursor = table.visit_places(at(3 * STEP_NS), from, 7, |key, value, silent_ns| {
            assert_eq!((key[0], silent_ns), (*value, 2 * STEP_NS));
            (*value, shown_count) = (*value + 1_000, shown_count + 1);
        });
        assert!(shown_count - before_count <= 7);
    }
    assert_eq!(shown_count, 70);
    assert!(table.iter().all(|(key, value)| key[0] + 1_000 == *value));
    assert_eq!(table.expire(at(12 * STEP_NS), usize::MAX, |_, _| ()), 70);
}

#[test]
fn find_leaves_flows_alone_that_have_been_silent_for_long() {
    let config = Config { recent_ns: 60_000_000_000, ..Config::new(100, 900_000_000_000) };
    let mut table: Numbers = Table::with_seed(arena(1 << 20), config, 1).unwrap();
    let hinted = |table: &mut Numbers, now_ns| {
        let seen_at = table.seen_at(at(now_ns));
        table.find_hinted(&[1, 1], Hint::NONE, seen_at).map(|(handle, value)| (handle, *value))
    };
    let mut now_ns = 77 * STEP_NS + STEP_NS / 2;
    let handle = table.put([1, 1], 7, now_ns).unwrap();
    // Found, whatever the step, 59.95 s after its last packet.
    for offset_ns in [0, STEP_NS / 3, STEP_NS - 1] {
        now_ns += 59_950_000_000 + offset_ns - 20_000_000;
        assert_eq!(hinted(&mut table, now_ns), Some((handle, 7)));
    }
    for late_ns in [60_000_000_000, 60_000_000_000 + STEP_NS / 2, 400_000_000_000] {
        let seen_ns = now_ns;
        now_ns += late_ns;
        for _ in 0..2 {
            assert_eq!(hinted(&mut table, now_ns), None);
        }
        let (again, silent_ns) = table.look(&[1, 1], now_ns).unwrap();
        assert_eq!((again, table[again]), (handle, 7));
        let exact_ns = now_ns - seen_ns;
        assert!((silent_ns..silent_ns + 2 * STEP_NS).contains(&exact_ns), "{silent_ns}");
        // `find` finds it, and then it was seen.
        assert_eq!(table.find(&[1, 1], Hint::NONE, at(now_ns)), Some((handle, &7)));
        assert_eq!(table.look(&[1, 1], now_ns), Some((handle, 0)));
        assert_eq!(hinted(&mut table, now_ns), Some((handle, 7)));
    }
    // The same with other idle timeouts, and expired flows stay expired.
    table.set_idle_ns([30_000_000_000; CLASS_COUNT]);
    assert_eq!(table.look(&[1, 1], now_ns + 31_000_000_000), None);
    table.set_idle_ns([90_000_000_000; CLASS_COUNT]);
    assert_eq!(hinted(&mut table, now_ns + 70_000_000_000), None);
    assert!(table.look(&[1, 1], now_ns + 70_000_000_000).is_some());
}

#[test]
fn a_burst_of_new_flows_with_one_key_twice_is_one_flow() {
    let mut table = numbers(100, 10);
    let flows = [([1, 0], 1), ([2, 0], 2), ([1, 0], 3)];
    let mut hints = Hints::new();
    table.hint_burst(flows.map(|(key, _)| key), &mut hints);
    let placed: Vec<_> = flows
        .into_iter()
        .enumerate()
        .map(|(index, (key, value))| match table.find(&key, hints.at(index), at(0)) {
            Some((handle, before)) => {
                assert_eq!(*before, 1);
                table[handle] = value;
                handle
            }
            None => table.put(key, value, 0).unwrap(),
        })
        .collect();
    assert_eq!(placed[0], placed[2]);
    assert_ne!(placed[0], placed[1]);
    assert_eq!((table[placed[0]], table[placed[1]], table.len()), (3, 2, 2));
}

#[test]
fn only_backends_of_this_processor_are_there() {
    for backend in Backend::ALL {
        let made = Numbers::with_backend(arena(1 << 16), Config::new(10, 1), 1, backend);
        match made {
            Ok(table) => assert_eq!((table.backend(), backend.is_available()), (backend, true)),
            Err(error) => {
                assert_eq!(error, FlowError::NoBackend { backend });
                assert!(!backend.is_available());
            }
        }
    }
    assert!(Backend::Scalar.is_available() && Backend::best().is_available());
    let table = Numbers::new(arena(1 << 16), Config::new(10, 1)).unwrap();
    assert_eq!((table.backend(), table.stats()), (Backend::best(), Stats::default()));
}

#[test]
#[should_panic(expected = "has left the table")]
fn reading_through_a_stale_handle_is_a_mistake() {
    let mut table = numbers(8, 10);
    let handle = table.put([1, 0], 1, 0).unwrap();
    table.remove(&[1, 0]);
    table.put([2, 0], 2, 0).unwrap();
    let _ = table[handle];
}

#[test]
#[should_panic(expected = "has left the table")]
fn writing_through_a_stale_handle_is_a_mistake() {
    let mut table = numbers(8, 10);
    let handle = table.put([1, 0], 1, 0).unwrap();
    table.remove(&[1, 0]);
    table[handle] = 3;
}

#[test]
fn a_handle_of_a_larger_table_is_stale_in_a_smaller_one() {
    let mut large = numbers(100, 10);
    let handles: Vec<_> = (0..100).map(|key| large.put([key, 0], key, 0).unwrap()).collect();
    let small = numbers(1, 10);
    assert!(handles.into_iter().all(|handle| small.value(handle).is_none()));
}

#[test]
fn flows_of_both_families_share_a_table() {
    let mut table = Table::new(arena(1 << 20), Config::new(8, 10)).unwrap();
    let v4 = FlowKeyV4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1_000, 80, 6);
    let v6 = FlowKeyV6::new([1; 16].into(), [2; 16].into(), 1_000, 80, 6);
    let keys = [FlowKey::V4(v4), FlowKey::V4(v4.reversed()), FlowKey::V6(v6)];
    for (number, key) in keys.into_iter().enumerate() {
        table.put(key, number, 0).unwrap();
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(table.find(key, Hint::NONE, at(0)).map(|found| *found.1), Some(number));
    }
}
