//! Hold times of withdrawn VIPs: how long a VIP must be ready before it is announced again. Routers
//! penalise routes that come and go (RFC 2439), and the connections of a VIP break each time that
//! it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest time that a VIP must be ready before it is announced again, however often it flaps.
pub const VIP_HOLD_MAX: Duration = Duration::from_secs(300);

/// A VIP flaps if it is withdrawn within this time of being announced again, or within its hold if
/// that is longer.
const STEADY_MIN: Duration = Duration::from_secs(60);

/// The withdrawn VIPs.
///
/// A VIP is announced again once it has been ready for its hold without a break. The hold of the
/// first withdrawal is the configured one. It doubles with each withdrawal within a minute of the
/// previous announcement, or within the hold itself, up to [`VIP_HOLD_MAX`]; a VIP that stays announced
/// for longer is treated as if it never was withdrawn.
#[derive(Debug)]
pub(super) struct Holds {
    first: Duration,
    vips: BTreeMap<IpAddr, Held>,
}

#[derive(Debug)]
struct Held {
    hold: Duration,
    since: Since,
}

#[derive(Debug)]
enum Since {
    /// The VIP is announced again since then.
    Announced(Instant),
    /// The VIP is withdrawn, and ready since then, if it is ready.
    Ready(Option<Instant>),
}

impl Holds {
    /// Holds VIPs for `first` initially.
    pub(super) const fn new(first: Duration) -> Self {
        Self { first, vips: BTreeMap::new() }
    }

    /// Records the VIPs that are ready now. Returns whether a held one may be announced.
    pub(super) fn turn(&mut self, ready: &BTreeSet<IpAddr>, now: Instant) -> bool {
        let mut is_any_over = false;
        self.vips.retain(|vip, held| match &mut held.since {
            Since::Announced(since) => now.duration_since(*since) < held.hold.max(STEADY_MIN),
            Since::Ready(since) if ready.contains(vip) => {
                let since = *since.get_or_insert(now);
                is_any_over |= now.duration_since(since) >= held.hold;
                true
            }
            Since::Ready(since) => {
                *since = None;
                true
            }
        });
        is_any_over
    }

    /// Records that a VIP is withdrawn, because it is no longer ready, or because a thread hangs.
    pub(super) fn withdrawn(&mut self, vip: IpAddr) {
        let held = self.vips.get(&vip).map(|held| match held.since {
            Since::Announced(_) => {
                let hold = (held.hold * 2).min(VIP_HOLD_MAX);
                tracing::warn!(
                    "announce: {vip} flaps: it must be ready for {hold:.0?} to be announced"
                );
                hold
            }
            Since::Ready(_) => held.hold,
        });
        let hold = held.unwrap_or(self.first);
        self.vips.insert(vip, Held { hold, since: Since::Ready(None) });
    }

    /// Records that a VIP is announced.
    pub(super) fn announced(&mut self, vip: IpAddr, now: Instant) {
        if let Some(held) = self.vips.get_mut(&vip) {
            held.since = Since::Announced(now);
        }
    }

    /// Releases all VIPs, and forgets which ones have flapped.
    pub(super) fn release(&mut self) {
        self.vips.clear();
    }

    /// Forgets all VIPs but these.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&IpAddr) -> bool) {
        self.vips.retain(|vip, _| is_kept(vip));
    }

    /// Whether a VIP is held, ready or not.
    pub(super) fn has(&self, vip: &IpAddr, now: Instant) -> bool {
        match self.vips.get(vip) {
            Some(Held { hold, since: Since::Ready(since) }) => {
                since.is_none_or(|since| now.duration_since(since) < *hold)
            }
            Some(Held { since: Since::Announced(_), .. }) | None => false,
        }
    }

    /// The VIPs that are ready and held, with their remaining time.
    pub(super) fn left(&self, now: Instant) -> impl Iterator<Item = (IpAddr, Duration)> {
        self.vips.iter().filter_map(move |(vip, held)| match held.since {
            Since::Ready(Some(since)) => {
                let left = held.hold.checked_sub(now.duration_since(since))?;
                (!left.is_zero()).then_some((*vip, left))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(2);

    /// One VIP, and a clock.
    struct Lab {
        holds: Holds,
        vip: IpAddr,
        now: Instant,
    }

    impl Lab {
        fn new(hold: Duration) -> Self {
            let vip = "203.0.113.10".parse().unwrap();
            Self { holds: Holds::new(hold), vip, now: Instant::now() }
        }

        fn turn(&mut self, is_ready: bool) {
            self.holds.turn(&is_ready.then_some(self.vip).into_iter().collect(), self.now);
        }

        /// Lets this much time pass, in steps of turns.
        fn pass(&mut self, is_ready: bool, time: Duration) {
            self.turn(is_ready);
            for _ in 0..10 {
                self.now += time / 10;
                self.turn(is_ready);
            }
        }

        /// Withdraws the VIP, which is ready again at once. Returns how long it is held, and
        /// announces it.
        fn flap(&mut self) -> Duration {
            self.holds.withdrawn(self.vip);
            self.turn(false);
            assert!(self.holds.has(&self.vip, self.now));
            assert_eq!(self.holds.left(self.now).next(), None, "it is not ready");
            self.now += Duration::from_secs(5);
            self.turn(true);
            let (vip, left) = self.holds.left(self.now).next().unwrap();
            assert_eq!(vip, self.vip);
            self.now += left - Duration::from_nanos(1);
            assert!(self.holds.has(&self.vip, self.now));
            self.now += Duration::from_nanos(1);
            assert!(!self.holds.has(&self.vip, self.now));
            assert!(
                self.holds.turn(&[vip].into(), self.now)
                    && self.holds.left(self.now).next().is_none()
            );
            self.holds.announced(self.vip, self.now);
            left
        }
    }

    #[test]
    fn a_hold_doubles_while_a_vip_flaps_and_is_the_first_again_once_it_stays() {
        let mut lab = Lab::new(HOLD);
        assert!(!lab.holds.has(&lab.vip, lab.now), "the first announcement is not held");
        let flaps: Vec<_> = (0..10).map(|_| lab.flap().as_secs()).collect();
        assert_eq!(flaps, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        // Longer than a minute, and shorter than its hold: the VIP flaps.
        lab.pass(true, VIP_HOLD_MAX - Duration::from_secs(1));
        assert_eq!(lab.flap(), VIP_HOLD_MAX);
        lab.pass(true, VIP_HOLD_MAX);
        assert_eq!(lab.flap(), HOLD);
        lab.pass(true, STEADY_MIN - Duration::from_secs(1));
        assert_eq!(lab.flap(), 2 * HOLD);
        lab.pass(true, STEADY_MIN);
        assert_eq!(lab.flap(), HOLD);
    }

    #[test]
    fn a_vip_is_held_until_it_was_ready_for_all_of_its_hold() {
        let mut lab = Lab::new(HOLD);
        lab.holds.withdrawn(lab.vip);
        for _ in 0..5 {
            lab.pass(true, HOLD - Duration::from_millis(1));
            lab.pass(false, Duration::from_millis(20));
        }
        assert!(lab.holds.has(&lab.vip, lab.now));
        lab.pass(true, HOLD);
        assert!(!lab.holds.has(&lab.vip, lab.now));
        // A second withdrawal before the announcement counts as the same one.
        lab.holds.withdrawn(lab.vip);
        assert_eq!(lab.flap(), HOLD);
        lab.holds.withdrawn(lab.vip);
        lab.holds.release();
        assert!(!lab.holds.has(&lab.vip, lab.now), "an operator has it announced");
        lab.holds.withdrawn(lab.vip);
        lab.holds.retain(|_| false);
        assert!(!lab.holds.has(&lab.vip, lab.now));
    }

    #[test]
    fn without_a_hold_a_vip_is_announced_once_it_is_ready() {
        let mut lab = Lab::new(Duration::ZERO);
        for _ in 0..5 {
            lab.holds.withdrawn(lab.vip);
            lab.turn(false);
            assert!(lab.holds.has(&lab.vip, lab.now));
            lab.turn(true);
            assert!(!lab.holds.has(&lab.vip, lab.now));
            lab.holds.announced(lab.vip, lab.now);
        }
    }
}
