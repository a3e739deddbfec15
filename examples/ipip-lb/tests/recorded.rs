//! The recorded capture of client traffic through the program, in each deployment: compared with a
//! simple reading of the configuration for each packet.

use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Depth, classify};
use hotloop::packet::ethernet::ETHERTYPE_IPV4;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::{Fragment, protocol};
use hotloop::packet::ipip;
use hotloop::packet::ipv4::Ipv4Header;
use hotloop::packet::ipv6::Ipv6Header;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop_balancer::spec::{Ports, Protocol, ServiceSpec};
use hotloop_capture::read_frames;
use ipip_lb::config::Config;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEPLOYMENTS: [&[&str]; 5] = [
    &["--deployment", "run-to-completion", "--workers", "1"],
    &["--deployment", "run-to-completion", "--workers", "2"],
    &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "1"],
    &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "2"],
    &["--deployment", "pipeline", "--dispatchers", "2", "--workers", "2"],
];

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

/// An expected output packet, after the Ethernet header.
struct Expected {
    inner: Vec<u8>,
    /// Whether it must come out: if it would exceed the MTU only in an IPv6 tunnel, that depends on
    /// the backend.
    must: bool,
    backends: HashSet<IpAddr>,
}

/// The service of a flow, found by a linear search.
fn service<'a>(config: &'a Config, key: &FlowKey) -> Option<&'a ServiceSpec> {
    let matching = config.services.iter().filter(|service| {
        let protocol_matches = match service.protocol {
            Protocol::Tcp => key.protocol() == protocol::TCP,
            Protocol::Udp => key.protocol() == protocol::UDP,
            Protocol::Any => true,
        };
        let port_matches = match service.ports {
            Ports::Any => true,
            Ports::Range { first, last } => (first..=last).contains(&key.destination_port()),
        };
        protocol_matches && port_matches && service.address.contains(key.destination())
    });
    // The configuration's services differ at least by their prefixes if they overlap.
    matching.max_by_key(|service| service.address.len())
}

fn expected(config: &Config, frame: &[u8]) -> Option<(FlowKey, Expected)> {
    let layout = classify(frame, Depth::Innermost, &Seed::new(1));
    let key = layout.key(frame)?;
    let is_balanced = matches!(key.protocol(), protocol::TCP | protocol::UDP);
    if !is_balanced || layout.is_icmp_error() || layout.fragment() == Fragment::Later {
        return None;
    }
    let backends = &service(config, &key)?.backends;
    let backends: HashSet<_> =
        backends.iter().filter(|it| it.weight > 0).map(|it| it.address).collect();
    let mut inner = frame[14..].to_vec();
    if frame[12..14] == ETHERTYPE_IPV4.to_be_bytes() {
        inner.truncate(usize::from(u16::from_be_bytes([inner[2], inner[3]])));
        assert!(Ipv4Header::parse_mut(&mut inner).unwrap().decrement_ttl());
    } else {
        inner.truncate(40 + usize::from(u16::from_be_bytes([inner[4], inner[5]])));
        assert!(Ipv6Header::parse_mut(&mut inner).unwrap().decrement_hop_limit());
    }
    let room = usize::from(config.balancer.mtu) - inner.len();
    let least = if backends.iter().any(IpAddr::is_ipv4) { 20 } else { 40 };
    let most = if backends.iter().any(IpAddr::is_ipv6) { 40 } else { 20 };
    (!backends.is_empty() && room >= least)
        .then_some((key, Expected { inner, must: room >= most, backends }))
}

/// Whether a packet is ICMP.
fn is_icmp(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[9] == protocol::ICMP,
        _ => packet[6] == protocol::ICMPV6,
    }
}

fn is_later_fragment(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[6] & 0x1F != 0 || packet[7] != 0,
        _ => packet[6] == 44 && (packet[42] != 0 || packet[43] & 0xF8 != 0),
    }
}

/// The packets to backends, by flow and in order: the backend, and the inner packet.
fn flows_of(frames: &[Vec<u8>]) -> HashMap<FlowKey, Vec<(IpAddr, Vec<u8>)>> {
    let mut flows: HashMap<_, Vec<_>> = HashMap::new();
    for frame in frames {
        let layout = classify(frame, Depth::Innermost, &Seed::new(1));
        // An answer to a client, not to a backend.
        if !layout.is_tunnel() {
            assert!(is_icmp(&frame[14..]), "{frame:02x?}");
            continue;
        }
        let mut packet = MemPacket::new(frame);
        let tunnel = ipip::decapsulate(&mut packet).unwrap();
        let flow = flows.entry(layout.key(frame).unwrap()).or_default();
        flow.push((tunnel.destination, packet.data()[14..].to_vec()));
    }
    flows
}

#[test]
fn every_packet_to_a_service_comes_out_once_in_each_deployment() {
    let (config_path, input) = (captures().join("demo.toml"), captures().join("clients.pcap"));
    let config = Config::load(&config_path).unwrap();
    let frames = read_frames(&input).unwrap();
    let mut wanted: HashMap<FlowKey, Vec<Expected>> = HashMap::new();
    for frame in &frames {
        if let Some((key, expected)) = expected(&config, frame) {
            wanted.entry(key).or_default().push(expected);
        }
    }
    assert!(wanted.len() > 100, "{} flows to services were recorded", wanted.len());

    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcap");
    let mut first: Option<HashMap<_, _>> = None;
    for deployment in DEPLOYMENTS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command.args(["replay", "--report", "json", "--config"]).arg(&config_path);
        command.arg("--input").arg(&input).arg("--output").arg(&output).args(deployment);
        let run = command.output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(report["received"], frames.len(), "{report}");

        let mut flows = flows_of(&read_frames(&output).unwrap());
        for (key, expected) in &wanted {
            let came = flows.remove(key).unwrap_or_default();
            let mut left = came.iter().peekable();
            for Expected { inner, must, backends } in expected {
                match left.next_if(|(_, came)| came == inner) {
                    Some((backend, _)) => assert!(backends.contains(backend), "{key}: {backend}"),
                    None => assert!(!must, "{key}: a packet of {} bytes is missing", inner.len()),
                }
            }
            assert_eq!(left.next(), None, "{key}: more came out than went in");
            assert!(came.windows(2).all(|pair| pair[0].0 == pair[1].0), "{key} was split");
        }
        // All other output is errors about services' packets, and later fragments.
        for (_, inner) in flows.values().flatten() {
            assert!(is_icmp(inner) || is_later_fragment(inner), "{inner:02x?}");
        }
        let all = flows_of(&read_frames(&output).unwrap());
        assert!(*first.get_or_insert_with(|| all.clone()) == all, "{deployment:?} differs");
    }
}
