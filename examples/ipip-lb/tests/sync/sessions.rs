//! Nodes that trust their network: snapshots, changes, cuts and overflows.

use super::nodes::{Node, cluster, pair, record, until, until_caught_up, until_error};
use hotloop_agreement::Standing;
use hotloop_cluster::sync::Reference;
use hotloop_cluster::sync::wire::NodeState;
use hotloop_cluster::sync::{PeerState, QUEUE_MAX, Sync};
use hotloop_tests::free_address;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

/// Forwards connections to an address; each can be cut, or be left without a reader.
struct Relay {
    address: SocketAddr,
    streams: std::sync::Arc<Mutex<Vec<TcpStream>>>,
    _end: mpsc::Sender<()>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = std::sync::Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = mpsc::channel();
        let all = std::sync::Arc::clone(&streams);
        thread::spawn(move || {
            for client in listener.incoming() {
                if ended.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
                    return;
                }
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (mut from, mut to) in [(&client, &server), (&server, &client)]
                    .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
                {
                    thread::spawn(move || {
                        let mut buffer = [0; 65536];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                all.lock().unwrap().extend([client, server]);
            }
        });
        Self { address, streams, _end: end }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn what_was_there_comes_as_a_snapshot_and_what_happens_then_as_changes() {
    let [a, b] = pair();
    let (mut a, mut b) = (Node::start(&a), Node::start(&b));
    a.claim(0..5_000);
    b.claim(10_000..10_010);
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!((&b.entered.len(), &a.entered.len()), (&5_000, &10));
    assert_eq!(b.entered.len(), a.own.len());

    a.claim(5_000..5_001);
    until(&mut [&mut a, &mut b], "there", |nodes| {
        nodes[1].entered.contains_key(&record(5_000).key)
    });
    until_caught_up(&mut [&mut a, &mut b]);
    let (of_a, of_b) = (b.status(), a.status());
    assert_eq!((of_a.name.as_str(), of_b.name.as_str()), ("a", "b"));
    assert_eq!((of_a.state, of_b.state), (PeerState::InSync, PeerState::InSync));
    assert_eq!((of_a.counts.snapshots_received, of_b.counts.snapshots_sent), (1, 1));
    assert_eq!(of_b.counts.sent, of_a.counts.received);
    // The last bytes may still be on their way.
    let received_bytes = of_a.counts.received_bytes;
    assert!(received_bytes > 30 * 5_000 && received_bytes <= of_b.counts.sent_bytes, "{of_a:?}");
    assert_eq!((of_b.lag_records, of_b.lag_ms), (0, 0));
    assert_eq!(of_a.last_error, None);
}

#[test]
fn after_a_cut_a_snapshot_has_what_was_claimed_meanwhile() {
    let ([a_at, b_at], mut clusters) = ([free_address(), free_address()], Vec::new());
    let relay = Relay::to(b_at);
    clusters.push(cluster("a", a_at, &[("b", relay.address)]));
    clusters.push(cluster("b", b_at, &[("a", a_at)]));
    let (mut a, mut b) = (Node::start(&clusters[0]), Node::start(&clusters[1]));
    a.claim(0..100);
    until_caught_up(&mut [&mut a, &mut b]);
    a.claim(100..110);
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!(b.entered.len(), 110);

    relay.cut();
    until(&mut [&mut a], "away", |nodes| nodes[0].status().state == PeerState::Away);
    a.claim(110..111);
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!((b.entered.len(), b.status().counts.snapshots_received), (111, 2));
    // Other peers may not have had the latest claims.
    b.inherited.sort_by_key(|key| key.source());
    assert_eq!(b.inherited, (0..110).map(|it| record(it).key).collect::<Vec<_>>());
}

/// It could not enter them when they came.
#[test]
fn a_node_that_rejoins_gets_all_claims_again() {
    let [mut a, mut b] = pair().each_ref().map(Node::start);
    a.claim(0..100);
    until_caught_up(&mut [&mut a, &mut b]);
    b.entered.clear();
    b.sync.rejoin();
    until(&mut [&mut a, &mut b], "snapshots", |nodes| {
        nodes.iter().all(|node| node.status().counts.snapshots_received == 2)
    });
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!(b.entered.len(), 100);
}

#[test]
fn a_node_that_restarts_gets_back_what_its_peers_know_of_it() {
    let [a_is, b_is] = pair();
    let (mut a, mut b) = (Node::start(&a_is), Node::start(&b_is));
    b.claim(0..100);
    until_caught_up(&mut [&mut a, &mut b]);
    drop(b);
    let mut b = Node::start(&b_is);
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!(a.entered.len(), 100);
    assert_eq!(b.entered.len(), 100);
}

#[test]
fn a_queue_that_overflows_is_a_snapshot_again_and_loses_nothing() {
    let [a, b] = pair();
    let (mut a, mut b) = (Node::start(&a), Node::start(&b));
    until_caught_up(&mut [&mut a, &mut b]);
    // The window, the sockets and the other node's imports hold some more.
    b.is_stuck = true;
    let count = 3 * QUEUE_MAX as u32;
    a.claim(0..count);
    let overflowed = a.status();
    assert!(overflowed.counts.overflows > 0, "{overflowed:?}");
    assert!(overflowed.lag_records <= QUEUE_MAX + 16 * 5000, "{overflowed:?}");
    assert!(!overflowed.is_caught_up);
    b.is_stuck = false;
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!(b.entered.len(), count as usize);
    assert!(b.status().counts.snapshots_received >= 2);
}

#[test]
fn changes_that_were_lost_come_by_a_new_snapshot() {
    let [a, b] = pair();
    let (mut a, mut b) = (Node::start(&a), Node::start(&b));
    a.claim(0..10);
    until_caught_up(&mut [&mut a, &mut b]);
    // Its workers had no room to report it.
    a.own.insert(record(10).key, record(10));
    a.sync.resync();
    until(&mut [&mut a, &mut b], "there", |nodes| nodes[1].entered.contains_key(&record(10).key));
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!((b.entered.len(), b.status().counts.snapshots_received), (11, 2));
}

#[test]
fn a_walk_waits_for_room_at_its_peer_and_is_over_with_its_connection() {
    let [a, b] = pair();
    // Nothing is entered there, so no more than a window of frames leaves the queue, about 40,000
    // records.
    let (a, b) = (Node::start(&a), Node::start(&b));
    let mut walk = None;
    until(&mut [], "a snapshot is wanted", |_| {
        walk = a.sync.snapshot_wanted();
        walk.is_some()
    });
    let walk = walk.unwrap();
    assert_eq!(a.sync.has_room_for(walk), Some(true));
    let records: Vec<_> = (0..10_000).map(record).collect();
    let mut page_count = 0;
    while a.sync.has_room_for(walk) == Some(true) {
        a.sync.give_page(walk, &records, false);
        page_count += 1;
        assert!(page_count < 20, "more than it holds");
    }
    assert_eq!(a.sync.has_room_for(walk), Some(false));
    drop(b);
    until(&mut [], "it is over", |_| a.sync.has_room_for(walk).is_none());
}

#[test]
fn a_peer_that_stops_reading_delays_no_other() {
    let [at_a, at_b, at_c] = [(); 3].map(|()| free_address());
    let mut nodes = [
        Node::start(&cluster("a", at_a, &[("b", at_b), ("c", at_c)])),
        Node::start(&cluster("b", at_b, &[("a", at_a), ("c", at_c)])),
        Node::start(&cluster("c", at_c, &[("a", at_a), ("b", at_b)])),
    ];
    let [a, b, c] = &mut nodes;
    until_caught_up(&mut [a, b, c]);
    b.is_stuck = true;
    a.claim(0..2 * QUEUE_MAX as u32);
    until(&mut [a, c], "at c", |nodes| nodes[1].entered.len() == 2 * QUEUE_MAX);
    assert!(!a.sync.status()[0].is_caught_up, "b has entered nothing");
    assert!(a.sync.status()[0].lag_ms > 0);
}

#[test]
fn peers_get_reference_tables_before_the_state_that_names_them() {
    let [a, b] = pair();
    let (mut a, mut b) = (Node::start(&a), Node::start(&b));
    until_caught_up(&mut [&mut a, &mut b]);
    let long = "services ".repeat(30_000);
    for (number, text) in [(3, "short"), (4, &long)] {
        let table = Reference::new(number, text);
        a.sync.set_references(vec![table.clone()]);
        let standing = Standing { in_use: Some(table.digest), ..Standing::default() };
        a.sync.say(NodeState { standing, ..NodeState::default() });
        until(&mut [&mut a, &mut b], "said", |nodes| {
            let status = nodes[1].status();
            let has_said = status.said.is_some_and(|said| said.standing == standing);
            assert!(!has_said || status.references.contains(&table));
            has_said
        });
    }
    assert_eq!(b.status().references.len(), 2);
}

#[test]
fn nobody_at_the_address_and_an_address_that_is_taken_are_said() {
    let [a, b] = pair();
    let mut a = Node::start(&a);
    until_error(&mut a, "refused");
    assert_eq!(a.status().state, PeerState::Away);
    let _taken = TcpListener::bind(b.listen).unwrap();
    let error = Sync::start(&b, &super::nodes::balancer()).unwrap_err().to_string();
    assert!(error.contains("cluster.listen: 127.0.0.1:") && error.contains("free port"), "{error}");
}

#[test]
fn offers_without_a_peer_cost_nothing() {
    let [a, _] = pair();
    let mut a = Node::start(&a);
    a.claim(0..100);
    assert_eq!((a.status().lag_records, a.status().counts.sent), (0, 0));
    assert_eq!(a.sync.snapshot_wanted(), None);
}
