//! How many instructions a hit takes, counted by callgrind.

use crate::Bench;
use crate::bed::{Bed, Setup};
use hotloop_benches::row::Row;
use hotloop_benches::traffic::Sizes;
use std::env;
use std::process::Command;

const FLOW_COUNT: u32 = 1_000;

/// Packets of the shorter run; the longer one has twice as many, and what it takes more is theirs.
const PACKET_COUNT: u64 = 16_000;

/// The seed of a table differs from run to run, and so does how many keys share a tag.
const ROUND_COUNT: usize = 3;

const LIMIT: f64 = 120.0;

/// What is counted.
const BALANCER: &str = "balancer";
const HELLO: &str = "hello-forward";

/// The other side of [`bench`]: works on so many packets.
pub fn play(case: &str, packet_count: &str) -> Result<(), String> {
    let packet_count = packet_count.parse().map_err(|_| "not a number of packets")?;
    let mut bed = match case {
        BALANCER => Bed::balancer(&Setup::hits(10, FLOW_COUNT))?,
        HELLO => Bed::hello_forward(FLOW_COUNT, Sizes::Small)?,
        _ => return Err(format!("no case {case}")),
    };
    bed.play(packet_count);
    bed.finish()
}

/// Counts the balancer's own.
pub fn bench(bench: &mut Bench) {
    eprintln!("instructions of a hit");
    let name = "own work of a hit, 1K flows";
    let round_count = if bench.quick { 1 } else { ROUND_COUNT };
    let counted: Result<Vec<_>, String> =
        (0..round_count).map(|_| Ok((each(BALANCER)?, each(HELLO)?))).collect();
    match counted {
        Ok(counts) => {
            let own: Vec<_> = counts.iter().map(|(balancer, hello)| balancer - hello).collect();
            bench.table.rows.push(Row::limit(name, "instructions", &own, LIMIT));
            let (balancer, hello) = counts[0];
            bench.table.notes.push(format!(
                "instructions a packet, 1K flows: {balancer:.0}, of which hello-forward, source and \
                 sink {hello:.0}"
            ));
        }
        Err(reason) => bench.table.unshown.push(format!("{name}, instructions: {reason}")),
    }
}

/// Instructions of one packet.
fn each(case: &str) -> Result<f64, String> {
    let (short, long) = (count(case, PACKET_COUNT)?, count(case, 2 * PACKET_COUNT)?);
    Ok(long.saturating_sub(short) as f64 / PACKET_COUNT as f64)
}

/// Instructions of a whole run.
fn count(case: &str, packet_count: u64) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--play", case, &packet_count.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install it by `cargo xtask setup --bench`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("Collected"));
    let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    count.filter(|_| output.status.success()).ok_or_else(|| said.trim().to_owned())
}
