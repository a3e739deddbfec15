//! Inspection of payloads: which datagrams came, and how long they took.

use crate::stamp::Stamp;
use crate::verify::{Verified, Verifier};
use hdrhistogram::Histogram;
use std::sync::{Mutex, PoisonError};

/// Maximum recorded latency in nanoseconds: longer ones count as this one.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Questions about datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Questions {
    /// Number of flows to verify, if any.
    pub verified_flows: Option<usize>,
    /// Whether to measure latencies.
    pub latency: bool,
}

/// The results of one core.
#[derive(Debug)]
pub struct Inspection {
    verifier: Option<Verifier>,
    latency: Option<Histogram<u64>>,
}

/// The results of all cores, added when each ends.
#[derive(Debug, Default)]
pub struct Findings {
    questions: Questions,
    inspections: Mutex<Vec<Inspection>>,
}

/// The sum of all results.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The datagrams that came.
    pub verified: Option<Verified>,
    /// Latency from the source to here, in nanoseconds.
    pub latency: Option<Histogram<u64>>,
}

impl Inspection {
    /// Records a datagram with this payload that came at `now_ns`, a time of
    /// [`now_ns`](crate::stamp::now_ns).
    #[inline]
    pub fn see(&mut self, payload: &[u8], now_ns: u64) {
        let stamp = match &mut self.verifier {
            Some(verifier) => verifier.see(payload),
            None => Stamp::read(payload),
        };
        if let Some((stamp, latency)) = stamp.zip(self.latency.as_mut()) {
            // A datagram from another machine may have been sent later than now.
            latency.saturating_record(now_ns.saturating_sub(stamp.sent_ns));
        }
    }
}

impl Findings {
    /// Findings for these questions.
    #[must_use]
    pub fn new(questions: Questions) -> Self {
        Self { questions, inspections: Mutex::default() }
    }

    /// The initial state of a core, if there is anything to find out.
    #[must_use]
    pub fn inspection(&self) -> Option<Inspection> {
        let Questions { verified_flows, latency } = self.questions;
        (latency || verified_flows.is_some()).then(|| Inspection {
            verifier: verified_flows.map(Verifier::new),
            latency: latency.then(empty),
        })
    }

    /// Adds the results of a core that has ended.
    pub fn add(&self, inspection: Inspection) {
        self.inspections.lock().unwrap_or_else(PoisonError::into_inner).push(inspection);
    }

    /// The results of the cores that have ended.
    #[must_use]
    pub fn found(&self) -> Found {
        let inspections = self.inspections.lock().unwrap_or_else(PoisonError::into_inner);
        let verifiers = inspections.iter().filter_map(|inspection| inspection.verifier.as_ref());
        let verified = self.questions.verified_flows.map(|_| Verifier::sum(verifiers));
        let latency = self.questions.latency.then(|| {
            let all = inspections.iter().filter_map(|inspection| inspection.latency.as_ref());
            all.fold(empty(), |sum, one| sum + one)
        });
        Found { verified, latency }
    }
}

fn empty() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
    histogram.expect("the bounds are as the histogram wants them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(number: u64, sent_ns: u64) -> [u8; 24] {
        Stamp { flow: 0, number, sent_ns }.bytes()
    }

    #[test]
    fn what_cores_find_is_summed() {
        let findings = Findings::new(Questions { verified_flows: Some(1), latency: true });
        for core in 0..2 {
            let mut inspection = findings.inspection().unwrap();
            for number in (core..1_000).step_by(2).filter(|number| *number != 500) {
                inspection.see(&payload(number, 10_000), 10_000 + 1_000 * (number + 1));
            }
            inspection.see(b"something else", 0);
            findings.add(inspection);
        }
        let Found { verified, latency } = findings.found();
        let expected = Verified { received: 999, lost: 1, unstamped: 2, ..Verified::default() };
        assert_eq!(verified, Some(expected));
        let latency = latency.unwrap();
        assert_eq!(latency.len(), 999);
        assert!(latency.value_at_quantile(0.5).abs_diff(500_000) < 2_000);
        assert!(latency.max().abs_diff(1_000_000) < 1_000);
    }

    #[test]
    fn latencies_alone_need_no_flows() {
        let findings = Findings::new(Questions { verified_flows: None, latency: true });
        let mut inspection = findings.inspection().unwrap();
        inspection.see(&payload(7, 5), 4);
        inspection.see(&payload(7, 5), u64::MAX);
        findings.add(inspection);
        let found = findings.found();
        assert!(found.verified.is_none());
        let latency = found.latency.unwrap();
        // The other machine's clock is slow, and no latency is too long.
        assert_eq!((latency.len(), latency.min()), (2, 0));
    }

    #[test]
    fn without_questions_no_payload_is_read() {
        assert!(Findings::default().inspection().is_none());
        assert!(Findings::default().found().latency.is_none());
    }
}
