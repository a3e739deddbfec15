//! The capture through the load balancer: once a deployment, with what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

use super::capture;
use super::wire::{self, Flow};

const CONFIG: &str = "tests/captures/demo.toml";
const INPUT: &str = "tests/captures/clients.pcap";

/// The ways to put the same network function on cores.
#[derive(Clone, Copy)]
pub enum Deployment {
    /// Every core does all the work.
    RunToCompletion,
    /// One core dispatches, two work.
    Pipeline,
}

/// Where ipip-lb is, and where its outputs go.
pub struct Programs {
    balancer: PathBuf,
    folder: PathBuf,
}

/// The part of ipip-lb's report that the demo shows and judges.
#[derive(Debug, Deserialize)]
struct Report {
    received: u64,
    sent: u64,
    created: u64,
    dropped: BTreeMap<String, u64>,
    in_flight: u64,
    crossed: u64,
    balanced: bool,
    pools_whole: bool,
}

impl Programs {
    /// Makes the folder for the outputs.
    pub fn of(workspace: &Workspace) -> Result<Self, Failure> {
        let folder = workspace.target_directory.join("demo");
        fs::create_dir_all(&folder).map_err(Failure::file("make", &folder))?;
        Ok(Self { balancer: workspace.release_program("ipip-lb"), folder })
    }

    /// `ipip-lb check`.
    pub fn check(&self) -> Result<(), Failure> {
        process::run(Command::new(&self.balancer).args(["check", "--config", CONFIG]))
    }

    /// `ipip-lb replay`: prints what went where and why the rest didn't, and returns the output.
    pub fn replay(&self, deployment: Deployment) -> Result<Vec<Vec<u8>>, Failure> {
        let output = self.folder.join(deployment.file_name());
        let mut command = Command::new(&self.balancer);
        command.args(["replay", "--config", CONFIG, "--input", INPUT, "--output"]).arg(&output);
        command.args(deployment.arguments()).args(["--report", "json"]);
        println!("  {}\n", process::line(&command));
        let report: Report =
            serde_json::from_str(&process::output(&mut command)?).map_err(|error| {
                Failure::failed(format!("ipip-lb's report is not as known: {error}"))
            })?;

        let packets = capture::read(&output)?;
        print_backends(&packets)?;
        report.print();
        let input = capture::read(Path::new(INPUT))?;
        report.judge(input.len() as u64, packets.len() as u64)?;
        Ok(packets)
    }
}

impl Deployment {
    fn file_name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "rtc.pcap",
            Self::Pipeline => "pipeline.pcap",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::RunToCompletion => &["--deployment", "run-to-completion", "--workers", "2"],
            Self::Pipeline => &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "2"],
        }
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunToCompletion => "run to completion on 2 workers",
            Self::Pipeline => "pipeline of 1 dispatcher and 2 workers",
        })
    }
}

impl Report {
    fn print(&self) {
        println!("\n  dropped, by reason");
        for (reason, count) in self.dropped.iter().filter(|(_, count)| **count > 0) {
            println!("  {count:>8}  {reason}");
        }
        println!(
            "  (the servers' answers to clients are in the capture too, and belong to no service)"
        );
        println!(
            "\n  received {} + created {} = sent {} + dropped {}; {} crossed to another core; \
             ledger balanced, pools whole: {}, {}",
            self.received,
            self.created,
            self.sent,
            self.dropped_count(),
            self.crossed,
            self.balanced,
            self.pools_whole,
        );
    }

    /// The whole ledger, against itself and against both files.
    fn judge(&self, input_count: u64, output_count: u64) -> Result<(), Failure> {
        let checks = [
            (self.balanced, "`balanced` is false"),
            (self.pools_whole, "`pools_whole` is false"),
            (self.in_flight == 0, "packets are still in flight"),
            (self.received == input_count, "`received` is not the input's number of packets"),
            (self.sent == output_count, "`sent` is not the output's number of packets"),
            (
                self.received + self.created == self.sent + self.dropped_count(),
                "received + created is not sent + dropped",
            ),
            (self.dropped.get("ring_full").is_none_or(|count| *count == 0), "a ring was full"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => {
                Err(Failure::failed(format!("the ledger is wrong: {what}: {self:?}")))
            }
        }
    }

    fn dropped_count(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// By service address and backend: packets and flows.
fn print_backends(packets: &[Vec<u8>]) -> Result<(), Failure> {
    let mut backends: BTreeMap<(IpAddr, IpAddr), (u64, BTreeSet<Flow>)> = BTreeMap::new();
    let mut untunnelled_count = 0;
    for packet in packets {
        match wire::read(packet).map(|read| (read.tunnel, read.flow)) {
            Some((Some(backend), flow)) => {
                let (packet_count, flows) =
                    backends.entry((flow.destination, backend)).or_default();
                *packet_count += 1;
                flows.insert(flow);
            }
            _ => untunnelled_count += 1,
        }
    }
    println!("   packets   flows  service             backend");
    for ((service, backend), (packet_count, flows)) in &backends {
        let (service, flow_count) = (service.to_string(), flows.len());
        println!("  {packet_count:>8} {flow_count:>7}  {service:<19} {backend}");
    }
    println!("  {untunnelled_count:>8}          forwarded as they came");
    if backends.is_empty() {
        return Err(Failure::failed("no packet went to a backend"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"received": 10, "sent": 7, "created": 0, "in_flight": 0, "crossed": 2,
        "dropped": {"fragment": 3, "ring_full": 0}, "balanced": true, "pools_whole": true,
        "nic_loss": {"imissed": 0, "rx_nombuf": 0}, "stages": [], "workers": []}"#;

    fn report() -> Report {
        serde_json::from_str(REPORT).unwrap()
    }

    #[test]
    fn a_whole_ledger_passes() {
        assert!(report().judge(10, 7).is_ok());
    }

    #[test]
    fn each_broken_term_is_named() {
        type Break = fn(&mut Report);
        let breaks: [(Break, &str); 6] = [
            (|report| report.balanced = false, "`balanced`"),
            (|report| report.pools_whole = false, "`pools_whole`"),
            (|report| report.in_flight = 1, "in flight"),
            (|report| report.received = 9, "`received`"),
            (|report| report.created = 1, "received + created"),
            (|report| *report.dropped.get_mut("ring_full").unwrap() = 1, "received + created"),
        ];
        for (damage, named) in breaks {
            let mut report = report();
            damage(&mut report);
            let failure = report.judge(10, 7).unwrap_err().to_string();
            assert!(failure.contains(named), "{failure}");
        }
        assert!(report().judge(10, 8).unwrap_err().to_string().contains("`sent`"));
        let mut report = report();
        report.dropped = [("ring_full".to_owned(), 3)].into();
        assert!(report.judge(10, 7).unwrap_err().to_string().contains("a ring was full"));
    }
}
