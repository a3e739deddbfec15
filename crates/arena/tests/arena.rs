//! Arenas from the outside: allocation, collections in them, and errors.

use std::alloc::Layout;
use std::hash::RandomState;
use std::ptr::NonNull;
use std::thread;

use allocator_api2::vec::Vec as ArenaVec;
use hashbrown::HashMap;
use hotloop_arena::{Allocator, Arena, ArenaError, Pages, Refusal, Request};
use proptest::prelude::*;

const MIB: usize = 1 << 20;

fn small(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

/// Writes and reads back every byte.
fn fill(arena: &Arena) {
    let bytes = arena.free_bytes_max();
    let mut memory = ArenaVec::with_capacity_in(bytes, arena.clone());
    memory.extend((0..bytes).map(|index| index as u8));
    assert!(memory.iter().enumerate().all(|(index, &byte)| byte == index as u8));
    assert_eq!(arena.free_bytes_max(), 0);
}

#[test]
fn every_kind_of_pages_says_what_it_is() {
    for (pages, unit_bytes) in
        [(Pages::Huge, 2 * MIB), (Pages::Transparent, 2 * MIB), (Pages::Small, 4096)]
    {
        for prefault in [true, false] {
            let wanted = Request { pages: vec![pages], prefault, ..Request::new(3 * MIB + 1) };
            let (arena, obtained) = match Arena::new(wanted) {
                Ok(made) => made,
                Err(ArenaError::NoMemory { tried, .. }) => {
                    println!("skipped: no {pages} here ({})", tried[0].1);
                    assert_ne!(pages, Pages::Small);
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert_eq!(obtained.pages, pages);
            assert_eq!(obtained.bytes, (3 * MIB + 1).next_multiple_of(unit_bytes));
            assert_eq!((arena.bytes(), arena.used_bytes()), (obtained.bytes, 0));
            if pages != Pages::Small {
                assert!(obtained.huge_bytes.is_none_or(|bytes| bytes >= 2 * MIB));
            }
            fill(&arena);
            assert_eq!(arena.used_bytes(), 0);
        }
    }
}

#[test]
fn the_first_pages_that_can_be_had_are_taken() {
    // More than any pool of huge pages holds, and never populated.
    let bytes = 1 << 40;
    let pages = vec![Pages::Huge, Pages::Small];
    let (arena, obtained) =
        Arena::new(Request { pages, prefault: false, ..Request::new(bytes) }).unwrap();
    assert_eq!((obtained.pages, arena.bytes()), (Pages::Small, bytes));
}

#[test]
fn any_request_of_the_default_kind_is_served() {
    let (arena, obtained) = Arena::new(Request::new(100)).unwrap();
    assert!(obtained.bytes >= 4096);
    fill(&arena);
}

#[test]
fn a_core_gets_an_arena() {
    for node in [None, Some(0)] {
        let arena = Arena::on(node).unwrap();
        assert_eq!(arena.bytes(), 1 << 30);
        let mut numbers = ArenaVec::new_in(arena.clone());
        numbers.extend(0..100_000_u32);
        assert_eq!(numbers.iter().map(|&number| u64::from(number)).sum::<u64>(), 4_999_950_000);
    }
}

#[test]
fn the_node_is_reported_where_the_kernel_reports_it() {
    let (_arena, obtained) =
        Arena::new(Request { node: Some(0), ..Request::new(2 * MIB) }).unwrap();
    assert!(matches!(obtained.node, None | Some(0)));
}

#[test]
fn allocations_are_aligned_and_given_back() {
    let arena = small(MIB);
    for align_bits in 0..=16 {
        let layout = Layout::from_size_align(100, 1 << align_bits).unwrap();
        let block = arena.allocate(layout).unwrap();
        assert_eq!(block.len(), 128);
        assert_eq!(block.addr().get() % layout.align().max(64), 0);
        assert_eq!(arena.used_bytes(), 128);
        // SAFETY: 1. `block` was just allocated with this layout.
        unsafe { arena.deallocate(block.cast(), layout) };
        assert_eq!((arena.used_bytes(), arena.free_bytes_max()), (0, MIB));
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let arena = small(4096);
    for (bytes, align) in [(4097, 1), (1, 1 << 40), (isize::MAX as usize, 1)] {
        assert!(arena.allocate(Layout::from_size_align(bytes, align).unwrap()).is_err());
    }
    let mut bytes = ArenaVec::<u8, _>::new_in(arena.clone());
    assert!(bytes.try_reserve_exact(4097).is_err());
    assert!(bytes.try_reserve_exact(4096).is_ok());
    assert!(arena.allocate(Layout::new::<u8>()).is_err());
}

#[test]
fn nothing_takes_no_room() {
    let arena = small(4096);
    let layout = Layout::from_size_align(0, 1024).unwrap();
    let block = arena.allocate(layout).unwrap();
    assert_eq!((block.len(), block.addr().get() % 1024, arena.used_bytes()), (0, 0, 0));
    // SAFETY: 1. `block` was just allocated with this layout.
    unsafe { arena.deallocate(block.cast(), layout) };
    assert_eq!(arena.free_bytes_max(), 4096);
}

#[test]
fn memory_outlives_the_handle_it_came_from() {
    let mut numbers = ArenaVec::new_in(small(MIB));
    numbers.extend(0..1_000);
    let sum = thread::spawn(move || numbers.iter().sum::<u32>()).join().unwrap();
    assert_eq!(sum, 499_500);
}

#[test]
fn threads_share_an_arena() {
    let arena = small(4 * MIB);
    thread::scope(|scope| {
        for seed in 0..4_usize {
            let arena = arena.clone();
            scope.spawn(move || {
                for round in 0..200 {
                    let count = 1 + (seed * 7919 + round * 104_729) % 4_000;
                    let mut numbers = ArenaVec::with_capacity_in(count, arena.clone());
                    numbers.resize(count, seed);
                    assert!(numbers.iter().all(|&number| number == seed));
                }
            });
        }
    });
    assert_eq!((arena.used_bytes(), arena.free_bytes_max()), (0, 4 * MIB));
}

#[test]
fn a_bad_request_says_what_to_do() {
    let error = |request| Arena::new(request).map(|(_, obtained)| obtained).unwrap_err();
    assert_eq!(error(Request::new(0)), ArenaError::Empty);
    assert_eq!(error(Request { pages: vec![], ..Request::new(1) }), ArenaError::NoPages);
    assert_eq!(error(Request::new(usize::MAX)), ArenaError::TooLarge { bytes: usize::MAX });

    let no_node = error(Request { node: Some(4_000), ..Request::new(1) });
    assert!(matches!(no_node, ArenaError::NoSuchNode { node: 4_000, .. }));
    assert!(no_node.to_string().contains("NUMA node 4000; online are: "), "{no_node}");
    assert_eq!(Arena::on(Some(4_000)).unwrap_err(), no_node);

    let bytes = 1 << 60;
    let no_memory = error(Request { pages: vec![Pages::Small], ..Request::new(bytes) });
    let tried = vec![(Pages::Small, Refusal::Kernel(rustix::io::Errno::NOMEM))];
    assert_eq!(no_memory, ArenaError::NoMemory { bytes, tried });
    let message = no_memory.to_string();
    assert!(message.contains("no arena of 1152921504606846976 bytes: 4 KiB pages: "), "{message}");
    assert!(message.contains("ask for less, or raise the limits"), "{message}");
}

/// A block, its requested layout, and the byte that fills it.
struct Held {
    block: NonNull<[u8]>,
    layout: Layout,
    mark: u8,
}

impl Held {
    fn is_intact(&self) -> bool {
        // SAFETY: 1. The block is allocated, and `take` wrote all of it.
        unsafe { self.block.as_ref() }.iter().all(|&byte| byte == self.mark)
    }
}

fn take(arena: &Arena, layout: Layout, mark: u8) -> Option<Held> {
    let mut block = arena.allocate(layout).ok()?;
    // SAFETY: 1. The block was just allocated, and bytes of any value are valid: the kernel's
    // zeroes or whatever was written before.
    unsafe { block.as_mut() }.fill(mark);
    Some(Held { block, layout, mark })
}

proptest! {
    #[test]
    fn blocks_never_overlap(
        ops in prop::collection::vec((any::<bool>(), 0..3_000_usize, 0..10_u32, any::<prop::sample::Index>()), 0..150),
    ) {
        let arena = small(32 << 10);
        let mut held: Vec<Held> = Vec::new();
        for (mark, (takes, bytes, align_bits, which)) in ops.into_iter().enumerate() {
            if takes {
                let layout = Layout::from_size_align(bytes, 1 << align_bits).unwrap();
                held.extend(take(&arena, layout, mark as u8));
            } else if !held.is_empty() {
                let freed = held.swap_remove(which.index(held.len()));
                prop_assert!(freed.is_intact());
                // SAFETY: 1. The block was allocated with this layout and is freed once.
                unsafe { arena.deallocate(freed.block.cast(), freed.layout) };
            }
            prop_assert!(held.iter().all(Held::is_intact));
            let used_bytes: usize = held.iter().map(|held| held.block.len()).sum();
            prop_assert_eq!(arena.used_bytes(), used_bytes);
        }
    }

    #[test]
    fn a_hash_map_lives_in_it(ops in prop::collection::vec((any::<bool>(), any::<u8>(), any::<u64>()), 0..500)) {
        let arena = small(64 << 10);
        let mut map = HashMap::with_hasher_in(RandomState::new(), arena.clone());
        let mut oracle = std::collections::HashMap::new();
        for (inserts, key, value) in ops {
            if inserts {
                prop_assert_eq!(map.insert(key, value), oracle.insert(key, value));
            } else {
                prop_assert_eq!(map.remove(&key), oracle.remove(&key));
            }
        }
        prop_assert_eq!(map.len(), oracle.len());
        prop_assert!(oracle.iter().all(|(key, value)| map.get(key) == Some(value)));
        prop_assert!(map.is_empty() || arena.used_bytes() >= map.len() * size_of::<(u8, u64)>());
        drop(map);
        prop_assert_eq!(arena.used_bytes(), 0);
    }
}
