//! The program itself: a whole run if a TAP interface can be made, and arguments that it must
//! refuse.

use hotloop::packet::build::{tcp, udp};
use hotloop_capture::{read_frames, write_frames};
use hotloop_tests::Program;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn endpoint(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_ipip-endpoint");
    Command::new(program).args(arguments).output().expect("the program starts")
}

#[test]
fn a_capture_of_tunnel_packets_goes_to_the_kernel_and_the_ledger_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let wrapped = udp().to("203.0.113.10:53").tunnelled("192.0.2.7", "10.0.0.1").build();
    let mut frames = vec![wrapped; 100];
    frames.push(tcp().to("10.0.0.1:80").build());
    write_frames(&input, &frames).unwrap();

    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let tap = format!("hltest{}", std::process::id() % 100_000);
    let arguments = [
        "--port",
        &device,
        "--tap",
        &tap,
        "--address",
        "10.0.0.1",
        "--balancer",
        "192.0.2.0/26",
        "--duration",
        "0.5",
        "--report",
        "json",
    ];
    let run = endpoint(&arguments);
    let errors = String::from_utf8_lossy(&run.stderr);
    if run.status.code() == Some(2) && errors.contains("net_tap0") {
        return println!("skipped: no TAP interface can be made here: {errors}");
    }
    assert_eq!(run.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
    assert_eq!(report["dropped"]["not_ours"], 1);
    // The kernel may also send packets of its own on a new interface.
    let dropped: u64 =
        report["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(report["sent"], 100);
    assert_eq!(report["received"], 100 + dropped);
    assert!(read_frames(&output).unwrap().is_empty());
    assert!(!Path::new("/sys/class/net").join(&tap).exists(), "{tap} was left behind");
}

#[test]
fn what_the_core_does_when_idle_is_as_the_command_line_says() {
    let folder = tempfile::tempdir().unwrap();
    let tap = format!("hlidle{}", std::process::id() % 10_000);
    let program = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-endpoint"));
        command.env("XDG_RUNTIME_DIR", folder.path()).args(line.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let line = "--address 10.0.0.1 --balancer 192.0.2.1 --port net_null0 --idle pause --tap";
    let mut running = program(&format!("{line} {tap}")).spawn().unwrap();
    // Until the program listens, there is no answer.
    let answered = std::iter::repeat_with(|| program("ctl status --json").output().unwrap())
        .take_while(|_| running.try_wait().unwrap().is_none())
        .find(|asked| asked.status.success());
    let _ = running.kill();
    let errors = running.wait_with_output().unwrap().stderr;
    let Some(answered) = answered else {
        let errors = String::from_utf8_lossy(&errors);
        assert!(errors.contains("net_tap0"), "{errors}");
        return println!("skipped: no TAP interface can be made here: {errors}");
    };
    let status: Value = serde_json::from_slice(&answered.stdout).unwrap();
    assert_eq!(status["idle"], "pause");
}

#[test]
fn bad_input_ends_in_one_line_and_exit_code_2() {
    let with = |port: &'static str, more: &[&'static str]| {
        let least = ["--tap", "hltest", "--address", "10.0.0.1", "--balancer", "192.0.2.1"];
        [&least[..], &["--port", port], more].concat()
    };
    for (arguments, expected) in [
        (with("eth0", &[]), "device \"eth0\""),
        (with("net_pcap0,rx_pcap=missing.pcap", &[]), "missing.pcap"),
        (with("net_null0", &["--return-path", "::1"]), "add an own IPv6 address"),
        (with("net_null0", &["--", "--no-such-option"]), "no such option"),
        (vec!["--port", "net_null0"], "--tap <NAME>"),
    ] {
        let output = endpoint(&arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        let matching: Vec<_> = errors.lines().filter(|line| line.contains(expected)).collect();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert_eq!(matching.len(), 1, "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_signal_that_comes_before_it_runs_ends_it_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let tap = format!("hlearly{}", std::process::id() % 10_000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-endpoint"));
    command.env("XDG_RUNTIME_DIR", folder.path()).args(["--port", "net_null0", "--tap", &tap]);
    command.args(["--address", "10.0.0.1", "--balancer", "192.0.2.0/26", "--report", "json"]);
    if rustix::process::geteuid().as_raw() != 0 {
        return println!("skipped: a TAP interface is made by root");
    }
    let socket = folder.path().join("hotloop/ipip-endpoint.sock");
    // EAL starts after that.
    let (report, errors) = Program::begin(command, |_| socket.exists()).end();
    assert_eq!(
        (&report["balanced"], &report["pools_whole"]),
        (&true.into(), &true.into()),
        "{errors}"
    );
}
