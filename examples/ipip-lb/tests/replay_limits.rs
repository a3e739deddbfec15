//! Limits in a replay: they count in the order and by the time of the capture, whatever the deployment.

use hotloop::packet::PacketBuf;
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::ipip;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_capture::{CaptureWriter, read_frames};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

const CONFIG: &str = r#"
    [limits]
    LIMITS
    [balancer]
    source_v4 = "192.0.2.1"
    mtu = 1500
    decapsulate = []
    [[port]]
    name = "uplink"
    device = "net_null0"
    next_hop_mac = "02:00:00:00:00:01"
    [[service]]
    name = "web"
    address = "203.0.113.10"
    protocol = "any"
    ports = "any"
    backend = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }]
"#;

const ONE_WORKER: &[&str] = &["--deployment", "run-to-completion", "--workers", "1"];

const DEPLOYMENTS: [&[&str]; 5] = [
    &["--deployment", "run-to-completion", "--workers", "2"],
    &["--deployment", "run-to-completion", "--workers", "4"],
    &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "1"],
    &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "3"],
    &["--deployment", "pipeline", "--dispatchers", "2", "--workers", "2"],
];

/// A frame, and its capture time in microseconds.
type Timed = (u64, Vec<u8>);

/// Writes `lb.toml` and `in.pcap`.
fn folder(limits: &str, frames: &[Timed]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lb.toml"), CONFIG.replace("LIMITS", limits)).unwrap();
    let file = BufWriter::new(File::create(folder.path().join("in.pcap")).unwrap());
    let mut writer = CaptureWriter::new(file).unwrap();
    for (at_us, frame) in frames {
        writer.write(1_700_000_000_000_000_000 + at_us * 1000, frame).unwrap();
    }
    writer.into_inner().flush().unwrap();
    folder
}

/// The number of drops for each reason, and the packets sent, sorted, each with its backend.
type Replayed = (Vec<(String, u64)>, Vec<(String, Vec<u8>)>);

fn replay(folder: &Path, deployment: &[&str]) -> Replayed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.args(["replay", "--config", "lb.toml", "--input", "in.pcap", "--output", "out.pcap"]);
    let output = command.args(["--report", "json"]).args(deployment).current_dir(folder).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = report["dropped"].as_object().unwrap().iter();
    let reasons = reasons.map(|(reason, count)| (reason.clone(), count.as_u64().unwrap()));
    let dropped: Vec<_> = reasons.filter(|(_, count)| *count > 0).collect();
    let sent = read_frames(&folder.join("out.pcap")).unwrap();
    let unwrapped = |frame: Vec<u8>| {
        let mut packet = MemPacket::new(&frame);
        let tunnel = ipip::decapsulate(&mut packet).unwrap();
        (tunnel.destination.to_string(), packet.data()[14..].to_vec())
    };
    let mut sent: Vec<_> = sent.into_iter().map(unwrapped).collect();
    sent.sort_unstable();
    let dropped_sum: u64 = dropped.iter().map(|(_, count)| count).sum();
    assert_eq!(report["received"], sent.len() as u64 + dropped_sum);
    (dropped, sent)
}

fn client(index: u32) -> String {
    let [_, _, high, low] = (index / 7).to_be_bytes();
    format!("198.51.{high}.{low}:{}", 1024 + index)
}

fn syn(index: u32) -> Vec<u8> {
    tcp().from(client(index)).to("203.0.113.10:80").tcp_flags(SYN).build()
}

#[test]
fn what_no_limit_forbids_is_sent_by_every_deployment() {
    // 2,000 a second, with pauses of 70 s, after which one worker's time is far ahead of another's.
    let frames = (0..30_000)
        .map(|index| (u64::from(index) * 500 + u64::from(index / 3000) * 70_000_000, syn(index)));
    let frames: Vec<_> = frames.collect();
    let folder = folder("service_new_connections_per_second_max = 3000", &frames);
    for deployment in [&[ONE_WORKER], &DEPLOYMENTS[..]].concat() {
        let (dropped, sent) = replay(folder.path(), deployment);
        assert_eq!((dropped, sent.len()), (vec![], 30_000), "{deployment:?}");
    }
}

#[test]
fn what_limits_forbid_is_dropped_by_every_deployment_alike() {
    let mut frames = Vec::new();
    let mut at_us: u64 = 5_000_000;
    for index in 0..20_000_u32 {
        // 4,000 a second in clumps with equal times; pauses; times that go back.
        at_us += match index {
            _ if index % 2500 == 2499 => 70_000_000,
            _ if index % 16 == 0 => 4000,
            _ => 0,
        };
        if index % 1000 == 999 {
            at_us -= 30_000;
        }
        frames.push((at_us, syn(index)));
        if index % 3 == 0 {
            let known = tcp().from(client(index - index % 100)).to("203.0.113.10:80");
            frames.push((at_us, known.tcp_flags(ACK).build()));
            frames.push((at_us, udp().from(client(index % 300)).to("203.0.113.10:53").build()));
        }
    }
    let limits = "service_new_connections_per_second_max = 800\n\
                  source_new_connections_per_second_max = 20\nsource_prefix_v4 = 30";
    let folder = folder(limits, &frames);
    let expected = replay(folder.path(), ONE_WORKER);
    let reasons: Vec<_> = expected.0.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["service_limit", "source_limit"], "{:?}", expected.0);
    for deployment in [&[ONE_WORKER], &DEPLOYMENTS[..]].concat() {
        let replayed = replay(folder.path(), deployment);
        assert_eq!(replayed.0, expected.0, "{deployment:?}");
        assert!(replayed.1 == expected.1, "{deployment:?}: other packets were dropped");
    }
}
