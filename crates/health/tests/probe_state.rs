//! Up and down, step by step and compared with a simple evaluation of the whole history.

use hotloop_health::probe_state::{FLAP, ProbeState, RISE_FACTOR_MAX};
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// A state, and a clock that each probe advances.
struct Course {
    state: ProbeState,
    now: Instant,
}

impl Course {
    fn new(rise: u32, fall: u32) -> Self {
        let now = Instant::now();
        Self { state: ProbeState::new(rise, fall, now), now }
    }

    fn probe(&mut self, has_passed: bool, after: Duration) -> bool {
        self.now += after;
        self.state.record(has_passed, self.now)
    }

    /// Number of equal results, two seconds apart, until it changes.
    fn until_change(&mut self, has_passed: bool) -> u32 {
        (1..).find(|_| self.probe(has_passed, Duration::from_secs(2))).unwrap()
    }
}

#[test]
fn failures_take_it_down_and_passes_bring_it_up() {
    let mut course = Course::new(2, 3);
    assert!(course.state.is_up(), "unprobed");
    for (has_passed, changes) in [
        (false, false),
        (false, false),
        (true, false),
        (false, false),
        (false, false),
        (false, true),
        (false, false),
        (true, false),
        (false, false),
        (true, false),
        (true, true),
        (true, false),
    ] {
        let was_up = course.state.is_up();
        assert_eq!(course.probe(has_passed, Duration::from_secs(2)), changes);
        assert_eq!(course.state.is_up() != was_up, changes);
        assert_eq!(course.state.since() == course.now, changes);
    }
}

#[test]
fn flapping_doubles_what_it_takes_to_come_up() {
    let mut course = Course::new(2, 3);
    for rise in [2, 4, 8, 16, 16, 16] {
        assert_eq!(course.until_change(false), 3);
        assert_eq!(course.state.needed_count(), rise);
        assert_eq!(course.until_change(true), rise);
    }
    course.probe(true, FLAP);
    assert_eq!(course.until_change(false), 3);
    assert_eq!(course.until_change(true), 2, "it had stayed up");
}

#[test]
fn a_minute_is_the_limit() {
    for (after, rise) in [(FLAP - Duration::from_nanos(1), 2), (FLAP, 1)] {
        let mut course = Course::new(1, 1);
        course.until_change(false);
        course.until_change(true);
        assert!(course.probe(false, after));
        assert_eq!(course.state.needed_count(), rise, "down {after:?} after it came up");
    }
}

#[test]
fn the_start_is_no_coming_up() {
    let mut course = Course::new(2, 1);
    assert!(course.probe(false, Duration::from_secs(1)));
    assert_eq!(course.state.needed_count(), 2);
}

#[test]
fn other_counts_leave_it_as_it_is() {
    let mut course = Course::new(2, 1);
    course.until_change(false);
    let state = ProbeState::continuing(3, 5, &course.state);
    assert!(!state.is_up());
    assert_eq!(state.since(), course.state.since());
    assert_eq!(state.needed_count(), 3);
}

#[test]
fn no_count_is_too_large_or_too_small() {
    let mut course = Course::new(u32::MAX, 0);
    assert_eq!(course.until_change(false), 1);
    assert_eq!(course.state.needed_count(), u32::MAX);
}

/// The state after the whole history, recomputed from the beginning for each probe.
fn recomputed(history: &[(bool, Instant)], rise: u32, fall: u32) -> (bool, u32) {
    let mut turns: Vec<Instant> = Vec::new();
    let mut from = 0;
    for until in 1..=history.len() {
        let is_up = turns.len().is_multiple_of(2);
        let needed = needed(&turns, rise, fall);
        let latest = history[from..until].iter().rev();
        let contrary = latest.take_while(|(has_passed, _)| *has_passed != is_up).count();
        if contrary == usize::try_from(needed).unwrap() {
            turns.push(history[until - 1].1);
            from = until;
        }
    }
    (turns.len().is_multiple_of(2), needed(&turns, rise, fall))
}

/// The first turn goes down, the next comes up, and so on.
fn needed(turns: &[Instant], rise: u32, fall: u32) -> u32 {
    if turns.len().is_multiple_of(2) {
        return fall;
    }
    let times_up = turns[1..].chunks_exact(2).map(|up| up[1] - up[0]);
    let flaps = times_up.rev().take_while(|up| *up < FLAP).count();
    rise * 2_u32.pow(u32::try_from(flaps.min(3)).unwrap()).min(RISE_FACTOR_MAX)
}

proptest! {
    #[test]
    fn every_course_is_as_the_rules_tell_it(
        rise in 1_u32..4,
        fall in 1_u32..4,
        runs in prop::collection::vec((any::<bool>(), 1_usize..12, 1_u64..20_000), 1..25),
    ) {
        let mut course = Course::new(rise, fall);
        let mut history = Vec::new();
        for (has_passed, count, after_ms) in runs {
            for _ in 0..count {
                let was_up = course.state.is_up();
                let changed = course.probe(has_passed, Duration::from_millis(after_ms));
                history.push((has_passed, course.now));
                let state = &course.state;
                prop_assert_eq!(changed, state.is_up() != was_up);
                let expected = recomputed(&history, rise, fall);
                prop_assert_eq!((state.is_up(), state.needed_count()), expected);
            }
        }
    }
}
