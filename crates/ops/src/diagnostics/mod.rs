//! Writes a program's messages to standard error: `tracing`'s events, one line each, through a
//! bounded queue to a thread. A standard error that blocks or fails neither ends nor delays
//! anything else. The thread that ends the program writes the remaining lines itself, in
//! [`finish`], so the final error appears however busy the machine is.

mod format;
mod limit;
mod time;

use crate::queue::{Idle, Queue};
use clap::Args;
use hotloop_privileges::{Capabilities, keep};
use limit::{LeftOut, Limit, Taken, WINDOW};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};

pub use format::LogFormat;

/// The longest wait, at the end of a program, for a standard error that takes nothing.
pub const EXIT_WAIT: Duration = Duration::from_secs(10);

/// The target of DPDK's own messages. `--log-level` decides which of them are written.
const DPDK: &str = "dpdk";

static DIAGNOSTICS: OnceLock<Diagnostics> = OnceLock::new();

#[derive(Debug)]
struct Diagnostics {
    queue: Queue,
    limit: Limit,
    lines: format::Lines,
    /// The number of lost messages that have been reported.
    said_count: AtomicU64,
}

/// The format of a running program's messages. Flattened into its own arguments.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LogArgs {
    /// Format of messages on standard error; by default, journald if systemd has connected it,
    /// otherwise text.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl LogArgs {
    /// Marks the start of the run: from now on, messages have a time and a level.
    pub fn begin(self) {
        if let Some(diagnostics) = DIAGNOSTICS.get() {
            diagnostics.lines.log(self.log_format);
        }
    }
}

/// Number of messages lost since the program began, because standard error could not take them in
/// time.
#[must_use]
pub fn lost_count() -> u64 {
    DIAGNOSTICS.get().map_or(0, |diagnostics| diagnostics.queue.lost_count())
}

/// Sends `tracing`'s events and panics to standard error until the program ends. Called once in a
/// process. The returned value writes the last messages when it is dropped.
pub(crate) fn begin(program: &'static str) -> Flush {
    let lines = format::Lines::new(program);
    let fresh = Diagnostics {
        queue: Queue::default(),
        limit: Limit::default(),
        lines,
        said_count: AtomicU64::new(0),
    };
    if DIAGNOSTICS.set(fresh).is_err() {
        return Flush;
    }
    let diagnostics = DIAGNOSTICS.get().expect("it was set");
    let writer = std::thread::Builder::new().name("diagnostics".into());
    // Without the thread, everything is written at the end.
    let _ = writer.spawn(move || diagnostics.write());
    let layer = tracing_subscriber::fmt::layer()
        .event_format(&diagnostics.lines)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(diagnostics)
        .with_filter(diagnostics);
    // A program with a subscriber of its own handles events itself.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
    std::panic::set_hook(Box::new(report_panic));
    Flush
}

/// Calls [`finish`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        finish();
    }
}

/// Writes the remaining lines on the calling thread, which is about to end the program. Gives up
/// after [`EXIT_WAIT`] if standard error takes nothing.
pub(crate) fn finish() {
    if let Some(diagnostics) = DIAGNOSTICS.get() {
        diagnostics.settle();
        diagnostics.queue.finish(stderr().as_fd(), EXIT_WAIT);
    }
}

impl Diagnostics {
    /// Reports the messages left out and lost so far.
    fn settle(&self) {
        for left_out in self.limit.settle(Instant::now(), true).0 {
            say_left_out(left_out);
        }
        self.say_lost();
    }

    /// The loop of the writing thread.
    fn write(&self) -> ! {
        keep(Capabilities::empty());
        self.queue.write_to(&mut stderr(), &mut |idle| self.idle(idle))
    }

    /// Reports messages left out and, once standard error takes messages again, messages lost.
    fn idle(&self, idle: Idle) -> Option<Instant> {
        let (left_out, due) = self.limit.settle(Instant::now(), false);
        left_out.into_iter().for_each(say_left_out);
        if idle.is_writable {
            self.say_lost();
        }
        due
    }

    fn say_lost(&self) {
        let lost_count = self.queue.lost_count();
        let more_count = lost_count - self.said_count.swap(lost_count, Ordering::Relaxed);
        if more_count > 0 {
            tracing::warn!("{more_count} messages were lost: standard error did not take them");
        }
    }
}

fn say_left_out(LeftOut { count, target, line }: LeftOut) {
    let window_s = WINDOW.as_secs();
    tracing::warn!("{count} more messages of {target}, line {line}, in {window_s} s were left out");
}

/// The only place that writes to standard error.
#[expect(clippy::disallowed_methods, reason = "the thread that writes has it")]
fn stderr() -> io::Stderr {
    io::stderr()
}

impl<'a> MakeWriter<'a> for &'static Diagnostics {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(&self.queue)
    }
}

/// Pushes one message of `tracing-subscriber`, in one piece.
#[derive(Debug)]
struct Line(&'static Queue);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether messages with this metadata are written.
fn is_written(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || metadata.target() == DPDK
}

impl<S: Subscriber> Filter<S> for &'static Diagnostics {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        is_written(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Not always: `event_enabled` decides on each event.
        if is_written(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // DPDK sends debug messages only if the user asked for them.
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        match self.limit.take(event.metadata(), Instant::now()) {
            Taken::Yes => true,
            Taken::NoLonger => {
                // The writing thread reports it when the window has ended.
                self.queue.wake();
                false
            }
            Taken::No => false,
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}

/// How the text begins of a panic that aborts the process once it is reported.
const ABORTING: [&str; 2] =
    ["panic in a function that cannot unwind", "panic in a destructor during cleanup"];

/// Reports a panic like any other message: the standard hook would wait for standard error.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let text = panic.payload_as_str().unwrap_or("a value that is no text");
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!("thread {name} panicked{place}: {text}; {backtrace}");
    } else {
        tracing::error!("thread {name} panicked{place}: {text}");
    }
    if let Some(diagnostics) = DIAGNOSTICS.get()
        && ABORTING.iter().any(|start| text.starts_with(start))
    {
        // Not `finish`: this thread may hold any of its locks.
        diagnostics.queue.finish(stderr().as_fd(), EXIT_WAIT);
    }
}
