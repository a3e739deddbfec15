//! A program that receives malformed frames, and must account for each.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::network::{Network, Peer, kernel_received, reassembled};
use crate::{Program, wait_until};
use hotloop::testing::malformed_frames;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Number of frames sent to each program on each device.
const FRAME_COUNT: usize = 10_000;

/// Number of frames sent before the peer waits: no more than a device's ring holds.
const VOLLEY: usize = 64;

/// How long the rate must be zero before everything counts as received.
const QUIET: Duration = Duration::from_millis(300);

/// Makes programs receive 10,000 malformed frames from the other end of a wire, through packet
/// sockets and through XDP, and compares the frames sent with the program's counts. `program`
/// starts one on a device, with a control socket at a path, and a report in JSON.
///
/// # Panics
/// If a packet is missing, or if the program fails.
pub fn besiege(program: impl Fn(&str, &Path) -> Command) {
    for device in ["net_af_packet0,iface=a", "net_af_xdp0,iface=a,force_copy=1"] {
        let made = Network::enter().and_then(|network| network.pair("a", "b").map(|()| network));
        match made {
            Ok(_network) => besiege_on(device, &program),
            Err(why) => return println!("skipped: {why}"),
        }
    }
}

/// Sends frames over a wire with `interface` at the other end, and waits until the program's count
/// stands still. Returns the number that the kernel took.
///
/// # Panics
/// If the program goes on receiving for a minute.
pub fn deliver(frames: &[Vec<u8>], peer: &mut Peer, interface: &str, program: &Program) -> u64 {
    let (before, mut sent) = (kernel_received(interface), 0);
    for volley in frames.chunks(VOLLEY) {
        sent += peer.send(volley.iter().map(Vec::as_slice));
        std::thread::sleep(Duration::from_millis(1));
    }
    wait_until("the wire is empty", || kernel_received(interface) >= before + sent);
    let mut received = None;
    wait_until("it is quiet", || {
        std::thread::sleep(QUIET);
        let now = program.ask("counters").and_then(|answer| answer["received"].as_u64());
        std::mem::replace(&mut received, now) == received
    });
    sent
}

fn besiege_on(device: &str, program: &impl Fn(&str, &Path) -> Command) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let control = folder.path().join("control.sock");
    let program = Program::start(program(device, &control), &control);
    let sent = deliver(&malformed_frames(1, FRAME_COUNT), &mut Peer::new("b"), "a", &program);
    let (report, _) = program.end();
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
