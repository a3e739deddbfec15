//! Withdraws VIPs while the balancer hangs: routing daemons would otherwise continue to announce
//! VIPs without a forwarder.
//!
//! A guard, which is a process of its own, deletes the routes. It does so at once if the watching
//! thread reports that a worker or the control thread is stuck, starved or stalled. It also does so
//! on its own if it gets no message from the control thread, for example when the whole process is
//! stopped.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use hotloop_kernel::{VipGuard, guard_vips};
use hotloop_ops::{LogArgs, StallEvent};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// `ipip-lb guard-vips`.
#[derive(Args, Debug)]
pub struct GuardVips {
    /// Silence of `run`, in milliseconds, after which it counts as hanging; without, never.
    #[arg(long, value_name = "MS")]
    pub silent_ms_max: Option<u64>,
    /// How it writes messages.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Runs `ipip-lb guard-vips`, which `run` starts.
///
/// # Errors
/// If another program started it, or the kernel provides no netlink socket.
pub fn run_guard(args: &GuardVips) -> Result<(), Failure> {
    args.log.begin();
    guard_vips(args.silent_ms_max.map(Duration::from_millis))
        .map_err(|error| Failure::Run(format!("guard-vips: {error}; it is for `run` alone")))
}

/// The guard of this process.
#[derive(Debug)]
pub struct Guard {
    /// `None` once it has ended.
    process: Option<VipGuard>,
    /// How long VIPs stay withdrawn after a process that hung continues: errors of its threads are
    /// known by then.
    pause: Duration,
    paused_until: Option<Instant>,
}

impl Guard {
    /// Starts the guard, before any files are opened. Without a guard, which is logged, this
    /// process withdraws VIPs itself as far as it runs.
    #[must_use]
    pub fn start(silent_max: Duration, log: LogArgs) -> Option<Self> {
        let mut program = Command::new("/proc/self/exe");
        program.arg0("ipip-lb").arg("guard-vips");
        if let Some(format) = log.log_format.and_then(|format| format.to_possible_value()) {
            program.args(["--log-format", format.get_name()]);
        }
        Self::start_program(program, silent_max)
    }

    /// Like [`start`](Self::start), with this program and its first arguments as the guard.
    #[must_use]
    pub fn start_program(mut program: Command, silent_max: Duration) -> Option<Self> {
        let pause = silent_max / 4;
        let silent_max = (!silent_max.is_zero()).then_some(silent_max);
        if let Some(silent_max) = silent_max {
            program.args(["--silent-ms-max", &silent_max.as_millis().to_string()]);
        }
        match VipGuard::start(program, silent_max) {
            Ok(process) => Some(Self { process: Some(process), pause, paused_until: None }),
            Err(error) => {
                none(&error);
                None
            }
        }
    }

    /// The guard of the routes on this interface.
    pub(crate) fn of(self, interface_index: u32) -> Option<Self> {
        let guarded = self.process.as_ref()?.guard(interface_index);
        guarded.inspect_err(none).is_ok().then_some(self)
    }

    /// Tells the guard that the control thread continues. Returns whether it was late, or was until
    /// recently, so that the guard may have deleted routes.
    pub(crate) fn was_late(&mut self) -> bool {
        let now = Instant::now();
        match self.process.as_mut().map(VipGuard::alive) {
            Some(Ok(true)) => self.paused_until = Some(now + self.pause),
            Some(Err(error)) => {
                none(&error);
                self.process = None;
            }
            Some(Ok(false)) | None => {}
        }
        self.paused_until.is_some_and(|until| now < until)
    }
}

fn none(error: &std::io::Error) {
    tracing::warn!(
        "announce: no guard ({error}): VIPs stay announced where this process is stopped"
    );
}

/// Whether threads of this process hang, from the control thread's view.
#[derive(Debug, Default)]
pub(crate) struct Hanging {
    seen: Arc<Seen>,
    change_count: u64,
    was_late: bool,
}

/// The watching thread's observations.
#[derive(Debug, Default)]
struct Seen {
    is_any: AtomicBool,
    change_count: AtomicU64,
}

impl Hanging {
    /// Whether VIPs must stay withdrawn, as of the last [`turn`](Self::turn).
    pub(crate) fn is_any(&self) -> bool {
        self.was_late || self.seen.is_any.load(SeqCst)
    }

    /// Returns whether the routes must be checked, because a thread hangs or continues: the guard
    /// may have deleted them.
    pub(crate) fn turn(&mut self, was_late: bool) -> bool {
        let change_count = self.seen.change_count.load(SeqCst);
        let is_changed = (change_count, was_late) != (self.change_count, self.was_late);
        (self.change_count, self.was_late) = (change_count, was_late);
        is_changed
    }

    /// The watching thread's callback.
    pub(crate) fn on_stall(&self, guard: Option<&Guard>) -> impl Fn(&StallEvent) + Send + use<> {
        let seen = Arc::clone(&self.seen);
        let guard = guard.and_then(|guard| guard.process.as_ref());
        let guard = guard.and_then(|guard| guard.try_clone().inspect_err(none).ok());
        // The names of hanging cores; the control thread has none.
        let hanging = RefCell::new(BTreeSet::new());
        move |event| {
            let mut hanging = hanging.borrow_mut();
            match event {
                StallEvent::Stuck { core, .. } | StallEvent::Starved { core, .. } => {
                    hanging.insert(Some(core.clone()))
                }
                StallEvent::Resumed { core } => hanging.remove(&Some(core.clone())),
                StallEvent::ControlStalled { .. } => hanging.insert(None),
                StallEvent::ControlResumed => hanging.remove(&None),
                _ => false,
            };
            seen.is_any.store(!hanging.is_empty(), SeqCst);
            seen.change_count.fetch_add(1, SeqCst);
            if let Some(guard) = guard.as_ref().filter(|_| !hanging.is_empty()) {
                withdraw(guard);
            }
        }
    }
}

fn withdraw(guard: &VipGuard) {
    let start = Instant::now();
    match guard.withdraw() {
        Ok(()) => {
            let ms = start.elapsed().as_secs_f64() * 1e3;
            tracing::warn!("announce: VIPs are withdrawn, in {ms:.1} ms");
        }
        Err(error) => tracing::error!("announce: the guard does not withdraw VIPs: {error}"),
    }
}
