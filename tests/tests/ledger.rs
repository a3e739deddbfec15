//! The ledger with real ports: whole when a program ends under load, and not when a packet is lost,
//! forgotten or duplicated in any place, or a stage panics.

use hotloop::engine::RunError;
use hotloop::prelude::*;
use hotloop_tests::planted::{Deed, Fault, Place, forwarder};
use hotloop_tests::{DEPLOYMENTS, alone, device, eal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A program's exit code and report.
struct Ended {
    code: Option<i32>,
    report: Value,
}

/// Runs the forwarder as a program, ends it with SIGINT once it is under load, and returns its
/// report.
fn run_program(cores: &str, fault: Option<Fault>) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planted-forwarder"));
    command.arg(cores).args(fault.map(|fault| format!("{:?}.{:?}", fault.place, fault.deed)));
    let mut program =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it was built");
    let process = Pid::from_child(&program);
    let (mut report, mut signal_count) = (Value::Null, 0);
    for line in BufReader::new(program.stdout.take().expect("it is a pipe")).lines() {
        let line = line.expect("the program writes text");
        if line == "running" {
            // The program may have ended by itself, if a stage panicked.
            signal_count += usize::from(kill_process(process, Signal::INT).is_ok());
        } else {
            report = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
    let code = program.wait().expect("it is our own child").code();
    assert_eq!(signal_count, 1, "{cores} {fault:?}: {report}");
    Ended { code, report }
}

fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn a_program_ended_by_sigint_under_load_is_whole() {
    for cores in ["1", "2", "1+1", "1+2", "2+2"] {
        let Ended { code, report } = alone(|| run_program(cores, None));
        assert_eq!(code, Some(0), "{cores}: {report}");
        assert!(count(&report, "sent") >= 20_000, "{cores}: {report}");
        assert_eq!(report["balanced"], true, "{cores}: {report}");
        assert_eq!(report["pools_whole"], true, "{cores}: {report}");
        assert_eq!(count(&report, "in_flight"), 0, "{cores}: {report}");
        assert_eq!(report["findings"], Value::Array(Vec::new()), "{cores}: {report}");
    }
}

#[test]
fn a_program_in_which_anything_goes_wrong_ends_with_a_code_that_says_so() {
    for (index, fault) in Fault::all().into_iter().enumerate() {
        let cores = ["1", "1+1", "2"][index % 3];
        let Ended { code, report } = alone(|| run_program(cores, Some(fault)));
        assert_eq!(code, Some(1), "{cores} {fault:?}: {report}");
        let findings = report["findings"].as_array().expect("a list");
        assert!(!findings.is_empty(), "{cores} {fault:?}: {report}");
        // Only forgotten packets are missing in a pool; packets dropped while unwinding return.
        assert_eq!(
            report["pools_whole"],
            fault.deed != Deed::Forget,
            "{cores} {fault:?}: {report}"
        );
        let is_counted = fault.deed == Deed::Panic;
        assert_eq!(report["balanced"], is_counted, "{cores} {fault:?}: {report}");
    }
}

/// Runs until the fault has been triggered on every core that has it, and returns the result.
fn run(deployment: Deployment, fault: Option<Fault>) -> Result<Report, RunError> {
    let [lan, wan] = [0, 1].map(|_| Port::open(eal(), &device("net_null", "")).unwrap());
    let plan = Engine::plan(forwarder(&lan, &wan, fault), deployment).unwrap();
    plan.run(|control| {
        let mut waited = Waited::Elapsed;
        while control.snapshot().sent < 20_000 && waited == Waited::Elapsed {
            waited = control.wait_for(Duration::from_millis(1));
        }
    })
}

#[test]
fn what_goes_wrong_is_named_by_its_place_in_every_deployment() {
    for deployment in DEPLOYMENTS {
        let whole = alone(|| run(deployment, None));
        assert!(whole.is_ok_and(|report| report.is_whole()), "{deployment}");
        for fault in Fault::all() {
            let error = alone(|| run(deployment, Some(fault))).expect_err("a fault is planted");
            let report = error.report().unwrap_or_else(|| panic!("it did not run: {error}"));
            let is_panic = matches!(error, RunError::Panicked(_));
            assert_eq!(is_panic, fault.deed == Deed::Panic, "{deployment} {fault:?}: {report}");
            assert!(!report.is_whole(), "{deployment} {fault:?}: {report}");
            let said = report.findings.join("\n");
            for expected in findings(fault) {
                assert!(said.contains(expected), "{deployment} {fault:?}: {report}");
            }
        }
    }
}

/// The report's findings for a fault.
fn findings(fault: Fault) -> Vec<&'static str> {
    let mut findings = match (fault.place, fault.deed) {
        (_, Deed::Panic) => vec!["Number on ", "panicked: planted"],
        (Place::Source, _) => vec!["packets received by the engine: "],
        (Place::Sink, _) => vec!["packets sent by the engine: "],
        (Place::Stage, Deed::Double) => vec!["nor created by PlantedStage: "],
        (Place::Stage, _) => vec!["packets lost by PlantedStage: "],
        (Place::BurstStage, Deed::Double) => vec!["nor created by PlantedBurstStage: "],
        (Place::BurstStage, _) => vec!["packets lost by PlantedBurstStage: "],
    };
    if fault.deed == Deed::Forget {
        findings.push(" mbufs are home, 0 of them twice");
    }
    findings
}

/// Keeps the first packet of a core for ever, and reports that it does or that it does not.
struct Holder {
    kept: Option<Packet>,
    is_honest: bool,
}

impl BurstStage<Packet> for Holder {
    type Out = Packet;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Packet>,
        out: &mut Output<'_, Packet>,
    ) {
        if self.kept.is_none() {
            self.kept = input.pop();
        }
        while let Some(packet) = input.pop() {
            out.push(packet);
        }
    }

    fn held(&self) -> usize {
        usize::from(self.is_honest)
    }

    fn held_max(&self) -> usize {
        1
    }
}

#[test]
fn a_packet_kept_to_the_end_is_found_whatever_its_keeper_says() {
    for (is_honest, finding) in
        [(true, "Holder still holds 1"), (false, "packets lost by Holder: 1")]
    {
        let error = alone(|| {
            let port = Port::open(eal(), &device("net_null", "")).unwrap();
            let graph = source(|core| port.rx_queue(core))
                .burst_stage(|_| Holder { kept: None, is_honest })
                .sink(|core| port.tx_queue(core));
            Engine::plan(graph, Deployment::run_to_completion(1)).unwrap().run(|control| {
                while control.snapshot().sent < 10_000 {
                    std::thread::yield_now();
                }
            })
        });
        let error = error.expect_err("a packet is kept");
        let report = error.report().unwrap_or_else(|| panic!("it did not run: {error}"));
        assert!(report.findings.iter().any(|text| text == finding), "{report}");
        // The stage is gone, and with it the packet it kept.
        assert!(!report.balanced && report.pools_whole, "{report}");
    }
}

#[test]
fn a_packet_that_somebody_else_has_is_missing_until_it_comes_home() {
    alone(|| {
        let (sender, receiver) = channel::<Packet>();
        let port = Port::open(eal(), &device("net_null", "")).unwrap();
        let (sender, lender) = (&sender, &port);
        // One packet goes to the test, and another one is passed on in its place.
        let swap = move |packet: Packet| {
            sender.send(packet).expect("the test receives it");
            lender.mempool().and_then(|pool| pool.alloc()).expect("the pool is large enough")
        };
        let graph = source(|core| port.rx_queue(core))
            .stage(|_| {
                let mut count = 0;
                each(move |packet: Packet| {
                    count += 1;
                    if count == 100 { swap(packet) } else { packet }
                })
            })
            .sink(|core| port.tx_queue(core));
        let run = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap().run(|control| {
            while control.snapshot().sent < 1000 {
                std::thread::yield_now();
            }
        });
        let error = run.expect_err("a packet is away");
        let report = error.report().unwrap_or_else(|| panic!("it did not run: {error}"));
        assert!(report.balanced && !report.pools_whole, "{report}");
        let pool = port.mempool().expect("it was started");
        // Held beyond the end of its port, and dropped on another thread.
        drop(port);
        let packet = receiver.try_recv().expect("it was sent");
        assert!(!pool.report().is_whole());
        std::thread::spawn(move || drop(packet)).join().unwrap();
        assert!(pool.report().is_whole(), "{}", pool.report());
    });
}
