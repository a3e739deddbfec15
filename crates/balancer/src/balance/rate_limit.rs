//! Rate limits: events per second, and ICMP errors per network. Use memory allocated at the start,
//! and the time that the caller passes. No window ever exceeds its limit.

use hotloop::stage::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Counts events in windows of a second: a window begins with the first event after the previous
/// window's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// The end of the window: initially in the past.
    end: Instant,
    count: u32,
}

impl Window {
    /// Whether another event may happen now.
    #[inline(always)]
    #[must_use]
    pub fn has_room(&mut self, now: Instant, per_second_max: u32) -> bool {
        if self.is_over(now) {
            *self = Self { end: now + SECOND, count: 0 };
        }
        self.count < per_second_max
    }

    /// Counts an event that happens now, after [`has_room`](Self::has_room) returned true.
    #[inline(always)]
    pub fn count(&mut self) {
        self.count += 1;
    }

    /// Whether the next event begins another window.
    #[inline]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }
}

/// Maximum number of ICMP errors of one kind that a worker sends in a second: errors about packets
/// that are too big are one kind, all others are another.
pub const ERRORS_PER_SECOND_MAX: u32 = 1_000;

/// Maximum number of those errors to one network: a /24 of IPv4, a /64 of IPv6.
pub const ERRORS_PER_NETWORK_MAX: u32 = 100;

/// A worker's budget for one kind of error.
#[derive(Debug)]
pub struct Budget {
    window: Window,
    /// Number of errors sent in this window, by network. There are at most
    /// [`ERRORS_PER_SECOND_MAX`] networks, so the map never grows beyond its initial memory.
    sent: HashMap<u64, u32>,
}

impl Budget {
    /// An unspent budget. Allocates all of its memory.
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

    /// Counts an error that goes to this host now, after [`has_room`](Self::has_room) returned
    /// true.
    pub fn count(&mut self, to: IpAddr) {
        self.window.count();
        *self.sent.entry(network(to)).or_default() += 1;
    }
}

/// The network of a host, as a number. Networks of IPv4 are written as networks of IPv6 in ::/32,
/// which has no hosts (RFC 4291, section 2.4).
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

    /// Returns the number of errors that may be sent, one to each of these hosts at once, and the
    /// capacity of the map.
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
