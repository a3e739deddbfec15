//! Durations on the command line.

use std::time::Duration;

/// The longest duration, in seconds: thirty years.
const SECONDS_MAX: f64 = 1e9;

/// Parses a number of seconds above 0, for an argument's `value_parser`.
///
/// # Errors
/// The text is no such number. The error has a remedy.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "write a number of seconds above 0, such as 10 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "ten", "1e10", "NaN", "inf", ""] {
            assert!(seconds(wrong).unwrap_err().contains("number of seconds above 0"), "{wrong}");
        }
    }
}
