//! Limits the messages from one place in the source, so that a repeated message does not drown the
//! others or fill a disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::Metadata;
use tracing::callsite::Identifier;

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The most messages of one call site that are written in a window.
pub(super) const MESSAGE_COUNT_MAX: u32 = 100;

/// The messages of each call site in its window.
#[derive(Debug, Default)]
pub(super) struct Limit {
    sites: Mutex<HashMap<Identifier, Site>>,
}

#[derive(Debug)]
struct Site {
    metadata: &'static Metadata<'static>,
    since: Instant,
    count: u32,
    left_out: u64,
}

/// The decision on a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    Yes,
    /// Left out, as the first of its window.
    NoLonger,
    No,
}

/// The number of messages of one call site that were left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LeftOut {
    pub(super) count: u64,
    pub(super) target: &'static str,
    pub(super) line: u32,
}

impl Limit {
    /// Counts a message that is sent `now`.
    pub(super) fn take(&self, metadata: &'static Metadata<'static>, now: Instant) -> Taken {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Site { metadata, since: now, count: 0, left_out: 0 };
        let site = sites.entry(metadata.callsite()).or_insert_with(fresh);
        // A window that left messages out ends once they have been reported.
        if site.left_out == 0 && now.saturating_duration_since(site.since) >= WINDOW {
            *site = fresh();
        }
        if site.count < MESSAGE_COUNT_MAX {
            site.count += 1;
            return Taken::Yes;
        }
        site.left_out += 1;
        if site.left_out == 1 { Taken::NoLonger } else { Taken::No }
    }

    /// Returns the messages left out in windows that have ended, or in all of them, and the time at
    /// which the next window that left messages out ends.
    pub(super) fn settle(&self, now: Instant, all: bool) -> (Vec<LeftOut>, Option<Instant>) {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut reports, mut due) = (Vec::new(), None::<Instant>);
        sites.retain(|_, site| {
            let end = site.since + WINDOW;
            if site.left_out > 0 && now < end && !all {
                due = Some(due.map_or(end, |due| due.min(end)));
                return true;
            }
            if site.left_out > 0 {
                let Site { metadata, left_out, .. } = site;
                let (target, line) = (metadata.target(), metadata.line().unwrap_or(0));
                reports.push(LeftOut { count: *left_out, target, line });
            }
            now < end && site.left_out == 0
        });
        (reports, due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{Callsite, Level};

    fn sites() -> [&'static Metadata<'static>; 2] {
        let one = tracing::callsite! {
            name: "one", kind: tracing::metadata::Kind::EVENT, target: "one",
            level: Level::INFO, fields: message
        };
        let other = tracing::callsite! {
            name: "other", kind: tracing::metadata::Kind::EVENT, target: "other",
            level: Level::INFO, fields: message
        };
        [one.metadata(), other.metadata()]
    }

    #[test]
    fn each_call_site_has_its_own_window_and_what_is_left_out_is_reported_at_its_end() {
        let ([one, other], limit, start) = (sites(), Limit::default(), Instant::now());
        for _ in 0..MESSAGE_COUNT_MAX {
            assert_eq!(limit.take(one, start), Taken::Yes);
        }
        assert_eq!(limit.settle(start, false), (vec![], None));
        assert_eq!(limit.take(one, start), Taken::NoLonger);
        assert_eq!(limit.take(one, start), Taken::No);
        assert_eq!(limit.take(other, start), Taken::Yes);

        let end = start + WINDOW;
        assert_eq!(limit.settle(start, false), (vec![], Some(end)));
        assert_eq!(limit.take(one, end), Taken::No);
        let (reports, due) = limit.settle(end, false);
        assert_eq!((reports.len(), due), (1, None));
        assert_eq!((reports[0].count, reports[0].target), (3, "one"));
        assert_eq!(limit.take(one, end), Taken::Yes);
        assert_eq!(limit.settle(end, true), (vec![], None));
    }

    #[test]
    fn a_window_that_left_nothing_out_ends_unseen() {
        let ([one, _], limit, start) = (sites(), Limit::default(), Instant::now());
        for round in 0..3 * MESSAGE_COUNT_MAX {
            let now = start + WINDOW * (round / MESSAGE_COUNT_MAX);
            assert_eq!(limit.take(one, now), Taken::Yes, "{round}");
        }
    }

    #[test]
    fn at_the_end_of_the_program_all_is_reported() {
        let ([one, _], limit, start) = (sites(), Limit::default(), Instant::now());
        for _ in 0..MESSAGE_COUNT_MAX + 7 {
            limit.take(one, start);
        }
        assert_eq!(limit.settle(start, true).0[0].count, 7);
        assert_eq!(limit.settle(start, true).0, []);
    }
}
