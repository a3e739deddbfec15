//! A forwarder as a program: `planted-forwarder CORES [FAULT]` forwards between two virtual devices
//! until SIGINT, prints its report as a line of JSON, and ends with exit code 0 if everything is
//! whole.
#![allow(clippy::print_stdout, reason = "what its tests read")]

use hotloop::prelude::*;
use hotloop_tests::planted::{Fault, deployment, forwarder};
use std::time::Duration;

/// Number of packets sent before it reports that it runs: many bursts of each core.
const LOAD_COUNT: u64 = 20_000;

fn main() -> hotloop::Result<()> {
    let mut args = std::env::args().skip(1);
    let deployment = deployment(&args.next().unwrap_or_default())?;
    let fault = args.next().map(|text| text.parse::<Fault>()).transpose()?;
    let eal = Eal::embedded()?;
    let (lan, wan) = (Port::open(eal, "net_null0")?, Port::open(eal, "net_null1")?);
    let run = Engine::plan(forwarder(&lan, &wan, fault), deployment)?.run(|control| {
        // Catches the signal from here on.
        let mut waited = control.wait_for_signal_or(Duration::ZERO);
        while waited == Waited::Elapsed && control.snapshot().sent < LOAD_COUNT {
            waited = control.wait_for_signal_or(Duration::from_millis(1));
        }
        println!("running");
        control.wait_for_signal();
    });
    match &run {
        Ok(report) => println!("{}", report.to_json()),
        Err(error) => error.report().iter().for_each(|report| println!("{}", report.to_json())),
    }
    run?;
    Ok(())
}
