//! The end of a state that an operator has limited: a time, or the last connection's end.

use serde_json::{Value, json};
use std::time::Instant;

/// The longest time that an operator may set, in seconds: a year.
pub const TIME_S_MAX: u64 = 365 * 86_400;

/// The end of a drain: whichever comes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Until {
    /// A time; `None` for no limit.
    pub end: Option<Instant>,
    /// Whether the drain ends when no connection is left.
    pub is_empty: bool,
}

impl Until {
    /// Whether the drain has ended, given the connection count; `None` if not known yet.
    #[must_use]
    pub fn is_over(self, now: Instant, connection_count: Option<u64>) -> bool {
        self.end.is_some_and(|end| end <= now) || self.is_empty && connection_count == Some(0)
    }

    /// For programs: the seconds that are left, null for no end, and whether it may end sooner.
    #[must_use]
    pub fn to_json(self, now: Instant) -> Value {
        json!({ "left_s": self.end.map(|end| left_s(end, now)), "until_empty": self.is_empty })
    }
}

/// The seconds from `now` to `end`, rounded up.
#[must_use]
pub fn left_s(end: Instant, now: Instant) -> u64 {
    let left = end.saturating_duration_since(now);
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_over_at_whichever_comes_first() {
        let now = Instant::now();
        let after = |s| now + Duration::from_secs(s);
        let of = |end: Value| {
            let end: crate::request::DrainEnd = serde_json::from_value(end).unwrap();
            end.until(now)
        };
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({ "for_s": null, "until_empty": false })), None);

        let time = of(json!({ "for_s": 10 })).unwrap();
        assert!(!time.is_over(after(9), Some(0)) && time.is_over(after(10), Some(5)));
        assert_eq!(time.to_json(after(4)), json!({ "left_s": 6, "until_empty": false }));
        let empty = of(json!({ "until_empty": true })).unwrap();
        assert!(!empty.is_over(after(TIME_S_MAX), Some(1)) && empty.is_over(now, Some(0)));
        assert!(!empty.is_over(now, None), "not before that can be said");
        assert_eq!(empty.to_json(now), json!({ "left_s": null, "until_empty": true }));
        let both = of(json!({ "for_s": 10, "until_empty": true })).unwrap();
        assert!(both.is_over(after(9), Some(0)) && both.is_over(after(10), Some(1)));
        assert!(!both.is_over(after(9), Some(1)));
    }
}
