//! At most so many in a second.

use hotloop::stage::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// Counts what happens in windows of a second: one begins with the first that comes when the last is
/// over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// None before the first.
    start: Option<Instant>,
    count: u32,
}

impl Window {
    /// Whether one more may happen now.
    #[inline]
    #[must_use]
    pub fn has_room(&self, now: Instant, per_second_max: u32) -> bool {
        per_second_max > 0 && (self.is_over(now) || self.count < per_second_max)
    }

    /// One more happens now.
    #[inline]
    pub fn count(&mut self, now: Instant) {
        if self.is_over(now) {
            *self = Self { start: Some(now), count: 0 };
        }
        self.count += 1;
    }

    /// Whether the next that happens begins another window.
    pub fn is_over(&self, now: Instant) -> bool {
        self.start.is_none_or(|start| now.ns_since(start) >= SECOND_NS)
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
                window.count(now);
            }
            has_room
        };
        assert!(admits(500) && admits(600) && !admits(700) && !admits(1499));
        assert!(admits(1500) && admits(2499) && !admits(2499));
        assert!(admits(9_000) && admits(9_500) && !admits(9_999));
    }
}
