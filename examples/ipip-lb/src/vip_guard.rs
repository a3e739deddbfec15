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
use hotloop_ops::LogArgs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

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

/// Starts the guard, before any files are opened. Without a guard, which is logged, this process
/// withdraws VIPs itself as far as it runs.
#[must_use]
pub fn start(silent_max: Duration, log: LogArgs) -> Option<VipGuard> {
    let mut program = Command::new("/proc/self/exe");
    program.arg0("ipip-lb").arg("guard-vips");
    if let Some(format) = log.log_format.and_then(|format| format.to_possible_value()) {
        program.args(["--log-format", format.get_name()]);
    }
    start_program(program, silent_max)
}

/// Like [`start`], with this program and its first arguments as the guard.
#[must_use]
pub fn start_program(mut program: Command, silent_max: Duration) -> Option<VipGuard> {
    let silent_max = (!silent_max.is_zero()).then_some(silent_max);
    if let Some(silent_max) = silent_max {
        program.args(["--silent-ms-max", &silent_max.as_millis().to_string()]);
    }
    VipGuard::start(program, silent_max)
}
