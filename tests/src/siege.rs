//! A program that is sent malformed frames, and has to account for each.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::malformed_frames;
use crate::network::{Network, Peer, kernel_received, reassembled};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Frames sent to each program on each device.
const FRAME_COUNT: usize = 10_000;

/// Frames sent before the peer waits: no more than a device's ring holds.
const VOLLEY: usize = 64;

/// How long a program may take to start, or to work off what it was sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has programs receive 10,000 malformed frames from the other end of a wire, through packet sockets
/// and through XDP, and compares what was sent with what the program says of itself. `program` starts
/// one on a device, with a control socket at a path, and a report in JSON.
///
/// # Panics
/// Where a packet is missing, or the program fails.
pub fn besiege(program: impl Fn(&str, &Path) -> Command) {
    for device in ["net_af_packet0,iface=a", "net_af_xdp0,iface=a,force_copy=1"] {
        let made = Network::enter().and_then(|network| network.pair("a", "b").map(|()| network));
        match made {
            Ok(_network) => besiege_on(device, &program),
            Err(why) => return println!("skipped: {why}"),
        }
    }
}

fn besiege_on(device: &str, program: &impl Fn(&str, &Path) -> Command) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let control = folder.path().join("control.sock");
    let mut command = program(device, &control);
    let name = command.get_program().to_owned();
    let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("the program starts"));
    let received_now = || {
        let mut asked = Command::new(&name);
        asked.args(["ctl", "counters", "--json", "--control"]).arg(&control);
        let output = asked.stderr(Stdio::null()).output().ok()?;
        serde_json::from_slice::<Value>(&output.stdout).ok()?["received"].as_u64()
    };
    wait_until(
        || {
            assert_eq!(running.0.try_wait().expect("it is a child"), None, "it has ended");
            received_now().is_some()
        },
        "it answers",
    );

    let mut peer = Peer::new("b");
    let frames = malformed_frames(1, FRAME_COUNT);
    let mut sent = 0;
    for volley in frames.chunks(VOLLEY) {
        sent += peer.send(volley.iter().map(Vec::as_slice));
        std::thread::sleep(Duration::from_millis(1));
    }
    wait_until(|| kernel_received("a") >= sent, "the wire is empty");
    let mut received = None;
    wait_until(|| std::mem::replace(&mut received, received_now()) == received, "it is quiet");

    let report = running.end();
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {report}"));
    let loss: u64 = report["nic_loss"].as_object().expect("an object").values().map(count).sum();
    let reassembled = if device.contains("af_packet") { reassembled() } else { 0 };
    println!(
        "{device}: {sent} sent = {} received + {loss} lost by the device + {reassembled} in the \
         kernel's reassembly",
        report["received"]
    );
    assert_eq!(sent, FRAME_COUNT as u64, "the kernel takes every frame");
    assert_eq!(sent, count(&report["received"]) + loss + reassembled, "{device}: {report}");
    assert_eq!(report["balanced"], true, "{device}: {report}");
}

/// A program that does not outlive the test.
struct Running(Child);

impl Running {
    /// Asks it to end, and returns its report.
    fn end(mut self) -> Value {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it still runs");
        let mut report = String::new();
        let stdout = self.0.stdout.as_mut().expect("it is a pipe");
        stdout.read_to_string(&mut report).expect("it writes text");
        let status = self.0.wait().expect("it is a child");
        assert!(status.success(), "{status}: {report}");
        serde_json::from_str(&report).expect("a report")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(300));
    }
}
