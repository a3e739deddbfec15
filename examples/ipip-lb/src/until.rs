//! The end of a state that an operator has limited: a time, or the last connection's end.

use serde::{Deserialize, Serialize};
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

    /// The end, as seconds from `now`.
    #[must_use]
    pub fn ending(self, now: Instant) -> Ending {
        let left_s = self.end.map(|end| left_s(end, now));
        Ending { left_s, until_empty: self.is_empty }
    }
}

/// The end of a drain, in an answer to `ctl`: whichever comes first.
#[derive(Debug, Deserialize, Serialize)]
pub struct Ending {
    /// The seconds that are left; `None` for no limit.
    pub left_s: Option<u64>,
    /// Whether the drain ends when no connection is left.
    pub until_empty: bool,
}

impl Ending {
    /// The time of a backend's planned removal.
    #[must_use]
    pub fn when(&self) -> String {
        let time = self.left_s.map(|seconds| format!("in {seconds} s"));
        let empty = self.until_empty.then(|| "once it has no connections".to_owned());
        time.into_iter().chain(empty).collect::<Vec<_>>().join(", or ")
    }

    /// The planned removal of a drained backend, as the end of a sentence.
    #[must_use]
    pub fn removal_text(&self) -> String {
        let when = self.when();
        if when.is_empty() { when } else { format!(", and is removed {when}") }
    }

    /// The end of a balancer that leaves.
    #[must_use]
    pub fn leave_text(&self) -> String {
        let time = self.left_s.map(|seconds| format!("in {seconds} s, or ")).unwrap_or_default();
        format!("{time}once no connection is left")
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
    use serde_json::{Value, json};
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
        assert_eq!(json!(time.ending(after(4))), json!({ "left_s": 6, "until_empty": false }));
        let empty = of(json!({ "until_empty": true })).unwrap();
        assert!(!empty.is_over(after(TIME_S_MAX), Some(1)) && empty.is_over(now, Some(0)));
        assert!(!empty.is_over(now, None), "not before that can be said");
        assert_eq!(json!(empty.ending(now)), json!({ "left_s": null, "until_empty": true }));
        let both = of(json!({ "for_s": 10, "until_empty": true })).unwrap();
        assert!(both.is_over(after(9), Some(0)) && both.is_over(after(10), Some(1)));
        assert!(!both.is_over(after(9), Some(1)));
    }
}
