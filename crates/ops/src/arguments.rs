//! What every program takes on its command line to be operated.

use crate::ask::{AskError, ask};
use crate::output::print;
use crate::path::socket_path;
use crate::request::Request;
use crate::socket::{Socket, SocketError};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of `ctl` where the program answered with an error.
pub(crate) const REFUSED: u8 = 1;

/// Exit code of `ctl` where an argument is wrong, or no program answers.
pub(crate) const WRONG_INPUT: u8 = 2;

/// What a program takes to run with a control socket. Flattened into its own arguments:
///
/// ```
/// use clap::Parser;
/// use hotloop_ops::ControlArgs;
///
/// #[derive(Parser)]
/// struct Cli {
///     #[arg(long)]
///     port: String,
///     #[command(flatten)]
///     control: ControlArgs,
/// }
///
/// let cli = Cli::parse_from(["nf", "--port", "net_null0", "--control", "/run/nf/one.sock"]);
/// assert_eq!(cli.control.control.unwrap(), std::path::Path::new("/run/nf/one.sock"));
/// ```
#[derive(Args, Clone, Debug, Default)]
pub struct ControlArgs {
    /// Where the control socket is, at which `ctl` asks; without it,
    /// $XDG_RUNTIME_DIR/hotloop/NAME.sock, or /run/hotloop/NAME.sock.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl ControlArgs {
    /// Listens where the arguments say. Without them it tries the [default path](socket_path) of the
    /// program `name`: where that can't be had, for example because a second instance runs, it says
    /// so, and the program runs without a control socket.
    ///
    /// # Errors
    /// Where the path that was asked for can't be had.
    pub fn bind(&self, name: &str) -> Result<Option<Socket>, SocketError> {
        if let Some(path) = &self.control {
            return Socket::bind(path).map(Some);
        }
        match Socket::bind(&socket_path(name)) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) => {
                tracing::warn!("runs without a control socket: {error}");
                Ok(None)
            }
        }
    }
}

/// What `ctl` takes, before or after its command.
#[derive(Args, Clone, Debug, Default)]
pub struct CtlArgs {
    /// The running program's control socket; without it, where the program puts it without
    /// --control.
    #[arg(long, value_name = "PATH", global = true)]
    pub control: Option<PathBuf>,
    /// Write the answer as one line of JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl CtlArgs {
    /// Asks the running program `name` and prints its answer to standard output: as JSON where that
    /// is asked for, else as `text` makes it. What goes wrong is said on standard error.
    ///
    /// Returns the exit code: 0 for an answer, 1 where the program answers with an error, 2 where
    /// there is no answer.
    pub fn ask(&self, name: &str, request: &Request, text: &dyn Fn(&Value) -> String) -> ExitCode {
        let path = self.control.clone().unwrap_or_else(|| socket_path(name));
        let answer = match ask(&path, request) {
            Ok(answer) if self.json => answer.to_string(),
            Ok(answer) => text(&answer),
            Err(error) => {
                tracing::error!("{error}");
                let is_refused = matches!(error, AskError::Refused(_));
                return ExitCode::from(if is_refused { REFUSED } else { WRONG_INPUT });
            }
        };
        match print(&format!("{answer}\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("standard output: {error}");
                ExitCode::from(WRONG_INPUT)
            }
        }
    }
}
