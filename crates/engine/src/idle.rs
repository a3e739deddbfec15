//! The cores' policies for empty polls.

use hotloop_stage::{BURST_CAPACITY, Instant};
use std::fmt;
use std::time::Duration;

/// Shorter sleeps are not worth the system call.
const SLEEP_NS_MIN: u64 = 10_000;

/// Maximum number of packets that a sleep may keep waiting, as far as can be foreseen: a burst.
const WAITING_MAX: u64 = BURST_CAPACITY as u64;

/// One packet, in the unit of the averages.
const PACKET: u64 = 256;

/// An average forgets an eighth whenever packets come, or the core wakes.
const FORGOTTEN: u64 = 8;

/// Maximum lateness that counts for one sleep. A single pause of the whole machine doesn't predict
/// the next sleep.
const LATE_NS_MAX: u64 = 100_000;

/// A core's policy for empty polls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Idle {
    /// Polls again at once: the least latency.
    #[default]
    Spin,
    /// Executes the CPU's pause hint between empty polls, up to 64 of them in a row: a core that
    /// shares its execution units with another leaves them to the other.
    Pause,
    /// Sleeps while few packets come and no stage [has work](hotloop_stage::BurstStage::has_work),
    /// for at most [`SLEEP_MAX`](Self::SLEEP_MAX); otherwise like [`Pause`](Self::Pause).
    ///
    /// A sleep is as long as a burst takes to arrive at the rate of the latest packets. If that is
    /// less than 10 µs, or a whole burst has just come, the core doesn't sleep. Packets that arrive
    /// meanwhile wait in the RX queue or the ring: if 10 million packets a second may come all at
    /// once, the longest sleep plus the kernel's delay needs some 2,048 descriptors. In a pipeline,
    /// each group of cores may make a packet wait.
    Adaptive,
}

impl Idle {
    /// Every mode, with its name in configurations and output.
    pub const NAMES: [(&'static str, Self); 3] =
        [("spin", Self::Spin), ("pause", Self::Pause), ("adaptive", Self::Adaptive)];

    /// Maximum time that [`Adaptive`](Self::Adaptive) lets a core sleep, and a packet wait for the
    /// core. It includes the time that the kernel usually takes to wake the thread; if the kernel
    /// takes longer once, so does the sleep.
    pub const SLEEP_MAX: Duration = Duration::from_micros(200);
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spin => "spin",
            Self::Pause => "pause",
            Self::Adaptive => "adaptive",
        })
    }
}

/// The packet rate of a core, which determines how long it may sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When packets came last.
    last: Instant,
    /// The nanoseconds in which the packets below came.
    ns: u64,
    packets: u64,
    /// The kernel's average delay at the end of a sleep.
    late_ns: u64,
}

impl Pace {
    /// Notes that `count` packets, 1 or more, came in a turn at `now`.
    #[inline]
    pub(crate) fn came(&mut self, count: usize, now: Instant) {
        let passed_ns = now.ns_since(self.last);
        self.last = now;
        let packets = count as u64 * PACKET;
        // A whole burst was not foreseen if it took less than half of the time.
        let is_foreseen =
            || self.burst_ns(self.ns).is_some_and(|burst_ns| burst_ns / 2 <= passed_ns);
        if count >= BURST_CAPACITY && !is_foreseen() {
            // There may be more. The earlier, slower rate doesn't matter any longer.
            (self.ns, self.packets) = (0, packets);
        } else {
            self.ns = (self.ns - self.ns / FORGOTTEN).saturating_add(passed_ns);
            self.packets = self.packets - self.packets / FORGOTTEN + packets;
        }
    }

    /// Notes a sleep: the kernel was asked for `asked_ns`, and the sleep took `slept_ns`.
    pub(crate) fn slept(&mut self, asked_ns: u64, slept_ns: u64) {
        let late_ns = slept_ns.saturating_sub(asked_ns).min(LATE_NS_MAX);
        self.late_ns = self.late_ns - self.late_ns / FORGOTTEN + late_ns / FORGOTTEN;
    }

    /// The time that a burst takes to arrive if the packets came in `ns`; `None` before the first
    /// packet.
    fn burst_ns(&self, ns: u64) -> Option<u64> {
        ns.saturating_mul(WAITING_MAX * PACKET).checked_div(self.packets)
    }

    /// The time that the core should sleep after an empty poll at `now`; `None` if the
    /// core shouldn't sleep.
    pub(crate) fn sleep(&self, now: Instant) -> Option<Duration> {
        let expected_ns = self.burst_ns(self.ns.saturating_add(now.ns_since(self.last)));
        // Before the first packet, no packet is expected.
        let sleep = expected_ns.map_or(Idle::SLEEP_MAX, Duration::from_nanos).min(Idle::SLEEP_MAX);
        let (least, late) =
            (Duration::from_nanos(SLEEP_NS_MIN), Duration::from_nanos(self.late_ns));
        // A core that never slept would not notice that the kernel's delay has become shorter.
        (sleep >= least).then(|| sleep.saturating_sub(late).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets come `count` at a time, `gap_ns` apart. Returns how long the core may sleep right
    /// after the last one.
    fn steady(count: usize, gap_ns: u64) -> Option<Duration> {
        let mut pace = Pace::default();
        let mut turns = (1..=100).map(|turn| Instant::from_ns(turn * gap_ns));
        turns.clone().for_each(|now| pace.came(count, now));
        pace.sleep(turns.next_back()?)
    }

    #[test]
    fn a_mode_prints_as_its_name() {
        for (name, idle) in Idle::NAMES {
            assert_eq!(idle.to_string(), name);
        }
    }

    #[test]
    fn a_sleep_is_as_long_as_a_burst_takes() {
        assert_eq!(steady(1, 1_000_000), Some(Idle::SLEEP_MAX));
        let of_a_microsecond = steady(1, 1_000).unwrap().as_nanos();
        assert!((62_000..68_000).contains(&of_a_microsecond), "{of_a_microsecond}");
        assert_eq!(steady(1, 100), None);
        assert_eq!(steady(32, 4_000), None);
    }

    #[test]
    fn a_core_that_has_seen_nothing_sleeps() {
        assert_eq!(Pace::default().sleep(Instant::from_ns(0)), Some(Idle::SLEEP_MAX));
    }

    #[test]
    fn a_whole_burst_ends_the_sleeping_at_once() {
        let mut pace = Pace::default();
        let at = |us: u64| Instant::from_ns(us * 1_000);
        (1..100).for_each(|turn| pace.came(1, at(turn * 1_000)));
        pace.came(BURST_CAPACITY, at(100_000));
        assert_eq!(pace.sleep(at(100_000)), None);
        assert_eq!(pace.sleep(at(100_009)), None);
        assert_eq!(pace.sleep(at(100_020)), Some(Duration::from_micros(20)));
        assert_eq!(pace.sleep(at(200_000)), Some(Idle::SLEEP_MAX));
    }

    #[test]
    fn a_whole_burst_that_was_foreseen_does_not_end_the_sleeping() {
        // The packets during the longest permitted sleep are sometimes more than a burst, sometimes
        // fewer.
        let (mut pace, mut now_ns) = (Pace::default(), 1_000_000);
        let turn = |pace: &mut Pace, now_ns: u64, count| {
            pace.came(count, Instant::from_ns(now_ns));
            pace.sleep(Instant::from_ns(now_ns))
        };
        for count in [50, 64, 60, 64, 64, 55].into_iter().cycle().take(100) {
            now_ns += 200_000;
            let sleep = turn(&mut pace, now_ns, count).map(|sleep| sleep.as_micros());
            assert!(now_ns < 2_000_000 || sleep.is_some_and(|us| us > 150), "{sleep:?}");
        }
        // A burst that comes at once was not foreseen.
        assert_eq!(turn(&mut pace, now_ns + 10_000, BURST_CAPACITY), None);
    }

    #[test]
    fn what_the_kernel_adds_is_part_of_a_sleep() {
        let (mut pace, now) = (Pace::default(), Instant::from_ns(0));
        let asked_ns = |pace: &Pace| pace.sleep(now).unwrap().as_nanos() as u64;
        for _ in 0..100 {
            let asked_ns = asked_ns(&pace);
            pace.slept(asked_ns, asked_ns + 40_000);
        }
        let sleep_ns = asked_ns(&pace) + 40_000;
        assert!(sleep_ns.abs_diff(Idle::SLEEP_MAX.as_nanos() as u64) < 100, "{sleep_ns}");
        // The machine pauses once.
        pace.slept(asked_ns(&pace), 1_000_000_000);
        assert!(asked_ns(&pace) + 40_000 > sleep_ns - LATE_NS_MAX / FORGOTTEN);
    }

    #[test]
    fn a_late_kernel_does_not_keep_a_core_awake() {
        let (mut pace, now) = (Pace::default(), Instant::from_ns(101_000_000));
        (1..=100)
            .for_each(|turn| pace.came(1, Instant::from_ns(101_000_000 - (100 - turn) * 1_000)));
        let asked = pace.sleep(now).unwrap();
        (0..100).for_each(|_| pace.slept(0, LATE_NS_MAX));
        assert_eq!(pace.sleep(now), Some(Duration::from_nanos(SLEEP_NS_MIN)));
        (0..100).for_each(|_| pace.slept(SLEEP_NS_MIN, SLEEP_NS_MIN));
        assert!(pace.sleep(now).unwrap().abs_diff(asked) < Duration::from_nanos(100));
    }

    #[test]
    fn no_time_is_too_long() {
        let mut pace = Pace::default();
        pace.came(1, Instant::from_ns(u64::MAX));
        pace.came(1, Instant::from_ns(0));
        pace.came(1, Instant::from_ns(u64::MAX));
        assert_eq!(pace.sleep(Instant::from_ns(u64::MAX)), Some(Idle::SLEEP_MAX));
    }
}
