//! Sequences of events that sent a packet to another backend, or kept a connection that had ended, by
//! earlier rules; found by seeds of the simulation and reduced to the events that matter, one in each file
//! of `recorded`: the number of nodes and the client; then the milliseconds, what happens, and where. Nodes
//! begin with all backends active; a node adopts a digit for each.

use super::Mutant;
use super::bounds::Cluster;
use super::model::{Configuration, Packet};
use std::str::FromStr;

/// Replays a sequence among nodes whose even and odd ones have these mutants. Fails if a packet
/// of the connection does not go to its SYN's backend, or would not after the last event, whichever node
/// gets it; or if a node does not know then that it has ended.
fn replay(sequence: &str, mutants: [Mutant; 2]) -> Result<(), String> {
    let mut lines = sequence.lines();
    let mut header = || lines.next().and_then(|line| line.split(' ').nth(1)).expect("a header");
    let (count, client) = (number(header()), number(header()));
    let mut cluster = Cluster::of(count, mutants);
    let began_ms = cluster.now_ms;
    let (mut expected, mut has_ended) = (None, false);
    for line in lines {
        let (at_ms, event) = line.split_once(' ').expect("a time and an event");
        cluster.pass_until(began_ms + number::<u64>(at_ms));
        match event.split(' ').collect::<Vec<_>>()[..] {
            [node, "adopts", active] => {
                cluster.node(number(node)).adopt(Configuration::of_text(active));
            }
            [node, "is", "killed"] => cluster.kill(number(node)),
            [node, "comes", "back", active] => {
                cluster.restart(number(node), Configuration::of_text(active));
            }
            [one, other, "parted"] => cluster.link([number(one), number(other)]).is_parted = true,
            [one, other, "joined"] => cluster.link([number(one), number(other)]).is_parted = false,
            [one, other, "delay", ms] => {
                cluster.link([number(one), number(other)]).delay_ms = number(ms);
            }
            [node, "gets", what] => {
                let packet = packet(what);
                let backend = cluster.send(number(node), client, packet);
                if packet == Packet::Syn {
                    expected = Some(backend);
                } else if expected != Some(backend) {
                    return Err(format!("{line}: {backend} instead of {expected:?}"));
                }
                has_ended = matches!(packet, Packet::Fin | Packet::Rst);
            }
            _ => panic!("{line}: unknown"),
        }
    }
    cluster.settle();
    let up: Vec<_> = (0..count).filter(|it| cluster.nodes[*it].is_some()).collect();
    for &node in &up {
        if has_ended && cluster.known(node, client).is_some_and(|it| !it.is_closing()) {
            return Err(format!("n{node} does not know of the end"));
        }
    }
    for &node in &up {
        let backend = cluster.send(node, client, Packet::Data);
        if expected != Some(backend) {
            return Err(format!("at the end, n{node}: {backend} instead of {expected:?}"));
        }
    }
    Ok(())
}

/// The number in a word such as `n1` or `250`.
fn number<T: FromStr>(word: &str) -> T {
    let number = word.trim_start_matches('n').parse();
    number.unwrap_or_else(|_| panic!("{word}: no number"))
}

fn packet(word: &str) -> Packet {
    match word {
        "SYN" => Packet::Syn,
        "data" => Packet::Data,
        "FIN" => Packet::Fin,
        "RST" => Packet::Rst,
        _ => panic!("{word}: no packet"),
    }
}

/// Replays a sequence, which must succeed, but fail with each of these mutants.
fn check(sequence: &str, mutants: &[[Mutant; 2]]) {
    replay(sequence, [Mutant::None; 2]).unwrap();
    for &mutants in mutants {
        assert!(replay(sequence, mutants).is_err(), "{mutants:?} is not found");
    }
}

/// The first node gets the end of a connection, and a SYN of the same port when its backend is drained. It
/// is killed two seconds later; the second node gets the next packet, and still has the drained backend's
/// table.
#[test]
fn a_port_used_again_outlives_the_node_of_both_connections() {
    check(include_str!("recorded/port_again_by_the_same_node.txt"), &[[Mutant::NoSync; 2]]);
}

/// The first node has a connection as closing when the third one gets the port's next SYN; they hear of
/// each other only after that. The third one is killed, and the first one gets the next packet.
#[test]
fn a_port_used_again_outlives_its_node_at_the_node_of_the_connection_before() {
    check(
        include_str!("recorded/port_again_by_another_node.txt"),
        &[[Mutant::NoSync; 2], [Mutant::EarlierClaimWins; 2]],
    );
}

/// After a reset, a late packet opens the connection again for its node; then its end comes to another
/// node, while a third one has just come back.
#[test]
fn an_end_by_another_node_ends_a_connection_that_a_late_packet_has_opened_again() {
    check(
        include_str!("recorded/end_after_late_packet.txt"),
        &[[Mutant::NoSync; 2], [Mutant::ClosingNotSent; 2]],
    );
}

/// The first and the third node have had packets of a connection, and its backend is drained and comes back
/// several times. The first one gets its reset, and a late packet after all have drained the backend
/// again. The connection is where the reference table has it: claims alone would do, too.
#[test]
fn a_late_packet_after_a_reset_and_a_drain_goes_to_the_backend() {
    check(
        include_str!("recorded/late_packet_after_drain.txt"),
        &[[Mutant::NoSync, Mutant::NoReference]],
    );
}

/// Both nodes get packets of a connection, and then have different tables. They hear of that late. The
/// one that did not get the SYN drains all backends except another one, and gets the next packet.
#[test]
fn a_connection_of_two_nodes_stays_through_changes_that_they_hear_of_late() {
    check(include_str!("recorded/changes_heard_late.txt"), &[[Mutant::NoSync; 2]]);
}

/// The same, of a connection that has come back to the node that it began at, which has been killed
/// meanwhile. It is where the reference table has it.
#[test]
fn a_connection_that_has_returned_stays_through_changes_that_nodes_hear_of_late() {
    check(
        include_str!("recorded/changes_after_return.txt"),
        &[[Mutant::NoSync, Mutant::NoReference]],
    );
}
