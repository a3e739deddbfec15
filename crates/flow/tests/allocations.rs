//! A table allocates no memory after it was made.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hotloop_arena::Arena;
use hotloop_flow::{
    Class, Classes, Config, Cursor, Full, Handle, Hint, Hints, Key, Refused, STEP_NS, Table,
};
use plainly::{Plainly, at};

mod plainly;

/// The system's allocator, counting each thread's requests.
struct Counting;

thread_local! {
    static CALL_COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: 1. Every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALL_COUNT.set(CALL_COUNT.get() + 1);
        // SAFETY: 1. The caller fulfils this function's contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        CALL_COUNT.set(CALL_COUNT.get() + 1);
        // SAFETY: 1. The caller fulfils this function's contract, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_after_new() {
    for full in [Full::Refuse, Full::Evict(Classes::ALL)] {
        let arena = Arena::on(None).unwrap();
        let config = Config { full, ..Config::new(1_000, 50 * STEP_NS) };
        let mut table = Table::new(arena.clone(), config).unwrap();
        let (used_bytes, call_count) = (arena.used_bytes(), CALL_COUNT.get());
        assert!(call_count > 0, "the arena itself is counted");
        run(&mut table);
        assert_eq!((arena.used_bytes(), CALL_COUNT.get()), (used_bytes, call_count));
        let stats = table.stats();
        assert!(stats.expired_count > 0 && stats.removed_count > 0, "{stats:?}");
        assert_eq!(stats.refused_count > 0, full == Full::Refuse, "{stats:?}");
        assert_eq!(stats.evicted_count > 0, full != Full::Refuse, "{stats:?}");
        assert_eq!(stats.len_max, 1_000);
    }
}

/// A table that does not fit the cache, so that hints are made. With one seed in a thousand, it
/// would refuse one of the flows.
#[test]
fn nothing_is_allocated_for_hints() {
    let config = Config::new(20_000, u64::MAX);
    let mut table = Table::with_seed(Arena::on(None).unwrap(), config, 1).unwrap();
    for number in 0..20_000 {
        table.put([number, 1], number, 0).unwrap();
    }
    let mut hints = Hints::new();
    let (call_count, mut sum) = (CALL_COUNT.get(), 0);
    for number in 0..30_000 {
        let keys = (number..number + 64).map(|number| [number, 1]);
        table.hint_burst(keys.clone(), &mut hints);
        for (index, key) in keys.enumerate() {
            sum += table.find(&key, hints.at(index), at(number)).map_or(0, |(_, value)| *value);
        }
    }
    assert_eq!(CALL_COUNT.get(), call_count);
    assert!(sum > 0 && (0..64).any(|index| hints.at(index).is_absent()), "hints were made");
}

/// All operations, on a table that fills, is full, and empties again.
fn run(table: &mut Table<[u64; 2], u64>) {
    let mut hints = Hints::new();
    let mut cursor = Cursor::default();
    let mut sum = 0;
    for number in 0..20_000 {
        let now_ns = number * STEP_NS / 10;
        let key = [number % 3_000, 1];
        if let Ok(handle) = table.put(key, number, now_ns) {
            table.set_class(handle, Class::new(1));
            table[handle] += 1;
        }
        if let Err(vacancy) = table.peek(&[number % 7, 2], Hint::NONE, at(now_ns)) {
            let _ = table.insert(vacancy, 0, at(now_ns), &mut |_, value| sum += value);
        }
        let keys = (0..64).map(|back| [number.saturating_sub(back), 1]);
        table.hint_burst(keys.clone(), &mut hints);
        for (index, key) in keys.enumerate() {
            sum += table.find(&key, hints.at(index), at(now_ns)).map_or(0, |(_, value)| *value);
        }
        let ranked = &mut (|value: &u64, _: Class, _: u64| Some((value % 2) as u8), |_, _| ());
        for more in 0..number % 64 {
            let key = [number % 3_000 + more, 3];
            table.prefetch_insert(&key, &mut hints, more as usize);
            let _ = table.insert(key, more, at(now_ns), ranked);
        }
        table.remove(&[number % 11, 2]);
        table.expire(at(now_ns), if number % 10_000 < 5_000 { 0 } else { 16 }, |_, _| ());
        cursor = table.scan(cursor, 15, |_, value| sum += value).unwrap_or_default();
    }
    assert!(sum > 0);
}
