//! udp-sink and udp-source, as processes that are measured while they run.

use crate::wire::Namespace;
use hotloop_ops::Request;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Durations of the warm-up and of the measurement.
#[derive(Clone, Copy)]
pub struct Window {
    warm_up: Duration,
    measured: Duration,
}

impl Window {
    /// With the kernel in between.
    pub const LONG: Self =
        Self { warm_up: Duration::from_millis(500), measured: Duration::from_millis(1_200) };

    /// With only the cores, whose distance may change.
    pub const SHORT: Self =
        Self { warm_up: Duration::from_millis(200), measured: Duration::from_millis(400) };
}

/// Maximum time that datagrams are in flight.
const DRAIN: Duration = Duration::from_millis(300);

/// Time limit for a program's start, and for its end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The names under which this program is one of the two.
pub const SINK: &str = "udp-sink";
pub const SOURCE: &str = "udp-source";

/// Nanoseconds in a tick of /proc/stat.
const TICK_NS: f64 = 1e7;

/// The measurements of a pair.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Datagrams received per second during the measurement.
    pub received_pps: f64,
    /// Datagrams sent per second.
    pub sent_pps: f64,
    /// CPU time of the receiving process, in nanoseconds per datagram received.
    pub process_ns: f64,
    /// CPU time of all softirqs of the machine, in nanoseconds per datagram received.
    pub softirq_ns: f64,
    /// Datagrams sent and received from beginning to end.
    pub sent: u64,
    pub received: u64,
    /// Losses from beginning to end, as far as they were counted.
    pub lost: Vec<(String, u64)>,
    /// Number of datagrams of each thread or queue.
    pub shares: Vec<u64>,
}

impl Measured {
    /// The share of all sent datagrams that did not arrive.
    pub fn lost_share(&self) -> f64 {
        self.lost_count() as f64 / self.sent.max(1) as f64
    }

    fn lost_count(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// The places where datagrams were lost: the counted ones, and the rest.
    pub fn places(&self) -> String {
        let all = self.lost_count();
        // Includes other sockets.
        let own = || self.lost.iter().filter(|(name, _)| name != "receive_buffer_errors");
        let counted: u64 = own().map(|(_, count)| count).sum();
        let percent = |count: u64| format!("{:.0} %", count as f64 * 100.0 / all.max(1) as f64);
        let named = own().map(|(name, count)| format!("{name} {}", percent(*count)));
        let rest = all.saturating_sub(counted);
        let rest = (rest > 0).then(|| format!("counted by nobody {}", percent(rest)));
        named.chain(rest).collect::<Vec<_>>().join(", ")
    }
}

/// A running program. It ends when dropped.
pub struct Program {
    process: Child,
    control: std::path::PathBuf,
}

impl Program {
    /// Starts one of the two, and waits until it answers.
    ///
    /// # Errors
    /// The program's error message.
    pub fn start(
        namespace: Option<&Namespace>,
        name: &str,
        folder: &Path,
        arguments: &[String],
    ) -> Result<Self, String> {
        let program = folder.join(name);
        let program = program.to_str().ok_or("the temporary folder has a name that is no text")?;
        let mut command =
            namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
        let control = folder.join(format!("{name}.sock"));
        command.args(["--report", "json", "--control"]).arg(&control).args(arguments);
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let process = process.map_err(|error| format!("{name}: {error}"))?;
        let mut program = Self { process, control };
        let started = Instant::now();
        while program.status().is_none() {
            let has_ended =
                program.process.try_wait().map_err(|error| error.to_string())?.is_some();
            if has_ended || started.elapsed() > PATIENCE {
                return Err(format!("{name} {}: {}", arguments.join(" "), program.errors()));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(program)
    }

    fn status(&self) -> Option<Value> {
        let request = Request::new("status");
        hotloop_ops::ask(&self.control, &request).ok()
    }

    /// A count of the program's status; 0 if there is none.
    pub fn count(&self, what: &str) -> u64 {
        self.status().and_then(|status| status[what].as_u64()).unwrap_or(0)
    }

    /// The program's error output.
    fn errors(&mut self) -> String {
        let _ = self.process.kill();
        let mut errors = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut errors);
        }
        let last = errors.lines().rev().take(3).collect::<Vec<_>>();
        last.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// CPU time so far, in nanoseconds.
    fn cpu_ns(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let of_task = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        tasks.into_iter().flatten().flatten().filter_map(of_task).sum()
    }

    /// Ends the program, and returns its report.
    fn end(mut self) -> Result<Value, String> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| error.to_string())?;
        let stdout = self.process.stdout.take().ok_or("it has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        self.process.wait().map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|error| format!("{error}: {}", self.errors()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The words of a command line.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A number in a report; 0 if it is absent.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// CPU time of all softirqs, in nanoseconds.
fn softirq_ns() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().nth(7).and_then(|ticks| ticks.parse::<f64>().ok());
    ticks.unwrap_or(0.0) * TICK_NS
}

/// Runs a sink and a source, each in its place; without `source`, a sink that sends to itself.
///
/// # Errors
/// The error message of a program that does not start.
pub fn measure(
    folder: &Path,
    window: Window,
    (receiver, sink): (Option<&Namespace>, &[String]),
    source: Option<(Option<&Namespace>, &[String])>,
) -> Result<Measured, String> {
    let sink = Program::start(receiver, SINK, folder, sink)?;
    let source =
        source.map(|(sender, arguments)| Program::start(sender, SOURCE, folder, arguments));
    let source = source.transpose()?;
    sleep(window.warm_up);
    let counts = || {
        let sent =
            source.as_ref().map_or_else(|| sink.count("created"), |source| source.count("sent"));
        (Instant::now(), sink.count("received"), sent, sink.cpu_ns(), softirq_ns())
    };
    let before = counts();
    sleep(window.measured);
    let after = counts();
    let seconds = (after.0 - before.0).as_secs_f64();
    let received = (after.1 - before.1) as f64;
    let source = source.map(Program::end).transpose()?;
    sleep(DRAIN);
    let sink = sink.end()?;
    let lost = sink["udp"]["lost"].as_object().into_iter().flatten();
    let queues = sink["udp"]["queues"].as_array().into_iter().flatten();
    Ok(Measured {
        received_pps: received / seconds,
        sent_pps: (after.2 - before.2) as f64 / seconds,
        process_ns: (after.3 - before.3) / received.max(1.0),
        softirq_ns: (after.4 - before.4) / received.max(1.0),
        sent: source.as_ref().map_or(number(&sink["created"]), |source| number(&source["sent"])),
        received: number(&sink["udp"]["datagrams"]),
        lost: lost
            .map(|(name, count)| (name.clone(), number(count)))
            .filter(|(_, count)| *count > 0)
            .collect(),
        shares: queues.map(|queue| number(&queue["datagrams"])).collect(),
    })
}
