//! The cost of sharing exceptions for a worker.

use super::node::{BACKENDS, Node, WEB};
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::SYN;
use hotloop_balancer::exception_mover::Pulled;
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::TargetName;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Number of connections, and capacity.
const CONNECTIONS: u32 = 60_000;
const ROOM: usize = 65_536;

/// Maximum duration of a turn, as a rule: 10 µs in a release build, several times that without
/// optimisation, and a margin. A whole batch takes tens of milliseconds.
const TURN_MAX: Duration = Duration::from_millis(1);

fn node() -> Node {
    let mut node = Node::of_size(ROOM, ROOM);
    let syn = |index: u32| {
        let client =
            format!("198.{}.{}.{}:4000", index / 62_500 + 18, index / 250 % 250, index % 250 + 1);
        tcp().from(client).to(WEB).tcp_flags(SYN).build()
    };
    for first in (0..CONNECTIONS).step_by(500) {
        node.lb.feed(&(first..first + 500).map(syn).collect::<Vec<_>>());
    }
    assert_eq!(node.lb.connections(), CONNECTIONS as usize);
    node
}

fn drained() -> TargetName {
    TargetName { service: "web".to_owned(), address: BACKENDS[2].parse().unwrap() }
}

/// The median duration of the worker's turns until `is_done`, and their number.
fn turns(
    node: &mut Node,
    step: Duration,
    mut is_done: impl FnMut(&mut Node) -> bool,
) -> (Duration, usize) {
    let mut turns = Vec::new();
    while !is_done(node) {
        node.advance(step);
        let start = Instant::now();
        node.lb.tick();
        turns.push(start.elapsed());
        assert!(turns.len() < 10_000_000, "it takes for ever");
    }
    turns.sort();
    (turns[turns.len() / 2], turns.len())
}

#[test]
fn exceptions_are_marked_and_handed_over_in_short_turns() {
    let mut node = node();
    node.lb.standing.weights.insert(drained(), 0);
    node.lb.reload();
    let marked = |node: &mut Node| node.lb.balance().are_exceptions_marked();
    // The turns of a second of full load, and then some slow ones.
    let (turn, count) = turns(&mut node, Duration::from_millis(1), marked);
    println!("marking: {count} turns, {turn:?} each");
    assert!(turn < TURN_MAX, "{turn:?}");

    let mut found = Vec::new();
    let pull = |node: &mut Node| {
        node.exceptions.turn(|pulled| {
            let Pulled::Changes(changes) = pulled else { panic!("no walk") };
            found.extend_from_slice(changes);
            true
        });
        node.exceptions.is_marked(node.lb.services())
    };
    let (turn, count) = turns(&mut node, Duration::ZERO, pull);
    println!("{} changes: {count} turns, {turn:?} each", found.len());
    assert!(turn < TURN_MAX, "{turn:?}");
    assert!(found.len() as u32 > CONNECTIONS / 4);

    node.exceptions.begin_walk();
    let mut walked = 0;
    let pull = |node: &mut Node| {
        node.exceptions.turn(|pulled| {
            let Pulled::Exceptions(claims) = pulled else { panic!("no change") };
            walked += claims.len();
            true
        });
        !node.exceptions.is_walking()
    };
    let (turn, count) = turns(&mut node, Duration::ZERO, pull);
    println!("a walk that finds {walked}: {count} turns, {turn:?} each");
    assert!(turn < TURN_MAX, "{turn:?}");
    assert_eq!(walked, found.len());

    let mut other = Node::of_size(ROOM, ROOM);
    let changes: Vec<_> = found.iter().copied().map(Change::Claim).collect();
    let mut left = &changes[..];
    let push = |other: &mut Node| {
        let taken = other.exceptions.import(other.lb.services(), left);
        left = &left[taken..];
        other.exceptions.turn(|_| true);
        // Counting them one by one takes longer than the turn.
        other.lb.balance().connections().len() >= found.len()
    };
    let (turn, count) = turns(&mut other, Duration::ZERO, push);
    assert!(other.lb.connections() >= found.len());
    println!("an import: {count} turns, {turn:?} each");
    assert!(turn < TURN_MAX, "{turn:?}");
}

/// However often the service table changes, the walk reaches every slot.
#[test]
fn marking_goes_on_while_the_service_table_changes_again_and_again() {
    let mut node = node();
    let mut weight = 0;
    let mut claimed = HashSet::new();
    for _ in 0..40 {
        weight = 1 - weight;
        node.lb.standing.weights.insert(drained(), weight);
        node.lb.reload();
        // A fifth of a walk's turns, so that the walk is elsewhere when the table is the same
        // again.
        for _ in 0..190 {
            node.advance(Duration::from_millis(1));
            node.lb.tick();
        }
        node.exceptions.turn(|pulled| {
            let Pulled::Changes(changes) = pulled else { panic!("no walk") };
            claimed.extend(changes.iter().map(|record| record.key));
            true
        });
        for _ in 0..600 {
            node.lb.tick();
        }
    }
    println!("{} of {} marked in the end", claimed.len(), CONNECTIONS);
    assert!(!node.lb.balance().are_exceptions_marked());
    assert!(claimed.len() as u32 > CONNECTIONS / 4);
}

/// The fewer turns a worker has, the more slots it examines in each, up to a bound.
#[test]
fn marking_is_through_within_a_second() {
    for step_us in [1, 50, 400] {
        let mut node = node();
        node.lb.reload();
        let mut passed = Duration::ZERO;
        let step = Duration::from_micros(step_us);
        while !node.lb.balance().are_exceptions_marked() {
            node.advance(step);
            passed += step;
            node.lb.tick();
        }
        println!("{step:?} between turns: marked after {passed:?}");
        assert!(passed <= Duration::from_millis(1_010), "{passed:?}");
    }
}
