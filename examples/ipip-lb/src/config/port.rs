//! `[[port]]`.

use super::ConfigError;
use super::announce::interface;
use super::balancer::{host_address, prefix};
use super::document::Section;
use super::parse::name;
use hotloop::dpdk::MempoolConfig;
use hotloop::packet::PortId;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::excerpt::excerpt;
use hotloop::stage::neighbours::{Link, NextHop as Neighbour};
use hotloop_balancer::spec::Side;
use hotloop_kernel::PuntPeer;
use hotloop_ops::PortSettings;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The highest number of a VLAN: 4095 is reserved (802.1Q, table 9-2).
pub const VLAN_MAX: u16 = 4094;

/// Maximum number of peers of a port. Each packet for the kernel is compared with all of them.
const KERNEL_PEERS_MAX: usize = 64;

/// A port, and its neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Port {
    /// The name in reports.
    pub name: String,
    /// DPDK's device arguments or PCI address.
    pub device: String,
    /// The line of the device in the file, for messages.
    pub device_line: usize,
    /// The station that frames leaving the port go to.
    pub next_hop: NextHop,
    /// The hosts that the port reaches.
    pub side: Side,
    /// Whether the balancer accepts frames to any address.
    pub accept_any_mac: bool,
    /// The VLAN of the device that makes up the port: 1 to [`VLAN_MAX`]. Without one, frames stay
    /// as they are.
    pub vlan: Option<u16>,
    /// The TAP interface that gives the kernel the packets that are not for the balancer, if there
    /// is one; no other port has the same.
    pub kernel_interface: Option<String>,
    /// Senders whose packets for the kernel have limits of their own, without duplicates.
    pub kernel_peers: Vec<PuntPeer>,
    /// Whether that interface takes over the addresses and routes of the one that the device
    /// receives through.
    pub takeover: bool,
    /// The descriptors, mempool and RSS.
    pub settings: PortSettings,
}

impl Port {
    /// The neighbour that frames leaving the port go to, if the balancer must resolve its Ethernet
    /// address. `port` and `mac` are this port's number and address.
    #[must_use]
    pub const fn hop(&self, port: PortId, mac: MacAddress) -> Option<Neighbour> {
        let vlan = self.vlan;
        match self.next_hop {
            NextHop::Mac(_) | NextHop::Kernel => None,
            NextHop::V4(to, address) => Some(Neighbour::v4(to, Link { port, vlan, mac, address })),
            NextHop::V6(to, address) => Some(Neighbour::v6(to, Link { port, vlan, mac, address })),
        }
    }
}

/// The station that frames leaving a port go to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextHop {
    /// The station with this Ethernet address.
    Mac([u8; 6]),
    /// A neighbour with an IPv4 address, resolved by ARP, and the balancer's own address on that
    /// link.
    V4(Ipv4Addr, Ipv4Addr),
    /// A neighbour with an IPv6 address, resolved by neighbour discovery, and the balancer's own
    /// address.
    V6(Ipv6Addr, Ipv6Addr),
    /// The station that the kernel's routes select for each destination, through the interface of
    /// any such port.
    Kernel,
}

impl NextHop {
    /// The Ethernet address; all zeros if it is not known yet.
    #[must_use]
    pub const fn mac(self) -> MacAddress {
        match self {
            Self::Mac(mac) => MacAddress::new(mac),
            Self::V4(..) | Self::V6(..) | Self::Kernel => MacAddress::new([0; 6]),
        }
    }
}

impl std::fmt::Display for NextHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mac(mac) => MacAddress::new(*mac).fmt(f),
            Self::V4(address, own) => write!(f, "{address} from {own}"),
            Self::V6(address, own) => write!(f, "{address} from {own}"),
            Self::Kernel => f.write_str("by the kernel's routes"),
        }
    }
}

pub fn ports(root: &Section<'_>) -> Result<Vec<Port>, ConfigError> {
    let sections = root.sections("port")?;
    if sections.is_empty() {
        return Err(root.missing("port", "at least one [[port]]"));
    }
    let (mut names, mut devices, mut interfaces) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut ports = Vec::new();
    for mut section in sections {
        let port = port(&mut section)?;
        if !names.insert(port.name.clone()) {
            let problem = format!("\"{}\" names another port too; write another", port.name);
            return Err(section.error("name", problem));
        }
        if !devices.insert(port.device.clone()) {
            let problem =
                format!("\"{}\" is another port's too; write another", excerpt(&port.device));
            return Err(section.error_at("device", problem));
        }
        if let Some(interface) = section.optional("kernel_interface")
            && !interfaces.insert(port.kernel_interface.clone())
        {
            return Err(interface.error("is another port's too; write another"));
        }
        ports.push(port);
    }
    for (hosts, reached) in [
        ("clients", ports.iter().any(|port| port.side.has_clients())),
        ("backends", ports.iter().any(|port| port.side.has_backends())),
    ] {
        if !reached {
            let problem = format!("no port leads to {hosts}; write side = \"both\" for one");
            return Err(root.error("port", problem));
        }
    }
    Ok(ports)
}

fn port(section: &mut Section<'_>) -> Result<Port, ConfigError> {
    let name_value = section.required("name", "\"uplink\"")?;
    let name = name(&name_value)?;
    section.set_path(format!("port.{name}"));
    let known = ["name", "device", "next_hop_mac", "next_hop", "address", "side", "accept_any_mac"];
    let known_more = ["vlan", "kernel_interface", "kernel_peers", "takeover"];
    let known_settings = ["rx_descriptors", "tx_descriptors", "mbufs", "rss"];
    section.allow_only(&[&known[..], &known_more, &known_settings].concat())?;
    let device = section.required("device", "\"net_null0\"")?;
    let what = "a device";
    let example = "DPDK's device arguments, such as net_null0, or a PCI address, 0000:01:00.0";
    let sound = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let kernel_interface = section.read("kernel_interface", interface)?;
    Ok(Port {
        device_line: device.line(),
        device: device.parsed(what, example, |text| sound(text).then(|| text.to_owned()))?,
        next_hop: next_hop(section, kernel_interface.is_some())?,
        side: section.choice_or("side", "a side", Side::WORDS, Side::Both)?,
        accept_any_mac: section.boolean_or("accept_any_mac", false)?,
        vlan: section.integer("vlan", 1..=VLAN_MAX)?,
        kernel_interface,
        kernel_peers: kernel_peers(section)?,
        takeover: takeover(section)?,
        settings: settings(section)?,
        name,
    })
}

/// Reads `kernel_peers`, for a port with an interface of the kernel's.
fn kernel_peers(section: &Section<'_>) -> Result<Vec<PuntPeer>, ConfigError> {
    let Some(list) = section.optional("kernel_peers") else { return Ok(Vec::new()) };
    if section.optional("kernel_interface").is_none() {
        return Err(list.error("there is no kernel_interface; write one, or leave out the peers"));
    }
    let sections = section.sections("kernel_peers")?;
    if sections.len() > KERNEL_PEERS_MAX {
        let problem = format!("{} peers; write up to {KERNEL_PEERS_MAX}", sections.len());
        return Err(list.error(problem));
    }
    let mut known = HashSet::new();
    let peer = |peer: Section<'_>| {
        peer.allow_only(&["address", "gtsm"])?;
        let address = peer.required("address", "\"192.0.2.254\"")?;
        let prefix = prefix(&address)?;
        if !known.insert(prefix) {
            return Err(address.error(format!("{prefix} is there twice; leave one out")));
        }
        Ok(PuntPeer { prefix, gtsm: peer.boolean_or("gtsm", false)? })
    };
    sections.into_iter().map(peer).collect()
}

/// Reads `takeover`, for devices that receive through an interface of the kernel's.
fn takeover(section: &Section<'_>) -> Result<bool, ConfigError> {
    let is_wanted = section.boolean_or("takeover", false)?;
    let Some(value) = section.optional("takeover").filter(|_| is_wanted) else {
        return Ok(false);
    };
    if section.optional("kernel_interface").is_none() {
        return Err(value.error("there is no kernel_interface to take over; write one"));
    }
    let device = section.required("device", "\"net_af_packet0,iface=eth1\"")?;
    let known = |text: &str| interface_underneath(text).map(str::to_owned);
    let what = "a device by which the kernel receives, too: takeover";
    device.parsed(what, "net_af_packet0,iface=eth1, or leave out takeover", known)?;
    Ok(true)
}

/// Reads `next_hop_mac`, or `next_hop` and `address`, which must be of one family; neither if the
/// kernel knows them.
fn next_hop(section: &Section<'_>, has_interface: bool) -> Result<NextHop, ConfigError> {
    let Some(next_hop) = section.optional("next_hop") else {
        if has_interface && section.optional("next_hop_mac").is_none() {
            return Ok(NextHop::Kernel);
        }
        let example = "\"02:00:00:00:00:01\", or next_hop and address, or \
                       kernel_interface = \"edge0\" to go by the kernel's routes and neighbours";
        let mac = section.required("next_hop_mac", example)?;
        let what = "the MAC address of one host";
        return Ok(NextHop::Mac(mac.parsed(what, "02:00:00:00:00:01", unicast_mac)?));
    };
    if section.optional("next_hop_mac").is_some() {
        return Err(next_hop.error("there is a next_hop_mac too; leave one of them out"));
    }
    let own = section.present("address", "the balancer's own address on the link of next_hop")?;
    match (host_address(&next_hop)?, host_address(&own)?) {
        (IpAddr::V4(address), IpAddr::V4(own)) => Ok(NextHop::V4(address, own)),
        (IpAddr::V6(address), IpAddr::V6(own)) => Ok(NextHop::V6(address, own)),
        _ => Err(own.error("is not of the IP version of next_hop; write an address of the same")),
    }
}

/// Settings that flags can override, with their bounds.
fn settings(section: &Section<'_>) -> Result<PortSettings, ConfigError> {
    Ok(PortSettings {
        rx_descriptors: section.integer("rx_descriptors", 1..=u16::MAX)?,
        tx_descriptors: section.integer("tx_descriptors", 1..=u16::MAX)?,
        mbufs: section.integer("mbufs", 1..=MempoolConfig::MBUF_COUNT_MAX)?,
        rss: section.read("rss", |value| value.parsed_by(PortSettings::rss_fields))?,
    })
}

/// Parses six pairs of hexadecimal digits with colons between them, neither all zero nor a group
/// address.
fn unicast_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut mac {
        let pair = pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    (pairs.next().is_none() && mac != [0; 6] && mac[0] & 1 == 0).then_some(mac)
}

/// The kernel's interface that a device receives through, if the kernel may also receive through
/// it.
#[must_use]
pub fn interface_underneath(device: &str) -> Option<&str> {
    let drivers = ["net_af_packet", "net_af_xdp", "net_pcap"];
    let mut arguments = device.split(',');
    let is_shared =
        arguments.next().is_some_and(|driver| drivers.iter().any(|of| driver.starts_with(of)));
    arguments.find_map(|argument| argument.strip_prefix("iface=")).filter(|_| is_shared)
}
