//! What the doctor says.

use serde::Serialize;
use std::fmt;

/// How bad a finding is, from the best to the worst.
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
    /// Exit code of `hotloop-doctor` where this is the worst: 0, 0, 3 and 4. 1 and 2 are what every
    /// program ends with where it fails, or is called wrongly.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Unknown => 0,
            Self::Speed => 3,
            Self::Safety => 4,
        }
    }

    /// Its name, as JSON has it, too.
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

/// What one check found. The names of its fields are keys in the JSON of `hotloop-doctor`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// The check, one of [`ids`](crate::ids).
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is so, in a sentence without a full stop.
    pub what: String,
    /// What that costs; none where it costs nothing.
    pub why: Option<String>,
    /// The command that changes it, for root's shell; in angle brackets is what only the reader
    /// knows. After `boot with` it is a parameter of the kernel. None where nothing is to be changed.
    pub fix: Option<String>,
}

impl fmt::Display for Finding {
    /// One line, and one each for why and for the command.
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

/// Text that steers no terminal: it may come from files that anybody wrote.
fn printable(text: &str) -> String {
    let write = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(write).collect()
}

/// What a check says, to which its id is added.
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
