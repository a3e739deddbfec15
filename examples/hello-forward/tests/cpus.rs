//! Programs side by side on one machine.

use hotloop::engine::Topology;
use hotloop_tests::Program;
use std::path::Path;
use std::process::Command;

/// A program with one core; programs in the same folder know each other.
fn start(folder: &Path, name: &str) -> Program {
    let control = folder.join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-forward"));
    command.args(["--idle", "pause", "--report", "json", "--control"]).arg(&control);
    command.env("XDG_RUNTIME_DIR", folder);
    Program::start(command, &control)
}

fn cpu(program: &Program) -> u64 {
    let status = program.ask("status").expect("it answers");
    status["cores"][0]["cpu"].as_u64().expect("its core is pinned")
}

#[test]
fn two_programs_run_on_different_cpus_until_there_are_none_left() {
    let cpu_count = Topology::read(Path::new("/")).cpus.len();
    if cpu_count < 2 {
        println!("skipped: two programs cannot have a CPU each: there is one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), "first.sock");
    let second = start(folder.path(), "second.sock");
    let (of_first, of_second) = (cpu(&first), cpu(&second));
    assert_ne!(of_first, of_second);

    // A CPU is free again as soon as its program has ended, without any cleaning up.
    let (report, _) = first.end();
    assert_eq!(report["cores"][0]["cpu"].as_u64(), Some(of_first), "{report}");
    let third = start(folder.path(), "third.sock");
    assert_eq!(cpu(&third), of_first);
    if cpu_count == 2 {
        // Every CPU has its program: another one runs all the same.
        let fourth = start(folder.path(), "fourth.sock");
        assert!([of_first, of_second].contains(&cpu(&fourth)));
        let _ = fourth.end();
    }
    let _ = (second.end(), third.end());
}
