//! The backend of a new connection.

use super::{WEB, client_of, segment, syns, web};
use crate::deployed::sent::backends;
use crate::deployed::{Running, assert_dropped, in_all, in_both, preamble, service};
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::tcp::flags::ACK;
use hotloop_balancer::services::Found;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

const FIVE: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];

#[test]
fn maglev_spreads_flows_by_weight_and_the_deployments_agree() {
    let config = preamble("") + &web("scheduler = \"maglev\"", &["10.0.0.1*3", "10.0.0.2"]);
    let (chosen, report) = in_all(&config, |lb| backends(&lb.feed_spread(&syns(0..2000))));
    assert_dropped(&report, &[]);
    let first = chosen.iter().filter(|it| *it == "10.0.0.1").count();
    assert!((1400..1600).contains(&first), "{first} of 2000 to three quarters of the weight");
}

#[test]
fn balancers_of_one_configuration_agree_whatever_they_remember() {
    let config = preamble("") + &web("", &FIVE);
    // One balancer has seen the connections begin, the other takes over in their midst, in another
    // order.
    let (begun, _) = in_all(&config, |lb| backends(&lb.feed_spread(&syns(0..500))));
    let (taken_over, _) = in_all(&config, |lb| {
        let frames: Vec<_> = (0..500).rev().map(|client| segment(client, ACK)).collect();
        let mut taken_over = backends(&lb.feed_spread(&frames));
        taken_over.reverse();
        taken_over
    });
    assert_eq!(begun, taken_over);
    assert_eq!(begun.iter().collect::<HashSet<_>>().len(), 5);
}

#[test]
fn all_five_fields_decide_for_maglev() {
    let config = preamble("") + &service("any", "203.0.113.0/24 any any", "", &FIVE);
    let (_, _) = in_all(&config, |lb| {
        let mut distinct = |of: &dyn Fn(u16) -> Vec<u8>| {
            let all: HashSet<_> = (1..60).map(|it| lb.backend(of(it))).collect();
            assert!(all.len() >= 4, "{all:?}");
        };
        distinct(&|it| tcp().from(format!("100.64.0.{it}:7")).to(WEB).build());
        distinct(&|it| tcp().from(format!("100.64.0.1:{it}")).to(WEB).build());
        distinct(&|it| tcp().from("100.64.0.1:7").to(format!("203.0.113.{it}:7")).build());
        distinct(&|it| tcp().from("100.64.0.1:7").to(format!("203.0.113.10:{it}")).build());
        let by_protocol = (1..60_u16).filter(|it| {
            let ends = (format!("100.64.1.1:{it}"), "203.0.113.10:7");
            lb.backend(tcp().from(&ends.0).to(ends.1)) != lb.backend(udp().from(&ends.0).to(ends.1))
        });
        assert!(by_protocol.count() > 20);
    });
}

/// The backends of each worker's connections, in order of their beginning, which is the clients'
/// order.
fn by_worker(lb: &mut Running<'_>, clients: std::ops::Range<u16>) -> Vec<Vec<String>> {
    let connections = lb.connections();
    let mut known = HashMap::new();
    for (worker, key, connection) in &connections {
        let Found::Active(target) = lb.handles.services.target(connection.target) else {
            panic!("{connection:?}");
        };
        known.insert(key.source().to_string(), (*worker, target.address().to_string()));
    }
    let mut by_worker = vec![Vec::new(); lb.deployment.cores_in(1)];
    for client in clients {
        let client = client_of(client);
        let (worker, backend) = known[client.split_once(':').expect("a port").0].clone();
        by_worker[worker].push(backend);
    }
    by_worker
}

#[test]
fn round_robin_takes_weighted_turns_by_worker() {
    let config = preamble("")
        + &web("scheduler = \"round-robin\"", &["10.0.0.1*5", "10.0.0.2*1", "10.0.0.3*1"]);
    let (workers, [report, _]) = in_both(&config, 2, |lb| {
        let sent = lb.feed(&syns(0..400));
        assert_eq!(sent.len(), 400);
        by_worker(lb, 0..400)
    });
    assert_dropped(&report, &[]);
    // Spread evenly, with the heavy backend as seldom in a row as possible.
    let round = [1, 1, 2, 1, 3, 1, 1].map(|it| format!("10.0.0.{it}"));
    for turns in workers {
        assert!(turns.len() > 100);
        assert!(turns.iter().zip(round.iter().cycle()).all(|(turn, expected)| turn == expected));
    }
}

#[test]
fn round_robin_takes_turns_for_each_service() {
    let keys = "scheduler = \"round-robin\"";
    let config = preamble("")
        + &service("a", "203.0.113.10 udp 1", keys, &FIVE[..2])
        + &service("b", "203.0.113.10 udp 2", keys, &FIVE[..2]);
    let (_, _) = in_both(&config, 1, |lb| {
        let to = |client: u16, port: u16| {
            udp().from(client_of(client)).to(format!("203.0.113.10:{port}")).build()
        };
        let frames: Vec<_> = (0..8).flat_map(|it| [to(it, 1), to(it, 2)]).collect();
        let expected = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"];
        assert_eq!(backends(&lb.feed(&frames)), [expected; 4].concat());
    });
}

#[test]
fn least_connections_goes_where_there_are_fewest_for_the_weight_by_worker() {
    let backends = ["10.0.0.1*2", "10.0.0.2", "10.0.0.3*3"];
    let config = preamble("") + &web("scheduler = \"least-connections\"", &backends);
    let (workers, [report, _]) = in_both(&config, 2, |lb| {
        lb.feed(&syns(0..300));
        by_worker(lb, 0..300)
    });
    assert_dropped(&report, &[]);
    for chosen in workers {
        assert!(chosen.len() > 60);
        let mut counts = [0_u32; 3];
        for backend in chosen {
            let load = |it: usize| f64::from(counts[it]) / [2.0, 1.0, 3.0][it];
            let least = (0..3).min_by(|a, b| load(*a).total_cmp(&load(*b))).unwrap();
            assert_eq!(backend, FIVE[least], "{counts:?}");
            counts[least] += 1;
        }
    }
}

#[test]
fn least_connections_counts_those_that_ended_no_more() {
    let keys = "scheduler = \"least-connections\"";
    let config = preamble("timeouts_s = { udp = 10 }")
        + &service("dns", "203.0.113.10 udp 53", keys, &FIVE[..2]);
    let (_, _) = in_both(&config, 1, |lb| {
        let query = |client| udp().from(client_of(client)).to("203.0.113.10:53").build();
        let first: Vec<_> = (0..20).map(query).collect();
        let chosen = backends(&lb.feed(&first));
        // The second backend's connections continue, the others fall silent.
        for _ in 0..2 {
            lb.advance(Duration::from_secs(6));
            let second = first.iter().zip(&chosen).filter(|(_, it)| *it == "10.0.0.2");
            lb.feed(&second.map(|(frame, _)| frame.clone()).collect::<Vec<_>>());
        }
        // Control learns of it, too, after the tables were walked.
        for _ in 0..600 {
            lb.advance(Duration::ZERO);
        }
        let sent = lb.feed(&(100..110).map(query).collect::<Vec<_>>());
        assert_eq!(backends(&sent), ["10.0.0.1"; 10]);
        assert_eq!(lb.count(|it| it.connection_count()), 20);
    });
}

/// A new connection of each of these clients, from this port.
fn new_connections(port: u16, clients: std::ops::Range<u16>) -> Vec<Vec<u8>> {
    let one = |client: u16| {
        let client = client_of(client).replace(":4000", &format!(":{port}"));
        tcp().from(client).to(WEB).build()
    };
    clients.map(one).collect()
}

#[test]
fn source_gives_a_client_one_backend_by_its_address_alone() {
    let config = preamble("") + &web("scheduler = \"source\"", &FIVE);
    let (chosen, report) = in_all(&config, |lb| {
        let chosen = backends(&lb.feed_spread(&new_connections(1, 0..300)));
        for port in [2, 80, 65535] {
            assert_eq!(backends(&lb.feed_spread(&new_connections(port, 0..300))), chosen);
        }
        chosen
    });
    assert_dropped(&report, &[]);
    let mut counts = BTreeMap::new();
    chosen.into_iter().for_each(|backend| *counts.entry(backend).or_insert(0) += 1);
    assert!(counts.len() == 5 && counts.values().all(|count| *count > 30), "{counts:?}");
}

/// The choice of a balancer with these backends that has never seen the clients.
fn chosen_afresh(keys: &str, backends_now: &[&str]) -> Vec<String> {
    let config = preamble("") + &web(keys, backends_now);
    in_all(&config, |lb| backends(&lb.feed_spread(&new_connections(1, 0..100)))).0
}

#[test]
fn source_without_persistence_follows_the_backends_at_once() {
    let keys = "scheduler = \"source\"";
    let config = |count: usize| preamble("") + &web(keys, &FIVE[..count]);
    let expected = chosen_afresh(keys, &FIVE);
    let (chosen, _) = in_all(&config(2), |lb| {
        lb.feed_spread(&new_connections(1, 0..100));
        lb.configure(&config(5));
        backends(&lb.feed_spread(&new_connections(2, 0..100)))
    });
    assert_eq!(chosen, expected);
}

#[test]
fn source_with_persistence_keeps_a_clients_backend_for_that_long_after_its_last_new_connection() {
    let keys = "scheduler = \"source\"\npersistence_s = 100";
    let config = |count: usize| preamble("") + &web(keys, &FIVE[..count]);
    let expected = chosen_afresh(keys, &FIVE);
    let (_, report) = in_all(&config(2), |lb| {
        let kept = backends(&lb.feed_spread(&new_connections(1, 0..100)));
        assert_ne!(kept, expected);
        lb.configure(&config(5));
        // Each new connection extends it; packets of the old ones do not.
        for port in 2..5 {
            lb.advance(Duration::from_millis(99_900));
            assert_eq!(backends(&lb.feed_spread(&new_connections(port, 0..100))), kept);
        }
        let acks: Vec<_> = (0..100).map(|client| segment(client, ACK)).collect();
        lb.feed_spread(&acks);
        lb.advance(Duration::from_secs(50));
        lb.feed_spread(&acks);
        lb.advance(Duration::from_secs(50));
        assert_eq!(backends(&lb.feed_spread(&new_connections(9, 0..100))), expected);
    });
    assert_dropped(&report, &[]);
}

#[test]
fn source_with_persistence_does_not_keep_a_backend_that_takes_no_new_connections() {
    let keys = "scheduler = \"source\"\npersistence_s = 1000\n\
                health = { kind = \"tcp\", port = 80 }";
    let config = preamble("") + &web(keys, &FIVE[..3]);
    let (_, _) = in_all(&config, |lb| {
        let first = backends(&lb.feed_spread(&new_connections(1, 0..100)));
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 3);
        lb.weigh("web", "10.0.0.1", 0);
        lb.set_health("web", "10.0.0.2", false);
        let second = backends(&lb.feed_spread(&new_connections(2, 0..100)));
        assert!(second.iter().all(|it| it == "10.0.0.3"));
        // The clients keep these from now on.
        lb.set_health("web", "10.0.0.2", true);
        lb.weigh("web", "10.0.0.1", 1);
        assert_eq!(backends(&lb.feed_spread(&new_connections(3, 0..100))), second);
    });
}

#[test]
fn a_service_without_backends_drops_as_no_backend() {
    for scheduler in ["maglev", "round-robin", "least-connections", "source"] {
        let keys = format!("scheduler = \"{scheduler}\"");
        let config = preamble("")
            + &service("none", "203.0.113.10 tcp 80", &keys, &[])
            + &service("weightless", "203.0.113.11 tcp 80", &keys, &["10.0.0.1*0", "10.0.0.2*0"]);
        let (_, report) = in_all(&config, |lb| {
            lb.none(segment(1, ACK));
            lb.none(tcp().from(client_of(2)).to(WEB));
            lb.none(tcp().from(client_of(3)).to("203.0.113.11:80"));
            assert_eq!((lb.admitted(), lb.connections().len()), (0, 0));
        });
        assert_dropped(&report, &[("no_backend", 3)]);
    }
}
