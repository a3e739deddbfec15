//! VIPs of a node while its configuration changes.

use super::etcd::Server;
use super::node::{run, start, status, write_node};
use super::shared;
use crate::namespace::routes;
use hotloop_cluster::store::etcd::Operation;
use hotloop_cluster::store::{Generation, layout};
use hotloop_tests::network::Network;
use hotloop_tests::{Program, wait_until};
use std::fs;
use std::path::Path;

/// Configures the node of that name among two nodes, which share their connections.
fn write_peered(folder: &Path, server: &Server, name: &str, more: &str) {
    write_node(folder, &server.access(), name);
    let file = folder.join("node.toml");
    let peers = "[cluster]\ntrusted_network = true\n\
                 peers = [{ name = \"a\", address = \"127.0.0.1:4790\" }, \
                 { name = \"b\", address = \"127.0.0.1:4791\" }]\n";
    let text = fs::read_to_string(&file).unwrap().replace("[cluster]\n", peers);
    fs::write(file, text + more).unwrap();
}

#[test]
fn vips_stay_announced_while_a_revision_comes_into_force_prepared_or_not() {
    let _network = match Network::with_ipv6() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let first = server.write(&shared(1));
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = [folders[0].path(), folders[1].path()];
    write_peered(one, &server, "a", "");
    let announce = "[announce]\nvips = \"ready\"\ninterface = \"vips0\"\nlinger_ms = 3000\n";
    write_peered(other, &server, "b", announce);
    let peer = start(one);
    let program = Program::start(run(other), &other.join("lb.sock"));
    let revision = || status(&program)["store"]["revision"].clone();
    let vips = |count: usize| (1..=count).map(|it| format!("203.0.0.{it}")).collect::<Vec<_>>();
    wait_until("its VIP is announced", || routes() == vips(1));

    // The node switches to a prepared change without a withdrawal.
    let second = server.write(&shared(2));
    wait_until("its VIPs are announced", || {
        assert!(!routes().is_empty());
        routes() == vips(2)
    });
    assert!(revision() == second && second > first);

    // An operator puts an unprepared configuration in force.
    let (etcd, text) = (server.client(), shared(3));
    let generation = Generation::write(&etcd, "3", &layout::split(&text).unwrap()).unwrap();
    let current = generation.pointer();
    etcd.transact(&[], &[Operation::Put("/ipip-lb/current", &current)]).unwrap();
    // Connections don't depend on how nodes come to a configuration.
    wait_until("its VIPs are announced", || {
        assert!(!routes().is_empty());
        routes() == vips(3)
    });
    assert_eq!(status(&program)["services"], 3);
    drop(peer);
}
