//! Connections of other nodes of a cluster.

use crate::deployed::{assert_dropped, in_all, preamble, service};
use hotloop::packet::build::tcp;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::tcp::flags::ACK;
use hotloop_agreement::Birth;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Change, Record};
use std::net::SocketAddr;

const VIPS: [&str; 2] = ["203.0.113.10:80", "[2001:db8:f::10]:80"];
const BACKENDS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

fn client(vip: &str, number: usize) -> String {
    match vip.starts_with('[') {
        true => format!("[2001:db8:c::{number}]:4000"),
        false => format!("198.51.100.{number}:4000"),
    }
}

/// On whichever worker has the flow.
#[test]
fn a_connection_of_another_node_goes_to_the_backend_that_this_one_says() {
    let config = preamble("")
        + &service("v4", "203.0.113.10 tcp 80", "", &BACKENDS)
        + &service("v6", "2001:db8:f::10 tcp 80", "", &BACKENDS);
    let (_, report) = in_all(&config, |lb| {
        let all = VIPS.into_iter().flat_map(|vip| (1..=60).map(move |number| (vip, number)));
        let claims = all.clone().map(|(vip, number)| {
            let [client, vip]: [SocketAddr; 2] =
                [&client(vip, number), vip].map(|it| it.parse().unwrap());
            let key = FlowKey::new(client, vip, 6).unwrap();
            let backend = BACKENDS[number % 3].parse().unwrap();
            let state = State::Established;
            let (birth, left_ms) = (Birth::new(5), 500_000);
            Change::Claim(Record { key, backend, state, birth, left_ms })
        });
        lb.import(&claims.collect::<Vec<_>>());
        assert_eq!((lb.exceptions.stale_count(), lb.exceptions.refused_count()), (0, 0));
        assert_eq!(lb.connections().len(), 120);
        assert!(lb.connections().iter().all(|(_, _, connection)| connection.is_remote()));
        for (vip, number) in all {
            let segment = tcp().from(client(vip, number)).to(vip).tcp_flags(ACK);
            assert_eq!(lb.backend(segment), BACKENDS[number % 3], "{vip} {number}");
        }
        assert_eq!((lb.connections().len(), lb.admitted()), (120, 0));
        assert!(lb.connections().iter().all(|(_, _, connection)| !connection.is_remote()));
        assert_eq!(lb.changes(), [], "other nodes know nothing else");
    });
    assert_dropped(&report, &[]);
}
