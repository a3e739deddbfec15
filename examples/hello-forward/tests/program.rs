//! The program itself, from one capture file to another.

use hotloop::packet::build::udp;
use hotloop_capture::{read_frames, write_frames};
use hotloop_tests::tool;
use serde_json::Value;
use std::process::{Command, Output};

fn hello_forward(arguments: &[&str]) -> Output {
    // Each has its control socket in a folder of its own: tests run side by side.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-forward"));
    command.env("XDG_RUNTIME_DIR", folder.path());
    command.args(arguments).output().expect("the program starts")
}

#[test]
fn a_capture_is_forwarded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.pcap"), folder.path().join("b.pcap"));
    let frames: Vec<_> = (0..500).map(|index| udp().payload(vec![7; index]).build()).collect();
    write_frames(&from, &frames).unwrap();
    let port_a = format!("net_pcap0,rx_pcap={}", from.display());
    let port_b = format!("net_pcap1,tx_pcap={}", to.display());
    for (mode, rotate) in [("io", 0), ("macswap", 6)] {
        let output = hello_forward(&[
            "--port-a", &port_a, "--port-b", &port_b, "--mode", mode, "--report", "json",
        ]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["received"], &report["sent"]), (&500.into(), &500.into()));
        assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
        let sent = read_frames(&to).unwrap();
        let expected = frames.iter().map(|frame| {
            let mut bytes = frame.clone();
            bytes[..12].rotate_left(rotate);
            bytes
        });
        assert_eq!(sent, expected.collect::<Vec<_>>(), "{mode}");
    }
}

#[test]
fn bad_input_ends_in_exit_code_2() {
    for (arguments, expected) in [
        (&["--port-a", "eth0"][..], "device \"eth0\""),
        (&["--port-a", "net_null1"], "open already"),
        (&["--workers", "0"], "at least one core"),
        (&["--port-a", "net_ring0", "--workers", "17"], "has 16 RX queues"),
        (&["--mode", "nat"], "macswap"),
        (&["--duration", "-1"], "number of seconds above 0"),
        (&["--", "--no-such-option"], "no such option"),
    ] {
        let output = hello_forward(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_the_machine_costs_is_one_warning_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    std::fs::write(&clock, "hpet\n").unwrap();
    let current = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // In a mount namespace of its own, which disappears with it.
    let with_clock = |script: &str| {
        let script = format!("mount --bind \"$0\" {current} || exit 77; {script}");
        let mut command = tool("unshare").unwrap();
        command.args(["--mount", "sh", "-c", &script]).arg(&clock);
        command.arg(env!("CARGO_BIN_EXE_hello-forward")).env("XDG_RUNTIME_DIR", folder.path());
        command.output()
    };
    if !with_clock("exit 0").is_ok_and(|output| output.status.success()) {
        return println!("skipped: {current} takes root to replace, in a mount namespace");
    }
    let output = with_clock("exec \"$1\" --duration 0.05").unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let warnings: Vec<_> = errors.lines().filter(|line| line.contains("WARN")).collect();
    let [warning] = warnings[..] else { panic!("{errors}") };
    assert!(warning.contains("the clock source is hpet"), "{warning}");
    assert!(warning.contains("; hotloop-doctor --cpus "), "{warning}");
}

#[test]
fn the_main_threads_stack_has_room_by_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    for limit in ["8192", "1024", "unlimited", "192"] {
        let script = format!("ulimit -s {limit} && exec \"$0\" --duration 0.05 --control hf.sock");
        let mut command = tool("sh").unwrap();
        command.args(["-c", &script, env!("CARGO_BIN_EXE_hello-forward")]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        match limit {
            _ if errors.contains("ulimit:") => println!("skipped: a limit of {limit}: {errors}"),
            "192" => assert!(errors.contains("bytes of its stack left"), "{errors}"),
            limit => assert!(output.status.success(), "{limit}: {errors}"),
        }
    }
}
