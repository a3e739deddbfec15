//! The balancer compared with a simple model of its rules: random configurations that change while
//! they run, and a million random packets.
//!
//! A failure names its seed, the packet and both outcomes; `HOTLOOP_SEED=NUMBER` runs only that
//! seed, and `HOTLOOP_SEEDS=COUNT` sets the number of seeds instead of 250, of 4,000 packets each.

use crate::model::compare::{Met, run};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PACKETS_PER_SEED: u64 = 4_000;

const SEEDS: Range<u64> = 0..250;

const THREADS: usize = 4;

#[test]
fn the_balancer_agrees_with_the_model() {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text}: no number")))
    };
    let seeds = match (number("HOTLOOP_SEED"), number("HOTLOOP_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => SEEDS.start..count.unwrap_or(SEEDS.end),
    };
    match run_all(seeds.clone()) {
        Err((_, report)) => panic!("{report}"),
        Ok(met) if seeds.end >= SEEDS.end && seeds.start == SEEDS.start => check_all_met(&met),
        Ok(met) => println!("{met:#?}"),
    }
}

/// Runs the seeds on a few threads. Fails with the lowest seed that failed.
fn run_all(seeds: Range<u64>) -> Result<Met, (u64, String)> {
    let (next, sums, failure) =
        (AtomicU64::new(seeds.start), Mutex::new(Met::new()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while failure.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(seed, PACKETS_PER_SEED) {
                        Ok(met) => add(&mut sums.lock().unwrap(), met),
                        Err(report) => note(&mut failure.lock().unwrap(), seed, report),
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap().map_or(Ok(sums.into_inner().unwrap()), Err)
}

fn add(sums: &mut Met, met: Met) {
    for (rule, count) in met {
        *sums.entry(rule).or_default() += count;
    }
}

fn note(failure: &mut Option<(u64, String)>, seed: u64, report: String) {
    if failure.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
        *failure = Some((seed, report));
    }
}

/// Checks that every rule and every drop reason occurred; otherwise the agreement would mean
/// little.
fn check_all_met(met: &Met) {
    let count = |rule: &str| met.get(rule).copied().unwrap_or(0);
    let missed: Vec<_> = OFTEN
        .iter()
        .map(|rule| (*rule, 1_000))
        .chain(SOMETIMES.iter().map(|rule| (*rule, 100)))
        .chain(RARELY.iter().map(|rule| (*rule, 10)))
        .filter(|(rule, least)| count(rule) < *least)
        .map(|(rule, least)| format!("{rule}: {}, not {least}", count(rule)))
        .collect();
    assert!(missed.is_empty(), "rules that were met too seldom: {missed:#?}");
    assert!(count("packet") >= 1_000_000, "{} packets", count("packet"));
    let known = [OFTEN, SOMETIMES, RARELY].concat();
    let unlisted: Vec<_> = met.keys().filter(|rule| !known.contains(*rule)).collect();
    assert_eq!(unlisted, [&"packet"], "rules that no list here names");
}

/// Must occur a thousand times or more.
const OFTEN: &[&str] = &[
    "all down: dropped",
    "answer: time exceeded",
    "choice: not the client itself",
    "answer: parameter problem",
    "answer: too big",
    "choice: nobody but the client itself",
    "answer: too many",
    "answer: too many to its network",
    "bad_checksum",
    "congestion",
    "connection: a SYN when it is over",
    "connection: a SYN while it is open",
    "connection: known",
    "connection: new",
    "connection: perhaps known",
    "connection: taken over",
    "connection: the table may be full",
    "connection: too many new ones",
    "fragment: after its first",
    "fragment: released",
    "fragment: waited too long",
    "fragment: waits",
    "fragment_orphan",
    "icmp echo: answered",
    "icmp error: by hash",
    "icmp error: of a connection",
    "icmp error: to somebody else",
    "icmp: neighbours",
    "icmp_echo",
    "malformed",
    "no_backend",
    "no_service",
    "persistence: kept",
    "persistence: over",
    "punt",
    "return: MSS as it was",
    "return: MSS lowered",
    "return: an error",
    "return: known",
    "scheduler: least-connections",
    "scheduler: maglev",
    "scheduler: round-robin",
    "scheduler: source",
    "state: closing",
    "state: established",
    "truncated",
    "ttl_expired",
    "tunnel to a VIP",
    "tunnel_fragment",
    "unknown_tunnel_source",
    "tunnel_loop",
    "unwrapped",
    "unwrapped: a nested tunnel",
    "wrapped: IPv4 in IPv4",
    "wrapped: IPv4 in IPv6",
    "wrapped: IPv6 in IPv4",
    "wrapped: IPv6 in IPv6",
];

/// Must occur a hundred times or more.
const SOMETIMES: &[&str] = &[
    "all down: forwarded",
    "answer: not allowed",
    "churn",
    "connection: a SYN, and its backend takes none",
    "connection: exceptions stay",
    "encapsulation_limit",
    "flushed",
    "fragment: again",
    "fragment: an earlier first is forgotten",
    "fragment: its backend is gone",
    "fragment: its first was too long ago",
    "fragment: waited longest of too many",
    "fragmented",
    "icmp echo: to the VIP's most specific service",
    "icmp echo: wrong checksum",
    "icmp: redirect or quench",
    "martian_destination",
    "martian_source",
    "no_headroom",
    "persistence: backend gone",
    "return: expired",
    "return: wrong checksum",
    "state: closing, by the server",
    "too_big",
];

/// Must occur ten times or more.
const RARELY: &[&str] = &[
    "connection: another begins elsewhere",
    "connection: its backend is gone",
    "connection: its backend is gone, another begins",
    "flushed: begun again",
];
