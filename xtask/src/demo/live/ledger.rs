//! The reports that the programs leave, judged.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::Failure;

/// The part of a program's report that is judged.
#[derive(Debug, Deserialize)]
pub struct Ledger {
    received: u64,
    sent: u64,
    created: u64,
    dropped: BTreeMap<String, u64>,
    in_flight: u64,
    balanced: bool,
    pools_whole: bool,
}

impl Ledger {
    /// Reads the report of `program` and makes sure that it is whole.
    pub fn judge(program: &str, report: &str) -> Result<Self, Failure> {
        let ledger: Self = serde_json::from_str(report).map_err(|error| {
            Failure::failed(format!("{program}'s report is not as known: {error}"))
        })?;
        let checks = [
            (ledger.balanced, "`balanced` is false"),
            (ledger.pools_whole, "`pools_whole` is false"),
            (ledger.in_flight == 0, "packets are still in flight"),
            (
                ledger.received + ledger.created == ledger.sent + ledger.dropped_sum(),
                "received + created is not sent + dropped",
            ),
            (ledger.sent > 0, "nothing was sent"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            None => Ok(ledger),
            Some((_, what)) => {
                Err(Failure::failed(format!("{program}'s ledger is wrong: {what}: {report}")))
            }
        }
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.dropped.get(reason).copied().unwrap_or(0)
    }

    /// Packets that the program made itself.
    pub fn created(&self) -> u64 {
        self.created
    }

    fn dropped_sum(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Prints it on one line, and its drops on another.
    pub fn print(&self, program: &str) {
        let Self { received, sent, created, .. } = self;
        let dropped = self.dropped_sum();
        println!(
            "  {program:<24} received {received:>6} + created {created:>4} = sent {sent:>6} + dropped {dropped:>4}"
        );
        let reasons = self.dropped.iter().filter(|(_, count)| **count > 0);
        let reasons: Vec<_> = reasons.map(|(reason, count)| format!("{reason} {count}")).collect();
        println!("  {:<24} {}", "", reasons.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"received": 10, "sent": 8, "created": 1, "in_flight": 0,
        "dropped": {"too_big": 3, "ring_full": 0}, "balanced": true, "pools_whole": true}"#;

    #[test]
    fn a_whole_ledger_passes_and_knows_its_drops() {
        let ledger = Ledger::judge("nf", REPORT).unwrap();
        assert_eq!(
            (ledger.dropped("too_big"), ledger.dropped("none"), ledger.created()),
            (3, 0, 1)
        );
    }

    #[test]
    fn each_broken_term_is_named() {
        for (whole, broken, named) in [
            ("\"balanced\": true", "\"balanced\": false", "`balanced`"),
            ("\"pools_whole\": true", "\"pools_whole\": false", "`pools_whole`"),
            ("\"in_flight\": 0", "\"in_flight\": 1", "in flight"),
            ("\"received\": 10", "\"received\": 11", "received + created"),
            ("\"created\": 1", "\"created\": 0", "received + created"),
            ("\"too_big\": 3", "\"too_big\": 2", "received + created"),
        ] {
            let failure = Ledger::judge("nf", &REPORT.replace(whole, broken)).unwrap_err();
            assert!(failure.to_string().contains(named), "{failure}");
        }
        let idle = r#"{"received": 0, "sent": 0, "created": 0, "in_flight": 0, "dropped": {},
            "balanced": true, "pools_whole": true}"#;
        assert!(Ledger::judge("nf", idle).unwrap_err().to_string().contains("nothing was sent"));
        assert!(Ledger::judge("nf", "").unwrap_err().to_string().contains("not as known"));
    }
}
