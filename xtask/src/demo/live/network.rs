//! The network of the live demo: hosts around a router, each in a network namespace of its own,
//! joined by veth pairs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::failure::Failure;
use crate::process;

/// The router's end of each host's links.
const ROUTER: &str = "router";

/// What is set in each namespace before interfaces are made: the same for all of them.
const SETTINGS: [(&str, u8); 5] = [
    // Answers leave by another interface than that by which their questions came.
    ("ipv4/conf/all/rp_filter", 0),
    ("ipv4/conf/default/rp_filter", 0),
    // Nobody advertises anything, and addresses are known to be nobody else's.
    ("ipv6/conf/default/accept_ra", 0),
    ("ipv6/conf/default/accept_dad", 0),
    ("ipv6/conf/all/disable_ipv6", 0),
];

/// A link between a host and the router: which networks it is on, and its number.
///
/// The router is .1 and ::1 on it, the host .2 and ::2; the two ends' MAC addresses differ in their
/// last byte likewise.
#[derive(Clone, Copy)]
pub struct Link {
    /// The host.
    pub host: &'static str,
    /// The interface's name in the host.
    pub interface: &'static str,
    /// The first three bytes of its IPv4 network.
    pub v4: &'static str,
    /// The first 64 bits of its IPv6 network, with `::` behind them.
    pub v6: &'static str,
    /// No two links have the same.
    pub number: u8,
}

impl Link {
    /// The host's addresses.
    pub fn addresses(&self) -> [String; 2] {
        [format!("{}.2", self.v4), format!("{}2", self.v6)]
    }

    /// The MAC address of the router's end.
    pub fn router_mac(&self) -> String {
        format!("02:00:00:00:{:02x}:01", self.number)
    }

    fn router_interface(&self) -> String {
        format!("link{}", self.number)
    }
}

/// A family of addresses.
#[derive(Clone, Copy)]
pub enum Family {
    V4,
    V6,
}

/// Namespaces and what joins them. Dropping it deletes them.
pub struct Network {
    /// What the namespaces' names begin with.
    prefix: String,
    hosts: Vec<&'static str>,
}

impl Network {
    /// Joins each link's host to a router. A host's default route is by its last link.
    pub fn make(links: &[Link]) -> Result<Self, Failure> {
        let prefix = format!("hotloop-{}", std::process::id());
        let mut network = Self { prefix, hosts: Vec::new() };
        network.add_host(ROUTER)?;
        network.set(ROUTER, &[("ipv4/ip_forward", 1), ("ipv6/conf/all/forwarding", 1)])?;
        for link in links {
            if !network.hosts.contains(&link.host) {
                network.add_host(link.host)?;
            }
            network.add_link(link)?;
        }
        Ok(network)
    }

    /// A program that is to run in a host.
    pub fn program(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        // Not by `ip netns exec`, which also remounts /sys, and can't where / is no mount point.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(host))).arg(program);
        command
    }

    /// Has `ip` do something in a host, a line each.
    pub fn configure(&self, host: &str, lines: &str) -> Result<(), Failure> {
        self.batch(host, &[], lines)
    }

    /// The same, where a line does not say itself which family it is about.
    pub fn configure_family(&self, host: &str, family: Family, lines: &str) -> Result<(), Failure> {
        let option = match family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        self.batch(host, &[option], lines)
    }

    fn batch(&self, host: &str, options: &[&str], lines: &str) -> Result<(), Failure> {
        let mut command = self.program(host, "ip");
        command.args(options).args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| process::not_started(&command, &error))?;
        if let Some(mut input) = child.stdin.take() {
            // Where `ip` has ended early, its exit code says so.
            input.write_all(lines.as_bytes()).ok();
        }
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::failed(format!("ip failed in {host}, at one of:\n{lines}"))),
        }
    }

    /// What `ip` says in a host; nothing where it fails.
    pub fn ask(&self, host: &str, words: &[&str]) -> Option<String> {
        process::quiet_output(self.program(host, "ip").args(words))
    }

    /// Has the router send packets to these networks by a link.
    pub fn route(&self, link: &Link, networks: &[&str]) -> Result<(), Failure> {
        let gateways = link.addresses();
        let mut lines = String::new();
        for network in networks {
            let gateway = &gateways[usize::from(network.contains(':'))];
            // Writing to a string does not fail.
            let _ = writeln!(lines, "route add {network} via {gateway}");
        }
        self.configure(ROUTER, &lines)
    }

    /// Sets what lies under /proc/sys/net.
    pub fn set(&self, host: &str, settings: &[(&str, u8)]) -> Result<(), Failure> {
        let lines =
            settings.iter().map(|(path, value)| format!("echo {value} >/proc/sys/net/{path}"));
        let script = lines.collect::<Vec<_>>().join(" && ");
        process::run(self.program(host, "sh").args(["-c", &script]))
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn add_host(&mut self, host: &'static str) -> Result<(), Failure> {
        let mut command = Command::new("ip");
        command.args(["netns", "add", &self.namespace(host)]);
        let output = command.output().map_err(|error| process::not_started(&command, &error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(refused(said.trim()));
        }
        self.hosts.push(host);
        self.set(host, &SETTINGS)?;
        self.configure(host, "link set lo up\n")
    }

    fn add_link(&self, link: &Link) -> Result<(), Failure> {
        let Link { host, interface, v4, v6, number } = link;
        let (at_router, router) = (link.router_interface(), self.namespace(ROUTER));
        let pair = format!(
            "link add {interface} address 02:00:00:00:{number:02x}:02 type veth \
             peer name {at_router} address {} netns {router}\n",
            link.router_mac()
        );
        self.configure(host, &pair)?;
        // The kernel would leave checksums and segments to a NIC that isn't there; the balancer, which
        // sees packets before they have them, would take them for broken.
        let mut ethtool = self.program(host, "ethtool");
        ethtool.args(["-K", interface, "tx", "off", "tso", "off", "gso", "off"]);
        process::output(&mut ethtool)?;
        let addresses = |end: u8, interface: &str| {
            format!(
                "address add {v4}.{end}/24 dev {interface}\n\
                 address add {v6}{end}/64 dev {interface} nodad\n\
                 link set {interface} up\n"
            )
        };
        self.configure(ROUTER, &addresses(1, &at_router))?;
        self.configure(host, &addresses(2, interface))?;
        self.configure(
            host,
            &format!("route replace default via {v4}.1\nroute replace default via {v6}1\n"),
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            // Interfaces go with their namespaces.
            process::quiet_output(Command::new("ip").args([
                "netns",
                "delete",
                &self.namespace(host),
            ]));
        }
    }
}

/// Whether this process may make networks, as far as that can be told without trying.
pub fn check_privilege() -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Err(refused("this user is not root"));
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Err(refused("there is no /dev/net/tun"));
    }
    Ok(())
}

fn refused(why: &str) -> Failure {
    Failure::refused(format!(
        "demo --live needs root, with the right to make network namespaces and TAP interfaces: {why}"
    ))
}
