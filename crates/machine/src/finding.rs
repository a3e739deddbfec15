//! The finding of a check, and its severity.

use serde::Serialize;
use std::fmt;

/// How bad a finding is, from best to worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Could not be read: neither good nor bad.
    Unknown,
    /// Costs speed: packets take longer, or fewer pass.
    Speed,
    /// Costs safety: the machine, its memory or the run are at risk, or a program does not start.
    Safety,
}

impl Severity {
    /// Exit code of `hotloop-doctor` if this is the worst severity: 0, 0, 3 or 4. Every program
    /// exits with 1 if it fails, and with 2 if its arguments are wrong.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Unknown => 0,
            Self::Speed => 3,
            Self::Safety => 4,
        }
    }

    /// The severity's name, in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Speed => "speed",
            Self::Safety => "safety",
        }
    }
}

/// The finding of one check. Its fields' names are keys in the JSON of `hotloop-doctor`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// The check's id, one of [`ids`](crate::ids).
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The fact, in a sentence without a full stop.
    pub what: String,
    /// The cost of that fact. `None` if it costs nothing.
    pub why: Option<String>,
    /// The command that changes it, for root's shell, with placeholders in angle brackets. A text
    /// that begins with `boot with` names a kernel parameter. `None` if nothing needs a change.
    pub fix: Option<String>,
}

impl fmt::Display for Finding {
    /// One line, and one more each for why and for the command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7}  {:<21}  {}", self.severity.name(), self.id, printable(&self.what))?;
        for (head, text) in [("why", &self.why), ("fix", &self.fix)] {
            if let Some(text) = text {
                write!(f, "\n{:9}{head}: {}", "", printable(text))?;
            }
        }
        Ok(())
    }
}

/// Replaces control characters, which could steer the terminal: anyone may have written the files.
fn printable(text: &str) -> String {
    let write = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(write).collect()
}

/// A finding without its id.
#[derive(Debug)]
pub(super) struct Verdict {
    severity: Severity,
    what: String,
    why: Option<String>,
    fix: Option<String>,
}

impl Verdict {
    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, what: what.into(), why: None, fix: None }
    }

    pub(super) fn unknown(what: impl Into<String>) -> Self {
        Self { severity: Severity::Unknown, ..Self::ok(what) }
    }

    pub(super) fn speed(what: impl Into<String>, why: &str, fix: impl Into<String>) -> Self {
        let (why, fix) = (Some(why.to_owned()), Some(fix.into()));
        Self { severity: Severity::Speed, what: what.into(), why, fix }
    }

    pub(super) fn safety(what: impl Into<String>, why: &str, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Safety, ..Self::speed(what, why, fix) }
    }

    pub(super) fn of(self, id: &'static str) -> Finding {
        let Self { severity, what, why, fix } = self;
        Finding { id, severity, what, why, fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_read_by_people_and_by_programs() {
        let found = Verdict::speed("CPU 2: \u{1b}[2J", "it is slow", "echo 1 > x").of("governor");
        assert_eq!(
            found.to_string(),
            "speed    governor               CPU 2: \\u{1b}[2J\n         why: it is slow\n         fix: echo \
             1 > x"
        );
        let json = serde_json::to_value(Verdict::ok("tsc").of("clock-source")).unwrap();
        let expected = serde_json::json!({"id": "clock-source", "severity": "ok", "what": "tsc",
            "why": null, "fix": null});
        assert_eq!(json, expected);
        for severity in [Severity::Ok, Severity::Unknown, Severity::Speed, Severity::Safety] {
            assert_eq!(serde_json::to_value(severity).unwrap(), severity.name());
        }
    }
}
