//! The time of an event.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

const DAY_S: u64 = 24 * 60 * 60;

/// The current time as RFC 3339 writes it, in UTC, to the microsecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time;

impl FormatTime for Time {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write(writer, SystemTime::now())
    }
}

fn write(writer: &mut dyn fmt::Write, time: SystemTime) -> fmt::Result {
    // A clock before the epoch shows the epoch.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(writer, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    write!(writer, ".{:06}Z", since.subsec_micros())
}

/// The date `days` days after 1970-01-01, in the Gregorian calendar. Its cycle of 400 years has
/// 146,097 days, counted from a 1 March, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const FROM_YEAR_0: u64 = 719_468;
    let (cycle, day) = ((days + FROM_YEAR_0) / 146_097, (days + FROM_YEAR_0) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (400 * cycle + year + u64::from(is_next_year), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(seconds: u64, nanos: u32) -> String {
        let mut text = String::new();
        write(&mut text, UNIX_EPOCH + Duration::new(seconds, nanos)).unwrap();
        text
    }

    #[test]
    fn times_are_those_of_date() {
        // By date(1): date -u -d @SECONDS +%FT%T.
        assert_eq!(text(0, 999), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text(951_782_399, 1_000), "2000-02-28T23:59:59.000001Z");
        assert_eq!(text(951_782_400, 0), "2000-02-29T00:00:00.000000Z");
        assert_eq!(text(951_868_800, 0), "2000-03-01T00:00:00.000000Z");
        assert_eq!(text(1_798_761_599, 999_999_999), "2026-12-31T23:59:59.999999Z");
        assert_eq!(text(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = date(0);
        for days in 1..400 * 366 {
            let (year, month, day) = date(days);
            let is_next_day = (year, month) == (last.0, last.1) && day == last.2 + 1;
            let is_next_month = day == 1 && last.2 >= 28;
            assert!(is_next_day || is_next_month, "{last:?}, then {:?}", (year, month, day));
            last = (year, month, day);
        }
    }
}
