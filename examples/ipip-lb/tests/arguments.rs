//! The program's arguments, and `ipip-lb run` on devices that need no privilege.

use crate::bench::{CONFIG, Lb};
use hotloop::arena::Pages;
use hotloop_tests::tool;
use ipip_lb::network_function::check_hugepages;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Wrong arguments, and the parts of the one line about them.
const WRONG: &[(&[&str], &[&str])] = &[
    (&[], &["subcommand"]),
    (&["balance"], &["unrecognized subcommand 'balance'"]),
    (&["--verbose"], &["unexpected argument '--verbose'"]),
    (&["check"], &["--config <FILE>"]),
    (&["check", "--config"], &["a value is required for '--config <FILE>'"]),
    (&["check", "--config", "lb.toml", "more"], &["unexpected argument 'more'"]),
    (&["check", "--config", "none.toml"], &["none.toml: --config: ", "name a readable file"]),
    (&["check", "--config", "lb.toml", "--report", "xml"], &["'xml' for '--report <FORMAT>'"]),
    (&["check", "--config", "lb.toml", "--deployment", "mesh"], &["'mesh' for '--deployment"]),
    (&["check", "--config", "lb.toml", "--workers", "0"], &["'0' for '--workers <N>'", "1..=60"]),
    (&["check", "--config", "lb.toml", "--workers", "two"], &["'two' for '--workers <N>'"]),
    (&["check", "--config", "lb.toml", "--dispatchers", "61"], &["'61' for '--dispatchers <N>'"]),
    (
        &["check", "--config", "lb.toml", "--config", "b"],
        &["'--config <FILE>' cannot be used mult"],
    ),
    (&["replay", "--config", "lb.toml"], &["--input <IN>", "--output <OUT>"]),
    (
        &["replay", "--config", "lb.toml", "--input", "a", "--output", "b", "--clock", "sun"],
        &["'sun' for '--clock <CLOCK>'", "capture, wall"],
    ),
    (
        &["replay", "--config", "none.toml", "--input", "a", "--output", "b"],
        &["none.toml: --config: "],
    ),
    (&["run", "--config", "lb.toml", "--duration", "0"], &["'--duration <S>'", "above 0"]),
    (&["run", "--config", "lb.toml", "--duration", "1m"], &["'--duration <S>'", "10 or 0.5"]),
    (&["run", "--config", "lb.toml", "-l", "0"], &["unexpected argument '-l'"]),
    (
        &["run", "--config", "lb.toml", "--", "--nonsense"],
        &["arguments after --: ", "\"--nonsense\""],
    ),
    (
        &["run", "--config", "nothing.toml"],
        &["nothing.toml:11: port.uplink.device: ", "net_nothing0", "net_null"],
    ),
    (
        &["run", "--config", "missing.toml"],
        &["missing.toml:11: port.uplink.device: ", "missing.pcap"],
    ),
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, device) in [
        ("lb.toml", "net_null0"),
        ("nothing.toml", "net_nothing0"),
        ("missing.toml", "net_pcap0,rx_pcap=missing.pcap"),
        ("ring.toml", "net_ring0"),
    ] {
        let config = CONFIG.replace("\"net_null0\"", &format!("\"{device}\""));
        fs::write(folder.path().join(name), config).unwrap();
    }
    folder
}

fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(args);
    command
}

#[test]
fn each_wrong_argument_is_named_with_a_remedy() {
    let folder = folder();
    for (args, expected) in WRONG {
        let Output { status, stdout, stderr } = program(folder.path(), args).output().unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{args:?}: {message}");
        assert!(stdout.is_empty(), "{args:?}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        // The remedy follows a semicolon.
        assert!(message.contains("ipip-lb: ") && message.contains("; "), "{args:?}: {message}");
        for part in *expected {
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }
}

#[test]
fn help_is_no_error() {
    for args in [&["--help"][..], &["replay", "--help"], &["run", "--help"], &["--version"]] {
        let output = program(Path::new("."), args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn what_was_understood_is_reported_to_programs_too() {
    let folder = folder();
    let args = ["check", "--config", "lb.toml", "--report", "json", "--workers", "7"];
    let output = program(folder.path(), &args).output().unwrap();
    let understood: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(understood["engine"]["workers"], 7);
    assert_eq!(understood["balancer"]["tunnel_peers"][0], "10.9.9.0/24");
    assert_eq!(understood["ports"][0]["next_hop"], "02:00:00:00:09:02");
    assert_eq!(understood["services"][0]["backends"][1]["address"], "10.0.0.2");
    assert_eq!(understood["services"][5]["backends"][0]["share"], 0.0);
}

#[test]
fn a_run_ends_after_its_duration_with_its_ledger_whole() {
    let folder = folder();
    let args = ["run", "--config", "lb.toml", "--control", "lb.sock", "--duration", "0.3"];
    let args = [&args[..], &["--report", "json"]].concat();
    let output = program(folder.path(), &args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["received"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["in_flight"], 0, "{report}");
    // net_null's frames are zeroes.
    let dropped = report["dropped"].as_object().unwrap().values().filter_map(Value::as_u64);
    assert_eq!(dropped.sum::<u64>(), report["received"].as_u64().unwrap(), "{report}");
    assert!(report["dropped"]["punt"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn an_interrupt_drains_and_reports() {
    let folder = folder();
    for (config, signal) in [("lb.toml", 2), ("ring.toml", 15)] {
        let args = ["run", "--config", config, "--control", "lb.sock", "--workers", "1"];
        let args = [&args[..], &["--deployment", "pipeline"]].concat();
        let mut command = program(folder.path(), &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(" INFO ipip-lb: running: pipeline") {
            assert!(errors.read_line(&mut line).unwrap() > 0, "{line}");
        }
        while !catches(child.id(), signal) {
            std::thread::yield_now();
        }
        let kill = format!("kill -{signal} {}", child.id());
        let kill = tool("sh").unwrap().args(["-c", &kill]).status().unwrap();
        assert!(kill.success());
        let mut report = String::new();
        child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{report}");
        assert!(report.contains("balanced, pools whole, 0 in flight"), "{report}");
        assert!(report.contains("service web: backend 10.0.0.1: 0 packets"), "{report}");
    }
}

/// Whether the process has a handler for the signal.
fn catches(process: u32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn keygen_prints_another_key_each_time() {
    let mut keys = Vec::new();
    for _ in 0..3 {
        let output = Command::new(env!("CARGO_BIN_EXE_ipip-lb")).arg("keygen").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let key = String::from_utf8(output.stdout).unwrap();
        let key = key.strip_suffix('\n').expect("one line").to_owned();
        assert!(key.len() == 32 && key.bytes().all(|it| it.is_ascii_hexdigit()), "{key}");
        // A configuration accepts it.
        let config = CONFIG.replacen("mtu =", &format!("hash_key = \"{key}\"\nmtu ="), 1);
        ipip_lb::config::Config::parse("lb.toml", &config).unwrap();
        keys.push(key);
    }
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn too_little_memory_is_named_as_such() {
    let folder = folder();
    let run = "ulimit -v 300000; exec \"$0\" run --config lb.toml --duration 1";
    let mut command = tool("sh").unwrap();
    command.current_dir(folder.path()).args(["-c", run, env!("CARGO_BIN_EXE_ipip-lb")]);
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("there is too little memory: raise the limits"), "{errors}");
}

/// If tables and mempools are on hugepages, the program runs.
#[test]
fn where_the_hugepages_required_are_there_it_runs() {
    const NEEDED: u32 = 56;
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free_count: u32 = free.unwrap_or_default().trim().parse().unwrap_or(0);
    if free_count < NEEDED {
        return println!("skipped: {free_count} hugepages are free, {NEEDED} are needed");
    }
    let folder = folder();
    let engine = "[engine]\nworkers = 1\nrequire_hugepages = true\n[balancer]";
    let lb = CONFIG.replacen("[balancer]", engine, 1);
    fs::write(folder.path().join("huge.toml"), lb).unwrap();
    let line = "run --config huge.toml --duration 0.2 --rx-descriptors 64 --tx-descriptors 64 \
                -- -l 0 --no-pci -m 48";
    let args: Vec<_> = line.split_whitespace().collect();
    let Output { status, stderr, .. } = program(folder.path(), &args).output().unwrap();
    assert_eq!(status.code(), Some(0), "{}", String::from_utf8_lossy(&stderr));
}

/// If required hugepages are missing, nothing runs.
#[test]
fn anything_less_than_the_hugepages_required_is_refused() {
    let folder = folder();
    let lb = CONFIG.replacen("[balancer]", "[engine]\nrequire_hugepages = true\n[balancer]", 1);
    fs::write(folder.path().join("huge.toml"), lb).unwrap();
    for (eal, expected) in [
        (&[][..], "engine.require_hugepages: mempools have no hugepages without EAL arguments"),
        (&["--", "--no-pci", "--no-huge"], "engine.require_hugepages: mempools have no hugepages"),
    ] {
        let args = [&["run", "--config", "huge.toml", "--duration", "1"], eal].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        let output = command.current_dir(folder.path()).args(args).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.contains(expected), "{errors}");
    }
    // A table gets the available pages.
    let tables = Lb::of(CONFIG).balance().obtained();
    for (table, obtained) in tables {
        let is_huge = matches!(obtained.pages, Pages::Huge | Pages::Gigantic);
        match check_hugepages(3, &[(table, obtained)]) {
            Ok(()) => assert!(is_huge, "{obtained}"),
            Err(error) => {
                let (error, start) =
                    (error.to_string(), format!("the table of {table} of worker 3 got"));
                assert!(!is_huge && error.contains(&start), "{error}");
                assert!(error.contains("vm.nr_hugepages"), "{error}");
            }
        }
    }
}
