//! A signal before the balancer runs ends it with a report and exit code 0, whatever it waits for.

use crate::namespace::{BALANCER, SILENT_PORT, command, service, with_operator_file};
use hotloop_tests::{Program, free_address};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

fn config(more: &str) -> String {
    [BALANCER, SILENT_PORT, more].concat()
        + &service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"])
}

/// Whether a process handles SIGHUP: the first thing that the program does.
fn has_begun(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (Signal::HUP.as_raw() - 1)) != 0)
}

/// The report of a program that ended well.
fn report(program: Program) -> (Value, String) {
    let (report, errors) = program.end();
    assert_eq!(
        (&report["balanced"], &report["pools_whole"]),
        (&true.into(), &true.into()),
        "{errors}"
    );
    (report, errors)
}

/// Checks that it never began to run, and reports that.
fn never_ran(program: Program) {
    let (report, errors) = report(program);
    assert_eq!((&report["received"], &report["sent"]), (&0.into(), &0.into()));
    assert_eq!(report["notes"][0], "a signal came before the run began");
    assert!(!errors.contains("running: "), "{errors}");
}

#[test]
fn a_signal_ends_it_while_dpdk_starts_or_peers_are_waited_for() {
    let peers = "[cluster]\nnode = \"a\"\ntrusted_network = true\nlisten = \"127.0.0.1:0\"\n\
                 peers = [{ name = \"b\", address = \"127.0.0.1:9\" }]\n";
    for more in ["", &peers.replace("127.0.0.1:0", &free_address().to_string())] {
        let folder = tempfile::tempdir().unwrap();
        report(Program::begin(command(folder.path(), &config(more)), has_begun));
    }
}

#[test]
fn a_signal_ends_it_while_a_capture_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lb.toml"), config("")).unwrap();
    let mut replay = std::process::Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    replay.current_dir(folder.path()).args(["replay", "--config", "lb.toml", "--report", "json"]);
    replay.args(["--input", "in.pcap", "--output", "out.pcap"]);
    let frame = hotloop::packet::build::tcp().to("203.0.113.10:80").build();
    let frames = vec![frame; 200_000];
    hotloop_capture::write_frames(&folder.path().join("in.pcap"), &frames).unwrap();
    let output = folder.path().join("out.pcap");
    // Then it reads.
    let (report, _) = report(Program::begin(replay, |_| output.exists()));
    assert_eq!(report["input"]["interrupted"], true);
    assert!(report["input"]["frames"].as_u64() < Some(200_000), "{report}");
}

#[test]
fn a_signal_ends_it_while_a_store_is_waited_for() {
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = store.local_addr().unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&attempts);
    thread::spawn(move || {
        for stream in store.incoming() {
            drop(stream);
            attempts.fetch_add(1, Relaxed);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let cluster = format!(
        "[cluster]\nnode = \"a\"\nstore = \"etcd://{address}\"\nstore_copy = \"{}/copy.toml\"\n",
        path.display()
    );
    let node = [&BALANCER.replace("mtu = 1500\n", ""), SILENT_PORT, &cluster].concat();
    let node = with_operator_file(&node, &path.join("kept.json"));
    never_ran(Program::begin(command(folder.path(), &node), |_| seen.load(Relaxed) > 1));
}

#[test]
fn a_signal_ends_it_while_the_program_that_it_is_to_replace_is_silent() {
    for answer in ["", "{\"ok\": null}\n"] {
        let folder = tempfile::tempdir().unwrap();
        let control = UnixListener::bind(folder.path().join("lb.sock")).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            let mut stream = BufReader::new(control.accept().unwrap().0);
            stream.read_line(&mut String::new()).unwrap();
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            asked.store(1, Relaxed);
            // Until the other end is closed.
            while stream.read_line(&mut String::new()).is_ok_and(|count| count > 0) {}
        });
        let mut command = command(folder.path(), &config(""));
        command.arg("--replace");
        never_ran(Program::begin(command, |_| seen.load(Relaxed) == 1));
    }
}
