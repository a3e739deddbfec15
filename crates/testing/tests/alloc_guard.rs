//! The allocation guard, installed.

use hotloop_testing::{AllocCounts, AllocGuard};
use std::hint::black_box;

#[global_allocator]
static GUARD: AllocGuard = AllocGuard;

#[test]
fn an_allocation_and_its_release_are_counted() {
    let armed = AllocGuard::arm();
    let mut numbers: Vec<u64> = black_box(Vec::with_capacity(4));
    assert_eq!(armed.counts(), AllocCounts { allocated: 1, freed: 0, allocated_bytes: 32 });
    numbers.reserve_exact(8);
    assert_eq!(armed.counts(), AllocCounts { allocated: 2, freed: 0, allocated_bytes: 96 });
    drop(black_box(numbers));
    assert_eq!(armed.counts(), AllocCounts { allocated: 2, freed: 1, allocated_bytes: 96 });
    drop(black_box(vec![0_u8; 10]));
    assert_eq!(armed.counts(), AllocCounts { allocated: 3, freed: 2, allocated_bytes: 106 });
}

#[test]
fn work_in_place_counts_nothing() {
    let mut numbers = [3, 1, 2];
    let armed = AllocGuard::arm();
    black_box(&mut numbers).sort_unstable();
    assert!(armed.counts().is_zero());
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn threads_are_counted_apart() {
    let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let idle = scope.spawn(|| {
            let armed = AllocGuard::arm();
            ready.wait();
            go.wait();
            armed.counts()
        });
        ready.wait();
        let armed = AllocGuard::arm();
        drop(black_box(vec![1_u8; 100]));
        let busy = armed.counts();
        go.wait();
        assert_eq!(busy.allocated, 1);
        assert!(idle.join().unwrap().is_zero());
    });
}

/// A panic that left the allocator would be undefined behaviour (`GlobalAlloc`, "Safety").
#[test]
fn counts_that_overflow_start_again_and_nothing_unwinds() {
    let armed = AllocGuard::arm();
    let max = isize::MAX as usize;
    for _ in 0..3 {
        let asked = std::panic::catch_unwind(|| {
            black_box(Vec::<u8>::new()).try_reserve_exact(max).unwrap_err()
        });
        assert!(asked.is_ok(), "it unwound out of the allocator");
    }
    let expected = 3_u64.wrapping_mul(max as u64);
    assert_eq!(armed.counts(), AllocCounts { allocated: 3, freed: 0, allocated_bytes: expected });
}
