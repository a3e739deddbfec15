//! Reasons for an exit code other than 0.

use hotloop::engine::Control;
use hotloop_capture::CaptureError;
use hotloop_cluster::sync::StartError;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Invalid input to the program: exit code 2. It prints as one line with the input and a remedy.
#[derive(Debug)]
pub struct BadInput(String);

impl BadInput {
    /// An error with this complete message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// An error of the system's on a file given by `argument`.
    #[must_use]
    pub fn file(path: &Path, argument: &str, error: &std::io::Error, remedy: &str) -> Self {
        Self(format!("{}: {argument}: {error}; {remedy}", path.display()))
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

impl From<CaptureError> for BadInput {
    fn from(CaptureError { path, problem, remedy }: CaptureError) -> Self {
        Self(format!("{}: --input: {problem}; {remedy}", path.display()))
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(problem) => Self::Input(BadInput(problem)),
            StartError::System(problem) => Self::Run(problem),
        }
    }
}

/// The reason for an exit code other than 0.
#[derive(Debug)]
pub enum Failure {
    /// Invalid input to the program: exit code 2.
    Input(BadInput),
    /// The run failed, or its ledger is not whole: exit code 1.
    Run(String),
    /// SIGINT or SIGTERM came before the run began: exit code 0.
    Ended,
}

impl Failure {
    /// The exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::FAILURE,
            Self::Ended => ExitCode::SUCCESS,
        }
    }
}

/// Ignores errors before the run begins if a signal has come meanwhile.
///
/// # Errors
/// The error, or [`Failure::Ended`] after a signal.
pub fn unless_ended<T>(result: Result<T, impl Into<Failure>>) -> Result<T, Failure> {
    result.map_err(|error| if Control::signal_came() { Failure::Ended } else { error.into() })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Run(message) => f.write_str(message),
            Self::Ended => f.write_str("a signal came before the run began"),
        }
    }
}

impl From<BadInput> for Failure {
    fn from(error: BadInput) -> Self {
        Self::Input(error)
    }
}
