//! The program on a wire: a pair of interfaces, a port of `net_af_packet`, and a TAP interface beside it.

use crate::Failed;
use crate::trouble::{Setting, Trouble};
use hotloop::packet::build::echo_request;
use hotloop::packet::ethernet::MacAddress;
use hotloop::testing::malformed_frames;
use hotloop_tests::network::{Network, Peer, ip, kernel_received, kernel_sent, mac, reassembled};
use hotloop_tests::{Program, deliver};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of frames sent: each passes the kernel, some three times.
const FRAMES_MAX: u64 = 200_000;

/// Number of frames after which the wire gets time to empty.
const ROUND: usize = 10_000;

/// One frame of this many is a ping to the kernel, which answers by the TAP interface.
const PING_EVERY: usize = 50;

const PORT: &str = "device = \"net_af_packet0,iface=a0\"\nkernel_interface = \"edge0\"";

/// The environment of the program.
pub struct Wire {
    program: PathBuf,
    _network: Network,
}

/// Makes the wire. From now on this thread is in a network of its own.
///
/// # Errors
/// The reason why the wire can't be made here.
pub fn wire() -> Result<Wire, String> {
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = itself.with_file_name("ipip-lb");
    for needed in [&*program, Path::new("/dev/net/tun")] {
        needed.metadata().map_err(|error| format!("{}: {error}", needed.display()))?;
    }
    let network = Network::enter()?;
    network.pair("a0", "b0")?;
    ip(&["link", "set", "dev", "lo", "up"])?;
    // The kernel must not use the wire.
    ip(&["link", "set", "dev", "a0", "arp", "off"])?;
    Ok(Wire { program, _network: network })
}

/// Makes the program receive frames there. Returns the number of packets unaccounted for.
pub fn run(wire: &Wire, packets: u64) -> Result<u64, Failed> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("lb.sock");
    let setting = Setting::new(folder.path().join("lb.toml"), PORT)?;
    let mut command = Command::new(&wire.program);
    command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    command.args(["run", "--config", "lb.toml", "--report", "json", "--control", "lb.sock"]);
    let program = Program::start(command, &socket);
    let (near, far) = (mac("a0"), mac("b0"));
    ip(&["address", "add", "198.18.0.1/24", "dev", "edge0"])?;
    ip(&["neigh", "add", "198.18.0.2", "lladdr", &far, "nud", "permanent", "dev", "edge0"])?;

    let trouble = Trouble::start(&setting, socket);
    let (mut peer, mut sent) = (Peer::new("b0"), 0);
    let near: MacAddress = near.parse()?;
    for round in 0..packets.min(FRAMES_MAX).div_ceil(ROUND as u64) {
        sent += deliver(&frames(round, near), &mut peer, "a0", &program);
        eprintln!("soak: on a wire: {sent} frames");
    }
    trouble.stop();
    let said = trouble.finish()?;
    // The interface disappears with the program.
    let by_tap = kernel_sent("edge0");
    let (report, _) = program.end();
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
    let received = count(&report["devices"]["received"]);
    let lost: u64 =
        report["nic_loss"].as_object().into_iter().flatten().map(|row| count(row.1)).sum();
    let (carried, reassembled) = (kernel_received("a0"), reassembled());
    let stages = report["stages"].as_array().into_iter().flatten();
    let to_kernel = stages.filter(|stage| stage["name"] == "sink kernel 0");
    let to_kernel: u64 = to_kernel.map(|stage| count(&stage["emitted"])).sum();
    println!(
        "soak: on a wire: {carried} frames + {by_tap} by the TAP interface = {received} received + {lost} lost by the \
         device + {reassembled} in the kernel's reassembly; {to_kernel} to the kernel; {said}"
    );
    if to_kernel == 0 {
        return Err("no ping has reached the TAP interface".into());
    }
    let is_whole = report["balanced"] == true && report["pools_whole"] == true;
    Ok((carried + by_tap).abs_diff(received + lost + reassembled) + u64::from(!is_whole))
}

/// A round of frames to this station: malformed ones, and pings.
fn frames(seed: u64, station: MacAddress) -> Vec<Vec<u8>> {
    let mut frames = malformed_frames(seed, ROUND);
    let ping = echo_request(1, 1).from("198.18.0.2").to("198.18.0.1").build();
    frames.iter_mut().step_by(PING_EVERY).for_each(|frame| frame.clone_from(&ping));
    frames.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&station.bytes()));
    frames
}
