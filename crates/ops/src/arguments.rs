//! What every program takes on its command line to be operated.

use crate::ask::{AskError, ask};
use crate::common::{counters_text, status_text, xstats_text};
use crate::failure::{Failure, exit_code};
use crate::live::{self, CaptureArgs};
use crate::load::load_text;
use crate::output::print;
use crate::path::socket_path;
use crate::request::Request;
use crate::socket::{Socket, SocketError};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::Value;
use std::ffi::OsString;
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

/// The commands that every program answers. Flattened into the commands of a program that has more:
///
/// ```
/// use clap::{Args, Subcommand};
/// use hotloop_ops::{CommonCommand, CtlArgs, Request};
/// use serde_json::json;
/// use std::process::ExitCode;
///
/// #[derive(Args)]
/// struct Ctl {
///     #[command(flatten)]
///     args: CtlArgs,
///     #[command(subcommand)]
///     command: Command,
/// }
///
/// #[derive(Subcommand)]
/// enum Command {
///     #[command(flatten)]
///     Common(CommonCommand),
///     /// Give a backend no new connections.
///     Drain { backend: String },
/// }
///
/// fn ctl(ctl: &Ctl) -> ExitCode {
///     match &ctl.command {
///         Command::Common(command) => command.ask("nf", &ctl.args),
///         Command::Drain { backend } => {
///             let request = Request::with("drain", json!({"backend": backend}));
///             ctl.args.ask("nf", &request, &|_| format!("{backend} gets no new connections"))
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
pub enum CommonCommand {
    /// Print what runs, since when, what went through each core, and what each device counted.
    Status,
    /// Print what each stage on each core has counted, and drops by reason.
    Counters,
    /// Print how far each core is from its limit, what takes its time, and what waits for it: of the
    /// last second.
    Load,
    /// Print every figure of each device, by its driver's own names.
    Xstats,
    /// Write packets that pass to a file, for tcpdump and Wireshark, until Ctrl-C.
    Capture(CaptureArgs),
}

impl CommonCommand {
    /// Asks the running program `name`, as [`CtlArgs::ask`] does.
    #[must_use]
    pub fn ask(&self, name: &str, args: &CtlArgs) -> ExitCode {
        match self {
            Self::Status => args.ask(name, &Request::new("status"), &status_text),
            Self::Counters => args.ask(name, &Request::new("counters"), &counters_text),
            Self::Load => args.ask(name, &Request::new("load"), &load_text),
            Self::Xstats => args.ask(name, &Request::new("xstats"), &xstats_text),
            Self::Capture(capture) => live::run(name, args, capture),
        }
    }
}

/// Asks a program that is running how it is.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true, arg_required_else_help = false)]
struct Ctl {
    #[command(flatten)]
    args: CtlArgs,
    #[command(subcommand)]
    command: CommonCommand,
}

/// The command `ctl` of a program without other commands, as [`ctl`] reads it: for its manual page and
/// its completions.
///
/// ```
/// use clap::Command;
///
/// let mut program = Command::new("nf").subcommand(hotloop_ops::ctl_command());
/// program.build();
/// let ctl = program.find_subcommand("ctl").unwrap();
/// assert_eq!(ctl.get_bin_name(), Some("nf ctl"));
/// ```
#[must_use]
pub fn ctl_command() -> clap::Command {
    Ctl::command().name("ctl")
}

/// Does what `NAME ctl …` asks for, for a program without other commands, and returns its exit code;
/// nothing where the arguments, the program's name first, don't begin with `ctl`.
///
/// ```
/// assert!(hotloop_ops::ctl("nf", ["nf", "--port", "net_null0"]).is_none());
/// ```
pub fn ctl(
    name: &'static str,
    args: impl IntoIterator<Item = impl Into<OsString>>,
) -> Option<ExitCode> {
    let mut args = args.into_iter().map(Into::into).skip(1).peekable();
    args.peek().filter(|first| *first == "ctl")?;
    let command = Ctl::command().name(name).bin_name(format!("{name} ctl"));
    let read = command.try_get_matches_from(args).and_then(|read| Ctl::from_arg_matches(&read));
    Some(match read {
        Ok(ctl) => ctl.command.ask(name, &ctl.args),
        Err(error) => exit_code(Err(usage(&error))),
    })
}

/// What the parser says, as a failure: help and the version for standard output, what is wrong on one
/// line with where to read on.
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
