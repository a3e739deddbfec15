//! The number of lines that one operation touches, whatever is in the table.

use super::{Chosen, Plainly, Random, at, check, table};
use crate::group::{GROUP_SLOTS, Lanes, Native};
use crate::lines;
use crate::{Class, Classes, Config, Full, Hint, Hints, LINES_MAX, STEP_NS, Table};

/// 16 bytes of key, 40 of value, 8 of the table's own: one line.
type Value = [u64; 5];

const EVICT: Full = Full::Evict(Classes::of(&[Class::new(0)]));

/// A hash; others like it share its first and second group, tag and order of slots.
const HASH: u64 = 0x8000_0080_4000_0000;

/// Runs an operation, checks the number of lines that it touches, and returns its result.
fn bounded<R>(what: &str, operation: impl FnOnce() -> R) -> R {
    let (count, result) = lines::count(operation);
    assert!(count <= LINES_MAX, "{what} touched {count} lines");
    result
}

#[test]
fn an_entry_of_a_line_is_a_line() {
    assert_eq!(size_of::<crate::entry::Entry<Chosen, Value>>(), 64);
    assert_eq!(size_of::<crate::entry::Entry<[u64; 5], [u64; 2]>>(), 64);
    assert_eq!(size_of::<crate::entry::Entry<[u64; 2], [u64; 6]>>(), 128);
    assert_eq!(LINES_MAX, 34);
}

/// Both groups of a key are full of flows with its tag, and the key isn't there: the worst case.
#[test]
fn thirty_flows_of_one_tag() {
    for full in [Full::Refuse, EVICT, Full::Evict(Classes::NONE)] {
        let mut table: Table<Chosen, Value> = table(Config { full, ..Config::new(1_000, 0) });
        let key = |number| Chosen { number, hash: HASH };
        for number in 0..2 * GROUP_SLOTS as u32 {
            bounded("insert", || table.put(key(number), [0; 5], 0)).unwrap();
        }
        check(&table);
        assert_eq!(table.stats().overflow_len, GROUP_SLOTS);
        for number in 0..40 {
            bounded("get", || table.get(&key(number), 0));
            let inserted = bounded("insert", || table.put(key(100 + number), [0; 5], 0));
            assert_eq!(inserted.is_ok(), full == EVICT, "one of their own may leave");
        }
        let count = lines::count(|| table.get(&key(1_000), 0)).0;
        assert_eq!(
            count,
            LINES_MAX - 2,
            "the worst case of all that needs no eviction state is met"
        );
        // When all are expired, one of them leaves if any may.
        let late_ns = 3 * STEP_NS;
        let inserted = bounded("insert", || table.put(key(2_000), [0; 5], late_ns));
        assert_eq!(inserted.is_ok(), full != Full::Refuse);
        let mut hints = Hints::new();
        for is_cached in [true, false] {
            table.is_cached = is_cached;
            let (count, ()) = lines::count(|| table.hint_burst((0..64).map(key), &mut hints));
            assert!(count <= 2, "control groups alone");
        }
        for number in 0..64 {
            bounded("find", || {
                table.find(&key(number), hints.at(number as usize), at(late_ns)).is_some()
            });
        }
        for number in 0..3_000 {
            bounded("remove", || table.remove(&key(number)));
        }
        assert!(table.is_empty());
        check(&table);
    }
}

/// Full groups with flows that have their other groups all over the table, in tables so full that
/// many moves are tried.
#[test]
fn random_flows_in_a_table_without_room() {
    let mut random = Random::new();
    let count = if cfg!(debug_assertions) { 20_000 } else { 300_000 };
    for full in [Full::Refuse, EVICT, Full::Evict(Classes::ALL)] {
        let config = Config { full, ..Config::new(3_000, 10 * STEP_NS) };
        let mut table: Table<Chosen, Value> = table(config);
        // More than the capacity allows: every slot.
        table.capacity = table.slot_count();
        let mut now_ns = 0;
        for number in 0..count {
            now_ns += random.below(STEP_NS / 200);
            // Few tags: many entries are compared.
            let hash = random.next() & !(0x3f << 32);
            let key = Chosen { number, hash };
            if let Ok(handle) = bounded("insert", || table.put(key, [0; 5], now_ns)) {
                let class = Class::new(random.below(3) as usize);
                bounded("set_class", || table.set_class(handle, class));
            }
            bounded("get", || table.get(&key, now_ns));
            let other = Chosen { number: number + count, hash: random.next() };
            let now = at(now_ns);
            if let Err(vacancy) = bounded("peek", || table.peek(&other, Hint::NONE, now)) {
                let ranks = |_: &Value, class: Class, _: u64| Some(class.index() as u8);
                let _ = bounded("insert with ranks", || {
                    table.insert(vacancy, [0; 5], now, &mut (ranks, |_, _| ()))
                });
            }
            if number % 7 == 0 {
                bounded("remove", || table.remove(&key));
            }
            let (line_count, _) = lines::count(|| table.expire(at(now_ns), 1, |_, _| ()));
            assert!(
                line_count <= 4,
                "entry, control, eviction state, and the control of its first group"
            );
        }
        check(&table);
        let stats = table.stats();
        assert!(stats.moved_count > 0 && stats.expired_count > 0, "{stats:?}");
        assert_eq!(stats.evicted_count > 0, full != Full::Refuse, "{stats:?}");
    }
}

/// A count that no longer goes down makes lookups longer, and loses nothing.
#[test]
fn a_stuck_overflow_count_is_safe() {
    let mut table: Table<Chosen, Value> = table(Config::new(1_000, u64::MAX));
    let key = |number| Chosen { number, hash: HASH };
    let first = table.store.view().first(table.store.view().hash(&key(0)));
    table.store.raise_overflow(first, 255);
    assert_eq!(table.store.view().group(first).overflow(), 255);
    for round in 0..20 {
        for number in 0..2 * GROUP_SLOTS as u32 {
            table.put(key(number), [round; 5], 0).unwrap();
        }
        check(&table);
        for number in 0..2 * GROUP_SLOTS as u32 {
            assert_eq!(table.remove(&key(number)), Some([round; 5]));
        }
        check(&table);
        assert_eq!(table.store.view().group(first).overflow(), 255);
        assert!(Native::occupied(table.store.view().group(first)).is_empty());
    }
}
