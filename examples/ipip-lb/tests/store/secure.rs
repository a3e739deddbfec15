//! A real etcd that requires client certificates, and users.

use super::etcd::{PATIENCE, Server, USER};
use super::node::{Node, wait_for};
use super::real::changes_are_seen;
use super::shared;
use hotloop_cluster::settings::{StoreAccess, StoreTls};
use hotloop_cluster::store::etcd::{Bounds, Etcd, Operation};
use hotloop_cluster::store::layout::read;
use hotloop_cluster::store::{Key, StoreErrorKind, WatchEvent};
use hotloop_tests::wait_until;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `ipip-lb cluster` with these arguments: its exit code, standard output and standard error.
fn cluster(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    let output = command.current_dir(folder).arg("cluster").args(args).output().unwrap();
    super::change::said(&output)
}

#[test]
fn a_secure_etcd_is_read_and_written_and_only_below_the_prefix() {
    let mut server = match Server::start_secure() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    assert_eq!(read(&etcd).unwrap().stored, None);
    let one = server.write(&shared(3));
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, shared(3));
    let key = Key::One("/ipip-lb/current");
    let two = changes_are_seen(&server, &etcd, one);

    let error = etcd.transact(&[], &[Operation::Put("/other", "x")]).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Access, "{error}");
    assert!(error.to_string().contains("permission denied; grant the user's role"), "{error}");
    let refused = etcd.watch(Key::One("/other"), 0, PATIENCE).unwrap().wait().unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");

    // After a restart, no token is valid any more.
    server.restart();
    let mut refused = etcd.watch(key, two + 1, PATIENCE).unwrap();
    let error = refused.wait().unwrap_err();
    assert!(error.to_string().contains("invalid auth token"), "{error}");
    let mut watch = etcd.watch(key, two + 1, PATIENCE).unwrap();
    assert_eq!(watch.wait().unwrap(), WatchEvent::Begun);
    server.restart();
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, shared(2));
    let refused = |access: StoreAccess| {
        read(&Etcd::new(access, Bounds::default()).unwrap()).unwrap_err().to_string()
    };
    let error = refused(StoreAccess { tls: None, ..server.access() });
    assert!(error.contains("write store_authority"), "{error}");
    let tls = server.access().tls.unwrap();
    let (certificate, key) = tls.certificate.clone().unwrap();
    let named = (certificate.with_file_name("named.pem"), key.with_file_name("named.key"));
    for (certificate, expected) in [
        (Some(named), "write a store_certificate without a Common Name"),
        (None, "client certificate"),
    ] {
        let tls = Some(StoreTls { certificate, ..tls.clone() });
        let error = refused(StoreAccess { tls, ..server.access() });
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn nodes_and_commands_use_it_with_their_files() {
    let mut server = match Server::start_secure() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let first = server.write(&shared(1));
    let node = Node::start(&server, "a");
    wait_for(&node.program, first, 1);
    let folder = node.folder.path();
    fs::write(folder.join("lb.toml"), shared(2)).unwrap();
    let apply = ["apply", "--config", "lb.toml", "--node", "node.toml"];
    let (code, said, errors) = cluster(folder, &apply);
    assert_eq!(code, Some(0), "{errors}");
    let second = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    wait_for(&node.program, second, 2);

    server.restart();
    let third = server.write(&shared(3));
    wait_for(&node.program, third, 3);
    wait_until("all is well", || node.store()["failure"].is_null());

    let (address, tls) = (server.address().to_string(), server.access().tls.unwrap());
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = tls.certificate.unwrap();
    let [authority, certificate, key] = [&tls.authority, &certificate, &key].map(|it| text(it));
    let password = text(&tls.user.unwrap().password_file);
    let mut show = vec!["show", "--store", &address, "--store-authority", &authority];
    show.extend(["--store-certificate", &certificate, "--store-key", &key]);
    let (code, _, errors) = cluster(folder, &show);
    assert!(code == Some(2) && errors.contains("write store_user"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    show.extend(["--store-user", USER, "--store-password-file", &password]);
    let (code, said, errors) = cluster(folder, &show);
    assert_eq!((code, said), (Some(0), shared(3)), "{errors}");
    fs::write(&password, "wrong").unwrap();
    let (code, _, errors) = cluster(folder, &show);
    assert!(code == Some(2) && errors.contains("authentication failed"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    // TLS and a user belong together.
    let (code, _, errors) = cluster(folder, &["show", "--store", &address, "--store-user", USER]);
    assert!(code == Some(2) && errors.contains("--store-authority"), "{errors}");
}
