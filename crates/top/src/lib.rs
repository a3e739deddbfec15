//! `hotloop-top` shows this machine's programs in a terminal, as VPP's `show run` and `top` do.
//!
//! ```sh
//! hotloop-top --interval 2
//! ```
//!
//! # Guarantees
//!
//! - `hotloop-top` only reads: it sends `status` and `counters` as `ctl` does, and shows their
//!   differences.
//! - A stuck program is named, and the keys still work: a separate thread sends the requests.
//! - The terminal is restored at the end, even after a signal or a panic.
//!
//! # Limits
//!
//! Linux only; the programs of the same user, or all of them as root. `hotloop-top` needs no DPDK.
#![forbid(unsafe_code)]

mod programs;
mod rates;
mod screen;
mod sections;

use clap::{Args, Command, CommandFactory, Parser};
use hotloop_ops::{Failure, exit_code, parse, program, seconds};
use programs::Asking;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Screen, Wish};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// How often to check for keys, signals and answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Shows what programs built on hotloop do while they run: rates of packets by core, stage, ring and
/// device, mempools, and drops by reason. Keys are shown in the last line.
#[derive(Parser)]
#[command(name = "hotloop-top", version)]
struct Cli {
    #[command(flatten)]
    top: TopArgs,
}

/// The whole program `hotloop-top`.
#[must_use]
pub fn main() -> ExitCode {
    program("hotloop-top", || {
        let cli = parse(std::env::args_os());
        exit_code(cli.and_then(|cli: Cli| top(&cli.top)))
    })
}

/// The command line of `hotloop-top`, for its manual page and completions.
#[must_use]
pub fn command() -> Command {
    Cli::command()
}

/// Arguments of `hotloop-top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// The control socket of a program, instead of all sockets in the usual folders. May be
    /// repeated.
    #[arg(long, value_name = "PATH")]
    pub control: Vec<PathBuf>,
    /// Seconds between two requests to a program; rates are averages over that time.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub interval: Duration,
}

/// Shows programs until `q`, Ctrl-C or a signal, and restores the terminal.
///
/// # Errors
/// [`Failure::Input`] if standard output is not a terminal, [`Failure::Run`] if the terminal can't
/// be used.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    if !is_terminal() {
        let problem = "standard output is no terminal; PROGRAM ctl counters --json is for programs";
        return Err(Failure::Input(problem.to_owned()));
    }
    let failed = |error: io::Error| Failure::Run(format!("terminal: {error}"));
    let is_ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_ended)).map_err(failed)?;
    }
    let (want, wanted) = mpsc::channel();
    let (rounds, found) = mpsc::channel();
    let asking = Asking { given: args.control.clone(), interval: args.interval, wanted, rounds };
    let thread = std::thread::Builder::new().name("asking".to_owned());
    thread.spawn(move || asking.ask()).map_err(failed)?;
    // A panic restores the terminal, too.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = show(&mut terminal, &is_ended, &want, &found);
    ratatui::try_restore().map_err(failed)?;
    shown.map_err(failed)
}

fn show(
    terminal: &mut DefaultTerminal,
    is_ended: &AtomicBool,
    want: &Sender<PathBuf>,
    found: &Receiver<programs::Round>,
) -> io::Result<()> {
    let mut screen = Screen::default();
    let mut is_changed = true;
    while !is_ended.load(Ordering::Relaxed) {
        for round in found.try_iter() {
            screen.take(round);
            is_changed = true;
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        if !event::poll(LOOK_INTERVAL)? {
            continue;
        }
        is_changed = true;
        let Event::Key(key) = event::read()? else { continue };
        let wish = if key.kind == KeyEventKind::Release { Wish::None } else { screen.press(key) };
        match wish {
            Wish::None => {}
            Wish::Quit => return Ok(()),
            // If the thread has ended, the screen stays as it is.
            Wish::Show(path) => drop(want.send(path)),
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it is asked, and ratatui writes there")]
fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
