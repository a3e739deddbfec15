//! Running a program built on hotloop: its control socket, what `ctl` asks there, SIGHUP, and what it
//! writes.
//!
//! - [`Socket`] is the control socket, at [`socket_path`] or where [`ControlArgs`] say. One JSON
//!   object a line goes each way: `{"command": "status"}`, `{"ok": …}` or `{"error": "…"}`.
//! - [`operate`], or [`Operation`] for a program with commands of its own, is the control thread's
//!   loop: it waits for what ends the run, and answers clients meanwhile.
//! - [`CtlArgs`], [`CommonCommand`] and [`ctl`] are the other side: `PROGRAM ctl status`, for people
//!   as [`Table`]s, with `--json` for programs. [`ask`] is what they ask by.
//! - [`Hangup`] says that SIGHUP came.
//! - [`Metrics`] serves metrics for Prometheus where [`MetricsArgs`] say: those of every program, and
//!   what the program adds to a [`Scrape`].
//! - `ctl capture` writes what passes a running program to a capture file, as [`CaptureArgs`] say.
//! - With feature `dpdk`, `RunArgs` are what a program that runs one graph takes on its command line,
//!   and `DeviceArgs` open the devices that it names, as `PortSettings` say.
//! - [`IdleArgs`] say what cores do when there is nothing to do.
//! - [`main()`] is the whole of a program's `main`, and [`program`] that of one with commands: what it
//!   says, by `tracing`'s events, goes to
//!   standard error as [`LogArgs`] say. [`print()`] writes data to standard output and [`Output`] does
//!   for a program that runs.
//! - [`run`] runs a plan with no more capabilities than the program needs from then on, on CPUs that
//!   no other program of the same control folder has taken ([`place`]), and watches its threads:
//!   [`Watching`] says how, [`StallArgs`] on a command line.
//! - [`load_figures`] say how far each core is from its limit.
//! - [`notify`] notifies systemd of how the program is.
//!
//! # Guarantees
//!
//! - The packet path knows nothing of all this: it is done on the control thread, which reads what
//!   the cores have counted.
//! - No client blocks the control thread or makes it grow, whatever it sends or leaves unread:
//!   nothing waits for clients, there are at most [`CLIENT_COUNT_MAX`], and each has one request of
//!   at most 64 KiB and one answer of at most 16 MiB.
//! - Nor does a client that scrapes metrics: their thread serves at most [`SCRAPE_COUNT_MAX`], each for
//!   at most [`SCRAPE_WAIT`], and has the control thread collect at most 10 times a second. Clients share
//!   places by their addresses, and wait for one in the order in which they come.
//! - Only the user that the program runs as, and root, can connect. The socket has mode 0600 before
//!   it has a path.
//! - A running program's socket is never taken away by a second one; one that was left behind is
//!   replaced. Both hold where programs start at the same time.
//! - Nothing that happens to standard error ends or delays a program: messages wait in a queue of
//!   1 MiB for a thread that writes them. What is lost is counted
//!   and, where it can be, said. One place in the source writes at most 100 messages in 10 s. What is
//!   left at the end, such as the error that ends the program, is written by the thread that ends it,
//!   however busy the machine is: only a standard error that takes nothing for [`EXIT_WAIT`] is given up.
//! - While packets pass, no thread has a capability but the control thread and those that say what
//!   they [`keep`](hotloop_privileges::keep).
//! - Asking ends in time, also where a program is stuck.
//!
//! # Example
//!
//! A program that takes `--control PATH`, and answers `nf ctl status` and `nf ctl counters`:
//!
//! ```no_run
//! use clap::Parser;
//! use hotloop_engine::{Graph, Plan};
//! use hotloop_ops::{CONTROL, ControlArgs, Failure, LogArgs, operate, print, run};
//! use std::process::ExitCode;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     control: ControlArgs,
//!     #[command(flatten)]
//!     log: LogArgs,
//! }
//!
//! fn main_of(plan: Plan<impl Graph>) -> ExitCode {
//!     hotloop_ops::main("nf", |cli| nf(&cli, plan))
//! }
//!
//! fn nf(cli: &Cli, plan: Plan<impl Graph>) -> Result<(), Failure> {
//!     cli.log.begin();
//!     let mut socket = cli.control.bind("nf")?;
//!     let report = run(plan, CONTROL, |control| operate(control, socket.as_mut(), None))?;
//!     Ok(print(&format!("{report}\n"))?)
//! }
//! ```
//!
//! # Unsafe code
//!
//! - `devices`: one block. Opening a net_memif device is unsafe, and is done where `--trust-memif-peer` is
//!   a word of the command line that the process was started with.
//!
//! # Limits
//!
//! Linux only. An answer is made on the control thread, which does nothing else meanwhile: what takes
//! long belongs on another thread, with [`Reply::later`]. A request waits up to [`TURN`] before it is
//! looked at. A user who may connect may do everything.
#![deny(unsafe_code)]

mod arguments;
mod ask;
mod common;
mod cpus;
mod ctl;
#[cfg(feature = "dpdk")]
#[allow(unsafe_code, reason = "a command line can say that a peer is to be trusted")]
mod devices;
mod diagnostics;
mod failure;
mod hangup;
mod idle;
mod links;
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
mod table;
mod unix;
mod watch;

pub use arguments::{ControlArgs, CtlArgs};
pub use ask::{ANSWER_WAIT, AskError, ask, ask_within};
pub use common::{status, status_text};
pub use cpus::{give_back_cpus, place};
pub use ctl::{CommonCommand, ctl, ctl_command};
#[cfg(feature = "dpdk")]
pub use devices::DeviceArgs;
pub use diagnostics::{EXIT_WAIT, LogArgs, LogFormat, lost_count};
pub use failure::{Failure, exit_code, usage};
pub use hangup::Hangup;
pub use idle::IdleArgs;
pub use live::{Annotate, CaptureArgs, Summary};
pub use load::{CoreFigures, load_figures};
pub use metrics::{
    METRICS, Metric, MetricKind, Metrics, MetricsArgs, SCHEMA_VERSION, SCRAPE_COUNT_MAX,
    SCRAPE_WAIT, Scrape,
};
pub use operation::{Operation, TURN, operate};
pub use output::{OUTPUT_WAIT, Output, print, print_in_time};
pub use path::{socket_folders, socket_path};
#[cfg(feature = "dpdk")]
pub use port_settings::PortSettings;
pub use privileges::CONTROL;
pub use program::{main, parse, program};
pub use request::{Answerer, Promise, Reply, Request, Stream};
#[cfg(feature = "dpdk")]
pub use run_args::{ReportFormat, RunArgs};
pub use seconds::seconds;
pub use socket::{CLIENT_COUNT_MAX, CLIENT_IDLE_MAX, Socket, SocketError};
pub use stall_args::StallArgs;
pub use table::Table;
pub use watch::{
    STALLED_END_WAIT, STALLED_EXIT_CODE, StallEvent, WORKER_STALL_MAX, Watching, run, run_watched,
};
