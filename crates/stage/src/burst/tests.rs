use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[test]
fn items_leave_in_the_order_in_which_they_came() {
    let mut burst = Burst::new();
    burst.extend(0..64);
    assert!(burst.is_full());
    assert_eq!(burst.as_slice(), (0..64).collect::<Vec<_>>());
    for expected in 0..40 {
        assert_eq!(burst.pop(), Some(expected));
    }
    burst.extend(64..104);
    assert_eq!(burst.len(), 64);
    for expected in 40..104 {
        assert_eq!(burst.pop(), Some(expected));
    }
    assert_eq!(burst.pop(), None);
}

#[test]
#[should_panic = "a burst holds no more than 64 items"]
fn a_65th_item_panics() {
    Burst::new().extend(0..65);
}

#[test]
fn each_item_is_dropped_once() {
    let item = Rc::new(());
    let mut burst = Burst::new();
    for _ in 0..64 {
        burst.push(Rc::clone(&item));
    }
    for _ in 0..10 {
        burst.pop();
    }
    assert_eq!(Rc::strong_count(&item), 55);
    assert_eq!(burst.spare_mut().len(), 10);
    burst.push(Rc::clone(&item));
    drop(burst);
    assert_eq!(Rc::strong_count(&item), 1);
}

/// Counts its drops, and panics in one of them.
struct Fragile<'a>(&'a AtomicUsize);

impl Drop for Fragile<'_> {
    fn drop(&mut self) {
        assert!(self.0.fetch_add(1, Relaxed) != 2, "a planted panic");
    }
}

impl Carries for Fragile<'_> {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

#[test]
fn a_panic_in_an_items_drop_loses_no_other() {
    let drops = AtomicUsize::new(0);
    let filled = || {
        let mut burst = Burst::new();
        burst.extend((0..12).map(|_| Fragile(&drops)));
        std::mem::forget(burst.pop());
        std::mem::forget(burst.pop());
        burst
    };
    let burst = filled();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(burst))).is_err());
    assert_eq!(drops.swap(0, Relaxed), 10);

    let mut burst = filled();
    assert!(catch_unwind(AssertUnwindSafe(|| burst.clear())).is_err());
    assert_eq!((drops.load(Relaxed), burst.len()), (10, 0));
    burst.push(Fragile(&drops));
    drop(burst);
    assert_eq!(drops.load(Relaxed), 11);
}

#[test]
fn items_are_changed_on_their_way() {
    let (mut from, mut to) = (Burst::new(), Burst::new());
    to.extend(0..60);
    assert_eq!((0..50).map_while(|_| to.pop()).count(), 50);
    from.extend(0..30);
    from.pop();
    from.map_into(&mut to, |item| (item % 2 == 1).then_some(item * 10));
    assert_eq!((from.len(), from.pop()), (0, None));
    let expected: Vec<_> = (50..60).chain((1..30).step_by(2).map(|item| item * 10)).collect();
    assert_eq!(to.as_slice(), expected);
}

#[test]
fn a_move_ends_at_the_first_error_and_goes_on_after_it() {
    let (mut from, mut to) = (Burst::new(), Burst::new());
    from.extend(0..10);
    let mut strays = Vec::new();
    while let Some(stray) = from.map_until(&mut to, |item| match item % 4 {
        3 => Err(item),
        _ => Ok(item * 10),
    }) {
        assert_eq!(from.len(), 9 - stray);
        strays.push(stray);
    }
    assert_eq!((strays, from.len()), (vec![3, 7], 0));
    assert_eq!(to.as_slice(), [0, 10, 20, 40, 50, 60, 80, 90]);
}

#[test]
fn a_panic_on_the_way_drops_each_item_once() {
    let item = Rc::new(());
    let (mut from, mut to) = (Burst::new(), Burst::new());
    from.extend((0..10).map(|number| (number, Rc::clone(&item))));
    let mapped = catch_unwind(AssertUnwindSafe(|| {
        from.map_into(&mut to, |(number, item)| {
            assert!(number != 6, "a planted panic");
            Some(item)
        });
    }));
    assert!(mapped.is_err());
    assert_eq!((from.len(), to.len(), Rc::strong_count(&item)), (3, 6, 10));
    drop((from, to));
    assert_eq!(Rc::strong_count(&item), 1);
}

#[test]
#[should_panic = "no room for 2 items"]
fn what_has_no_room_is_not_taken() {
    let (mut from, mut to) = (Burst::new(), Burst::new());
    from.extend(0..2);
    to.extend(0..63);
    from.map_into(&mut to, Some);
}

#[test]
fn a_limit_bounds_what_a_source_may_add() {
    let mut burst = Burst::new();
    burst.set_limit(10);
    burst.extend(0..4);
    assert_eq!((burst.room(), burst.spare_mut().len()), (6, 6));
    burst.set_limit(2);
    assert_eq!((burst.room(), burst.spare_mut().len()), (0, 0));
    burst.set_limit(1000);
    assert_eq!(burst.room(), 60);
}

#[test]
fn a_driver_writes_and_takes_items_itself() {
    let mut burst = Burst::new();
    for slot in &mut burst.spare_mut()[..3] {
        slot.write(7_u8);
    }
    // SAFETY: three slots were written, nothing happened since.
    unsafe { burst.assume_pushed(3) };
    assert_eq!(burst.as_mut_slice(), [7, 7, 7]);
    burst.forget_front(2);
    assert_eq!(burst.len(), 1);
    burst.forget_front(1);
    assert!(burst.is_empty());
}
