//! `run --replace --detach`: the program goes on in the background once it has taken over.

use crate::cli::Run;
use crate::failure::{BadInput, Failure};
use crate::replace::predecessor::path_of;
use hotloop::engine::Control;
use hotloop_ops::{Request, ask_within};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// How often to look whether the program has taken over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum time for the answer of the program that runs.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Runs the program in another process, and waits until it has taken over. Returns its exit code if it
/// ends before.
///
/// # Errors
/// If there can't be another process, or a signal came: the other process goes on.
pub fn run(args: &Run) -> Result<ExitCode, Failure> {
    let path = path_of(&args.control);
    let arguments: Vec<_> = std::env::args_os().collect();
    let mut program = start(&arguments)?;
    loop {
        let failed = |error: std::io::Error| Failure::Run(format!("--detach: {error}"));
        if let Some(status) = program.try_wait().map_err(failed)? {
            // It has reported why.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.filter(|code| *code != 0).map_or(ExitCode::FAILURE, ExitCode::from));
        }
        if process_at(&path) == Some(program.id()) {
            return Ok(ExitCode::SUCCESS);
        }
        if Control::signal_came() {
            let id = program.id();
            return Err(Failure::Run(format!(
                "--detach: a signal came; process {id} goes on, and its messages follow"
            )));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Starts this program with these arguments, the program's name first, but without `--detach`. Signals
/// from a terminal don't reach it.
fn start(arguments: &[OsString]) -> Result<Child, BadInput> {
    let (name, arguments) = arguments.split_first().expect("a program has a name");
    // It stays this version if the file is replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(without_detach(arguments)).stdin(Stdio::null()).process_group(0);
    command.spawn().map_err(|error| BadInput::new(format!("--detach: {error}")))
}

/// The arguments without `--detach`. Those after `--` are DPDK's.
fn without_detach(arguments: &[OsString]) -> impl Iterator<Item = &OsStr> {
    let own_count = arguments.iter().take_while(|it| *it != "--").count();
    let is_kept = move |(at, it): &(usize, &OsString)| *at >= own_count || *it != "--detach";
    arguments.iter().enumerate().filter(is_kept).map(|(_, it)| it.as_os_str())
}

/// The process that answers at the control socket; `None` if there is no answer.
fn process_at(path: &Path) -> Option<u32> {
    let status = ask_within(path, &Request::new("status"), ANSWER_MAX).ok()?;
    status["process"].as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_dpdk_are_kept() {
        let arguments =
            ["run", "--replace", "--detach", "--", "--detach", "-l"].map(OsString::from);
        let kept: Vec<_> = without_detach(&arguments).collect();
        assert_eq!(kept, ["run", "--replace", "--", "--detach", "-l"]);
    }
}
