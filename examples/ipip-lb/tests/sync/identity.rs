//! The connections that a node accepts: certificates, names, versions, and settings that must be
//! equal.

use super::authority::Authority;
use super::nodes::{Node, balancer, cluster, pair, until, until_caught_up, until_error};
use hotloop_cluster::settings::{Cluster, Security};
use hotloop_cluster::sync::wire::{FRAME_BYTES_MAX, Frame, Hello, Message, VERSION, decode};
use hotloop_cluster::sync::{PeerState, Sync};
use hotloop_tests::free_address;
use rcgen::{CertificateParams, date_time_ymd};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Two nodes with certificates of one authority, with the test's changes.
fn secured(change: impl FnOnce(&Path, &Authority, &mut [Cluster; 2])) -> [Node; 2] {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("all nodes");
    let mut clusters = pair();
    for cluster in &mut clusters {
        cluster.security = authority.signed(folder.path(), &cluster.node, &cluster.node, |_| {});
    }
    change(folder.path(), &authority, &mut clusters);
    clusters.each_ref().map(Node::start)
}

#[test]
fn nodes_with_certificates_talk() {
    let [mut a, mut b] = secured(|_, _, _| {});
    a.claim(0..3_000);
    b.claim(10_000..10_020);
    until_caught_up(&mut [&mut a, &mut b]);
    assert_eq!((b.entered.len(), a.entered.len()), (3_000, 20));
}

#[test]
fn a_certificate_for_another_name_is_refused_whoever_connects() {
    let [mut a, mut b] = secured(|folder, authority, clusters| {
        clusters[0].security = authority.signed(folder, "a", "c", |_| {});
    });
    until_error(&mut b, "certificate: for c, not for a");
    until_error(&mut a, "refused by the peer: certificate: for c, not for a");
    assert_eq!((a.status().state, b.status().state), (PeerState::Away, PeerState::Away));

    let [mut a, _b] = secured(|folder, authority, clusters| {
        clusters[1].security = authority.signed(folder, "b", "c", |_| {});
    });
    until_error(&mut a, "certificate: for c, not for b");
}

#[test]
fn an_expired_certificate_and_one_of_another_authority_are_said() {
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let [mut a, _b] = secured(|folder, authority, clusters| {
        clusters[1].security = authority.signed(folder, "b", "b", expired);
    });
    until_error(&mut a, "certificate: expired");
    let [mut a, mut b] = secured(|folder, authority, clusters| {
        clusters[0].security = authority.signed(folder, "a", "a", expired);
    });
    until_error(&mut a, "the peer refuses this node's certificate: it has expired");
    until_error(&mut b, "certificate: expired");
    let [mut a, mut b] = secured(|folder, _, clusters| {
        clusters[1].security = Authority::new("somebody").signed(folder, "b", "b", |_| {});
    });
    until_error(&mut a, "certificate: signed by none of those that cluster.authority holds");
    until_error(&mut b, "the peer refuses this node's certificate: its authority is another");
}

#[test]
fn a_node_without_tls_and_one_with_it_say_so() {
    let [mut a, _b] = secured(|_, _, clusters| clusters[1].security = Security::TrustedNetwork);
    until_error(&mut a, "");
    assert_eq!(a.status().state, PeerState::Away);
    let [_a, mut b] = secured(|_, _, clusters| clusters[0].security = Security::TrustedNetwork);
    until_error(&mut b, "doesn't speak TLS; is trusted_network = true there?");
}

#[test]
fn files_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [mut cluster, _] = pair();
    let sound = Authority::new("all").signed(folder.path(), "a", "a", |_| {});
    let Security::Tls { certificate, key, authority } = sound else { unreachable!() };
    for (file, expected) in [
        (&certificate, "a.pem: has no certificate"),
        (&key, "a.key: has no private key"),
        (&authority, "a.ca: has no certificate"),
    ] {
        let text = fs::read(file).unwrap();
        fs::write(file, "nothing").unwrap();
        let [certificate, key, authority] = [&certificate, &key, &authority].map(Clone::clone);
        cluster.security = Security::Tls { certificate, key, authority };
        let error = Sync::start(&cluster, &balancer()).unwrap_err().to_string();
        assert!(error.starts_with("cluster: ") && error.contains(expected), "{error}");
        fs::write(file, text).unwrap();
    }
}

#[test]
fn other_hash_keys_are_refused_on_both_sides() {
    let [a, b] = pair();
    let mut keyed = balancer();
    keyed.hash_key = Some("00112233445566778899aabbccddeeff".parse().unwrap());
    let mut a = Node::start(&a);
    let mut b = Node::start_with(&b, &keyed);
    let text = "would choose backends differently: write the same balancer.hash_key";
    until_error(&mut b, text);
    until_error(&mut a, text);
}

#[test]
fn a_node_that_is_no_peer_is_refused() {
    let [at_a, at_b] = [free_address(), free_address()];
    let mut a = Node::start(&cluster("a", at_a, &[("b", at_b)]));
    let _b = Node::start(&cluster("b", at_b, &[("c", free_address())]));
    until_error(&mut a, "refused by the peer: a is not in cluster.peers of node b");
    let mut a = Node::start(&cluster("a", free_address(), &[("c", at_b)]));
    until_error(&mut a, "refused by the peer: a is not in cluster.peers of node b");
}

fn greeting(version: u16, node: &str) -> Vec<u8> {
    let hello = Hello { version, node: node.into(), digest: [0; 16] };
    let mut bytes = Vec::new();
    Frame { revision: 0, sequence: 0, message: Message::Hello(hello) }.encode(&mut bytes);
    bytes
}

/// The reason in a refusal that comes over a connection.
fn refusal(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut rest = &bytes[..];
    while let Some((frame, frame_bytes)) = decode(rest, FRAME_BYTES_MAX).unwrap() {
        if let Message::Refusal(reason) = frame.message {
            return reason.to_owned();
        }
        rest = &rest[frame_bytes..];
    }
    panic!("no refusal in {bytes:?}")
}

/// Both sides report it: the one that is asked, and the one that asked, with the reason from the
/// refusal.
#[test]
fn an_older_version_is_refused_whoever_connects_and_the_node_goes_on() {
    let older = VERSION - 1;
    let text = format!(
        "speaks version {VERSION} of the protocol between nodes, and its peer version {older}"
    );
    let [at_b, at_c] = [free_address(), free_address()];
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = [("a", free_address()), ("z", old.local_addr().unwrap()), ("c", at_c)];
    let mut b = Node::start(&cluster("b", at_b, &peers));
    let mut c = Node::start(&cluster("c", at_c, &[("b", at_b)]));

    let mut stream = TcpStream::connect(at_b).unwrap();
    stream.write_all(&greeting(older, "a")).unwrap();
    assert!(refusal(&mut stream).contains(&text));
    until_error(&mut b, &text);

    let (mut stream, _) = old.accept().unwrap();
    stream.write_all(&greeting(older, "z")).unwrap();
    assert!(refusal(&mut stream).contains(&text));
    until(&mut [&mut b], "refused", |nodes| {
        nodes[0].sync.status()[1].last_error.as_ref().is_some_and(|error| error.contains(&text))
    });

    // An older node's message about this one.
    let (mut stream, _) = old.accept().unwrap();
    let mut bytes = Vec::new();
    let message = Message::Refusal("install one release on both");
    Frame { revision: 0, sequence: 0, message }.encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    until(&mut [&mut b], "refused", |nodes| {
        let error = nodes[0].sync.status()[1].last_error.clone();
        error.as_deref() == Some("refused by the peer: install one release on both")
    });

    b.claim(0..10);
    until(&mut [&mut b, &mut c], "at c", |nodes| nodes[1].entered.len() == 10);
}
