//! Finds running programs, and queries one of them.

use hotloop_ops::{AskError, Request, ask_within, socket_folders};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The longest wait for an answer. Programs need a few milliseconds.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The answers of one program.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Arrival time of the counters.
    pub at: Instant,
    pub status: Value,
    pub counters: Value,
}

/// The result of one round.
#[derive(Debug)]
pub struct Round {
    /// The existing control sockets, ordered by name.
    pub programs: Vec<PathBuf>,
    /// The program that was queried.
    pub program: Option<PathBuf>,
    /// The program's answer. `None` if no program runs.
    pub sample: Option<Result<Sample, String>>,
}

/// Queries programs on a thread of its own, so that a stuck program does not block the keys.
#[derive(Debug)]
pub struct Asking {
    /// Sockets in other folders than the usual ones.
    pub given: Vec<PathBuf>,
    pub interval: Duration,
    /// The program to query from now on.
    pub wanted: Receiver<PathBuf>,
    pub rounds: Sender<Round>,
}

impl Asking {
    /// Queries programs until the receiver is gone.
    pub fn ask(self) {
        let mut wanted: Option<PathBuf> = None;
        loop {
            let start = Instant::now();
            let programs = if self.given.is_empty() { sockets() } else { self.given.clone() };
            let is_there = |path: &PathBuf| programs.contains(path);
            let program = wanted.clone().filter(is_there).or_else(|| programs.first().cloned());
            let sample =
                program.as_deref().map(|path| sample(path).map_err(|error| error.to_string()));
            if self.rounds.send(Round { programs, program, sample }).is_err() {
                return;
            }
            let left = self.interval.saturating_sub(start.elapsed());
            match self.wanted.recv_timeout(left) {
                Ok(path) => wanted = Some(path),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn sample(path: &Path) -> Result<Sample, AskError> {
    let status = ask_within(path, &Request::new("status"), ANSWER_WAIT)?;
    let counters = ask_within(path, &Request::new("counters"), ANSWER_WAIT)?;
    Ok(Sample { at: Instant::now(), status, counters })
}

/// The control sockets in the usual folders.
fn sockets() -> Vec<PathBuf> {
    let mut sockets: Vec<_> =
        socket_folders().iter().flat_map(|folder| sockets_in(folder)).collect();
    sockets.sort();
    sockets.dedup();
    sockets
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn sockets_are_found_by_their_names_and_those_that_nobody_answers_at_are_said() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.sock", "a.sock", "a.lock"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let mut found = sockets_in(folder.path());
        found.sort();
        assert_eq!(found, ["a.sock", "b.sock"].map(|name| folder.path().join(name)));
        assert!(sockets_in(&folder.path().join("missing")).is_empty());

        let (want, wanted) = mpsc::channel();
        let (rounds, round) = mpsc::channel();
        let asking =
            Asking { given: found.clone(), interval: Duration::from_secs(600), wanted, rounds };
        let thread = std::thread::spawn(move || asking.ask());
        let first = round.recv().unwrap();
        assert_eq!((first.program.as_ref(), first.programs.len()), (found.first(), 2));
        assert!(first.sample.unwrap().unwrap_err().contains("a.sock"));
        // A wanted program is queried at once.
        want.send(found[1].clone()).unwrap();
        assert_eq!(round.recv().unwrap().program.as_ref(), found.get(1));
        drop(want);
        thread.join().unwrap();
    }
}
