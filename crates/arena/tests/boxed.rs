//! Owned slices in an arena.

use std::mem::{self, MaybeUninit};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use allocator_api2::vec::Vec as ArenaVec;
use hotloop_arena::{Arena, ArenaBox, ArenaError, Pages, Request};
use proptest::prelude::*;
use zerocopy::FromZeros;

fn small(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

static DROPPED_COUNT: AtomicUsize = AtomicUsize::new(0);

#[derive(FromZeros)]
struct Counted(u64);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED_COUNT.fetch_add(1 + self.0 as usize, Ordering::Relaxed);
    }
}

#[derive(FromZeros)]
#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn used_memory_is_zero_again() {
    let arena = small(8192);
    let mut first = arena.boxed_zeroed::<u64>(1024).unwrap();
    assert!(first.iter().all(|&word| word == 0));
    first.fill(u64::MAX);
    let addr = first.as_ptr().addr();
    drop(first);
    assert_eq!(arena.used_bytes(), 0);
    let again = arena.boxed_zeroed::<u64>(1024).unwrap();
    assert_eq!(again.as_ptr().addr(), addr);
    assert!(again.iter().all(|&word| word == 0));
}

#[test]
fn elements_are_dropped_once() {
    let arena = small(4096);
    let mut counted = arena.boxed_zeroed::<Counted>(10).unwrap();
    counted[3].0 = 100;
    drop(arena);
    drop(counted);
    assert_eq!(DROPPED_COUNT.load(Ordering::Relaxed), 110);
}

#[test]
fn what_holds_nothing_is_filled_in_place() {
    let arena = small(4096);
    let mut room: ArenaBox<[MaybeUninit<Rc<u32>>]> = arena.boxed_uninit(5).unwrap();
    let shared = Rc::new(7);
    for slot in room.iter_mut() {
        slot.write(shared.clone());
    }
    // SAFETY: 1. Each of the elements was written above.
    let filled: ArenaBox<[Rc<u32>]> = unsafe { room.assume_init() };
    assert_eq!((filled.len(), Rc::strong_count(&shared)), (5, 6));
    assert_eq!(format!("{:?}", &filled[..2]), "[7, 7]");
    drop(filled);
    assert_eq!((Rc::strong_count(&shared), arena.used_bytes()), (1, 0));
}

#[test]
fn it_goes_where_its_elements_may_go() {
    fn moves<T: Send + Sync + 'static>(_: &T) {}
    let arena = small(4096);
    let mut slice = arena.boxed_zeroed::<u32>(100).unwrap();
    drop(arena);
    moves(&slice);
    let slice = thread::spawn(move || {
        slice[99] = 5;
        slice
    });
    assert_eq!(slice.join().unwrap().iter().sum::<u32>(), 5);
}

#[test]
fn what_has_no_room_says_how_much_there_is() {
    let arena = small(8192);
    let _held = arena.boxed_zeroed::<u8>(100).unwrap();
    let free_bytes_max = 8192 - 128;
    let no_room = |needed_bytes| ArenaError::NoRoom { needed_bytes, free_bytes_max };
    assert_eq!(arena.free_bytes_max(), free_bytes_max);
    assert_eq!(arena.boxed_zeroed::<u64>(1_009).unwrap_err(), no_room(8_128));
    assert_eq!(arena.boxed_uninit::<u64>(1_009).unwrap_err(), no_room(8_128));
    assert_eq!(arena.boxed_zeroed::<u64>(usize::MAX).unwrap_err(), no_room(usize::MAX));
    assert_eq!(arena.boxed_zeroed::<Page>(2).map(drop), Err(no_room(8192 + 4096 - 64)));
    let message = arena.boxed_uninit::<u64>(1_009).unwrap_err().to_string();
    assert_eq!(
        message,
        "no room for 8128 bytes in the arena, whose largest free piece has 8064: ask for a larger \
         arena (Request::bytes), or drop what it holds first"
    );
    assert_eq!(arena.boxed_zeroed::<u64>(1_008).unwrap().len(), 1_008);
}

#[test]
fn alignment_is_kept_and_nothing_takes_no_room() {
    let arena = small(16 << 10);
    let pages = arena.boxed_zeroed::<Page>(2).unwrap();
    assert_eq!(pages.as_ptr().addr() % 4096, 0);
    assert!(pages.iter().all(|page| page.0 == [0; 4096]));
    assert_eq!(arena.used_bytes(), 8192);
    let (none, nothings) =
        (arena.boxed_zeroed::<u64>(0).unwrap(), arena.boxed_zeroed::<()>(1_000).unwrap());
    assert_eq!((none.len(), nothings.len(), arena.used_bytes()), (0, 1_000, 8192));
}

#[test]
fn a_vector_becomes_one_where_it_lies() {
    let arena = small(4096);
    let mut numbers = ArenaVec::new_in(arena.clone());
    numbers.try_reserve_exact(100).unwrap();
    numbers.extend(0..100_u32);
    let addr = numbers.as_ptr().addr();
    let slice: ArenaBox<[u32]> = numbers.into_boxed_slice();
    assert_eq!((slice.as_ptr().addr(), slice[99]), (addr, 99));
}

#[test]
fn a_forgotten_one_keeps_its_memory() {
    // Keeps the memory of the forgotten handles reachable, so that leak checkers do not report it.
    static REGION: OnceLock<Arena> = OnceLock::new();
    let arena = REGION.get_or_init(|| small(4096));
    let leaked: &'static mut [u32] = ArenaBox::leak(arena.boxed_zeroed(16).unwrap());
    mem::forget(arena.boxed_zeroed::<u32>(16).unwrap());
    assert_eq!(arena.used_bytes(), 128);
    leaked[15] = 3;
    let mut others = arena.boxed_zeroed::<u32>(arena.free_bytes_max() / 4).unwrap();
    others.fill(9);
    assert_eq!(leaked.iter().sum::<u32>(), 3);
}

proptest! {
    #[test]
    fn slices_never_overlap(
        ops in prop::collection::vec((any::<bool>(), 0..700_usize, any::<prop::sample::Index>()), 0..120),
    ) {
        let arena = small(16 << 10);
        let mut held: Vec<(ArenaBox<[u32]>, u32)> = Vec::new();
        for (mark, (takes, count, which)) in (1_u32..).zip(ops) {
            if takes {
                if let Ok(mut slice) = arena.boxed_zeroed::<u32>(count) {
                    prop_assert!(slice.iter().all(|&word| word == 0));
                    slice.fill(mark);
                    held.push((slice, mark));
                }
            } else if !held.is_empty() {
                held.swap_remove(which.index(held.len()));
            }
            prop_assert!(held.iter().all(|(slice, mark)| slice.iter().all(|word| word == mark)));
        }
        drop(held);
        prop_assert_eq!((arena.used_bytes(), arena.free_bytes_max()), (0, 16 << 10));
    }
}
