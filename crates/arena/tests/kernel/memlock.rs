//! Memory that must not be swapped out.

use std::fs;

use hotloop_arena::{Arena, Pages, Refusal, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::child::in_child;
use crate::refusals::refused;
use crate::smaps::compare;

const KIB: usize = 1 << 10;

/// Bytes that this process has locked.
fn locked_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Limits the bytes that this process, which runs one test, may lock.
fn limit(bytes: usize) {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes as u64), maximum }).unwrap();
}

fn locked(pages: Pages, bytes: usize) -> Request {
    Request { pages: vec![pages], lock: true, ..Request::new(bytes) }
}

#[test]
fn what_is_within_the_limit_is_locked() {
    in_child("memlock::what_is_within_the_limit_is_locked", || {
        limit(64 * KIB);
        // A lock populates the memory, whether or not that was requested.
        for prefault in [true, false] {
            let request = Request { prefault, ..locked(Pages::Small, 48 * KIB) };
            let (arena, obtained) = Arena::new(request).unwrap();
            compare(&arena, &obtained);
            assert_eq!(obtained.locked_bytes, Some(48 * KIB));
            assert_eq!(obtained.resident_bytes, Some(48 * KIB));
            assert!(obtained.to_string().ends_with(", locked"), "{obtained}");
            assert_eq!(locked_bytes(), 48 * KIB);
            let more = Arena::new(locked(Pages::Small, 48 * KIB));
            assert!(more.is_err(), "96 KiB are locked, with a limit of 64");
            drop(arena);
            assert_eq!(locked_bytes(), 0);
        }
    });
}

#[test]
fn what_is_over_the_limit_is_an_error_with_the_remedy() {
    in_child("memlock::what_is_over_the_limit_is_an_error_with_the_remedy", || {
        for limit_bytes in [64 * KIB, 0] {
            limit(limit_bytes);
            let (tried, message) = refused(locked(Pages::Small, 68 * KIB));
            let refusal = Refusal::OverMemlock { limit_bytes: limit_bytes as u64 };
            assert_eq!(tried, [(Pages::Small, refusal)]);
            for part in [
                &format!("the process may lock {limit_bytes} bytes in all"),
                "let the process lock 68 KiB more (ulimit -l, LimitMEMLOCK= of a systemd unit)",
                "give it CAP_IPC_LOCK, or ask without `lock`",
            ] {
                assert!(message.contains(part), "{message}");
            }
            assert_eq!(locked_bytes(), 0);

            let (arena, obtained) =
                Arena::new(Request { lock: false, ..locked(Pages::Small, 68 * KIB) }).unwrap();
            compare(&arena, &obtained);
            assert_eq!(obtained.locked_bytes, Some(0));
        }
    });
}

#[test]
fn transparent_pages_are_locked_where_the_limit_allows_it() {
    let bytes = 4 << 20;
    match Arena::new(locked(Pages::Transparent, bytes)) {
        Ok((arena, obtained)) => {
            compare(&arena, &obtained);
            assert_eq!(obtained.locked_bytes, Some(bytes));
        }
        Err(error) => println!("skipped: {error}"),
    }
}
