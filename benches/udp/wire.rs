//! Two network namespaces with a wire between them: veth, one end in each.

use crate::programs::words;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The sender's end of the wire and its address, and the receiver's.
pub const SENDER: &str = "a";
pub const RECEIVER: &str = "b";
pub const SENDER_ADDRESS: &str = "192.168.254.30";
pub const ADDRESSES: [&str; 2] = ["192.168.254.1", "192.168.254.2"];

/// The MAC address of each end.
pub const SENDER_MAC: &str = "02:00:00:00:00:0a";
pub const RECEIVER_MAC: &str = "02:00:00:00:00:0b";

/// The sender's CPU, and the CPU that the receiver has to itself if there are two.
pub const SENDER_CPU: usize = 0;
pub const RECEIVER_CPU: usize = 1;

/// A network namespace, with its own view of /sys. It disappears when this is dropped, and when the
/// benchmark dies.
pub struct Namespace {
    /// Keeps the namespace for as long as its standard input is open.
    keeper: Child,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", "mount -t sysfs sysfs /sys && echo && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let said = keeper.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match said {
            Some(Ok(1)) => Ok(Self { keeper }),
            _ => Err("no right to make a network namespace: run this as root".to_owned()),
        }
    }

    /// A program inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.keeper.id().to_string();
        command.args(["--target", &pid, "--net", "--mount", "--", program]);
        command
    }

    /// Runs a line of shell inside the namespace.
    ///
    /// # Errors
    /// The command's error message.
    pub fn shell(&self, line: &str) -> Result<String, String> {
        let output = self.command("sh").args(["-c", line]).output();
        let output = output.map_err(|error| format!("nsenter: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The wire.
pub struct Wire {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Wire {
    /// Makes both namespaces and the single-queue wire between them.
    ///
    /// # Errors
    /// The reason why the wire can't be made, and the remedy.
    pub fn new() -> Result<Self, String> {
        let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
        let peer = receiver.keeper.id();
        sender.shell(&format!(
            "ip link add name {SENDER} address {SENDER_MAC} numrxqueues 1 numtxqueues 1 type veth \
             peer name {RECEIVER} address {RECEIVER_MAC} numrxqueues 1 numtxqueues 1 netns {peer}"
        ))?;
        let [first, second] = ADDRESSES;
        sender.shell(&format!(
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip address add {SENDER_ADDRESS}/24 dev {SENDER}; \
             ip link set dev {SENDER} up; ip neighbour replace {first} lladdr {RECEIVER_MAC} dev {SENDER}; \
             ip neighbour replace {second} lladdr {RECEIVER_MAC} dev {SENDER}"
        ))?;
        receiver.shell(&format!(
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip address add {first}/24 dev {RECEIVER}; \
             ip address add {second}/24 dev {RECEIVER}; ip link set dev {RECEIVER} up; \
             ip neighbour replace {SENDER_ADDRESS} lladdr {SENDER_MAC} dev {RECEIVER}"
        ))?;
        Ok(Self { sender, receiver })
    }

    /// Makes the kernel process packets of the receiver's end on this CPU (receive packet
    /// steering), or on the sender's.
    ///
    /// # Errors
    /// If the kernel refuses the mask.
    pub fn steer(&self, cpu: Option<usize>) -> Result<(), String> {
        let mask = cpu.map_or(0, |cpu| 1_u64 << cpu);
        let file = format!("/sys/class/net/{RECEIVER}/queues/rx-0/rps_cpus");
        self.receiver.shell(&format!("echo {mask:x} > {file}")).map(drop)
    }
}

/// A sender in poll mode on its end of the wire.
pub fn poll_sender() -> Vec<String> {
    let [first, _] = ADDRESSES;
    words(&format!(
        "{first} --port net_af_packet0,iface={SENDER},qdisc_bypass=1 --from {SENDER_ADDRESS} --from-mac {SENDER_MAC} \
         --to-mac {RECEIVER_MAC} --source-port 10000 --cpus {SENDER_CPU}"
    ))
}
