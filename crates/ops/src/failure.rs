//! Turns errors of a program into its exit code.

use crate::output::print;
use crate::socket::SocketError;
#[cfg(feature = "dpdk")]
use hotloop_dpdk as dpdk;
use hotloop_engine::RunError;
use hotloop_stage::Error;
use std::process::ExitCode;

/// Why a program fails, for one that takes all its settings from its command line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The user asked for help or the version: printed to standard output, exit code 0.
    #[error("{0}")]
    Help(String),
    /// An argument, or something that it names, is wrong: exit code 2. One line, with a remedy; see
    /// [`one_line`].
    #[error("{0}")]
    Input(String),
    /// The run failed, or its packets are not accounted for: exit code 1.
    #[error("{0}")]
    Run(String),
}

#[cfg(feature = "dpdk")]
impl From<dpdk::Error> for Failure {
    /// Devices and EAL's arguments come from the command line.
    fn from(error: dpdk::Error) -> Self {
        if is_input(&error) { Self::Input(error.to_string()) } else { Self::Run(error.to_string()) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        #[cfg(feature = "dpdk")]
        if error.downcast_ref().is_some_and(is_input) {
            return Self::Input(error.to_string());
        }
        Self::Run(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Start(error) => error.into(),
            other => Self::Run(other.to_string()),
        }
    }
}

impl From<SocketError> for Failure {
    /// The path comes from the command line: the default path never fails.
    fn from(error: SocketError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// The program writes nothing but standard output.
    fn from(error: std::io::Error) -> Self {
        Self::Run(format!("standard output: {error}"))
    }
}

/// Whether another command line would avoid the error.
#[cfg(feature = "dpdk")]
const fn is_input(error: &dpdk::Error) -> bool {
    use dpdk::Error as E;
    matches!(
        error,
        E::EalArgument { .. }
            | E::EalInit { .. }
            | E::DeviceString { .. }
            | E::DeviceInUse { .. }
            | E::Probe { .. }
            | E::TooManyQueues { .. }
            | E::Unsupported { .. }
    )
}

/// Turns the parser's error into a failure: help and the version for standard output, or the error
/// on one line with a pointer to `--help`.
#[must_use]
pub fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return Failure::Help(text);
    }
    let problem = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let problem: Vec<_> = problem.map(str::trim).filter(|line| !line.is_empty()).collect();
    let problem = problem.join(" ");
    let problem = problem.strip_prefix("error: ").unwrap_or(&problem);
    Failure::Input(format!("{problem}; --help shows what to write"))
}

/// Puts an error of several lines on one, for messages and for answers of
/// [`Steer::answer`](crate::Steer::answer). The lines are joined by semicolons; those that quote a
/// file after a bar, or mark a place in it, are left out.
///
/// ```
/// let error = "TOML parse error at line 2, column 8
///   |
/// 2 | from = \"left\"
///   |        ^^^^^^
/// unknown variant `left`, expected `inside` or `outside`
/// ";
/// assert_eq!(
///     hotloop_ops::one_line(error),
///     "TOML parse error at line 2, column 8; unknown variant `left`, expected `inside` or `outside`",
/// );
/// ```
#[must_use]
pub fn one_line(error: &str) -> String {
    let is_quoted = |line: &&str| {
        line.trim_start_matches(|it: char| it.is_ascii_digit()).trim_start().starts_with('|')
    };
    let lines = error.lines().map(str::trim).filter(|line| !line.is_empty() && !is_quoted(line));
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the exit code for `main`, and writes the error to standard error.
#[must_use]
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    let failure = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Help(text)) => match print(&text) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Failure::from(error),
        },
        Err(failure) => failure,
    };
    tracing::error!("{failure}");
    ExitCode::from(if matches!(failure, Failure::Input(_)) { 2 } else { 1 })
}

#[cfg(all(test, feature = "dpdk"))]
mod tests {
    use super::*;

    #[test]
    fn mistakes_on_the_command_line_differ_from_other_failures() {
        let wrong = dpdk::Error::DeviceString {
            device: "eth0".into(),
            problem: "no such thing".into(),
            remedy: "use another".into(),
        };
        let start = RunError::Start(Error::from(wrong.clone()));
        for failure in [Failure::from(wrong), Failure::from(start)] {
            let Failure::Input(message) = failure else { panic!("{failure:?}") };
            assert!(message.contains("eth0") && message.contains("use another"));
        }
        assert!(matches!(dpdk::Error::MempoolEmpty.into(), Failure::Run(_)));
        let other = RunError::Start(Error::message("no thread"));
        assert!(matches!(Failure::from(other), Failure::Run(message) if message == "no thread"));
    }
}
