//! The program itself, on captures: its input, its output, its refusals.

use crate::bench::CONFIG;
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{arp_request, tcp, udp};
use hotloop::packet::classify::{Depth, classify};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ipip;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop_capture::read_frames;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const CLIENTS: u16 = 1_000;

/// Each client's request in three packets, those of all clients interleaved; some noise.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for sequence in 0..3 {
        for client in 0..CLIENTS {
            let from = format!("198.51.{}.{}:4000", 100 + client / 250, client % 250);
            let vip = ["203.0.113.10:80", "203.0.113.11:80"][usize::from(client) % 2];
            let payload = [client.to_be_bytes().as_slice(), &[sequence; 30]].concat();
            frames.push(tcp().from(from).to(vip).payload(payload).build());
        }
        frames.push(arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        frames.push(udp().from("198.51.100.1:9").to("203.0.113.10:54").build());
        frames.extend(
            udp()
                .from("198.51.100.1:9")
                .to("203.0.113.10:53")
                .payload([8; 2000])
                .build_fragments(1400),
        );
        frames.push(tcp().from("198.51.100.1:9").to("203.0.113.10:80").payload([0; 8000]).build());
    }
    frames
}

/// The magic number of a pcap with microseconds, and of one with nanoseconds.
const MICROSECONDS: u32 = 0xA1B2_C3D4;
const NANOSECONDS: u32 = 0xA1B2_3C4D;

/// Link types.
const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const LINUX_SLL: u32 = 113;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn write_pcap_of(path: &Path, magic: u32, link: u32, frames: &[Vec<u8>]) {
    let mut file = words(&[magic, 4 << 16 | 2, 0, 0, 65_535, link]);
    for (frame, index) in frames.iter().zip(0_u32..) {
        let (seconds, fraction) = (1_700_000_000 + index / 1000, index % 1000);
        let bytes = frame.len() as u32;
        file.extend(words(&[seconds, fraction, bytes, bytes]));
        file.extend(frame);
    }
    fs::write(path, file).unwrap();
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    write_pcap_of(path, MICROSECONDS, ETHERNET, frames);
}

/// A pcapng file with one interface and frames at intervals of a microsecond.
fn pcapng(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let padding_bytes = body.len().next_multiple_of(4) - body.len();
        let len = words(&[(12 + body.len() + padding_bytes) as u32]);
        [&words(&[kind]), &len, body, &[0; 3][..padding_bytes], &len].concat()
    };
    let section = block(0x0A0D_0D0A, &words(&[0x1A2B_3C4D, 1, u32::MAX, u32::MAX]));
    let mut file = [section, block(1, &words(&[link, 0]))].concat();
    for (frame, index) in frames.iter().zip(1_700_000_000_000_000_u64..) {
        let (high, low, bytes) = ((index >> 32) as u32, index as u32, frame.len() as u32);
        let header = words(&[0, high, low, bytes, bytes]);
        file.extend(block(6, &[header.as_slice(), frame].concat()));
    }
    file
}

/// A folder with the configuration in `lb.toml`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lb.toml"), CONFIG).unwrap();
    folder
}

fn replay(folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    let args = ["replay", "--config", "lb.toml", "--input", "in.pcap", "--output", "out.pcap"];
    command.current_dir(folder).args(args).args(more).output().unwrap()
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The inner packets of each flow in order, each with its backend's address.
type Flows = HashMap<FlowKey, Vec<(String, Vec<u8>)>>;

fn flows(frames: &[Vec<u8>]) -> Flows {
    let mut flows = Flows::new();
    for frame in frames {
        let key = classify(frame, Depth::Innermost, &Seed::new(0)).key(frame).unwrap();
        let mut packet = MemPacket::new(frame);
        let tunnel = ipip::decapsulate(&mut packet).unwrap();
        let inner = packet.data()[14..].to_vec();
        flows.entry(key).or_default().push((tunnel.destination.to_string(), inner));
    }
    flows
}

#[test]
fn every_deployment_gives_the_same_packets_and_loses_none() {
    let folder = folder();
    let frames = frames();
    write_pcap(&folder.path().join("in.pcap"), &frames);
    let mut outputs: Vec<Flows> = Vec::new();
    for deployment in [
        &["--workers", "1"][..],
        &["--workers", "2", "--clock", "wall"],
        &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "1"],
        &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "2"],
        &["--deployment", "pipeline", "--dispatchers", "2", "--workers", "2"],
        // More files than one DPDK device could have.
        &["--workers", "17"],
    ] {
        let report = report(&replay(folder.path(), &[deployment, &["--report", "json"]].concat()));
        assert_eq!(report["received"], frames.len(), "{report}");
        assert_eq!(report["input"]["frames"], frames.len(), "{report}");
        // The datagram leaves in its two fragments, the long segment in six.
        assert_eq!(report["sent"], 3 * (u64::from(CLIENTS) + 2 + 6), "{report}");
        assert_eq!(report["created"], 3 * 5, "{report}");
        let dropped: BTreeMap<_, _> = report["dropped"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(_, count)| **count != 0)
            .collect();
        let expected = [("no_service", 3), ("punt", 3)];
        assert_eq!(dropped.len(), expected.len(), "{report}");
        for (reason, count) in expected {
            assert_eq!(report["dropped"][reason], count, "{report}");
        }
        assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
        // The fragmented datagram and the long segment each belong to their own connection.
        assert_eq!(report["balancer"]["admitted"], u64::from(CLIENTS) + 2, "{report}");
        let lcores: Vec<_> =
            report["cores"].as_array().unwrap().iter().map(|it| &it["lcore"]).collect();
        assert!(lcores.iter().all(|lcore| lcore.is_u64()), "{report}");
        assert!(lcores.windows(2).all(|pair| pair[0] != pair[1]), "{report}");
        // Each core receives the frames that it or its worker owns, so times and order are right.
        let received = |index: usize| &report["cores"][index]["received"];
        if deployment[0] == "--workers" {
            assert_eq!(report["crossed"], 0, "{report}");
        } else if lcores.len() == 4 {
            assert_eq!((received(0), received(1)), (received(2), received(3)), "{report}");
        }
        let connections = report["balancer"]["connections"].as_array().unwrap();
        if let [one, two] = connections.as_slice() {
            let (one, two) = (one.as_u64().unwrap(), two.as_u64().unwrap());
            assert!(one.min(two) * 10 >= u64::from(CLIENTS) * 4, "{one} and {two}");
        }
        outputs.push(flows(&read_frames(&folder.path().join("out.pcap")).unwrap()));
    }
    // Packets outside clients' connections are fragments.
    let of_clients = outputs[0].iter().filter(|(key, _)| key.source_port() == 4000);
    assert_eq!(of_clients.clone().count(), usize::from(CLIENTS));
    assert!(of_clients.clone().all(|(_, flow)| flow.len() == 3));
    for flow in outputs[0].values() {
        assert!(flow.iter().all(|(backend, _)| *backend == flow[0].0), "a flow was split");
    }
    // The order within each flow is compared as well.
    for output in &outputs[1..] {
        assert!(*output == outputs[0], "the deployments differ");
    }
    assert_payloads(&outputs[0]);
}

/// Checks that each client's packets arrived as they were sent, except for the hop.
fn assert_payloads(flows: &Flows) {
    for client in 0..CLIENTS {
        let from = format!("198.51.{}.{}:4000", 100 + client / 250, client % 250);
        let vip = ["203.0.113.10:80", "203.0.113.11:80"][usize::from(client) % 2];
        let key = FlowKey::new(from.parse().unwrap(), vip.parse().unwrap(), 6).unwrap();
        for (sequence, (_, inner)) in flows[&key].iter().enumerate() {
            let payload = [client.to_be_bytes().as_slice(), &[sequence as u8; 30]].concat();
            let sent = tcp().from(&from).to(vip).ttl(63).payload(payload).build();
            assert_eq!(inner[..], sent[14..]);
        }
    }
}

/// First requests only, then with their backends' answers after them.
#[test]
fn requests_and_their_tunnelled_replies_meet_on_one_worker() {
    let folder = folder();
    let client = |index: u8| format!("198.51.100.{index}:4000");
    let vip = "203.0.113.10:80";
    let mut frames: Vec<_> = (0..200).map(|it| tcp().from(client(it)).to(vip).build()).collect();
    write_pcap(&folder.path().join("in.pcap"), &frames);
    report(&replay(folder.path(), &["--report", "json"]));
    let sent = flows(&read_frames(&folder.path().join("out.pcap")).unwrap());
    for index in 0..200 {
        let key = FlowKey::new(client(index).parse().unwrap(), vip.parse().unwrap(), 6).unwrap();
        let reply = tcp().from(vip).to(client(index)).tunnelled(&sent[&key][0].0, "192.0.2.1");
        frames.push(reply.build());
    }
    write_pcap(&folder.path().join("in.pcap"), &frames);
    for deployment in ["run-to-completion", "pipeline"] {
        let args = ["--report", "json", "--deployment", deployment, "--dispatchers", "2"];
        let report = report(&replay(folder.path(), &args));
        assert_eq!(report["sent"], 400, "{report}");
        // Each reply was looked up in its worker's table, and its connection was there.
        assert_eq!(report["balancer"]["to_clients"], 200, "{report}");
        assert_eq!(report["balancer"]["replies_known"], 200, "{report}");
        let connections = report["balancer"]["connections"].as_array().unwrap();
        assert!(connections.iter().all(|count| count.as_u64() > Some(50)), "{report}");
        assert_eq!(connections.iter().filter_map(Value::as_u64).sum::<u64>(), 200, "{report}");
    }
}

#[test]
fn other_formats_are_read_for_what_they_hold() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    let frame = tcp().from("198.51.100.1:9").to("203.0.113.10:80").build();
    let frames = vec![frame.clone(), frame.clone(), frame.clone()];

    write_pcap_of(&path, NANOSECONDS, ETHERNET, &frames);
    let nanoseconds = report(&replay(folder.path(), &["--report", "json"]));
    assert_eq!((&nanoseconds["received"], &nanoseconds["sent"]), (&3.into(), &3.into()));

    fs::write(&path, pcapng(ETHERNET, &frames)).unwrap();
    let pcapng = report(&replay(folder.path(), &["--report", "json"]));
    assert_eq!((&pcapng["received"], &pcapng["sent"]), (&3.into(), &3.into()));

    write_pcap(&path, &[]);
    let empty = report(&replay(folder.path(), &["--report", "json"]));
    assert_eq!((&empty["received"], &empty["sent"]), (&0.into(), &0.into()));
    assert_eq!(read_frames(&folder.path().join("out.pcap")).unwrap().len(), 0);

    write_pcap(&path, &frames);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let cut = report(&replay(folder.path(), &["--report", "json"]));
    assert_eq!((&cut["received"], &cut["input"]["cut"]), (&2.into(), &true.into()));
    let text = String::from_utf8(replay(folder.path(), &[]).stdout).unwrap();
    assert!(text.contains("cut within its last record"), "{text}");
    assert!(text.contains("service web: backend 10.0.0."), "{text}");
}

#[test]
fn frames_of_any_length_survive_or_are_counted() {
    let folder = folder();
    let config = CONFIG.replace("mtu = 1500", "mtu = 65535");
    fs::write(folder.path().join("lb.toml"), config).unwrap();
    let frame = |bytes: usize| {
        let payload = vec![bytes as u8; bytes - 14 - 40];
        tcp().from("198.51.100.1:9").to("203.0.113.10:80").payload(payload).build()
    };
    let mut too_long = frame(65_000);
    too_long.resize(70_000, 0);
    let frames =
        vec![Vec::new(), vec![0], frame(54), frame(3_000), frame(9_000), frame(65_000), too_long];
    write_pcap(&folder.path().join("in.pcap"), &frames);
    let report = report(&replay(folder.path(), &["--report", "json"]));
    assert_eq!((&report["received"], &report["input"]["too_long"]), (&6.into(), &1.into()));
    assert_eq!(report["dropped"]["malformed"], 2, "{report}");
    let lengths: Vec<_> =
        read_frames(&folder.path().join("out.pcap")).unwrap().iter().map(Vec::len).collect();
    assert_eq!(lengths, [54 + 20, 3_000 + 20, 9_000 + 20, 65_000 + 20]);
}

/// The one line on standard error of a run that must have ended with exit code 2.
fn complaint(output: &Output) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn what_is_no_capture_is_refused() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    let refused = |expected: &[&str]| {
        let message = complaint(&replay(folder.path(), &[]));
        for part in ["in.pcap: --input: "].iter().chain(expected) {
            assert!(message.contains(part), "{part}: {message}");
        }
    };
    refused(&["No such file", "name a readable capture"]);
    fs::create_dir(&path).unwrap();
    refused(&["Is a directory", "name a readable capture"]);
    fs::remove_dir(&path).unwrap();
    for (bytes, expected) in [
        (&b""[..], "ends within its header"),
        (b"\xD4\xC3", "ends within its header"),
        (b"\xD4\xC3\xB2\xA1\x02\0\x04\0\0\0\0\0", "ends within its header"),
        (b"\x0A\x0D\x0D\x0A\x1C\0\0\0\x4D\x3C\x2B\x1A", "ends within its header"),
        (b"\x0A\x0D\x0D\x0A\x1C\0\0\0\x00\x3C\x2B\x1A", "not a capture"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a capture: neither pcap nor pcapng"),
    ] {
        fs::write(&path, bytes).unwrap();
        refused(&[expected, "record a capture with tcpdump -w"]);
    }
    write_pcap_of(&path, MICROSECONDS, LINUX_SLL, &[]);
    refused(&["link type LINUX_SLL, not Ethernet", "capture on an Ethernet interface"]);

    // In pcapng each interface has its own link type; and a block may be invalid.
    fs::write(&path, pcapng(RAW, &[vec![0x45; 20]])).unwrap();
    refused(&["link type RAW, not Ethernet"]);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4] ^= 1;
    fs::write(&path, bytes).unwrap();
    refused(&["record 1 is damaged", "record a capture"]);
}

#[test]
fn an_output_that_cannot_be_written_is_refused() {
    let folder = folder();
    write_pcap(&folder.path().join("in.pcap"), &[]);
    let refused = |output: &str, expected: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        let args = ["replay", "--config", "lb.toml", "--input", "in.pcap", "--output", output];
        let message = complaint(&command.current_dir(folder.path()).args(args).output().unwrap());
        assert!(message.contains(&format!("{output}: --output: ")), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    refused("missing/out.pcap", "No such file");
    refused(".", "Is a directory");
    refused("in.pcap", "is the input too; name another file");
}

#[test]
fn a_full_disk_is_named() {
    let folder = folder();
    write_pcap(&folder.path().join("in.pcap"), &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    let args = ["replay", "--config", "lb.toml", "--input", "in.pcap", "--output", "/dev/full"];
    let output = command.current_dir(folder.path()).args(args).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let expected = "/dev/full: --output: No space left on device (os error 28); name a file where";
    assert!(errors.contains(expected), "{errors}");
}
