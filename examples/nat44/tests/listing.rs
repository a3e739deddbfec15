//! `ctl connections` of a program that runs, in both deployments.

use crate::lab::{HOST_MAC, settings};
use hotloop::engine::ListPage;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop_capture::write_frames;
use hotloop_tests::{Program, wait_until};
use nat44::fragments::Keyed;
use nat44::nat::{Nat, Settings};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nat44");

const HOST_COUNT: u64 = 40;

/// The address of the first device of net_pcap.
const LAN_MAC: MacAddress = MacAddress::new([2, b'p', b'c', b'a', b'p', 0]);

fn datagram(host: u64) -> Vec<u8> {
    let packet = udp().from(format!("10.0.0.{host}:5000")).to("192.0.2.1:53");
    packet.macs(HOST_MAC, LAN_MAC).build()
}

/// The program, with packets of all hosts from the LAN.
pub fn command(folder: &Path, control: &Path, deployment: [&str; 2], core_count: usize) -> Command {
    let capture = folder.join("lan.pcap");
    write_frames(&capture, (1..=HOST_COUNT).map(datagram)).unwrap();
    let sent = ",tx_pcap=/dev/null".repeat(core_count);
    let lan = format!("net_pcap0,rx_pcap={}{sent}", capture.display());
    let mut command = Command::new(PROGRAM);
    command.args(["--lan", &lan, "--wan", "net_ring_wan", "--lan-address", "10.0.0.254"]);
    command.args(["--wan-address", "203.0.113.1", "--next-hop-mac", "02:00:00:00:00:01"]);
    command.args(["--connections", "1000", "--report", "json", "--idle", "pause"]);
    command.args(deployment).arg("--control").arg(control);
    command
}

/// The answer once it lists all connections.
pub fn listed(program: &Program) -> Value {
    let mut answer = Value::Null;
    wait_until("all connections are listed", || {
        answer = program.ask("connections").expect("an answer");
        answer["matching"] == HOST_COUNT
    });
    answer
}

#[test]
fn ctl_lists_the_connections_of_all_cores() {
    for (deployment, core_count) in [(["--run-to-completion", "1"], 1), (["--pipeline", "1,2"], 2)]
    {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("nat.sock");
        let command = command(folder.path(), &control, deployment, core_count);
        let program = Program::start(command, &control);
        check(&listed(&program), core_count as u64);

        let ctl = |command: &str| {
            let mut ctl = Command::new(PROGRAM);
            ctl.args(["ctl", command, "--control"]).arg(&control).output().unwrap()
        };
        let text = String::from_utf8(ctl("connections").stdout).unwrap();
        assert_eq!(text.lines().count() as u64, HOST_COUNT, "{text}");
        assert!(text.contains("10.0.0.40:5000"), "{text}");
        assert_eq!(ctl("nothing").status.code(), Some(2));
        let (report, _) = program.end();
        assert_eq!(report["balanced"], true, "{report}");
    }
}

#[test]
fn a_core_has_work_until_its_page_of_a_listing_is_complete() {
    let core = Core::new(0, 1);
    let (mut asker, mailboxes) = mailbox(1);
    let lister = Lister::new(mailboxes.open(&core).unwrap());
    // More places than a turn looks through.
    let settings = Settings { connections: 1_000, ..settings() };
    let mut nat = bench_burst(Nat::new(&core, settings, lister).unwrap());
    asker.ask(0, Box::new(ListPage::new((), 10))).expect("there is no other page");
    let mut turn_count = 0;
    while asker.answer(0).is_none() {
        let has_work = BurstStage::<Keyed<MemPacket>>::has_work(nat.stage());
        assert_eq!(has_work, turn_count > 0, "turn {turn_count}");
        nat.tick::<Keyed<MemPacket>>();
        turn_count += 1;
    }
    assert!(turn_count > 2 && !BurstStage::<Keyed<MemPacket>>::has_work(nat.stage()));
}

/// Checks that an answer has one connection for each host, at the core that its port leads to.
fn check(answer: &Value, core_count: u64) {
    let rows = answer["connections"].as_array().expect("rows");
    let (mut hosts, mut cores) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let (core, port) = (row["core"].as_u64().unwrap(), row["port"].as_u64().unwrap());
        assert_eq!(port / 64 % core_count, core, "{row}");
        assert_eq!((&row["protocol"], &row["peer"]), (&json!(17), &json!("192.0.2.1:53")), "{row}");
        hosts.insert(row["host"].as_str().unwrap().to_owned());
        cores.insert(core);
    }
    assert_eq!((rows.len() as u64, cores.len() as u64), (HOST_COUNT, core_count), "{answer}");
    assert_eq!(hosts, (1..=HOST_COUNT).map(|host| format!("10.0.0.{host}:5000")).collect());
}
