//! `cargo xtask bench instructions`: the hot functions' instructions, counted by callgrind,
//! compared with the counts kept in the repository.
//!
//! Unlike a time, a count is exact: it is the same on a busy machine and in every run. Counts are
//! kept by compiler, because another compiler makes other code from the same source.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::process;
use crate::rustc::Rustc;
use crate::workspace::Workspace;

/// The name of the group.
pub const GROUP: &str = "instructions";

/// The package of the program.
const PACKAGE: &str = "hotloop-instructions";

/// Number of calls of a function for its count.
const CALL_COUNT: u64 = 1000;

const KEPT_FILE: &str = "benches/instructions.json";

/// The count of each case.
type Counts = BTreeMap<String, u64>;

/// The contents of the file.
#[derive(Deserialize, Serialize)]
struct Kept {
    /// For readers of the file.
    unit: String,
    /// By compiler.
    compilers: BTreeMap<String, Counts>,
}

/// Counts every case and prints the table. Keeps the counts, or compares them with `check`.
pub fn run(workspace: &Workspace, check: bool) -> Result<(), Failure> {
    let program = build()?;
    let now = count_all(&program)?;
    let compiler = compiler()?;
    let (file, mut kept) = kept(workspace)?;

    let of_this = kept.compilers.get(&compiler);
    let latest = kept.compilers.last_key_value();
    let beside = of_this.or(latest.map(|(_, counts)| counts)).cloned().unwrap_or_default();
    let is_known = of_this.is_some();
    let (table, changed_count) = compare(&beside, &now);
    println!("{table}counted with {compiler}");
    if !is_known {
        let of = latest.map_or("no compiler", |(of, _)| of);
        println!("the counts kept are of {of}: they are shown, and not compared");
    }
    if !check {
        kept.compilers.insert(compiler, now);
        let text = serde_json::to_string_pretty(&kept).map_err(Failure::file("write", &file))?;
        fs::write(&file, text + "\n").map_err(Failure::file("write", &file))?;
        println!("kept in {KEPT_FILE}");
    } else if is_known && changed_count > 0 {
        return Err(Failure::failed(format!(
            "{changed_count} counts differ from {KEPT_FILE}. If the change is meant, run `cargo \
             xtask bench {GROUP}` and commit the file with it"
        )));
    }
    Ok(())
}

/// Why the kept counts can't be compared with this compiler's; `None` if they can.
pub fn unknown_compiler(workspace: &Workspace) -> Result<Option<String>, Failure> {
    let (compiler, (_, kept)) = (compiler()?, kept(workspace)?);
    let is_known = kept.compilers.contains_key(&compiler);
    Ok((!is_known).then(|| format!("{KEPT_FILE} has no counts of {compiler}")))
}

fn compiler() -> Result<String, Failure> {
    let rustc = Rustc::ask()?;
    Ok(format!("{}, {}", rustc.version, rustc.host))
}

fn kept(workspace: &Workspace) -> Result<(PathBuf, Kept), Failure> {
    let file = workspace.workspace_root.join(KEPT_FILE);
    let text = fs::read_to_string(&file).map_err(Failure::file("read", &file))?;
    let kept = serde_json::from_str(&text).map_err(Failure::file("read", &file))?;
    Ok((file, kept))
}

/// Builds the program that holds the cases, for any machine of this architecture.
fn build() -> Result<PathBuf, Failure> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    let mut command = process::cargo(&["build", "--profile", "bench", "--package", PACKAGE]);
    command.arg("--message-format=json-render-diagnostics");
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let messages = process::output(&mut command)?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    built
        .filter_map(|message| message.executable)
        .next_back()
        .ok_or_else(|| Failure::failed("cargo names no executable of the program"))
}

/// The instructions of `CALL_COUNT` calls of each case. The program prepares the same for any
/// number of calls, so the difference between twice and once that number is only the calls.
fn count_all(program: &Path) -> Result<Counts, Failure> {
    let cases = process::output(Command::new(program).arg("--list"))?;
    let mut counts = Counts::new();
    for case in cases.lines() {
        eprintln!("counting {case}");
        let (once, twice) = (count(program, case, 1)?, count(program, case, 2)?);
        let calls = twice.checked_sub(once).ok_or_else(|| {
            Failure::failed(format!(
                "{case}: {twice} instructions for twice the calls, {once} for once"
            ))
        })?;
        counts.insert(case.to_owned(), calls);
    }
    Ok(counts)
}

/// The instructions of the whole program with `times * CALL_COUNT` calls.
fn count(program: &Path, case: &str, times: u64) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([case, &(times * CALL_COUNT).to_string()])
        .stdin(Stdio::null())
        // The start of the stack depends on the size of the environment.
        .env_clear();
    for name in ["PATH", "LD_LIBRARY_PATH", "VALGRIND_LIB"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    let output = command.output().map_err(|error| process::not_started(&command, &error))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    collected(&errors).filter(|_| output.status.success()).ok_or_else(|| {
        Failure::failed(format!("`{}`: {}\n{errors}", process::line(&command), output.status))
    })
}

/// Reads `==4711== Collected : 133743`.
fn collected(errors: &str) -> Option<u64> {
    let line = errors.lines().find(|line| line.starts_with("==") && line.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The table of every case, and the number of counts that differ from the kept ones.
fn compare(kept: &Counts, now: &Counts) -> (String, usize) {
    let cases: BTreeMap<_, _> =
        kept.keys().chain(now.keys()).map(|case| (case, (kept.get(case), now.get(case)))).collect();
    let width = cases.keys().map(|case| case.len()).max().unwrap_or(0);
    let per_call = |count: Option<&u64>| {
        count.map_or("-".into(), |count| format!("{:.3}", *count as f64 / CALL_COUNT as f64))
    };
    let mut table = format!("{:width$} {:>10} {:>10}\n", "instructions per call", "kept", "now");
    for (case, (kept, now)) in &cases {
        let difference = match (kept, now) {
            (Some(kept), Some(now)) if kept == now => "same".into(),
            (Some(kept), Some(now)) => {
                format!("{:+.2} %", (**now as f64 / **kept as f64 - 1.0) * 100.0)
            }
            (None, _) => "new".into(),
            (Some(_), None) => "gone".into(),
        };
        let (kept, now) = (per_call(*kept), per_call(*now));
        table += &format!("{case:width$} {kept:>10} {now:>10}  {difference}\n");
    }
    (table, cases.values().filter(|(kept, now)| kept != now).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let errors = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n\
                      ==7== Events    : Ir\n==7== Collected : 133743\n==7== \n";
        assert_eq!(collected(errors), Some(133_743));
        assert_eq!(collected("==7== Process terminating\n"), None);
    }

    #[test]
    fn every_kind_of_difference_is_counted_and_named() {
        let counts = |counts: [(&str, u64); 3]| counts.map(|(case, n)| (case.into(), n)).into();
        let kept: Counts = counts([("gone", 5), ("less", 2000), ("same", 40)]);
        let now = counts([("less", 1500), ("new", 6), ("same", 40)]);
        let (table, changed_count) = compare(&kept, &now);
        assert_eq!(changed_count, 3);
        let rows: Vec<Vec<_>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["gone", "0.005", "-", "gone"]);
        assert_eq!(rows[2], ["less", "2.000", "1.500", "-25.00", "%"]);
        assert_eq!(rows[3], ["new", "-", "0.006", "new"]);
        assert_eq!(rows[4], ["same", "0.040", "0.040", "same"]);
        assert_eq!(compare(&kept, &kept).1, 0);
    }
}
