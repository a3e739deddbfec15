//! Kinds of pages that need neither rights nor reservation.

use hotloop_arena::{Arena, ArenaError, Pages, Refusal, Request};

use crate::smaps::{addr_of, compare, smaps};

const MIB: usize = 1 << 20;

/// The arena of `request`, for transparent pages. `None` if this kernel provides none.
fn transparent(request: Request) -> Option<(Arena, hotloop_arena::Obtained)> {
    match Arena::new(Request { pages: vec![Pages::Transparent], ..request }) {
        Ok(made) => Some(made),
        Err(error) => {
            println!("skipped: {error}");
            assert!(matches!(error, ArenaError::NoMemory { .. }));
            None
        }
    }
}

#[test]
fn small_pages_are_small_and_taken_when_asked() {
    let request = Request { pages: vec![Pages::Small], ..Request::new(5 * MIB + 1) };
    let (arena, obtained) = Arena::new(request.clone()).unwrap();
    compare(&arena, &obtained);
    assert_eq!(obtained.bytes, 5 * MIB + 4096);
    assert_eq!(obtained.resident_bytes, Some(obtained.bytes));
    assert_eq!(obtained.locked_bytes, Some(0));

    let (arena, obtained) = Arena::new(Request { prefault: false, ..request }).unwrap();
    compare(&arena, &obtained);
    assert_eq!(obtained.resident_bytes, Some(2 * MIB));
}

#[test]
fn transparent_pages_are_counted_also_when_partly_there() {
    let Some((arena, obtained)) = transparent(Request::new(7 * MIB)) else { return };
    compare(&arena, &obtained);
    assert_eq!((obtained.bytes, obtained.resident_bytes), (8 * MIB, Some(8 * MIB)));

    let later = Request { prefault: false, ..Request::new(8 * MIB) };
    let Some((arena, obtained)) = transparent(later) else { return };
    compare(&arena, &obtained);
    assert_eq!(obtained.huge_bytes, Some(2 * MIB));
    let line = "8192 KiB on transparent huge pages (2048 KiB of it), 2048 KiB taken";
    assert!(obtained.to_string().starts_with(line), "{obtained}");

    let bytes = arena.boxed_zeroed::<u8>(8 * MIB).unwrap();
    let addr = bytes.as_ptr().addr();
    assert_eq!(smaps(addr)["Rss"], 8 * MIB);
}

#[test]
fn what_is_taken_is_reported_step_by_step() {
    let bytes = 130 * MIB;
    let mut steps = Vec::new();
    let request = Request { pages: vec![Pages::Small], ..Request::new(bytes) };
    let (arena, obtained) = Arena::with_progress(request.clone(), |step| {
        assert_eq!((step.pages, step.total_bytes), (Pages::Small, bytes));
        steps.push(step.done_bytes / MIB);
    })
    .unwrap();
    compare(&arena, &obtained);
    assert_eq!(steps, [64, 128, 130]);
    drop(arena);

    let later = Request { prefault: false, ..request };
    Arena::with_progress(later, |step| panic!("{step:?}")).unwrap();
}

#[test]
fn a_default_request_is_what_it_says() {
    let (arena, obtained) = Arena::new(Request::new(3 * MIB)).unwrap();
    println!("{obtained}");
    compare(&arena, &obtained);
}

#[test]
fn the_only_node_is_given_or_refused() {
    let online = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    for node in [0, 1].into_iter().filter(|&node| node == 0 || online.contains('1')) {
        let wish = Request { node: Some(node), node_only: true, ..Request::new(2 * MIB) };
        match Arena::new(Request { pages: vec![Pages::Small], prefault: false, ..wish }) {
            Ok((arena, obtained)) => {
                compare(&arena, &obtained);
                assert_eq!((obtained.node, obtained.off_node_bytes), (Some(node), Some(0)));
                assert_eq!(obtained.resident_bytes, Some(2 * MIB));
            }
            Err(ArenaError::NoMemory { tried, .. }) => {
                println!("skipped: node {node}: {}", tried[0].1);
                let refusal = tried[0].1;
                assert!(matches!(
                    refusal,
                    Refusal::OnOtherNode { node: asked, .. } | Refusal::NodeUnknown { node: asked }
                        if asked == node
                ));
            }
            Err(error) => assert!(matches!(error, ArenaError::NoSuchNode { .. }), "{error}"),
        }
    }
}

#[test]
fn the_address_is_that_of_the_region() {
    let (arena, obtained) =
        Arena::new(Request { pages: vec![Pages::Small], ..Request::new(MIB) }).unwrap();
    assert_eq!(smaps(addr_of(&arena))["Size"], obtained.bytes);
}
