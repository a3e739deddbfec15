//! The privileges of a running program's threads: `/proc/PID/task/*/status`.

use crate::tool;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

// Bits of capability sets: linux/capability.h.

/// `CAP_DAC_READ_SEARCH`.
pub const DAC_READ_SEARCH: u64 = 1 << 2;
/// `CAP_NET_RAW`.
pub const NET_RAW: u64 = 1 << 13;
const NET_ADMIN: u64 = 1 << 12;
const IPC_LOCK: u64 = 1 << 14;

/// The capabilities that the control thread of every program keeps.
pub const CONTROL: u64 = NET_ADMIN | NET_RAW | IPC_LOCK;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Thread {
    name: String,
    is_main: bool,
    /// The union of the permitted, effective, inheritable and ambient ones.
    capabilities: u64,
    no_new_privs: bool,
}

fn threads(process: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let thread = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("{key}")).trim().to_owned()
        };
        let set = |key: &str| u64::from_str_radix(&value(key), 16).unwrap();
        Thread {
            name: value("Name"),
            is_main: task.file_name().to_str() == Some(&process.to_string()),
            capabilities: set("CapPrm") | set("CapEff") | set("CapInh") | set("CapAmb"),
            no_new_privs: value("NoNewPrivs") == "1",
        }
    };
    tasks.map(|task| thread(task.unwrap())).collect()
}

/// Starts a program and checks its threads once it runs: they have names of their own, the main
/// thread has those capabilities in `kept` that it was given, the threads in `others` have theirs,
/// and all other threads have none. The program's own report of them must be true.
///
/// # Panics
/// If any of that doesn't hold.
pub fn keep_only(command: &mut Command, kept: u64, others: &[(&str, u64)]) {
    let given = threads(std::process::id())[0].capabilities;
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let running = Running(child);
    // Warnings about the machine are another matter.
    let is_of_machine = |line: &str| line.contains("hotloop-doctor");
    let mut said = errors
        .lines()
        .map_while(Result::ok)
        .inspect(|line| assert!(!line.contains("WARN") || is_of_machine(line), "{line}"));
    let line = said.find(|line| line.contains("capabilities kept: ")).expect("it runs");
    assert!(line.contains("; no new privileges"), "{line}");
    let anywhere = others.iter().fold(kept, |all, (_, kept)| all | kept) & given;
    let names =
        [(NET_ADMIN, "CAP_NET_ADMIN"), (NET_RAW, "CAP_NET_RAW"), (IPC_LOCK, "CAP_IPC_LOCK")];
    for (bit, name) in names {
        assert_eq!(line.contains(name), anywhere & bit != 0, "{line}");
    }

    let threads = threads(running.0.id());
    for thread in &threads {
        let others = others.iter().find(|(name, _)| *name == thread.name);
        let expected = if thread.is_main { kept } else { others.map_or(0, |(_, kept)| *kept) };
        assert_eq!(thread.capabilities, expected & given, "{}", thread.name);
        assert!(thread.no_new_privs, "{}", thread.name);
    }
    let names: BTreeSet<_> = threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names.len(), threads.len(), "{names:?}");
    for (name, _) in others {
        assert!(names.contains(name), "{names:?}");
    }
    // Whatever else it prints, there is no warning about a thread.
    let kill = format!("kill {}", running.0.id());
    assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    said.for_each(drop);
}
