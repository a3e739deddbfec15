//! Runs tests and finds the skipped ones: such a test prints a line that begins with `skipped`, and
//! passes. The test harness hides the output of passing tests.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::failure::Failure;
use crate::process;

/// A test that passed but did not test everything.
#[derive(Debug, PartialEq, Eq)]
pub struct Skip {
    /// The test's name, as printed by the harness.
    pub test: String,
    /// The printed reason.
    pub why: String,
}

/// Runs `cargo test` with these arguments, shows its output, and returns the skipped tests.
pub fn run(arguments: &[&str]) -> Result<Vec<Skip>, Failure> {
    let mut command = process::cargo(&["test"]);
    command.args(arguments).args(["--", "--show-output"]).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| process::not_started(&command, &error))?;
    let mut output = Output::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(|error| Failure::failed(format!("cargo test: {error}")))?;
        if output.take(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|error| Failure::failed(format!("cargo test: {error}")))?;
    if !status.success() {
        return Err(Failure::failed(format!("`{}` failed: {status}", process::line(&command))));
    }
    Ok(output.skips)
}

/// The section of the harness's output that a line belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Section {
    /// Shown.
    #[default]
    Shown,
    /// The output of tests that passed. They may have run a harness of their own.
    Passed,
    /// The names of those tests.
    Names,
}

/// The state after the lines that the harness has printed so far.
#[derive(Default)]
struct Output {
    section: Section,
    /// The test that printed the current lines.
    test: String,
    skips: Vec<Skip>,
}

impl Output {
    /// Takes a line. Returns whether to show it: the output of tests that passed is hidden.
    fn take(&mut self, line: &str) -> bool {
        self.section = match (self.section, line) {
            (Section::Shown, "successes:") => Section::Passed,
            (Section::Passed, "successes:") => Section::Names,
            (Section::Names, "failures:") => Section::Shown,
            (Section::Names, _) if line.starts_with("test result: ") => Section::Shown,
            (section, _) => section,
        };
        if self.section == Section::Passed {
            let title = line.strip_prefix("---- ").and_then(|title| title.strip_suffix(" ----"));
            if let Some(title) = title {
                title.trim_end_matches(" stdout").clone_into(&mut self.test);
            } else if let Some(why) = line.strip_prefix("skipped") {
                let why = why.trim_start_matches(':').trim().to_owned();
                self.skips.push(Skip { test: self.test.clone(), why });
            }
        }
        self.section == Section::Shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_passed_tests_is_hidden_and_skips_are_collected() {
        let printed = "running 3 tests\ntest a ... ok\ntest m::b ... ok\ntest c ... FAILED\n\n\
            successes:\n\n---- a stdout ----\nfine\n\n\
            running 1 test\ntest result: ok. 1 passed\n\n---- m::b stdout ----\n\
            skipped: no TAP here\n\nsuccesses:\n    a\n    m::b\n\n\
            failures:\n\n---- c stdout ----\nskipped nothing\n\nfailures:\n    c\n\n\
            test result: FAILED. 2 passed; 1 failed\nskipped: no test";
        let mut output = Output::default();
        let shown: Vec<_> = printed.lines().filter(|line| output.take(line)).collect();
        let skip = Skip { test: "m::b".into(), why: "no TAP here".into() };
        assert_eq!(output.skips, [skip]);
        assert!(!shown.contains(&"fine") && !shown.contains(&"    m::b"), "{shown:#?}");
        assert!(shown.contains(&"skipped nothing") && shown.contains(&"skipped: no test"));
    }
}
