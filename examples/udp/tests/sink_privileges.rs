//! The program's privileges while it runs.

use hotloop_tests::privileges::{CONTROL, keep_only};
use hotloop_tests::tool;
use std::process::Command;

#[test]
fn no_thread_keeps_more_than_it_needs_nor_does_eals() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-sink"));
    command.args(["--port", "net_null0", "--queues", "2", "--"]);
    // Two lcores that idle.
    command.args(["--no-pci", "--no-huge", "-m", "256", "--lcores", "0@0,1@0,2@0"]);
    command.env("XDG_RUNTIME_DIR", folder.path());
    keep_only(&mut command, CONTROL, &[]);
}

/// The table of docs/devices.md, for devices that need any: capabilities by their `setpriv` names.
const DEVICES: &[(&str, &[&str])] = &[
    ("net_pcap0,iface=IFACE", &["net_raw"]),
    ("net_af_packet0,iface=IFACE", &["net_raw", "net_admin"]),
    ("net_af_xdp0,iface=IFACE,force_copy=1", &["net_raw", "net_admin", "sys_admin", "ipc_lock"]),
    ("net_tap0,iface=IFACEt", &["net_admin"]),
];

/// Two interfaces, joined, which are deleted on drop.
struct Veth(String);

impl Veth {
    fn add() -> Result<Self, String> {
        tool("ip")?;
        let name = format!("hlq{}", std::process::id());
        let peer = format!("{name}p");
        let add = format!(
            "ip link add {name} type veth peer name {peer} && ip link set {name} up && ip link set {peer} up"
        );
        shell(&add).map(|()| Self(name))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = shell(&format!("ip link del {}", self.0));
    }
}

fn shell(line: &str) -> Result<(), String> {
    let output = tool("sh").unwrap().args(["-c", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Runs the program on a device as root with only these capabilities, for a moment.
fn try_with(capabilities: &[&str], device: &str) -> Result<(), String> {
    let set = capabilities.iter().map(|name| format!(",+{name}")).collect::<String>();
    let program = env!("CARGO_BIN_EXE_udp-sink");
    shell(&format!(
        "ulimit -l 4096; exec setpriv --bounding-set=-all{set} {program} --port {device} --duration 0.2 \
         > /dev/null"
    ))
}

#[test]
#[allow(clippy::print_stdout, reason = "a test says what it skips")]
fn each_device_opens_with_the_capabilities_that_readme_names_and_not_with_fewer() {
    let all = DEVICES.iter().flat_map(|(_, names)| *names).copied().collect::<Vec<_>>();
    let veth = match Veth::add().and_then(|veth| try_with(&all, "net_null0").map(|()| veth)) {
        Ok(veth) => veth,
        Err(why) => return println!("skipped: {why}"),
    };
    for (device, needed) in DEVICES {
        let device = device.replace("IFACE", &veth.0);
        assert_eq!(try_with(needed, &device), Ok(()), "{device}: {needed:?}");
        for left_out in *needed {
            let fewer: Vec<_> = needed.iter().filter(|name| *name != left_out).copied().collect();
            let said = try_with(&fewer, &device).expect_err("it takes all of them");
            assert!(said.contains("ERROR udp-sink: device"), "{device}: {fewer:?}: {said}");
        }
    }
}
