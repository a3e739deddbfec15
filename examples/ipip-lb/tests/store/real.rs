//! A reading returns exactly the written text, whatever else happens.

use super::etcd::{PATIENCE, Server};
use super::shared;
use hotloop_cluster::settings::StoreAddress;
use hotloop_cluster::store::etcd::{Bounds, Condition, Etcd, Operation};
use hotloop_cluster::store::layout::{read, read_at};
use hotloop_cluster::store::phases::Outcome;
use hotloop_cluster::store::{Key, StoreErrorKind, WatchEvent};
use std::time::Duration;

#[test]
fn a_thousand_services_are_read_as_they_were_written() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    assert_eq!(read(&etcd).unwrap().stored, None);
    let (first, second) = (shared(1000), shared(999));
    let one = server.write(&first);
    let stored = read(&etcd).unwrap().stored.unwrap();
    assert_eq!((stored.revision, &stored.text), (one, &first));
    // Nothing is left of the first but its history, until it is compacted.
    let two = server.write(&second);
    assert!(two > one);
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, second);
    assert_eq!(read_at(&etcd, one).unwrap().stored.unwrap().text, first);
    let keys = etcd.page(Key::From("/", "0"), 0, 10_000).unwrap().values;
    assert_eq!(keys.len(), 1 + 1 + 999);
    assert!(keys[2].key.ends_with("/000001-service-web0"), "{}", keys[2].key);
    server.compact();
    assert_eq!(read_at(&etcd, one).unwrap_err().kind(), StoreErrorKind::Compacted);
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, second);
}

#[test]
fn of_two_that_write_at_once_one_is_refused_and_leaves_nothing() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    let (first, other) = (shared(3), shared(4));
    let one = server.write(&first);
    for replaces in [0, one - 1] {
        let outcome = server.propose(&other, replaces, (false, PATIENCE)).outcome;
        assert_eq!(outcome, Outcome::Conflict(one));
    }
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, first);
    assert_eq!(etcd.page(Key::From("/", "0"), 0, 100).unwrap().values.len(), 1 + 4);
    // The next commit deletes an interrupted operator's remains.
    etcd.transact(&[], &[Operation::Put("/ipip-lb/parts/0/000000-rest", "x")]).unwrap();
    etcd.transact(&[], &[Operation::Put("/ipip-lb/parts/g/000000-rest", "x")]).unwrap();
    server.write(&other);
    assert_eq!(etcd.page(Key::From("/", "0"), 0, 100).unwrap().values.len(), 1 + 5);
}

#[test]
fn what_is_not_a_configuration_is_refused() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    let current = |value: &str| {
        etcd.transact(&[], &[Operation::Put("/ipip-lb/current", value)]).unwrap();
        read(&etcd).unwrap_err()
    };
    for value in [
        "",
        "[]",
        "{\"generation\":\"/\",\"parts\":1,\"bytes\":1}",
        "{\"generation\":\"0\",\"parts\":1,\"bytes\":1}",
        "{\"generation\":\"0\",\"parts\":1,\"bytes\":1000000000000}",
    ] {
        let error = current(value);
        assert_eq!(error.kind(), StoreErrorKind::Content, "{error}");
        assert!(error.to_string().contains("apply a configuration"), "{error}");
    }
    // etcd itself refuses a value that is too long.
    let long = "x".repeat(1_600_000);
    let error = etcd.transact(&[], &[Operation::Put("/a", &long)]).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("request is too large"), "{error}");
}

/// Checks that a watch from after `one`, the current revision, sees the next, and then ends in time.
/// Returns the next revision, of `shared(2)`.
pub fn changes_are_seen(server: &Server, etcd: &Etcd, one: i64) -> i64 {
    let key = Key::One("/ipip-lb/current");
    let mut watch = etcd.watch(key, one + 1, Duration::from_secs(60)).unwrap();
    assert_eq!(watch.wait().unwrap(), WatchEvent::Begun);
    let two = server.write(&shared(2));
    assert_eq!(watch.wait().unwrap(), WatchEvent::Changed);
    let mut short = etcd.watch(key, two + 1, Duration::from_millis(300)).unwrap();
    assert_eq!(short.wait().unwrap(), WatchEvent::Begun);
    assert_eq!(short.wait().unwrap(), WatchEvent::Over);
    two
}

#[test]
fn a_watch_sees_changes_and_says_when_it_began_too_early() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    let one = server.write(&shared(1));
    let key = Key::One("/ipip-lb/current");
    changes_are_seen(&server, &etcd, one);
    server.compact();
    let mut early = etcd.watch(key, one, Duration::from_secs(60)).unwrap();
    let compacted = early.wait().and_then(|_| early.wait()).unwrap_err();
    assert_eq!(compacted.kind(), StoreErrorKind::Compacted);
}

#[test]
fn a_lease_that_is_not_kept_alive_takes_its_keys_with_it() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    let lease = etcd.grant(600).unwrap();
    let put = Operation::PutLeased("/node", "a", lease);
    let new = Condition::ChangedAt("/node", 0);
    assert!(etcd.transact(&[new], &[put]).unwrap().0);
    assert!(!etcd.transact(&[new], &[put]).unwrap().0);
    assert!(etcd.transact(&[Condition::Exists("/node")], &[]).unwrap().0);
    assert_eq!(etcd.keep_alive(lease).unwrap(), 600);
    etcd.revoke(lease).unwrap();
    assert!(!etcd.transact(&[Condition::Exists("/node")], &[]).unwrap().0);
    assert_eq!(etcd.keep_alive(lease).unwrap(), 0);
}

#[test]
fn a_member_that_is_down_costs_nothing_but_time() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let live = server.address();
    let both: StoreAddress = format!("etcd://127.0.0.1:1,{}", live.endpoints()[0]).parse().unwrap();
    let etcd = Etcd::new(both, Bounds::default()).unwrap();
    assert_eq!(read(&etcd).unwrap().stored, None);
    server.write(&shared(2));
    server.kill();
    let error = read(&etcd).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    let text = error.to_string();
    assert!(text.contains("start etcd, or name its members"), "{text}");
    assert!(text.contains("127.0.0.1:1: ") && text.contains(&live.endpoints()[0]), "{text}");
    server.restart();
    assert_eq!(read(&etcd).unwrap().stored.unwrap().text, shared(2));
}
