//! A table takes no memory after it was made.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hotloop_arena::Arena;
use hotloop_flow::{Config, Table};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static CALL_COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: 1. Every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALL_COUNT.set(CALL_COUNT.get() + 1);
        // SAFETY: 1. The caller keeps this function's contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        CALL_COUNT.set(CALL_COUNT.get() + 1);
        // SAFETY: 1. The caller keeps this function's contract, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_after_new() {
    let arena = Arena::on(None).unwrap();
    let config = Config { capacity: 1_000, idle_ns: 500 };
    let mut table = Table::new(arena.clone(), config).unwrap();
    let (used_bytes, call_count) = (arena.used_bytes(), CALL_COUNT.get());
    assert!(call_count > 0, "the arena itself is counted");

    let mut found = [None; 64];
    for now_ns in 0..20_000_u64 {
        let key = [now_ns % 3_000, 1];
        let _ = table.insert(key, now_ns, now_ns);
        let _ = table.get_or_insert_with([now_ns % 7, 2], now_ns, || 0);
        table.lookup_burst(
            (0..64).map(|back| [now_ns.saturating_sub(back), 1]),
            now_ns,
            &mut found,
        );
        table.remove(&[now_ns % 11, 2]);
        table.age(now_ns, if now_ns % 10_000 < 5_000 { 0 } else { 16 }, |_, _| ());
    }
    assert_eq!((arena.used_bytes(), CALL_COUNT.get()), (used_bytes, call_count));
    let stats = table.stats();
    assert!(stats.expired_count > 0 && stats.refused_count > 0 && stats.removed_count > 0);
    assert_eq!(stats.len_max, 1_000);
}
