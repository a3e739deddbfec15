//! udp-source into udp-sink, with every combination of I/O: nothing is lost, duplicated or
//! reordered at a rate that the path carries, and losses at a higher rate are counted.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::command::run as run_to_end;
use crate::links::{start, wire};
use hotloop_tests::network::{Network, ip, mac};
use hotloop_tests::{Program, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A rate that each path carries, also in a debug build on a busy machine.
const RATE: &str = "5000";

/// Number of runs of a pair that DPDK may crash.
const TRIES: usize = 3;

/// The results of a pair of programs.
struct Outcome {
    sent: u64,
    sink: Value,
}

/// Starts the sink, runs the source to its end, and then the sink until nothing comes any more.
fn run(sink: &[&str], source: &[&str]) -> Outcome {
    run_with(sink, |_| (), source).expect("nothing crashes the sink")
}

/// [`run`] that calls `between` with the sink before the source starts, and keeps its result until
/// the source has ended. Returns `None` if the sink is killed by SIGSEGV.
fn run_with<T>(
    sink: &[&str],
    between: impl FnOnce(&Program) -> T,
    source: &[&str],
) -> Option<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [sink, &["--verify", "--latency"]].concat();
    let mut sink = start(env!("CARGO_BIN_EXE_udp-sink"), folder.path(), &arguments);

    let kept = between(&sink);
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-source"));
    command.args(source).args(["--duration", "1", "--report", "json", "--control"]);
    let output = command.arg(folder.path().join("source.sock")).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source:?}: {errors}");
    let source: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&source["balanced"], &source["pools_whole"]), (&true.into(), &true.into()));

    drop(kept);
    let (mut before, mut crashed) = (Value::Null, false);
    wait_until("all is received", || {
        thread::sleep(Duration::from_millis(200));
        let status = sink.ask("status");
        crashed = status.is_none() && sink.killed_by() == Some(Signal::SEGV);
        let now = status.map_or(Value::Null, |status| status["received"].clone());
        crashed || (std::mem::replace(&mut before, now.clone()) == now && !now.is_null())
    });
    if crashed {
        return None;
    }
    let (sink, errors) = sink.end();
    assert_eq!(sink["balanced"], true, "{sink} {errors}");
    Some(Outcome { sent: source["sent"].as_u64().unwrap(), sink })
}

/// [`run`] with a sink that is stopped for 20 ms every 20 ms: it loses packets, however fast it is.
fn run_stopping(sink: &[&str], source: &[&str]) -> Outcome {
    let between = |sink: &Program| {
        let (id, (end, ended)) = (sink.id(), channel::<()>());
        let pause = Duration::from_millis(20);
        thread::spawn(move || {
            let id = Pid::from_raw(id as i32).unwrap();
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(id, Signal::STOP);
                thread::sleep(pause);
                let _ = kill_process(id, Signal::CONT);
            }
        });
        end
    };
    run_with(sink, between, source).expect("nothing crashes the sink")
}

/// Checks that nothing is lost, duplicated or reordered.
fn assert_whole(name: &str, outcome: &Outcome) {
    let Outcome { sent, sink } = outcome;
    let (verified, latency) = (&sink["udp"]["verified"], &sink["udp"]["latency"]);
    println!("{name}: sent {sent}; {verified}; {latency}");
    assert!(*sent > 100, "{name}: {sent}");
    for (what, count) in [("received", *sent), ("lost", 0), ("duplicated", 0), ("reordered", 0)] {
        assert_eq!(verified[what], count, "{name}: {what}: {sink}");
    }
    assert_eq!(latency["count"], *sent, "{name}: {sink}");
    assert!(latency["median_ns"].as_u64().unwrap() < 1_000_000_000, "{name}: {latency}");
}

#[test]
fn sockets_of_the_kernel() {
    for threads in [&[][..], &["--threads", "2"], &["--threads", "2", "--reuseport"]] {
        let port = 20_000 + threads.len() as u16;
        let to = format!("127.0.0.1:{port}");
        let sink = [&[to.as_str()], threads].concat();
        let source_port = (port + 1_000).to_string();
        let source = [to.as_str(), "--rate", RATE, "--flows", "8", "--source-port", &source_port];
        assert_whole(&format!("kernel to kernel {threads:?}"), &run(&sink, &source));
    }
}

#[test]
fn what_a_socket_has_no_room_for_is_counted() {
    // Full speed into the smallest possible buffer.
    let sink = ["127.0.0.1:20100", "--receive-buffer", "2304"];
    let source = ["127.0.0.1:20100", "--flows", "4", "--source-port", "21100", "--payload", "1000"];
    assert_loss_is_counted("kernel to kernel", &run_stopping(&sink, &source));
}

#[test]
fn what_the_other_end_of_a_wire_has_no_room_for_is_counted() {
    // Rings and buffers of minimum size.
    let small = "blocksz=4096,framesz=2048,framecnt=8";
    for device in [&format!("net_af_packet0,iface=b,{small}"), "net_af_xdp0,iface=b,force_copy=1"] {
        let _network = match wire() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        kernel_sends_by("a");
        let sink = ["--port", device, "--rx-descriptors", "64"];
        let outcome = run_stopping(&sink, &["192.0.2.2", "--flows", "4"]);
        assert_loss_is_counted(&format!("kernel to {device}"), &outcome);
    }
    let _network = wire().unwrap();
    ip(&["address", "add", "192.0.2.2/24", "dev", "b"]).unwrap();
    let source =
        ["192.0.2.2", "--port", "net_af_packet0,iface=a", "--from", "192.0.2.1", "--next-hop"];
    let outcome = run_stopping(&["192.0.2.2", "--receive-buffer", "2304"], &source);
    assert_loss_is_counted("af_packet to kernel", &outcome);
}

/// Checks that some datagrams are lost, all losses are counted, and nothing is duplicated or
/// reordered.
fn assert_loss_is_counted(name: &str, outcome: &Outcome) {
    let Outcome { sent, sink } = outcome;
    let count = |value: &Value| value.as_u64().unwrap();
    let received = count(&sink["udp"]["datagrams"]);
    println!("{name}: sent {sent}, received {received}, {}", sink["udp"]["lost"]);
    // Otherwise the drops of all sockets would be counted twice.
    let own = sink["udp"]["lost"].as_object().unwrap().iter();
    let lost = own.filter(|(name, _)| *name != "receive_buffer_errors");
    let lost: u64 = lost.map(|(_, of_reason)| count(of_reason)).sum();
    assert!(lost > 0, "{name}: {sink}");
    assert_eq!(received + lost, *sent, "{name}: {sink}");
    let verified = &sink["udp"]["verified"];
    assert_eq!((&verified["duplicated"], &verified["reordered"]), (&0.into(), &0.into()), "{name}");
}

#[test]
fn two_processes_that_share_memory() {
    let run = || {
        // A crashed server leaves its socket, and DPDK's driver does not take the path again.
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock");
        let port = |role: &str| {
            format!("net_memif0,role={role},id=0,socket={},socket-abstract=no", socket.display())
        };
        let (server, client) = (port("server"), port("client"));
        let sink = ["--trust-memif-peer", "--port", &server];
        let source = ["--trust-memif-peer", "--port", &client, "--rate", RATE];
        run_with(&sink, |_| (), &source)
    };
    // DPDK's driver may crash a program that polls while the other end disconnects: docs/programs/udp.md.
    let outcome = (0..TRIES).find_map(|_| run());
    assert_whole("dpdk to dpdk over memif", &outcome.expect("it doesn't do so each time"));
}

/// The kernel sends from 192.0.2.1 by `interface` to 192.0.2.2, a program that answers no ARP.
fn kernel_sends_by(interface: &str) {
    ip(&["address", "add", "192.0.2.1/24", "dev", interface]).unwrap();
    ip(&["neighbour", "replace", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", interface])
        .unwrap();
}

#[test]
fn a_wire_between_the_kernel_and_a_device() {
    for device in ["net_af_packet0,iface=b", "net_af_xdp0,iface=b,force_copy=1"] {
        let _network = match wire() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        kernel_sends_by("a");
        let source = ["192.0.2.2", "--rate", RATE];
        assert_whole(&format!("kernel to {device}"), &run(&["--port", device], &source));
    }
    for device in ["net_af_packet0,iface=a", "net_af_xdp0,iface=a,force_copy=1"] {
        let _network = wire().unwrap();
        ip(&["address", "add", "192.0.2.2/24", "dev", "b"]).unwrap();
        let to_mac = mac("b");
        let to = if device.starts_with("net_af_packet") {
            "--next-hop"
        } else {
            &format!("--to-mac={to_mac}")
        };
        let source = ["192.0.2.2", "--from", "192.0.2.1", to, "--rate", RATE];
        let source = [&["--port", device], &source[..]].concat();
        assert_whole(&format!("{device} to kernel"), &run(&["192.0.2.2"], &source));
    }
}

#[test]
fn an_interface_of_the_programs_own() {
    let network = Network::enter();
    if let Err(why) = &network {
        return println!("skipped: {why}");
    }
    let device = ["--port", "net_tap0,iface=own"];
    let source = ["192.0.2.2", "--rate", RATE];
    let outcome = run_with(&device, |_| kernel_sends_by("own"), &source);
    assert_whole("kernel to net_tap", &outcome.expect("nothing crashes the sink"));

    // An interface that exists before the program, and stays.
    ip(&["tuntap", "add", "dev", "kept", "mode", "tap", "multi_queue"]).unwrap();
    ip(&["address", "add", "192.0.2.2/24", "dev", "kept"]).unwrap();
    let device = "net_tap0,iface=kept,mac=02:00:00:00:00:09";
    let source = ["192.0.2.2", "--from", "192.0.2.1", "--next-hop", "--rate", RATE];
    let source = [&["--port", device], &source[..]].concat();
    assert_whole("net_tap to kernel", &run(&[], &source));
}

#[test]
fn a_wire_between_two_devices() {
    for driver in ["net_af_packet0,iface=", "net_af_xdp0,force_copy=1,iface="] {
        let _network = match wire() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        let (sink, source) = (format!("{driver}b"), format!("{driver}a"));
        let outcome = run(&["--port", &sink], &["--port", &source, "--rate", RATE]);
        assert_whole(&format!("{source} to {sink}"), &outcome);
    }
}

#[test]
fn a_source_in_the_same_process() {
    let arguments =
        ["--with-source", "--duration", "1", "--report", "json", "--verify", "--latency"];
    for rate in [&["--rate", RATE][..], &[]] {
        let output = run_to_end(env!("CARGO_BIN_EXE_udp-sink"), &[&arguments, rate].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let sink: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&sink["balanced"], &sink["pools_whole"]), (&true.into(), &true.into()));
        let sent = sink["created"].as_u64().unwrap();
        assert_whole(&format!("net_ring in one process {rate:?}"), &Outcome { sent, sink });
    }
}
