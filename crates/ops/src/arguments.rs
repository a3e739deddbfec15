//! The arguments that make a program operable: its control socket, and `ctl`.

use crate::ask::{AskError, ask};
use crate::output::print;
use crate::path::socket_path;
use crate::request::Request;
use crate::socket::{Socket, SocketError};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of `ctl` if the program answered with an error.
pub(crate) const REFUSED: u8 = 1;

/// Exit code of `ctl` if an argument is wrong, or no program answers.
pub(crate) const WRONG_INPUT: u8 = 2;

/// Arguments of a program with a control socket. Flattened into its own arguments:
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
    /// The path of the control socket, which `ctl` connects to; by default,
    /// $XDG_RUNTIME_DIR/hotloop/NAME.sock, or /run/hotloop/NAME.sock.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl ControlArgs {
    /// Binds the control socket at the given path, or else at the [default path](socket_path) of
    /// the program `name`. If the default path is taken, for example by a second instance, the
    /// problem is logged and the program runs without a control socket.
    ///
    /// # Errors
    /// The given path can't be bound.
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

/// Arguments of `ctl`, before or after its command.
#[derive(Args, Clone, Debug, Default)]
pub struct CtlArgs {
    /// The running program's control socket; by default, the program's own default path.
    #[arg(long, value_name = "PATH", global = true)]
    pub control: Option<PathBuf>,
    /// Write the answer as one line of JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl CtlArgs {
    /// Sends `request` to the running program `name`, and prints its answer to standard output: as
    /// JSON if the arguments ask for that, otherwise formatted by `text`. Errors go to standard
    /// error.
    ///
    /// Returns the exit code: 0 for an answer, 1 if the program answers with an error, 2 if there
    /// is no answer.
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
