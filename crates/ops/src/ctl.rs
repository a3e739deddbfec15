//! The commands of every program's `ctl`.

use crate::ask::CtlArgs;
use crate::common::{counters_text, status_text, xstats_text};
use crate::failure::{exit_code, usage};
use crate::live::{self, CaptureArgs};
use crate::load::load_text;
use crate::request::Request;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The commands that every program answers. Flattened into the commands of a program with more:
///
/// ```
/// use clap::{Args, Subcommand};
/// use hotloop_ops::{CommonCommand, CtlArgs, Request};
/// use serde_json::{Value, json};
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
///             let text = |_: &Value| format!("{backend} gets no new connections");
///             ctl.args.ask("nf", &request, text)
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
pub enum CommonCommand {
    /// Print the program's state, start, and the counters of cores and devices.
    Status,
    /// Print the counters of each stage on each core, and drops by reason.
    Counters,
    /// Print how close each core came to its limit in the last second, where its time went, and
    /// what waits for it.
    Load,
    /// Print every figure of each device, under its driver's own names.
    Xstats,
    /// Write passing packets to a file, for tcpdump and Wireshark, until Ctrl-C.
    Capture(CaptureArgs),
}

impl CommonCommand {
    /// Sends the command to the running program `name`, as [`CtlArgs::ask`] does.
    #[must_use]
    pub fn ask(&self, name: &str, args: &CtlArgs) -> ExitCode {
        match self {
            Self::Status => args.ask(name, &Request::new("status"), status_text),
            Self::Counters => args.ask(name, &Request::new("counters"), counters_text),
            Self::Load => args.ask(name, &Request::new("load"), load_text),
            Self::Xstats => args.ask(name, &Request::new("xstats"), xstats_text),
            Self::Capture(capture) => live::run(name, args, capture),
        }
    }
}

/// The own commands of a program that has none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Subcommand)]
pub enum NoCommand {}

/// Queries a running program.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true, arg_required_else_help = false)]
struct Ctl<O: Subcommand> {
    #[command(flatten)]
    args: CtlArgs,
    #[command(subcommand)]
    command: AnyCommand<O>,
}

/// The commands of every program, and its own.
#[derive(Debug, Subcommand)]
enum AnyCommand<O: Subcommand> {
    #[command(flatten)]
    Common(CommonCommand),
    #[command(flatten)]
    Own(O),
}

/// The command `ctl` of a program with its own commands `O`, as [`main_with`](crate::main_with)
/// reads it: for its manual page and its completions.
///
/// ```
/// use clap::Command;
/// use hotloop_ops::{NoCommand, ctl_command};
///
/// let mut program = Command::new("nf").subcommand(ctl_command::<NoCommand>());
/// program.build();
/// let ctl = program.find_subcommand("ctl").unwrap();
/// assert_eq!(ctl.get_bin_name(), Some("nf ctl"));
/// ```
#[must_use]
pub fn ctl_command<O: Subcommand>() -> clap::Command {
    Ctl::<O>::command().name("ctl")
}

/// Runs `NAME ctl …`, with `ask` for the program's own commands, and returns its exit code. `None`
/// if the arguments, the program's name first, don't begin with `ctl`.
pub(crate) fn ctl<O: Subcommand>(
    name: &'static str,
    args: impl IntoIterator<Item = impl Into<OsString>>,
    ask: impl FnOnce(&CtlArgs, O) -> ExitCode,
) -> Option<ExitCode> {
    let mut args = args.into_iter().map(Into::into).skip(1).peekable();
    args.peek().filter(|first| *first == "ctl")?;
    let command = Ctl::<O>::command().name(name).bin_name(format!("{name} ctl"));
    let read = command.try_get_matches_from(args).and_then(|read| Ctl::from_arg_matches(&read));
    Some(match read {
        Ok(Ctl { args, command: AnyCommand::Common(command) }) => command.ask(name, &args),
        Ok(Ctl { args, command: AnyCommand::Own(command) }) => ask(&args, command),
        Err(error) => exit_code(Err(usage(&error))),
    })
}
