//! State shared by all contests of a run: callgrind's counts, and the processes that play a part
//! each.

use crate::figure::QUARTER_COUNT;
use crate::slices::Slice;
use crate::table::{self, Table};
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Number of operations that callgrind counts.
const COUNTED_OPS: u64 = 16_384;

/// Priority of this program and those that it starts: before everything else on the machine.
const NICENESS: i32 = -20;

/// Starts this program again, to play a part of each contest and write the slices into a file.
const PART_FLAG: &str = "--part=";
const SLICES_FLAG: &str = "--slices=";

/// The number of processes, one after the other, that play each quarter of a run. The default is
/// one.
const PROCESSES_VARIABLE: &str = "HOTLOOP_BENCH_PROCESSES";

/// Starts this program again under callgrind, to count the operations of each side and write their
/// names into a file.
const COUNT_FLAG: &str = "--count=";

/// Number of counts. The minimum is shown: if a second begins meanwhile, each flow's time is
/// written once.
const COUNT_COUNT: usize = 3;

/// The function that callgrind counts.
const COUNTED_FUNCTION: &str = "hotloop_measure::instrument::counted_ops";

/// The counts, and the parts.
pub struct Instrument {
    /// The file for the names of sides, if this process counts instructions.
    counting: Option<PathBuf>,
    /// Instructions per operation, counted by another process, of sides by their name with the
    /// contest's; or why they can't be counted here.
    counted: Result<Vec<(String, f64)>, String>,
    /// Number of processes that play each quarter of the run.
    processes_a_quarter: usize,
    /// The part of the run that this process plays, and the number of parts.
    part: (usize, usize),
    /// The file for its slices, unless it is the last part.
    file: Option<PathBuf>,
    /// Slices played by the processes before it.
    earlier: Vec<Played>,
    /// Only contests with a side whose name contains this are played, if the command line sets it.
    filter: Option<String>,
    /// Contests with turns that begin with a pass, and the pass's number of operations.
    pub(crate) passes: Vec<String>,
}

/// The slices that a process has played of a side.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Played {
    pub contest: String,
    pub side: String,
    pub slices: Vec<Slice>,
}

/// Raises the priority of this thread, and of those that it starts, above everything else on the
/// machine.
pub fn come_first() {
    // Without the privilege, other programs get their turns, which shows in the results.
    let _ = setpriority_process(None, NICENESS);
}

/// Whether this process starts those that play parts of the run, and isn't one of them.
#[must_use]
pub fn is_first_process() -> bool {
    !env::args().any(|word| word.starts_with(SLICES_FLAG) || word.starts_with(COUNT_FLAG))
}

impl Instrument {
    /// Parses the command line, with a part of contests' names if it `takes_filter`. If the run is
    /// `in_parts`, other processes play all parts but the last before this returns.
    ///
    /// # Errors
    /// One of these processes has failed.
    pub fn new(takes_filter: bool, in_parts: bool) -> Result<Self, String> {
        come_first();
        let words: Vec<_> = env::args().collect();
        let value = |flag| words.iter().find_map(|word| word.strip_prefix(flag));
        let part = value(PART_FLAG).and_then(|part| part.parse().ok());
        let processes_a_quarter = match env::var(PROCESSES_VARIABLE) {
            Ok(number) => number.parse::<NonZero<usize>>().map_err(|error| {
                format!("{PROCESSES_VARIABLE}={number}: {error}; it takes a number of processes")
            })?,
            Err(_) => NonZero::<usize>::MIN,
        };
        let processes_a_quarter = processes_a_quarter.get();
        let part_count = if in_parts { QUARTER_COUNT * processes_a_quarter } else { 1 };
        let [file, counting] = [SLICES_FLAG, COUNT_FLAG].map(|flag| value(flag).map(PathBuf::from));
        let is_whole = counting.is_none() && file.is_none();
        let filter = words.iter().skip(1).find(|word| !word.starts_with('-')).cloned();
        let filter = filter.filter(|_| takes_filter);
        let (mut earlier, mut counted) = (Vec::new(), Ok(Vec::new()));
        if is_whole {
            counted = count_all(&words[1..]);
            earlier = play_parts(part_count - 1, &words[1..])?;
        }
        Ok(Self {
            counting,
            counted,
            processes_a_quarter,
            part: (part.unwrap_or(part_count - 1), part_count),
            file,
            earlier,
            filter,
            passes: Vec::new(),
        })
    }

    /// Whether this process only plays a part of another one's run: nothing is shown.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        self.is_counting() || self.file.is_some()
    }

    /// Number of processes that play each quarter of the run.
    pub(crate) const fn processes_a_quarter(&self) -> usize {
        self.processes_a_quarter
    }

    /// The quarter of the run that this process plays, if the run is in parts.
    pub(crate) const fn quarter(&self) -> usize {
        let (part, part_count) = self.part;
        part * QUARTER_COUNT / part_count
    }

    /// This process's share of `count` visits.
    pub(crate) const fn share_of(&self, count: usize) -> Range<usize> {
        let (part, part_count) = self.part;
        count * part / part_count..count * (part + 1) / part_count
    }

    /// Slices of a side played by the processes before this one.
    pub(crate) fn earlier<'i>(
        &'i self,
        contest: &'i str,
        side: &'i str,
    ) -> impl Iterator<Item = Slice> + 'i {
        let is_of = move |played: &&Played| played.contest == contest && played.side == side;
        let played = self.earlier.iter().filter(is_of);
        played.flat_map(|played| played.slices.iter().cloned())
    }

    /// Hands slices to the process that started this one.
    pub(crate) fn hand_over(&self, played: &Played) {
        let file = self.file.as_ref().expect("only a part is handed over");
        append(file, &serde_json::to_string(played).expect("text and numbers"));
    }

    /// Whether this process only counts instructions: large tables may be smaller then, if the same
    /// code works on them.
    #[must_use]
    pub const fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// Notes about the run, to be shown with its rows.
    #[must_use]
    pub fn finish(self) -> Vec<String> {
        let uncounted = self.counted.err();
        let uncounted = uncounted.map(|reason| format!("no instructions are counted: {reason}"));
        let parts = match self.part.1 {
            1 => "one process".to_owned(),
            count => format!("{count} processes, {} for each quarter", self.processes_a_quarter),
        };
        let slices = "slices of 0.4 ms; a quarter's figure is the lower quartile of those kept, a row's the \
                      median of the quarters; a turn begins with 50 µs that don't count";
        let passes = match self.passes.is_empty() {
            true => format!("{parts}; {slices}"),
            false => format!("{parts}; {slices}, or with a pass: {}", self.passes.join("; ")),
        };
        [passes].into_iter().chain(uncounted).collect()
    }

    /// Publishes the group's table with notes about the run. Does nothing in a process that only plays
    /// a part of another one's run.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn publish(self, group: &str, mut table: Table) -> Result<(), String> {
        if self.is_part() {
            return Ok(());
        }
        table.notes.extend(self.finish());
        table::publish(group, &table)
    }

    /// Plays a side's operations for callgrind, after a few uncounted ones.
    pub(crate) fn count(&self, contest: &str, side: &str, play: &mut dyn FnMut(u64) -> Duration) {
        let file = self.counting.as_ref().expect("only a process that counts does this");
        play(COUNTED_OPS);
        for _ in 0..COUNT_COUNT {
            append(file, &format!("{contest}/{side}"));
            counted_ops(play);
        }
    }

    /// Whether a side with this name, including the contest's, is selected.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter))
    }

    /// A side's instructions per operation, if counted.
    #[must_use]
    pub fn instructions(&self, contest: &str, side: &str) -> Option<f64> {
        let name = format!("{contest}/{side}");
        let counts = self.counted.iter().flatten().filter(|(side, _)| *side == name);
        counts.map(|(_, instructions)| *instructions).reduce(f64::min)
    }
}

/// Appends a line for the waiting process.
fn append(file: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(file);
    let mut file = file.expect("the process that waits has made the folder");
    writeln!(file, "{line}").expect("there is room for a line");
}

/// Makes processes of this program play all parts but the last, one after the other.
fn play_parts(count: usize, words: &[String]) -> Result<Vec<Played>, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for part in 0..count {
        let file = folder.path().join(part.to_string());
        let mut command = Command::new(&program);
        command.args(words).arg(format!("{PART_FLAG}{part}"));
        command.arg(format!("{SLICES_FLAG}{}", file.display())).stdout(Stdio::null());
        let status = command.status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("the process that plays part {part} has failed: {status}"));
        }
        // Without a contest there is no file.
        let lines = fs::read_to_string(&file).unwrap_or_default();
        for line in lines.lines() {
            all.push(serde_json::from_str(line).map_err(|error| error.to_string())?);
        }
    }
    Ok(all)
}

/// Makes one process count the operations of all sides under callgrind, which writes a file for
/// each.
fn count_all(words: &[String]) -> Result<Vec<(String, f64)>, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [sides, counts] = ["sides", "counts"].map(|name| folder.path().join(name));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(format!("--toggle-collect={COUNTED_FUNCTION}"))
        .arg(format!("--dump-after={COUNTED_FUNCTION}"))
        .arg(program)
        .args(words)
        .arg(format!("{COUNT_FLAG}{}", sides.display()))
        .output()
        .map_err(|error| format!("valgrind: {error}; install it by `cargo xtask setup --bench`"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    // Without a side there is no file.
    let sides = fs::read_to_string(sides).unwrap_or_default();
    let counted = sides.lines().zip(1..).map(|(side, number)| {
        let text = fs::read_to_string(counts.with_extension(number.to_string()));
        let text = text.map_err(|error| format!("what callgrind counted of {side}: {error}"))?;
        let sum = text.lines().find_map(|line| line.strip_prefix("summary: "));
        let sum = sum.and_then(|sum| sum.trim().parse::<f64>().ok()).filter(|sum| *sum > 0.0);
        let sum = sum.ok_or_else(|| format!("callgrind has counted nothing of {side}"))?;
        Ok((side.to_owned(), sum / COUNTED_OPS as f64))
    });
    counted.collect()
}

/// Callgrind counts this function's instructions, selected by its name.
#[inline(never)]
fn counted_ops(play: &mut dyn FnMut(u64) -> Duration) {
    play(COUNTED_OPS);
}
