//! What all contests of a run share: criterion, callgrind's counts, and the processes that play a part each.

use crate::contest::Outcome;
use crate::figure::QUARTER_COUNT;
use crate::slices::Slice;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Criterion's samples of a side: every so-manieth of its kept slices.
const SAMPLE_COUNT: usize = 25;

/// How long criterion believes a sample takes: the slices were played before.
const SAMPLE: Duration = Duration::from_micros(1);

/// Operations that callgrind counts.
const COUNTED_OPS: u64 = 16_384;

/// How this program and those that it starts stand to others on the machine: first.
const NICENESS: i32 = -20;

/// Starts this program again, to play a part of each contest and write the slices into a file.
const PART_FLAG: &str = "--part=";
const SLICES_FLAG: &str = "--slices=";

/// How many processes, one after the other, play each quarter of a run. One where it isn't set.
const PROCESSES_VARIABLE: &str = "HOTLOOP_BENCH_PROCESSES";

/// Starts this program again under callgrind, to count the operations of each side and write their names into a file.
const COUNT_FLAG: &str = "--count=";

/// How often they are counted. The fewest are shown: where a second begins meanwhile, each flow's time is written once.
const COUNT_COUNT: usize = 3;

/// What callgrind counts.
const COUNTED_FUNCTION: &str = "hotloop_benches::instrument::counted_ops";

/// Criterion and the counts.
pub struct Instrument {
    criterion: Criterion,
    /// Where the names of sides go, where this process is to count their instructions.
    counting: Option<PathBuf>,
    /// What another process has counted.
    counted: Vec<Counted>,
    /// Why instructions can't be counted here.
    uncounted: Option<String>,
    /// How many processes play each quarter of the run.
    processes_a_quarter: usize,
    /// Which part of the run this process plays, and of how many.
    part: (usize, usize),
    /// Where its slices go, where it isn't the last.
    file: Option<PathBuf>,
    /// What the processes before it have played.
    earlier: Vec<Played>,
    /// What a contest's or a side's name has to contain to be played, where criterion's arguments say so.
    filter: Option<String>,
    /// Contests whose turns begin with a pass, and of how many operations.
    pub(crate) passes: Vec<String>,
}

/// What a process has played of a side.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Played {
    pub contest: String,
    pub side: String,
    pub slices: Vec<Slice>,
}

/// The instructions of an operation of a side.
struct Counted {
    /// As criterion has it, with the contest's name.
    side: String,
    instructions: f64,
}

/// Has this thread, and those that it starts, come before what else runs on the machine.
pub fn come_first() {
    // Without the privilege, what else runs takes its turns: it shows.
    let _ = setpriority_process(None, NICENESS);
}

/// Whether this process starts those that play parts of the run, and is none of them.
#[must_use]
pub fn is_first_process() -> bool {
    !env::args().any(|word| word.starts_with(SLICES_FLAG) || word.starts_with(COUNT_FLAG))
}

impl Instrument {
    /// As the command line has it: criterion's arguments where `takes_criterions`. Where the run is `in_parts`, other
    /// processes play all but the last before this returns.
    ///
    /// # Errors
    /// One of these has failed.
    pub fn new(takes_criterions: bool, in_parts: bool) -> Result<Self, String> {
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
        let criterion = Criterion::default()
            .sample_size(SAMPLE_COUNT)
            .warm_up_time(SAMPLE / 2)
            .measurement_time(4 * SAMPLE * SAMPLE_COUNT as u32)
            .nresamples(2_000);
        let criterion =
            if takes_criterions && is_whole { criterion.configure_from_args() } else { criterion };
        let filter = words.iter().skip(1).find(|word| !word.starts_with('-')).cloned();
        let filter = filter.filter(|_| takes_criterions);
        let (mut earlier, mut counted, mut uncounted) = (Vec::new(), Vec::new(), None);
        if is_whole {
            match count_all(&words[1..]) {
                Ok(counts) => counted = counts,
                Err(reason) => uncounted = Some(reason),
            }
            earlier = play_parts(part_count - 1, &words[1..])?;
        }
        Ok(Self {
            criterion,
            counting,
            counted,
            uncounted,
            processes_a_quarter,
            part: (part.unwrap_or(part_count - 1), part_count),
            file,
            earlier,
            filter,
            passes: Vec::new(),
        })
    }

    /// Whether this process only does a part of another one's work: nothing is shown.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        self.is_counting() || self.file.is_some()
    }

    /// How many processes play each quarter of the run.
    pub(crate) const fn processes_a_quarter(&self) -> usize {
        self.processes_a_quarter
    }

    /// The quarter of the run that this process plays, where the run is in parts.
    pub(crate) const fn quarter(&self) -> usize {
        let (part, part_count) = self.part;
        part * QUARTER_COUNT / part_count
    }

    /// Those of so many visits that are this process's.
    pub(crate) const fn share_of(&self, count: usize) -> Range<usize> {
        let (part, part_count) = self.part;
        count * part / part_count..count * (part + 1) / part_count
    }

    /// What the processes before this one have played of a side.
    pub(crate) fn earlier<'i>(
        &'i self,
        contest: &'i str,
        side: &'i str,
    ) -> impl Iterator<Item = Slice> + 'i {
        let is_of = move |it: &&Played| it.contest == contest && it.side == side;
        let played = self.earlier.iter().filter(is_of);
        played.flat_map(|it| it.slices.iter().cloned())
    }

    /// Hands slices over to the process that started this one.
    pub(crate) fn hand_over(&self, played: &Played) {
        let file = self.file.as_ref().expect("only a part is handed over");
        append(file, &serde_json::to_string(played).expect("text and numbers"));
    }

    /// Whether this process only counts instructions: large tables may be smaller then, as long as the
    /// same code works on them.
    #[must_use]
    pub const fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// Ends criterion's report. Returns what there is to say about the run, beside its rows.
    #[must_use]
    pub fn finish(self) -> Vec<String> {
        self.criterion.final_summary();
        let uncounted =
            self.uncounted.map(|reason| format!("no instructions are counted: {reason}"));
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

    /// Has a side do its operations for callgrind, after a few that are not counted.
    pub(crate) fn count(&self, contest: &str, side: &str, play: &mut dyn FnMut(u64) -> Duration) {
        let file = self.counting.as_ref().expect("only a process that counts does this");
        play(COUNTED_OPS);
        for _ in 0..COUNT_COUNT {
            append(file, &format!("{contest}/{side}"));
            counted_ops(play);
        }
    }

    /// Whether a side of this name, as criterion has it, is to be played.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter))
    }

    /// Hands criterion the samples of a contest.
    pub(crate) fn sampled(&mut self, name: &str, sides: &[String], outcome: &Outcome) {
        let mut group = self.criterion.benchmark_group(name);
        group.sampling_mode(SamplingMode::Flat);
        for (index, side) in sides.iter().enumerate() {
            sample(&mut group, side, &outcome.samples_ns(index));
        }
        group.finish();
    }

    /// The instructions of an operation of a side, where they were counted.
    pub(crate) fn instructions(&self, contest: &str, side: &str) -> Option<f64> {
        let name = format!("{contest}/{side}");
        let counts = self.counted.iter().filter(|it| it.side == name);
        counts.map(|it| it.instructions).reduce(f64::min)
    }
}

/// Appends a line for the process that waits.
fn append(file: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(file);
    let mut file = file.expect("the process that waits has made the folder");
    writeln!(file, "{line}").expect("there is room for a line");
}

/// Has processes of this program play all parts but the last, one after the other.
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

/// Hands criterion the times of one side.
fn sample(group: &mut BenchmarkGroup<'_, WallTime>, side: &str, times_ns: &[f64]) {
    let mut taken_count = 0;
    group.bench_function(side, |bencher| {
        let time_ns = times_ns[taken_count * times_ns.len() / SAMPLE_COUNT % times_ns.len()];
        taken_count += 1;
        bencher.iter_custom(|count| {
            let start = Instant::now();
            while start.elapsed() < SAMPLE {}
            Duration::from_secs_f64(time_ns * count as f64 / 1e9)
        });
    });
}

/// Has one process count the operations of all sides, under callgrind, which writes a file for each.
fn count_all(words: &[String]) -> Result<Vec<Counted>, String> {
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
        Ok(Counted { side: side.to_owned(), instructions: sum / COUNTED_OPS as f64 })
    });
    counted.collect()
}

/// Callgrind counts what this function does, by its name.
#[inline(never)]
fn counted_ops(play: &mut dyn FnMut(u64) -> Duration) {
    play(COUNTED_OPS);
}
