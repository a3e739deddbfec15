//! The arguments of a program that runs one graph, and the run itself.

use crate::devices::DeviceArgs;
use crate::diagnostics::LogArgs;
use crate::failure::Failure;
use crate::hangup::expect_hangup;
use crate::idle::IdleArgs;
use crate::metrics::MetricsArgs;
use crate::operation::Operation;
use crate::output::print_in_time;
use crate::privileges::CONTROL;
use crate::seconds::seconds;
use crate::socket::{ControlArgs, Socket};
use crate::stall_args::StallArgs;
use crate::steer::Steer;
use crate::watch::{Watching, run};
use clap::{Args, ValueEnum};
use hotloop_dpdk::Eal;
use hotloop_engine::{Clock, Control, Deployment, Engine, Graph, Plan, Report};
use std::time::Duration;

/// The arguments of a program that runs one graph on DPDK's devices. Flattened into its own
/// arguments:
///
/// ```
/// # mod echo {
/// use clap::Parser;
/// use hotloop_engine::{Chain, Deployment, source};
/// use hotloop_ops::{Failure, RunArgs};
/// use std::process::ExitCode;
///
/// /// Receives packets and sends them back.
/// #[derive(Parser)]
/// pub struct Cli {
///     #[arg(long, value_name = "DEVICE")]
///     port: String,
///     #[command(flatten)]
///     run: RunArgs,
/// }
///
/// pub fn run(cli: &Cli) -> Result<(), Failure> {
///     let socket = cli.run.begin("echo")?;
///     let eal = cli.run.eal()?;
///     let port = cli.run.devices.open(eal, &cli.port)?;
///     let graph = source(|core| port.rx_queue(core)).sink(|core| port.tx_queue(core));
///     let plan = cli.run.plan(graph, Deployment::run_to_completion(1))?;
///     cli.run.run(plan, socket)
/// }
///
/// fn main() -> ExitCode {
///     hotloop_ops::main("echo", |cli: Cli| run(&cli))
/// }
/// # }
/// # fn main() -> Result<(), hotloop_ops::Failure> {
/// #     let folder = tempfile::tempdir()?;
/// #     let socket = folder.path().join("echo.sock").display().to_string();
/// #     let words = ["echo", "--port", "net_null0", "--duration", "1", "--control", &socket];
/// #     echo::run(&clap::Parser::parse_from(words))
/// # }
/// ```
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// End after this many seconds; by default, at Ctrl-C.
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// The format of the report on standard output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportFormat::Text)]
    pub report: ReportFormat,
    /// The clock: the machine's, or the times of the packets.
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = ClockArg::Wall)]
    pub clock: ClockArg,
    /// How to open devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// How cores idle.
    #[command(flatten)]
    pub idle: IdleArgs,
    /// How to watch workers.
    #[command(flatten)]
    pub stall: StallArgs,
    /// The control socket.
    #[command(flatten)]
    pub control: ControlArgs,
    /// The server of metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The format of messages.
    #[command(flatten)]
    pub log: LogArgs,
    /// Arguments of DPDK's environment, such as -l 0-3 -a 0000:01:00.0; by default it needs no
    /// hugepages, and no privilege of its own.
    #[arg(last = true, value_name = "EAL ARGS")]
    pub eal: Vec<String>,
}

impl RunArgs {
    /// Starts to write messages in the given format, and binds the control socket of the program
    /// `name`. From then on, SIGINT and SIGTERM end the run instead of the process, even if they
    /// come before the run begins. Call this before slow work, which must check whether [a signal
    /// came](Control::signal_came) whenever it waits.
    ///
    /// # Errors
    /// As [`ControlArgs::bind`].
    pub fn begin(&self, name: &str) -> Result<Option<Socket>, Failure> {
        Control::catch_signals();
        self.log.begin();
        Ok(self.control.bind(name)?)
    }

    /// As [`begin`](Self::begin). From then on, SIGHUP calls [`Steer::hangup`] during the run
    /// instead of ending the process, even if it comes before the run begins.
    ///
    /// # Errors
    /// As [`ControlArgs::bind`], or the system lets no signal be handled.
    pub fn begin_with_hangup(&self, name: &str) -> Result<Option<Socket>, Failure> {
        expect_hangup().map_err(|error| Failure::Run(format!("SIGHUP: {error}")))?;
        self.begin(name)
    }

    /// Starts DPDK's environment.
    ///
    /// # Errors
    /// DPDK refuses the arguments.
    pub fn eal(&self) -> Result<Eal, Failure> {
        Ok(if self.eal.is_empty() { Eal::embedded() } else { Eal::with_args(&self.eal) }?)
    }

    /// Plans a graph.
    ///
    /// # Errors
    /// The graph cannot have this deployment.
    pub fn plan<G: Graph>(&self, graph: G, deployment: Deployment) -> Result<Plan<G>, Failure> {
        let plan = Engine::plan(graph, deployment);
        let plan = plan.map_err(|error| Failure::Input(error.to_string()))?;
        let clock = match self.clock {
            ClockArg::Wall => Clock::Wall,
            ClockArg::Capture => Clock::Capture,
        };
        Ok(plan.idle(self.idle.idle()).clock(clock))
    }

    /// How to watch the threads of the run: for [`run`].
    #[must_use]
    pub fn watching(&self) -> Watching<'static> {
        let format = self.report;
        let report = move |report: &Report| format!("{}\n", format.text_of(report));
        Watching::default().stall_max(self.stall.given_or_default()).report(report)
    }

    /// Runs a plan until SIGINT or SIGTERM, the end of `--duration`, the end of every source, or a
    /// stage's panic. Meanwhile it answers clients of the socket, and serves metrics if `--metrics`
    /// is given. Prints the report at the end, even if the run failed.
    ///
    /// # Errors
    /// The address for metrics can't be bound, the run failed, or its report was not written.
    pub fn run(&self, plan: Plan<impl Graph>, socket: Option<Socket>) -> Result<(), Failure> {
        self.run_with(plan, socket, &mut ())
    }

    /// As [`run`](Self::run), for a program with `ctl` commands, metrics or work of its own.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(
        &self,
        plan: Plan<impl Graph>,
        mut socket: Option<Socket>,
        steer: &mut impl Steer,
    ) -> Result<(), Failure> {
        let mut metrics = self.metrics.bind()?;
        let operation = Operation {
            socket: socket.as_mut(),
            metrics: metrics.as_mut(),
            duration: self.duration,
        };
        let result = run(plan, CONTROL, self.watching(), |control| {
            tracing::info!("running; Ctrl-C ends it");
            operation.run(control, steer);
        });
        let report = match &result {
            Ok(report) => Some(report),
            Err(error) => error.report(),
        };
        if let Some(report) = report {
            print_in_time(&format!("{}\n", self.report.text_of(report)))?;
        }
        Ok(result.map(drop)?)
    }
}

/// Values of `--clock`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ClockArg {
    /// The machine's clock.
    Wall,
    /// The times at which packets of capture files arrived: every timeout is as it was when the
    /// files were recorded. Without packets, time stands still.
    Capture,
}

/// Values of `--report`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// For programs: one line.
    Json,
}

impl ReportFormat {
    /// A report in this format, without a newline at its end.
    #[must_use]
    pub fn text_of(self, report: &Report) -> String {
        match self {
            Self::Text => report.to_string().trim_end().to_owned(),
            Self::Json => report.to_json(),
        }
    }
}
