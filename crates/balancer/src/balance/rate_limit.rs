//! Rate limits: so many of something in a second, and so many ICMP errors.

use hotloop::stage::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Counts what happens in windows of a second: one begins with the first that comes when the last is
/// over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// When it is over: in the beginning, at once.
    end: Instant,
    count: u32,
}

impl Window {
    /// Whether one more may happen now.
    #[inline(always)]
    #[must_use]
    pub fn has_room(&mut self, now: Instant, per_second_max: u32) -> bool {
        if self.is_over(now) {
            *self = Self { end: now + SECOND, count: 0 };
        }
        self.count < per_second_max
    }

    /// One more happens now, as there was [room](Self::has_room) for.
    #[inline(always)]
    pub fn count(&mut self) {
        self.count += 1;
    }

    /// Whether the next that happens begins another window.
    #[inline]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }
}

/// How many ICMP errors of one kind a worker sends in a second: packets that are too big are of one
/// kind, everything else is of another.
pub const ERRORS_PER_SECOND_MAX: u32 = 1_000;

/// How many of those go to one network: a /24 of IPv4, a /64 of IPv6.
pub const ERRORS_PER_NETWORK_MAX: u32 = 100;

/// What a worker may send of one kind of error.
#[derive(Debug)]
pub struct Budget {
    window: Window,
    /// What was sent in this window, by network. No more than [`ERRORS_PER_SECOND_MAX`] of them have
    /// an error, so it never grows beyond the memory that it has from the start.
    sent: HashMap<u64, u32>,
}

impl Budget {
    /// One of which nothing is spent. Takes all of its memory.
    pub fn new() -> Self {
        let sent = HashMap::with_capacity(ERRORS_PER_SECOND_MAX as usize);
        Self { window: Window::default(), sent }
    }

    /// Whether an error may go to this host now.
    pub fn has_room(&mut self, now: Instant, to: IpAddr) -> bool {
        if self.window.is_over(now) {
            self.sent.clear();
        }
        let sent = self.sent.get(&network(to)).copied().unwrap_or(0);
        sent < ERRORS_PER_NETWORK_MAX && self.window.has_room(now, ERRORS_PER_SECOND_MAX)
    }

    /// An error goes to this host now, as there was [room](Self::has_room) for.
    pub fn count(&mut self, to: IpAddr) {
        self.window.count();
        *self.sent.entry(network(to)).or_default() += 1;
    }
}

/// The network of a host, as a number. Those of IPv4 are written as networks of IPv6 that no host is
/// in: of ::/32 (RFC 4291, section 2.4).
fn network(host: IpAddr) -> u64 {
    match host {
        IpAddr::V4(host) => u64::from(host.to_bits() >> 8),
        IpAddr::V6(host) => (host.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_the_first_after_the_last() {
        let mut window = Window::default();
        let mut admits = |ms: u64| {
            let now = Instant::from_ns(ms * 1_000_000);
            let has_room = window.has_room(now, 2);
            if has_room {
                window.count();
            }
            has_room
        };
        assert!(admits(500) && admits(600) && !admits(700) && !admits(1499));
        assert!(admits(1500) && admits(2499) && !admits(2499));
        assert!(admits(9_000) && admits(9_500) && !admits(9_999));
    }

    /// Returns how many errors are sent, one to each of these hosts at once, and the capacity of the map.
    fn sent(
        budget: &mut Budget,
        now: Instant,
        hosts: impl Iterator<Item = IpAddr>,
    ) -> (u32, usize) {
        let mut count = 0;
        for host in hosts {
            if budget.has_room(now, host) {
                budget.count(host);
                count += 1;
            }
        }
        (count, budget.sent.capacity())
    }

    #[test]
    fn networks_have_their_shares_and_no_memory_is_taken() {
        let mut budget = Budget::new();
        let capacity = budget.sent.capacity();
        let v4 = |bits: u32| IpAddr::from(bits.to_be_bytes());
        let v6 = |bits: u128| IpAddr::from(bits.to_be_bytes());
        for second in 1..5 {
            let now = Instant::from_ns(second * 1_000_000_000);
            let one = (0..256).map(|host| v4(0x0A00_0000 | host));
            assert_eq!(sent(&mut budget, now, one), (100, capacity));
            let one = (0..256).map(|host| v6(7 << 64 | host));
            assert_eq!(sent(&mut budget, now, one), (100, capacity));
            let many = (0..100_000).map(|net| v4(0x0B00_0000 + net * 256));
            assert_eq!(sent(&mut budget, now, many), (800, capacity));
            assert_eq!(sent(&mut budget, now, [v6(9 << 64)].into_iter()), (0, capacity));
        }
    }
}
