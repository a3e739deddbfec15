//! Certificates and authorities that are replaced while nodes run.

use super::authority::Authority;
use super::nodes::{Node, pair, record, until, until_caught_up, until_error};
use hotloop_cluster::settings::{Cluster, Security};
use hotloop_cluster::sync::PeerState;
use rcgen::{CertificateParams, date_time_ymd};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// Two nodes with replaceable files.
struct Nodes {
    folder: TempDir,
    clusters: [Cluster; 2],
    nodes: [Node; 2],
    /// Number of connections that the first has claimed, and ended.
    claim_count: u32,
}

const A: usize = 0;
const B: usize = 1;

impl Nodes {
    /// Starts them with certificates of this authority; they are in sync, and know a thousand
    /// connections.
    fn start(authority: &Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut clusters = pair();
        for cluster in &mut clusters {
            cluster.security =
                authority.signed(folder.path(), &cluster.node, &cluster.node, |_| {});
        }
        let nodes = clusters.each_ref().map(Node::start);
        let mut nodes = Self { folder, clusters, nodes, claim_count: 0 };
        nodes.nodes[B].claim(100_000..100_500);
        nodes.check_in_sync();
        nodes
    }

    /// Writes a certificate of this authority, and a new key; the file of authorities stays.
    fn sign(&self, node: usize, by: &Authority, change: impl FnOnce(&mut CertificateParams)) {
        let name = &self.clusters[node].node;
        let trusted = fs::read(self.file(node, "ca")).unwrap();
        by.signed(self.folder.path(), name, name, change);
        fs::write(self.file(node, "ca"), trusted).unwrap();
    }

    fn trust(&self, node: usize, authorities: &[&Authority]) {
        let pem: String = authorities.iter().map(|it| it.pem.as_str()).collect();
        fs::write(self.file(node, "ca"), pem).unwrap();
    }

    fn file(&self, node: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{kind}", self.clusters[node].node))
    }

    /// Does a reload. Returns whether anything was new.
    fn reload(&mut self, node: usize) -> Result<bool, String> {
        let sync = &mut self.nodes[node].sync;
        let renewed = sync.tls().unwrap().renewed(&self.clusters[node])?;
        let is_new = renewed.is_some();
        renewed.into_iter().for_each(|tls| sync.renew(tls));
        Ok(is_new)
    }

    /// Loads the new certificates of a node, and waits until its connection has ended.
    fn renew(&mut self, node: usize) {
        let Self { nodes: [a, b], .. } = self;
        let before = [a, b].map(|node| node.status().counts.snapshots_received);
        assert_eq!(self.reload(node), Ok(true));
        let Self { nodes: [a, b], .. } = self;
        until(&mut [a, b], "made anew", |nodes| {
            let after = |index: usize| nodes[index].status().counts.snapshots_received;
            after(A) > before[A] && after(B) > before[B]
        });
    }

    /// Checks that later changes at either node reach the other, and no earlier one is lost.
    fn check_in_sync(&mut self) {
        let Self { nodes: [a, b], claim_count, .. } = self;
        a.claim(*claim_count..*claim_count + 500);
        *claim_count += 500;
        let own_count = a.own.len();
        until(&mut [a, b], "in sync", |nodes| {
            nodes[B].entered.len() == own_count
                && nodes[B].entered.contains_key(&record(*claim_count - 1).key)
        });
        until_caught_up(&mut [a, b]);
        assert!(b.entered.keys().all(|key| a.own.contains_key(key)));
        assert_eq!(a.entered.len(), b.own.len());
    }

    fn snapshot_counts(&self) -> [u64; 2] {
        self.nodes.each_ref().map(|node| node.status().counts.snapshots_received)
    }
}

#[test]
fn a_new_certificate_of_the_same_authority_is_taken_and_nothing_is_lost() {
    let authority = Authority::new("all nodes");
    let mut nodes = Nodes::start(&authority);
    for node in [A, B] {
        nodes.sign(node, &authority, |params| params.not_after = date_time_ymd(2040, 1, 1));
        nodes.renew(node);
        nodes.check_in_sync();
        // 2040-01-01, by date(1).
        assert_eq!(nodes.nodes[node].sync.tls().unwrap().not_after(), Some(2_208_988_800));
    }
}

#[test]
fn files_that_say_the_same_change_nothing() {
    let mut nodes = Nodes::start(&Authority::new("all nodes"));
    let before = nodes.snapshot_counts();
    assert_eq!((nodes.reload(A), nodes.reload(B)), (Ok(false), Ok(false)));
    nodes.check_in_sync();
    assert_eq!(nodes.snapshot_counts(), before);
}

#[test]
fn a_new_authority_comes_in_steps_and_nodes_are_in_sync_after_each() {
    let [old, new] = ["old", "new"].map(Authority::new);
    let mut nodes = Nodes::start(&old);
    for node in [A, B] {
        nodes.trust(node, &[&old, &new]);
        nodes.renew(node);
        nodes.check_in_sync();
    }
    for node in [B, A] {
        nodes.sign(node, &new, |_| {});
        nodes.renew(node);
        nodes.check_in_sync();
    }
    for node in [A, B] {
        nodes.trust(node, &[&new]);
        nodes.renew(node);
        nodes.check_in_sync();
    }
}

/// Whichever of the two connects.
#[test]
fn a_certificate_of_an_authority_that_is_taken_out_is_refused_from_then_on() {
    for (first, last) in [(A, B), (B, A)] {
        let [old, new] = ["old", "new"].map(Authority::new);
        let mut nodes = Nodes::start(&old);
        nodes.trust(last, &[&old, &new]);
        nodes.renew(last);
        nodes.sign(first, &new, |_| {});
        nodes.trust(first, &[&new]);
        assert_eq!(nodes.reload(first), Ok(true));
        until_error(
            &mut nodes.nodes[first],
            "certificate: signed by none of those that cluster.authority holds",
        );
        until_error(
            &mut nodes.nodes[last],
            "the peer refuses this node's certificate: its authority is another",
        );
        assert_eq!(nodes.nodes.each_ref().map(|node| node.status().state), [PeerState::Away; 2]);
        nodes.sign(last, &new, |_| {});
        assert_eq!(nodes.reload(last), Ok(true));
        nodes.check_in_sync();
    }
}

#[test]
fn what_no_peer_would_accept_is_refused_with_its_file_and_what_is_in_force_stays() {
    let authority = Authority::new("all nodes");
    let mut nodes = Nodes::start(&authority);
    let before = nodes.snapshot_counts();
    let sound = ["pem", "key", "ca"].map(|kind| {
        let path = nodes.file(A, kind);
        (fs::read(&path).unwrap(), path)
    });
    let refused = |nodes: &mut Nodes, expected: &[&str]| {
        let error = nodes.reload(A).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        nodes.check_in_sync();
        sound.iter().for_each(|(text, path)| fs::write(path, text).unwrap());
    };

    for (kind, expected) in [
        ("pem", "a.pem: has no certificate; write"),
        ("key", "a.key: has no private key; write"),
        ("ca", "a.ca: has no certificate; write"),
    ] {
        fs::write(nodes.file(A, kind), "nothing").unwrap();
        refused(&mut nodes, &[expected]);
        fs::remove_file(nodes.file(A, kind)).unwrap();
        refused(&mut nodes, &[&format!("a.{kind}: "), "No such file"]);
    }
    // The certificate is there already, and its key is not.
    nodes.sign(A, &authority, |_| {});
    fs::write(&sound[1].1, &sound[1].0).unwrap();
    refused(
        &mut nodes,
        &["a.pem: not for the key in ", "a.key; write a certificate and its own key"],
    );

    nodes.sign(A, &authority, |params| params.not_after = date_time_ymd(2020, 1, 1));
    refused(
        &mut nodes,
        &["a.pem: certificate: expired ", "; write a certificate that peers accept"],
    );
    let other = CertificateParams::new(vec!["b".to_owned()]).unwrap();
    nodes.sign(A, &authority, |params| params.subject_alt_names = other.subject_alt_names);
    refused(&mut nodes, &["a.pem: certificate: for b, not for a; write"]);
    nodes.sign(A, &Authority::new("somebody"), |_| {});
    refused(&mut nodes, &["a.pem: certificate: signed by none of those that cluster.authority"]);
    nodes.trust(A, &[&Authority::new("somebody")]);
    refused(&mut nodes, &["a.pem: certificate: signed by none of those that cluster.authority"]);

    assert_eq!(nodes.reload(A), Ok(false));
    assert_eq!(nodes.snapshot_counts(), before);
}

#[test]
fn a_node_that_trusts_its_network_has_no_certificate() {
    let [cluster, _] = pair();
    assert_eq!(cluster.security, Security::TrustedNetwork);
    assert!(Node::start(&cluster).sync.tls().is_none());
}
