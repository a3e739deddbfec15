//! The capture through the load balancer, and its report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

use super::capture;

const CONFIG: &str = "tests/captures/demo.toml";
const INPUT: &str = "tests/captures/clients.pcap";

/// The meaning of drop reasons in this demo.
const REASONS: [(&str, &str); 5] = [
    ("icmp_echo", "pings to a service: the balancer answers them itself"),
    ("no_backend", "new connections to the service `drained`, whose only backend has weight 0"),
    ("no_service", "to a service's address, but to a port or protocol that it does not offer"),
    (
        "punt",
        "to no service: here the servers' answers to the clients, ARP and neighbour discovery",
    ),
    ("too_big", "too long for the tunnel: the sender gets an ICMP error with the length that fits"),
];

/// A way to put the same network function on cores.
pub struct Deployment {
    /// For headings.
    pub name: &'static str,
    /// The file that the output is written to.
    pub file: &'static str,
    /// The balancer's arguments.
    pub arguments: &'static [&'static str],
}

/// The part of a program's report that the demo shows and judges.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// Number of packets received.
    pub received: u64,
    /// Number of packets sent.
    pub sent: u64,
    created: u64,
    dropped: BTreeMap<String, u64>,
    in_flight: u64,
    crossed: u64,
    balanced: bool,
    pools_whole: bool,
}

/// `ipip-lb check`.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut command = Command::new(workspace.release_program("ipip-lb"));
    process::run(command.args(["check", "--config", CONFIG]))
}

/// `ipip-lb replay`: prints the backends of packets and the reasons of drops, and returns the
/// output.
pub fn run(workspace: &Workspace, deployment: &Deployment) -> Result<Vec<Vec<u8>>, Failure> {
    let folder = workspace.target_directory.join("demo");
    fs::create_dir_all(&folder).map_err(Failure::file("make", &folder))?;
    let output = folder.join(deployment.file);
    let mut command = Command::new(workspace.release_program("ipip-lb"));
    command.args(["replay", "--config", CONFIG, "--input", INPUT, "--output"]).arg(&output);
    command.args(deployment.arguments).args(["--report", "json"]);
    println!("  {}\n", process::line(&command));
    let report = Report::read("ipip-lb", &process::output(&mut command)?)?;

    let packets = capture::read(&output)?;
    let input = capture::read(Path::new(INPUT))?;
    print_backends(&packets)?;
    println!("\n  dropped, by reason");
    for (reason, count) in report.dropped.iter().filter(|(_, count)| **count > 0) {
        let meaning =
            REASONS.iter().find(|(name, _)| name == reason).map_or("", |(_, meaning)| meaning);
        println!("  {count:>8}  {reason:<11} {meaning}");
    }
    println!(
        "\n  received {} + created {} = sent {} + dropped {}; {} crossed to another core",
        report.received,
        report.created,
        report.sent,
        report.dropped_count(),
        report.crossed,
    );
    if report.received != input.len() as u64 || report.sent != packets.len() as u64 {
        let (received, sent) = (input.len(), packets.len());
        let what =
            format!("the files hold {received} and {sent} packets, the report is {report:?}");
        return Err(Failure::failed(what));
    }
    Ok(packets)
}

impl Report {
    /// Reads the report of a program. All packets received and created must be accounted for.
    pub fn read(program: &str, json: &str) -> Result<Self, Failure> {
        let report: Self = serde_json::from_str(json).map_err(|error| {
            Failure::failed(format!("the report of {program} cannot be read: {error}"))
        })?;
        let checks = [
            (report.balanced, "`balanced` is false"),
            (report.pools_whole, "`pools_whole` is false"),
            (report.in_flight == 0, "packets are in flight"),
            (
                report.received + report.created == report.sent + report.dropped_count(),
                "received + created is not sent + dropped",
            ),
            (report.dropped.get("ring_full").is_none_or(|count| *count == 0), "a ring was full"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            None => Ok(report),
            Some((_, what)) => Err(Failure::failed(format!("{program}: {what}: {report:?}"))),
        }
    }

    fn dropped_count(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// Packets and flows by service address and backend.
fn print_backends(packets: &[Vec<u8>]) -> Result<(), Failure> {
    let mut backends: BTreeMap<_, (u64, BTreeSet<_>)> = BTreeMap::new();
    let mut other_count = 0;
    for packet in packets {
        let Some((flow, Some(backend))) = capture::flow(packet) else {
            other_count += 1;
            continue;
        };
        let (packet_count, flows) = backends.entry((flow.destination, backend)).or_default();
        *packet_count += 1;
        flows.insert(flow);
    }
    println!("   packets   flows  service             backend");
    for ((service, backend), (packet_count, flows)) in &backends {
        let (service, flow_count) = (service.to_string(), flows.len());
        println!("  {packet_count:>8} {flow_count:>7}  {service:<19} {backend}");
    }
    println!("  {other_count:>8}          the balancer's own answers to clients (ICMP)");
    if backends.is_empty() {
        return Err(Failure::failed("no packet went to a backend"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broken_term_of_a_report_is_named() {
        let whole = r#"{"received": 10, "sent": 7, "created": 0, "in_flight": 0, "crossed": 2,
            "dropped": {"fragment": 3, "ring_full": 0}, "balanced": true, "pools_whole": true}"#;
        assert_eq!(Report::read("nf", whole).unwrap().received, 10);
        for (term, broken, named) in [
            ("\"balanced\": true", "\"balanced\": false", "`balanced`"),
            ("\"pools_whole\": true", "\"pools_whole\": false", "`pools_whole`"),
            ("\"in_flight\": 0", "\"in_flight\": 1", "in flight"),
            ("\"received\": 10", "\"received\": 9", "received + created"),
            ("\"created\": 0", "\"created\": 1", "received + created"),
            ("\"fragment\": 3", "\"fragment\": 4", "received + created"),
            ("\"fragment\": 3, \"ring_full\": 0", "\"ring_full\": 3", "a ring was full"),
            ("{\"received\"", "\"received\"", "cannot be read"),
        ] {
            let failure = Report::read("nf", &whole.replace(term, broken)).unwrap_err();
            assert!(failure.to_string().contains(named), "{failure}");
        }
    }
}
