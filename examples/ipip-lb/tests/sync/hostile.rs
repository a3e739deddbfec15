//! Input from strangers on the port, and from peers with a certificate: nothing changes, and memory
//! stays bounded.

use super::authority::Authority;
use super::nodes::{Node, cluster, digest, pair, record, until, until_caught_up};
use hotloop::testing::Rng;
use hotloop_cluster::settings::Security;
use hotloop_cluster::sync::PeerState;
use hotloop_cluster::sync::wire::{Frame, Gathered, Hello, Message, VERSION};
use hotloop_tests::free_address;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

fn frame(sequence: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { revision: 0, sequence, message }.encode(&mut bytes);
    bytes
}

/// A greeting by `a`: with the right digest, it is accepted.
fn hello(digest: [u8; 16]) -> Vec<u8> {
    let node = "a".to_owned();
    frame(0, Message::Hello(Hello { version: VERSION, node, digest }))
}

/// First bytes of all kinds.
fn first_bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match rng.index(6) {
        0 => (0..rng.index(2000)).map(|_| rng.next_u64() as u8).collect(),
        1 => u32::MAX.to_be_bytes().to_vec(),
        2 => [&0xFFF0_u32.to_be_bytes()[..], &[7; 70_000]].concat(),
        3 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        // The beginning of a TLS handshake message of 16 KB.
        4 => [&[0x16, 3, 1, 0x40, 0, 1, 0, 0x3F, 0xF0][..], &[3; 9000]].concat(),
        _ => hello([0; 16]),
    };
    for _ in 0..rng.index(4) {
        if !bytes.is_empty() {
            let at = rng.index(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
    }
    bytes.truncate(1 + rng.index(bytes.len().max(1)));
    bytes
}

/// Sends bytes, and sometimes waits for the answer.
fn send(to: SocketAddr, bytes: &[u8], kept: &mut Vec<TcpStream>, rng: &mut Rng) {
    let Ok(mut stream) = TcpStream::connect(to) else { return };
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let _ = stream.write_all(bytes);
    if rng.permille(300) {
        let _ = stream.read(&mut [0; 100]);
    }
    if rng.permille(500) {
        kept.push(stream);
    }
}

/// The memory of this process in use, in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn strangers(mut a: Node, mut b: Node, b_is: SocketAddr) {
    a.claim(0..100);
    until_caught_up(&mut [&mut a, &mut b]);
    let mut rng = Rng::seeded(14);
    let mut kept = Vec::new();
    let mut send_some = |count| {
        for _ in 0..count {
            send(b_is, &first_bytes(&mut rng), &mut kept, &mut rng);
            // The process may have 1,024 files.
            if kept.len() > 300 {
                kept.drain(..100);
            }
        }
    };
    send_some(500);
    let before_kib = resident_kib();
    send_some(3_000);
    let grown_kib = resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 50 * 1024, "{grown_kib} KiB");
    let before = b.status();
    assert_eq!((before.state, before.counts.received), (PeerState::InSync, 100), "{before:?}");
    a.claim(100..200);
    until(&mut [&mut a, &mut b], "at b", |nodes| nodes[1].entered.len() == 200);
    assert_eq!(b.status().counts.snapshots_received, 1, "the session went on");
}

/// Runs a test in its own process, since tests running in parallel would add to the memory measured here.
fn in_own_process(name: &str, test: impl FnOnce()) {
    const IS_CHILD: &str = "HOTLOOP_TEST_IS_CHILD";
    if env::var_os(IS_CHILD).is_some() {
        return test();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let name = format!("sync::hostile::{name}");
    let output = command.args(["--exact", &name]).env(IS_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn strangers_change_nothing_and_cost_little() {
    in_own_process("strangers_change_nothing_and_cost_little", || {
        let [a_is, b_is] = pair();
        strangers(Node::start(&a_is), Node::start(&b_is), b_is.listen);
    });
}

#[test]
fn strangers_change_nothing_where_nodes_have_certificates() {
    in_own_process("strangers_change_nothing_where_nodes_have_certificates", || {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("all");
        let mut clusters = pair();
        for cluster in &mut clusters {
            let node = &cluster.node;
            cluster.security = authority.signed(folder.path(), node, node, |_| {});
        }
        let [a, b] = clusters.each_ref().map(Node::start);
        strangers(a, b, clusters[1].listen);
    });
}

/// A peer that is accepted, but sends bytes that no node sends: its session ends, and nothing else
/// happens.
#[test]
fn hostile_bytes_of_a_peer_with_a_certificate_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("all");
    let [at_b, at_c] = [free_address(), free_address()];
    let mut secured = [
        cluster("b", at_b, &[("a", free_address()), ("c", at_c)]),
        cluster("c", at_c, &[("b", at_b)]),
    ];
    for cluster in &mut secured {
        cluster.security = authority.signed(folder.path(), &cluster.node, &cluster.node, |_| {});
    }
    let evil = authority.signed(folder.path(), "a", "a", |_| {});
    let [mut b, mut c] = secured.each_ref().map(Node::start);
    c.claim(0..100);
    let is_there = |nodes: &[&mut Node]| nodes[0].entered.len() == 100;
    until(&mut [&mut b, &mut c], "at b", is_there);

    let (client, digest) = (client(&evil), digest());
    let mut rng = Rng::seeded(14);
    let before_kib = resident_kib();
    for _ in 0..150 {
        let name = ServerName::try_from("b").unwrap();
        let tls = ClientConnection::new(Arc::clone(&client), name).unwrap();
        let mut stream = StreamOwned::new(tls, TcpStream::connect(at_b).unwrap());
        stream.sock.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
        let greeted = stream.write_all(&hello(digest)).and_then(|()| stream.flush());
        let refused = greeted.is_err() || stream.read(&mut [0; 1000]).is_err();
        assert!(!refused, "a certificate of the authority is let in");
        let _ = stream.write_all(&later_bytes(&mut rng)).and_then(|()| stream.flush());
        b.turn();
        c.turn();
    }
    let grown_kib = resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 50 * 1024, "{grown_kib} KiB");
    c.claim(100..200);
    until(&mut [&mut b, &mut c], "at b", |nodes| {
        (0..200).all(|number| nodes[0].entered.contains_key(&record(number).key))
    });
    assert_eq!(b.sync.status()[1].counts.snapshots_received, 1, "the session went on");
    assert_eq!(b.entered.len(), 200, "nothing of the other was entered");
}

/// Bytes that no node sends after its greeting.
fn later_bytes(rng: &mut Rng) -> Vec<u8> {
    let mut gathered = Gathered::default();
    gathered.push(&record(7777));
    let claims = || frame(9, Message::Claims(gathered.claims()));
    match rng.index(9) {
        0 => u32::MAX.to_be_bytes().to_vec(),
        1 => hello([0; 16]),
        2 => frame(u64::MAX, Message::Ack),
        3 => frame(1, Message::SnapshotEnd),
        4 => frame(77, Message::SnapshotBegin),
        5 => frame(0, Message::Refusal("because")),
        6 => {
            let mut bytes = claims();
            let at = bytes.len() - 27;
            bytes[at] = 0x1F;
            bytes
        }
        // Eight frames should have come before it.
        7 => claims(),
        _ => claims()[..20].to_vec(),
    }
}

fn client(security: &Security) -> Arc<ClientConfig> {
    let Security::Tls { certificate, key, authority } = security else { unreachable!() };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let config = ClientConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    Arc::new(config)
}
