//! `ctl capture`: captures over the control socket, and the client that writes the file.

pub use hotloop_live::{Annotate, CaptureArgs, Sessions, Summary};

use crate::ask::{AskError, CtlArgs, REFUSED, Stream, WRONG_INPUT, open};
use crate::output::{print, stdout};
use crate::path::socket_path;
use crate::request::{self, Reply, Request, answer_line};
use hotloop_engine::Taps;
use hotloop_live::read_piece;
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Begins a requested capture. Its thread takes the client's connection over.
pub fn begin(sessions: &mut Sessions, taps: Taps, request: &Request) -> Reply {
    match sessions.begin(taps, &request.arguments, answer_line) {
        Ok(take) => Reply::Stream(request::Stream::new(take)),
        Err(error) => Reply::Now(Err(error)),
    }
}

/// Captures from the running program `name` until Ctrl-C, a limit, or the end of the program.
/// Returns the exit code, as [`CtlArgs::ask`] does.
pub fn run(name: &str, args: &CtlArgs, wanted: &CaptureArgs) -> ExitCode {
    let path = args.control.clone().unwrap_or_else(|| socket_path(name));
    match capture(&path, wanted) {
        Ok(summary) => said(summary, args.json, wanted.write == Path::new("-")),
        Err(error) => {
            tracing::error!("{error}");
            let is_refused = matches!(error, Failed::Asking(AskError::Refused(_)));
            ExitCode::from(if is_refused { REFUSED } else { WRONG_INPUT })
        }
    }
}

/// Prints the summary. `None` if a reader of standard output has gone away.
fn said(summary: Option<Summary>, is_json: bool, is_stdout: bool) -> ExitCode {
    let Some(summary) = summary else { return ExitCode::SUCCESS };
    if is_stdout {
        tracing::info!("{summary}");
        return ExitCode::SUCCESS;
    }
    let text = if is_json { json!(summary).to_string() } else { summary.to_string() };
    match print(&format!("{text}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("standard output: {error}");
            ExitCode::from(WRONG_INPUT)
        }
    }
}

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Asking(#[from] AskError),
    #[error("{path}: {source}; name a file that you may write with -w FILE, or - for standard output", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "the program went away within the capture; what was written is a whole file up to there: {0}"
    )]
    Stream(io::Error),
}

fn capture(path: &Path, wanted: &CaptureArgs) -> Result<Option<Summary>, Failed> {
    let in_file = |source| Failed::File { path: wanted.write.clone(), source };
    let is_stdout = wanted.write == Path::new("-");
    // Opened first, so that no capture begins that can't be written. It is truncated only once the
    // capture begins.
    let file = match is_stdout {
        true => None,
        false => {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            Some(options.open(&wanted.write).map_err(in_file)?)
        }
    };
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted)).map_err(Failed::Stream)?;
    }
    let request = Request::with("capture", wanted.arguments());
    let mut stream = open(path, &request)?;
    let mut output: Box<dyn Write> = match file {
        Some(file) => {
            // A pipe has no length.
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                file.set_len(0).map_err(in_file)?;
            }
            Box::new(file)
        }
        None => Box::new(stdout()),
    };
    while let Some(piece) = piece(&mut stream, &is_interrupted).map_err(Failed::Stream)? {
        match output.write_all(&piece).and_then(|()| output.flush()) {
            Ok(()) => {}
            Err(error) if is_stdout && error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(None);
            }
            Err(error) => return Err(in_file(error)),
        }
    }
    let summary = stream.answer(&mut || ()).map_err(Failed::Stream)?;
    let summary = serde_json::from_value(summary).map_err(io::Error::other);
    Ok(Some(summary.map_err(Failed::Stream)?))
}

/// Returns the next piece of the file, or `None` at its end. After an interruption, asks the
/// program to end the file.
fn piece(stream: &mut Stream, is_interrupted: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
    let ender = stream.ender().ok();
    let mut look = || {
        if is_interrupted.swap(false, Relaxed) {
            ender.iter().for_each(Stream::end);
        }
    };
    read_piece(&mut |bytes| stream.read_exact(bytes, &mut look))
}
