//! Operates a running program built on hotloop: control socket, `ctl`, metrics, signals, and
//! messages.
//!
//! - [`Socket`] is the control socket, at [`socket_path`] or as [`ControlArgs`] set it. Requests
//!   and answers are JSON objects, one per line: `{"command": "status"}`, `{"ok": …}` or `{"error":
//!   "…"}`.
//! - With feature `dpdk`, `RunArgs` are the arguments of a program that runs one graph, and the run
//!   itself. `DeviceArgs` open the devices that it names, with `PortSettings`.
//! - [`Steer`] is what a program adds to its run: `ctl` commands, metrics, SIGHUP, work between
//!   packets. [`Operation`] is the control thread's loop, which `RunArgs` runs.
//! - [`Listing`] answers clients with state of all cores, such as their flows.
//! - [`main()`] is a program's whole `main`, [`main_with`] that of one with `ctl` commands of its
//!   own, and [`program`] that of one whose arguments are commands. Messages, `tracing`'s events, go
//!   to standard error in the format of [`LogArgs`]. [`print()`] writes data to standard output, and
//!   [`Output`] does for a running program.
//! - [`CtlArgs`] and [`CommonCommand`] are the client: `PROGRAM ctl status`, for people as
//!   [`Table`]s, with `--json` for programs. They send requests by [`ask`].
//! - [`Metrics`] serves metrics for Prometheus as [`MetricsArgs`] set it: those of every program,
//!   and those that the program adds to a [`Scrape`].
//! - `ctl capture` writes a running program's packets to a capture file, as [`CaptureArgs`] set it.
//! - [`DeploymentArgs`] set the roles of cores, and [`IdleArgs`] what idle cores do.
//! - [`run`] runs a plan on CPUs that no other program of the same control folder has taken
//!   ([`place`]), with no more capabilities than the program needs from then on. It watches the
//!   run's threads as [`Watching`] and [`StallArgs`] set it.
//! - [`load_figures`] return each core's load.
//! - [`notify`] notifies systemd of the program's state.
//!
//! # Guarantees
//!
//! - The packet path takes no part in any of this: the control thread does it, and reads the cores'
//!   counters.
//! - No client blocks the control thread or makes it grow, whatever it sends or leaves unread.
//!   Nothing waits for clients; there are at most [`CLIENT_COUNT_MAX`], and each has one request of
//!   at most 64 KiB and one answer of at most 16 MiB.
//! - Nor does a client that scrapes metrics. Their thread serves at most [`SCRAPE_COUNT_MAX`], each
//!   for at most [`SCRAPE_WAIT`], and has the control thread collect at most 10 times a second.
//!   Clients share places by their addresses, and wait for one in the order in which they come.
//! - Only the user that the program runs as, and root, can connect, unless [`ControlArgs`] name
//!   groups: one that can, too, and one that can only query. A socket has mode 0600 before it has a
//!   path.
//! - A second program never takes a running program's socket away, but it replaces one left by a
//!   program that ended. Both hold if programs start at the same time.
//! - Standard error never ends or delays a program: messages wait in a queue of 1 MiB for a thread
//!   that writes them. Lost messages are counted and, if possible, reported. One place in the
//!   source writes at most 100 messages in 10 s. The thread that ends the program writes the
//!   remaining messages, such as the final error, however busy the machine is. It gives up only if
//!   standard error takes nothing for [`EXIT_WAIT`].
//! - While packets pass, no thread has a capability but the control thread and threads that declare
//!   theirs ([`keep`](hotloop_privileges::keep)).
//! - A request ends in time, even if the program is stuck.
//!
//! # Example
//!
//! A forwarder with a command of its own, `nf ctl note "port 2 is for tests"`: `Command` and `ask`
//! are the client, and `Notes` answers it. It needs feature `dpdk`.
//!
//! ```
//! # #[cfg(feature = "dpdk")]
//! # mod nf {
//! use clap::{Parser, Subcommand};
//! use hotloop_engine::{Chain, Control, Deployment, source};
//! use hotloop_ops::{CtlArgs, Failure, Reply, Request, RunArgs, Steer, main_with};
//! use serde_json::json;
//! use std::process::ExitCode;
//!
//! /// Forwards packets from one device to another.
//! #[derive(Parser)]
//! pub struct Cli {
//!     #[arg(long, value_name = "DEVICE")]
//!     from: String,
//!     #[arg(long, value_name = "DEVICE")]
//!     to: String,
//!     #[command(flatten)]
//!     run: RunArgs,
//! }
//!
//! /// The own commands of `nf ctl`.
//! #[derive(Subcommand)]
//! enum Command {
//!     /// Leave a note for other operators, or print the last one.
//!     Note { text: Option<String> },
//! }
//!
//! #[derive(Default)]
//! struct Notes {
//!     last: Option<String>,
//! }
//!
//! impl Steer for Notes {
//!     fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
//!         match request.command.as_str() {
//!             "note" => {
//!                 let text = request.arguments.as_str().map(str::to_owned);
//!                 self.last = text.or(self.last.take());
//!                 Ok(json!(self.last).into())
//!             }
//!             _ => request.unknown(),
//!         }
//!     }
//! }
//!
//! pub fn run(cli: &Cli) -> Result<(), Failure> {
//!     let socket = cli.run.begin("nf")?;
//!     let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
//!     let (from, to) = (devices.open(eal, &cli.from)?, devices.open(eal, &cli.to)?);
//!     let graph = source(|core| from.rx_queue(core)).sink(|core| to.tx_queue(core));
//!     let plan = cli.run.plan(graph, Deployment::run_to_completion(1))?;
//!     cli.run.run_with(plan, socket, &mut Notes::default())
//! }
//!
//! fn ask(ctl: &CtlArgs, Command::Note { text }: Command) -> ExitCode {
//!     let request = Request::with("note", json!(text));
//!     ctl.ask("nf", &request, |last: &Option<String>| last.clone().unwrap_or_default())
//! }
//!
//! fn main() -> ExitCode {
//!     main_with("nf", |cli: Cli| run(&cli), ask)
//! }
//! # }
//! # #[cfg(not(feature = "dpdk"))]
//! # fn main() {}
//! # #[cfg(feature = "dpdk")]
//! # fn main() -> Result<(), hotloop_ops::Failure> {
//! #     let folder = tempfile::tempdir()?;
//! #     let socket = folder.path().join("nf.sock").display().to_string();
//! #     let mut words = vec!["nf", "--from", "net_null0", "--to", "net_null1", "--duration", "1"];
//! #     words.extend(["--control", &socket]);
//! #     nf::run(&clap::Parser::parse_from(words))
//! # }
//! ```
//!
//! # Unsafe code
//!
//! - `devices`: one block. Opening a net_memif device is unsafe, and needs the word
//!   `--trust-memif-peer` on the command line that the process was started with.
//!
//! # Limits
//!
//! Linux only. The control thread makes an answer and does nothing else meanwhile: slow work belongs
//! on another thread, with [`Reply::later`]. A request waits up to [`TURN`] before it is read. A user
//! who may connect may do everything.
#![deny(unsafe_code)]

mod ask;
mod common;
mod cpus;
mod ctl;
mod deployment;
#[cfg(feature = "dpdk")]
#[allow(unsafe_code, reason = "the command line can trust a peer")]
mod devices;
mod diagnostics;
mod failure;
mod hangup;
mod idle;
mod links;
mod listing;
mod live;
mod load;
mod metrics;
pub mod notify;
mod operation;
mod output;
mod path;
#[cfg(feature = "dpdk")]
mod port_settings;
mod privileges;
mod program;
mod queue;
mod request;
#[cfg(feature = "dpdk")]
mod run_args;
mod seconds;
mod socket;
mod stall_args;
mod steer;
mod table;
mod unix;
mod watch;

pub use ask::{ANSWER_WAIT, AskError, CtlArgs, ask, ask_within};
pub use common::{status, status_text};
pub use cpus::{give_back_cpus, place};
pub use ctl::{CommonCommand, NoCommand, ctl_command};
pub use deployment::DeploymentArgs;
#[cfg(feature = "dpdk")]
pub use devices::DeviceArgs;
pub use diagnostics::{EXIT_WAIT, LogArgs, LogFormat, lost_count};
pub use failure::{Failure, exit_code, one_line, usage};
pub use hangup::expect_hangup;
pub use hotloop_load::{CoreFigures, StallEvent, load_figures};
pub use idle::IdleArgs;
pub use listing::Listing;
pub use live::{Annotate, CaptureArgs, Summary};
pub use metrics::{
    METRICS, Metric, MetricKind, Metrics, MetricsArgs, SCHEMA_VERSION, SCRAPE_COUNT_MAX,
    SCRAPE_WAIT, Scrape,
};
pub use operation::{Operation, TURN};
pub use output::{OUTPUT_WAIT, Output, print, print_in_time};
pub use path::{query_path, socket_folders, socket_path};
#[cfg(feature = "dpdk")]
pub use port_settings::PortSettings;
pub use privileges::CONTROL;
pub use program::{main, main_with, parse, program};
pub use request::{Answerer, Promise, Reply, Request, Stream};
#[cfg(feature = "dpdk")]
pub use run_args::{ClockArg, ReportFormat, RunArgs};
pub use seconds::seconds;
pub use socket::{
    CLIENT_COUNT_MAX, CLIENT_IDLE_MAX, ControlArgs, IsQuery, Note, Socket, SocketError,
};
pub use stall_args::StallArgs;
pub use steer::Steer;
pub use table::Table;
pub use watch::{STALLED_END_WAIT, STALLED_EXIT_CODE, WORKER_STALL_MAX, Watching, run};
