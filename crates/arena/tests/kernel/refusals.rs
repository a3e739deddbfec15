//! Memory that isn't available, and the fallback.

use std::fs;

use hotloop_arena::{Arena, ArenaError, Pages, Refusal, Request};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child::in_child;
use crate::smaps::compare;

const MIB: usize = 1 << 20;

/// The kinds tried for a request that can't be fulfilled, and the message.
pub fn refused(request: Request) -> (Vec<(Pages, Refusal)>, String) {
    let error = Arena::new(request).expect_err("more than can be had");
    let message = error.to_string();
    println!("{message}");
    match error {
        ArenaError::NoMemory { tried, .. } => (tried, message),
        error => panic!("{error}"),
    }
}

#[test]
fn more_reserved_pages_than_any_machine_has_are_refused() {
    let bytes = 1 << 46;
    for (pages, kib) in [(Pages::Gigantic, 1 << 20), (Pages::Huge, 2 << 10)] {
        let (tried, message) = refused(Request { pages: vec![pages], ..Request::new(bytes) });
        match tried[..] {
            [(tried, Refusal::TooFewReserved { needed_count, free_count, reserved_count })] => {
                assert_eq!((tried, needed_count), (pages, bytes / (kib << 10)));
                assert!(free_count <= reserved_count && reserved_count < needed_count);
                let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
                assert!(message.contains(&file), "{message}");
            }
            [(_, Refusal::Kernel(errno))] => println!("skipped: no {pages} here ({errno})"),
            ref tried => panic!("{tried:?}"),
        }
    }
}

#[test]
fn more_memory_than_there_is_is_refused_and_not_taken() {
    // Half of the address space.
    let request = Request { pages: vec![Pages::Small], ..Request::new(1 << 46) };
    let (tried, message) = refused(request);
    assert!(
        matches!(
            tried[..],
            [(Pages::Small, Refusal::TooLittleMemory { .. } | Refusal::Kernel(Errno::NOMEM))]
        ),
        "{tried:?}"
    );
    assert!(message.contains("To get it, ask for less"), "{message}");
}

#[test]
fn a_machine_without_transparent_pages_gives_small_ones() {
    in_child("refusals::a_machine_without_transparent_pages_gives_small_ones", || {
        // SAFETY: prctl(2): 1. This option takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        assert_eq!(result, 0);
        let pages = vec![Pages::Transparent, Pages::Small];
        let request = Request { pages, ..Request::new(4 * MIB) };
        let (arena, obtained) = Arena::new(request.clone()).unwrap();
        compare(&arena, &obtained);
        assert_eq!((obtained.pages, obtained.huge_bytes), (Pages::Small, Some(0)));

        let (tried, message) = refused(Request { pages: vec![Pages::Transparent], ..request });
        match tried[..] {
            [(Pages::Transparent, Refusal::OnOtherPages { page_bytes })] => {
                assert_eq!(page_bytes, 4096);
                assert!(message.contains("/sys/kernel/mm/transparent_hugepage/enabled"));
            }
            [(_, Refusal::Kernel(Errno::INVAL))] => println!("skipped: never any here"),
            ref tried => panic!("{tried:?}"),
        }
    });
}

/// Bytes of address space that this process uses.
fn address_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn too_few_addresses_are_an_error_that_names_the_limit() {
    if address_bytes() > 1 << 40 {
        println!("skipped: a sanitizer has taken the addresses");
        return;
    }
    in_child("refusals::too_few_addresses_are_an_error_that_names_the_limit", || {
        let room_bytes = address_bytes() + 256 * MIB;
        let maximum = getrlimit(Resource::As).maximum;
        setrlimit(Resource::As, Rlimit { current: Some(room_bytes as u64), maximum }).unwrap();

        let pages = vec![Pages::Transparent, Pages::Small];
        let (tried, message) = refused(Request { pages, prefault: false, ..Request::new(1 << 30) });
        let refusal = Refusal::Kernel(Errno::NOMEM);
        assert_eq!(tried, [(Pages::Transparent, refusal), (Pages::Small, refusal)]);
        assert!(message.contains("(ulimit -v, memory cgroup)"), "{message}");
        assert_eq!(message.matches("ulimit").count(), 1);
        let error = Arena::on(None).unwrap_err();
        assert_eq!(error, ArenaError::NoMemory { bytes: 1 << 30, tried });

        let (arena, obtained) = Arena::new(Request::new(4 * MIB)).unwrap();
        compare(&arena, &obtained);
    });
}

#[test]
fn a_node_that_is_not_there_names_those_that_are() {
    let request = Request { node: Some(900), node_only: true, lock: true, ..Request::new(MIB) };
    let error = Arena::new(request).unwrap_err();
    let online = fs::read_to_string("/sys/devices/system/node/online").unwrap_or("0".into());
    assert_eq!(error, ArenaError::NoSuchNode { node: 900, online: online.trim().into() });
    assert!(error.to_string().ends_with("Name one of them"), "{error}");
}
