//! A simulated cluster: two to five nodes, each with up to three of the balancer's own workers, which
//! talk through the code of [`hotloop_cluster::sync`], without sockets and clocks. Messages are late,
//! connections are cut, nodes can't reach each other or read slowly, journals and queues overflow,
//! tables change at different times on each node, and nodes are killed and come back, or another program
//! takes their places. In half of the clusters, clocks are wrong; in a quarter, workers have no room for
//! all connections. Connections end by FIN or RST on any
//! node, send a last packet or two, and their ports are used again; flows of UDP just stop. At times, a
//! long time passes.
//!
//! Invariant: a packet of a connection goes to its backend, whichever node receives it, and whatever
//! each node's configuration is. Not if it is an exception that a killed node had not passed on, or that a
//! node has no room for.
//!
//! A failure names its seed, and the events of the connection; `HOTLOOP_SEED=NUMBER` runs that seed, and
//! `HOTLOOP_SEEDS=COUNT` sets the number of seeds, of about 4,500 packets each. A seed always has the same
//! result.

mod bounds;
mod clients;
mod clock;
mod link;
mod many;
mod met;
mod model;
mod node;
mod recorded;
mod takeover;
mod worker;
mod world;

use clients::CLIENTS;
use hotloop_cluster::sync::QUEUE_MAX;
use met::Met;
use model::Clocks;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use world::World;

const SEEDS: Range<u64> = 0..32;
/// Maximum seeds for each mutant.
const MUTANT_SEEDS: Range<u64> = 0..300;
const THREADS: usize = 2;

/// A planted error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    /// Nothing.
    None,
    /// A peer gets an empty snapshot.
    SnapshotSkipped,
    /// The claims of a node that is gone are not sent on.
    NotInherited,
    /// Of two claims, the earlier one wins.
    EarlierClaimWins,
    /// No node reports anything.
    NoSync,
    /// Nodes have no reference table.
    NoReference,
    /// The reference table moves while connections that a node has lost may be alive.
    MovesWithoutWaiting,
    /// No node reports its connections as closing.
    ClosingNotSent,
    /// Snapshots don't list closing connections.
    ClosingNotNamed,
    /// A node that comes back is announced before it has what its peers know.
    AnnouncedEarly,
    /// Changes for which a worker had no room are forgotten.
    LossIgnored,
    /// A program that takes a node's place knows nothing.
    NothingHandedOver,
}

/// The settings that all nodes of a cluster have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mutant: Mutant,
    /// Number of workers of each node.
    pub worker_count: usize,
    /// Maximum number of connections that a worker remembers.
    pub connections_max: usize,
    /// Maximum number of changes that wait in a worker until control takes them.
    pub journal_max: usize,
    /// Maximum number of claims that wait for a peer.
    pub queue_max: usize,
    pub clocks: Clocks,
}

impl Setup {
    /// Whether workers may have no room for all connections.
    pub const fn is_crowded(&self) -> bool {
        self.connections_max < CLIENTS as usize
    }

    /// Nodes of one worker, with the room that they have by default, and clocks that are right.
    pub const PLAIN: Self = Self {
        mutant: Mutant::None,
        worker_count: 1,
        connections_max: 1024,
        journal_max: 4096,
        queue_max: QUEUE_MAX,
        clocks: Clocks::Right,
    };
}

/// Whether a failure is about a wrong connection.
fn is_found(why: &str) -> bool {
    ["went to", "doesn't know"].iter().any(|it| why.contains(it))
}

/// Runs the seeds on a few threads; returns those that fail. A mutant is found once one fails.
fn run(seeds: Range<u64>, mutant: Mutant) -> (Met, Vec<(u64, String)>) {
    let next = AtomicU64::new(seeds.start);
    let (met, failures) = (Mutex::new(Met::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    let is_over = mutant != Mutant::None
                        && failures
                            .lock()
                            .unwrap()
                            .iter()
                            .any(|(_, why): &(u64, String)| is_found(why));
                    if seed >= seeds.end || is_over {
                        return;
                    }
                    match World::run_seed(seed, mutant) {
                        Ok(its) => met.lock().unwrap().add(&its),
                        Err(why) => failures.lock().unwrap().push((seed, why)),
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    (met.into_inner().unwrap(), failures)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

#[test]
fn a_seed_goes_alike_each_time() {
    for seed in [1, 2] {
        let [once, again] = [(); 2].map(|()| World::run_seed(seed, Mutant::None));
        assert_eq!(format!("{once:?}"), format!("{again:?}"), "seed {seed}");
    }
}

#[test]
fn every_packet_reaches_its_backend() {
    let seeds = match (number("HOTLOOP_SEED"), number("HOTLOOP_SEEDS")) {
        (Some(seed), count) => seed..seed + count.unwrap_or(1),
        (None, count) => SEEDS.start..count.unwrap_or(SEEDS.end),
    };
    let (met, failures) = run(seeds.clone(), Mutant::None);
    for (seed, why) in failures.iter().take(3) {
        println!("HOTLOOP_SEED={seed}:\n{why}");
    }
    let seeds_failed: Vec<_> = failures.iter().map(|it| it.0).collect();
    assert!(failures.is_empty(), "{} fail: {seeds_failed:?}", failures.len());
    println!("{met:#?}");
    if seeds.end >= SEEDS.end && seeds.start == SEEDS.start {
        assert!(met.packets > 50_000, "{met:?}");
        let Met { moved_exceptions, kills, restarts, cuts, configurations, reused, strays, .. } =
            met;
        for (count, what) in [
            (moved_exceptions, "exceptions on another node"),
            (kills, "nodes killed"),
            (restarts, "nodes restarted"),
            (cuts, "connections cut"),
            (configurations, "configurations"),
            (reused, "ports used again"),
            (met.moved_udp, "UDP flows on another node, as exceptions"),
            (met.errors, "errors about connections"),
            (met.errors_elsewhere, "errors about exceptions of another node"),
            (met.moved_to_workers, "exceptions on another node's second worker, or a later one"),
            (met.late_packets, "packets of connections that have ended"),
            (met.taken_over_by_end, "connections that their ends take to another node"),
            (met.ends_heard, "ends that other nodes must know"),
            (met.reused_elsewhere, "ports used again for another backend"),
            (met.reused_unaware, "ports used again while a node doesn't know of the end"),
            (met.answers_by_others, "answers by another node"),
            (met.sleeps, "long times without packets"),
            (met.ended_away, "ends while nodes can't talk"),
            (met.moves, "moves of the reference table"),
            (met.losses, "times that workers had no room for changes"),
            (met.wrong_clocks, "times that clocks jump or stop"),
            (met.takeovers, "nodes with another program in their place"),
            (met.takeovers_in_moves, "of these while the reference table moves"),
            (met.handed_over, "connections handed over"),
            (met.killed_between, "nodes killed before all had adopted a change"),
            (met.repeated, "exceptions of killed nodes that some peers know"),
            (met.without_room, "connections that begin without room"),
            (met.left, "packets of exceptions that found no room, or no more"),
        ] {
            assert!(count >= 5, "{count} {what}: {met:?}");
        }
        assert!(met.overflows >= 1, "claims for a peer that had no room: {met:?}");
        assert!(strays >= 1, "packets of exceptions by a node that has not heard of them: {met:?}");
        assert!(met.unpromised * 20 < met.packets, "{met:?}");
    }
}

/// The oracle finds each of these.
#[test]
fn planted_mutants_are_found() {
    let mut unnoticed = Vec::new();
    for mutant in [
        Mutant::NoSync,
        Mutant::SnapshotSkipped,
        Mutant::NotInherited,
        Mutant::EarlierClaimWins,
        Mutant::NoReference,
        Mutant::MovesWithoutWaiting,
        Mutant::ClosingNotSent,
        Mutant::ClosingNotNamed,
        Mutant::AnnouncedEarly,
        Mutant::NothingHandedOver,
        Mutant::LossIgnored,
    ] {
        let (_, failures) = run(MUTANT_SEEDS, mutant);
        let found = failures.iter().find(|(_, why)| is_found(why));
        match found {
            Some((seed, _)) => println!("{mutant:?}: found by seed {seed}"),
            None => unnoticed.push(mutant),
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?} go unnoticed");
}
