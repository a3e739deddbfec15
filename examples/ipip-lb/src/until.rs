//! The end of a state that an operator has limited: a time, or the last connection's end.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

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
    /// The limits in the arguments of a command; `None` if they set neither a time nor a wait for
    /// the last connection.
    ///
    /// # Errors
    /// If the time is not allowed.
    pub fn of(arguments: &Value, now: Instant) -> Result<Option<Self>, String> {
        let end = for_s(arguments)?.map(|seconds| now + Duration::from_secs(seconds));
        let is_empty = arguments["until_empty"].as_bool().unwrap_or(false);
        Ok((end.is_some() || is_empty).then_some(Self { end, is_empty }))
    }

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

/// The time in the arguments of a command, in seconds; `None` if they set none.
///
/// # Errors
/// If the time is not allowed.
pub fn for_s(arguments: &Value) -> Result<Option<u64>, String> {
    let for_s = &arguments["for_s"];
    match for_s.as_u64().filter(|seconds| (1..=TIME_S_MAX).contains(seconds)) {
        None if !for_s.is_null() => {
            Err(format!("for_s: give a time from 1 to {TIME_S_MAX} seconds"))
        }
        seconds => Ok(seconds),
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

    #[test]
    fn it_is_over_at_whichever_comes_first() {
        let now = Instant::now();
        let after = |s| now + Duration::from_secs(s);
        let of = |arguments: Value| Until::of(&arguments, now).unwrap();
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

    #[test]
    fn a_time_is_a_second_to_a_year() {
        assert_eq!(for_s(&json!({ "for_s": TIME_S_MAX })), Ok(Some(TIME_S_MAX)));
        for wrong in [json!(0), json!(TIME_S_MAX + 1), json!(-1), json!(1.5), json!("10m")] {
            let refusal = for_s(&json!({ "for_s": wrong })).unwrap_err();
            assert!(refusal.contains("from 1 to 31536000 seconds"), "{wrong}: {refusal}");
        }
    }
}
