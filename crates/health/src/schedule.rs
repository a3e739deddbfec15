//! The times of probes, and their results: no clock and no threads of its own.

use crate::probe_state::ProbeState;
use crate::settings::Health;
use crate::{HealthChange, Outcome, Probed, State};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time over which the first probes are spread.
const FIRST_SPREAD: Duration = Duration::from_secs(1);

/// A backend with its number, which is never reused for another one.
#[derive(Clone, Debug)]
pub struct Job {
    pub number: u64,
    pub probed: Arc<Probed>,
}

/// All probed targets.
#[derive(Debug, Default)]
pub struct Schedule {
    targets: BTreeMap<u64, Target>,
    numbers: HashMap<Arc<Probed>, u64>,
    /// The probes to come, the first on top; except for targets with a probe under way.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    next_number: u64,
}

#[derive(Debug)]
struct Target {
    probed: Arc<Probed>,
    probe_state: ProbeState,
    /// When the target's next probe is due, or when the current one was due.
    due: Instant,
    last: Option<Outcome>,
    passed_count: u64,
    failed_count: u64,
}

impl Schedule {
    /// Replaces the probed targets. Those that stay keep their state. New ones start as up, unless
    /// the same probe existed with other times or counts: then the target keeps its state, and is
    /// reported if it is down. The first probes are spread over a second, or over an interval if
    /// that is shorter.
    pub fn set(&mut self, probed: Vec<Probed>, now: Instant) -> Vec<HealthChange> {
        let mut targets_before = mem::take(&mut self.targets);
        let mut numbers_before = mem::take(&mut self.numbers);
        let mut new = Vec::new();
        for probed in probed {
            if self.numbers.contains_key(&probed) {
                continue;
            }
            if let Some((probed, number)) = numbers_before.remove_entry(&probed) {
                self.targets.extend(targets_before.remove_entry(&number));
                self.numbers.insert(probed, number);
            } else {
                let probed = Arc::new(probed);
                self.numbers.insert(Arc::clone(&probed), self.next_number);
                new.push((self.next_number, probed));
                self.next_number += 1;
            }
        }
        self.due.retain(|Reverse((_, number))| self.targets.contains_key(number));
        self.add(new, &targets_before.into_values().collect::<Vec<_>>(), now)
    }

    fn add(
        &mut self,
        new: Vec<(u64, Arc<Probed>)>,
        gone: &[Target],
        now: Instant,
    ) -> Vec<HealthChange> {
        let gone: HashMap<_, _> =
            gone.iter().map(|target| (target.probed.what(), target)).collect();
        let mut changes = Vec::new();
        let new_count = new.len();
        for (index, (number, probed)) in new.into_iter().enumerate() {
            let spread = interval(&probed).min(FIRST_SPREAD);
            let due = now + spread.mul_f64(index as f64 / new_count as f64);
            let mut target = Target::new(Arc::clone(&probed), now, due);
            if let Some(before) = gone.get(&probed.what()) {
                target.follow(before);
            }
            changes.extend((!target.probe_state.is_up()).then(|| target.change()));
            self.due.push(Reverse((due, number)));
            self.targets.insert(number, target);
        }
        changes
    }

    /// Treats these targets as down until their probes show otherwise.
    pub fn take_down(&mut self, down: &HashSet<(IpAddr, Health)>, now: Instant) {
        for target in self.targets.values_mut() {
            let Probed { address, health } = &*target.probed;
            if down.contains(&(*address, health.clone())) {
                target.probe_state = ProbeState::down(health.rise, health.fall, now);
            }
        }
    }

    /// When the next probe is due, if there is one.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// The probe that has been due for the longest, at `now`. Its target has no other one until
    /// [`finished`](Self::finished).
    pub fn take_due(&mut self, now: Instant) -> Option<Job> {
        let &Reverse((_, number)) = self.due.peek().filter(|Reverse((due, _))| *due <= now)?;
        self.due.pop();
        let probed = Arc::clone(&self.targets.get(&number)?.probed);
        Some(Job { number, probed })
    }

    /// Records a probe that ended at `now`. The target's next one is due an interval after this one
    /// was due, or at once if that has passed.
    pub fn finished(
        &mut self,
        number: u64,
        outcome: Outcome,
        now: Instant,
    ) -> Option<HealthChange> {
        let target = self.targets.get_mut(&number)?;
        let interval = interval(&target.probed);
        let steps = now.saturating_duration_since(target.due).as_nanos() / interval.as_nanos();
        target.due += interval * u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        self.due.push(Reverse((target.due, number)));
        let has_passed = outcome.is_ok();
        target.passed_count += u64::from(has_passed);
        target.failed_count += u64::from(!has_passed);
        target.last = Some(outcome);
        target.probe_state.record(has_passed, now).then(|| target.change())
    }

    /// The states of all targets, in the order of their addition.
    pub fn states(&self) -> Vec<State> {
        self.targets.values().map(Target::state).collect()
    }

    /// Whether target `number` is still probed.
    pub fn has(&self, number: u64) -> bool {
        self.targets.contains_key(&number)
    }

    /// The probed targets, in the same order.
    pub fn probed(&self) -> impl Iterator<Item = &Probed> {
        self.targets.values().map(|target| &*target.probed)
    }
}

impl Target {
    fn new(probed: Arc<Probed>, now: Instant, due: Instant) -> Self {
        let probe_state = ProbeState::new(probed.health.rise, probed.health.fall, now);
        Self { probed, probe_state, due, last: None, passed_count: 0, failed_count: 0 }
    }

    /// Continues the state of `before`.
    fn follow(&mut self, before: &Self) {
        let Health { rise, fall, .. } = self.probed.health;
        self.probe_state = ProbeState::continuing(rise, fall, &before.probe_state);
        self.last.clone_from(&before.last);
        (self.passed_count, self.failed_count) = (before.passed_count, before.failed_count);
    }

    /// The change to the current state, by its last probe.
    fn change(&self) -> HealthChange {
        let Probed { address, health } = (*self.probed).clone();
        let why = match &self.last {
            Some(Err(why)) => why.clone(),
            _ => "passed again".into(),
        };
        HealthChange { address, health, is_up: self.probe_state.is_up(), why }
    }

    fn state(&self) -> State {
        let Probed { address, health } = (*self.probed).clone();
        State {
            address,
            health,
            is_up: self.probe_state.is_up(),
            since: self.probe_state.since(),
            last: self.last.clone(),
            passed_count: self.passed_count,
            failed_count: self.failed_count,
            contrary_count: self.probe_state.contrary_count(),
            needed_count: self.probe_state.needed_count(),
        }
    }
}

fn interval(probed: &Probed) -> Duration {
    Duration::from_millis(probed.health.interval_ms.max(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Probe, Via};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn probed(host: u8, interval_ms: u32) -> Probed {
        let probe = Probe::Tcp;
        let health = Health {
            probe,
            port: 80,
            interval_ms,
            timeout_ms: interval_ms,
            rise: 2,
            fall: 3,
            via: Via::Direct,
        };
        Probed { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), health }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// All due probes, with the times that they were due.
    fn take_all(schedule: &mut Schedule, now: Instant) -> Vec<Job> {
        std::iter::from_fn(|| schedule.take_due(now)).collect()
    }

    fn refused() -> Outcome {
        Err("connection refused".into())
    }

    /// Lets the only target's probes fail until the target is reported down.
    fn take_down(schedule: &mut Schedule, mut now: Instant) -> Instant {
        loop {
            let [job] = &take_all(schedule, now)[..] else { panic!("one is due") };
            if let Some(change) = schedule.finished(job.number, refused(), now) {
                assert_eq!((change.is_up, &*change.why), (false, "connection refused"));
                return now;
            }
            now = schedule.next_due().unwrap();
        }
    }

    #[test]
    fn first_probes_begin_at_once_and_are_spread() {
        for (interval_ms, spread_ms) in [(400, 400), (60_000, 1_000)] {
            let (mut schedule, now) = (Schedule::default(), Instant::now());
            let all = (0..100).map(|host| probed(host, interval_ms)).collect();
            assert_eq!(schedule.set(all, now), []);
            assert_eq!(schedule.next_due(), Some(now));
            let mut taken_count = 0;
            for tenth in 1..=10 {
                let taken = take_all(&mut schedule, now + ms(spread_ms * tenth / 10));
                assert!((9..=11).contains(&taken.len()), "{} in tenth {tenth}", taken.len());
                taken_count += taken.len();
            }
            assert_eq!(taken_count, 100);
            assert_eq!(schedule.next_due(), None, "all are under way");
        }
    }

    #[test]
    fn the_same_twice_is_probed_once() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.set(vec![probed(1, 500), probed(1, 500), probed(1, 600)], now);
        assert_eq!(schedule.states().len(), 2, "another interval is another probe");
        assert_eq!(take_all(&mut schedule, now + ms(1000)).len(), 2);
    }

    #[test]
    fn a_late_probe_is_followed_by_one_and_then_in_time() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.set(vec![probed(1, 100)], now);
        let job = schedule.take_due(now).unwrap();
        schedule.finished(job.number, Ok(ms(1)), now + ms(1));
        assert_eq!(schedule.next_due(), Some(now + ms(100)));

        assert!(schedule.take_due(now + ms(650)).is_some(), "five are overdue");
        schedule.finished(job.number, Ok(ms(1)), now + ms(651));
        assert_eq!(take_all(&mut schedule, now + ms(651)).len(), 1, "one makes up for them");
        schedule.finished(job.number, Ok(ms(1)), now + ms(652));
        assert_eq!(schedule.next_due(), Some(now + ms(700)));
    }

    #[test]
    fn targets_that_stay_keep_their_state_and_those_that_go_are_forgotten() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.set(vec![probed(1, 100)], now);
        let now = take_down(&mut schedule, now);
        assert_eq!(schedule.set(vec![probed(2, 100), probed(1, 100)], now), []);
        let is_up = |schedule: &Schedule| {
            schedule.states().iter().map(|state| state.is_up).collect::<Vec<_>>()
        };
        assert_eq!(is_up(&schedule), [false, true]);

        let under_way = take_all(&mut schedule, now + ms(100));
        assert_eq!(under_way.len(), 2);
        assert_eq!(schedule.set(vec![probed(2, 100)], now), []);
        for job in under_way {
            schedule.finished(job.number, refused(), now);
        }
        let [state] = &schedule.states()[..] else { panic!("one is left") };
        assert_eq!((state.failed_count, state.contrary_count, state.needed_count), (1, 1, 3));

        schedule.set(Vec::new(), now);
        assert_eq!((schedule.next_due(), schedule.states().len()), (None, 0));
        schedule.set(vec![probed(1, 100)], now);
        assert_eq!(is_up(&schedule), [true], "it starts afresh");
    }

    #[test]
    fn the_same_probe_at_other_times_goes_on() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.set(vec![probed(1, 100)], now);
        let down = take_down(&mut schedule, now);
        let changes = schedule.set(vec![probed(1, 250)], down + ms(10));
        let expected = Probed::clone(&probed(1, 250));
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((change.address, &change.health), (expected.address, &expected.health));
        assert_eq!((change.is_up, &*change.why), (false, "connection refused"));
        let state = &schedule.states()[0];
        assert_eq!(
            (state.since, state.failed_count, state.last.clone()),
            (down, 3, Some(refused()))
        );

        let mut other = probed(1, 250);
        other.health.port = 81;
        assert_eq!(schedule.set(vec![other], down + ms(20)), [], "another port starts up");
    }

    proptest! {
        #[test]
        fn no_two_probes_of_a_backend_overlap_and_none_is_left_out(
            intervals_ms in prop::collection::vec(1_u32..200, 1..20),
            // Duration of each probe, in hundredths of its interval.
            took in prop::collection::vec(0_u64..150, 200),
        ) {
            let start = Instant::now();
            let mut schedule = Schedule::default();
            let all = intervals_ms.iter().zip(0..).map(|(&each, host)| probed(host, each));
            schedule.set(all.collect(), start);
            let mut under_way: BTreeMap<u64, Instant> = BTreeMap::new();
            let mut counts = vec![0_u128; intervals_ms.len()];
            let mut took = took.into_iter().cycle();
            for now in (0..2_000).map(|each| start + ms(each)) {
                let over = under_way.extract_if(.., |_, end| *end <= now).collect::<Vec<_>>();
                for (number, end) in over {
                    schedule.finished(number, Ok(ms(1)), end.max(now));
                }
                for job in take_all(&mut schedule, now) {
                    let interval_ms = u64::from(job.probed.health.interval_ms);
                    let end = now + ms(interval_ms * took.next().unwrap() / 100);
                    prop_assert_eq!(under_way.insert(job.number, end), None);
                    counts[usize::try_from(job.number).unwrap()] += 1;
                }
            }
            for (count, interval_ms) in counts.into_iter().zip(intervals_ms) {
                let intervals = 2_000 / u128::from(interval_ms);
                prop_assert!(count <= intervals + 1, "{count} in {intervals} intervals");
                prop_assert!(count >= (intervals.max(8) - 8) / 3, "{count} in {intervals}");
            }
        }
    }
}
