//! Following a store, whatever happens to it.

use super::etcd::Server;
use super::shared;
use hotloop_tests::wait_until;
use ipip_lb::store::etcd::Operation;
use ipip_lb::store::{Pace, StoreWatch};
use std::time::Duration;

/// Waits until this is handed on, and says how many others were before it.
fn wait_for(watch: &StoreWatch, revision: i64, text: &str) -> usize {
    let mut others = 0;
    wait_until("it is handed on", || {
        let Some(stored) = watch.take() else { return false };
        others += usize::from(stored.revision != revision);
        stored.revision == revision && stored.text == text
    });
    others
}

fn pace(again: Duration) -> Pace {
    Pace { again, wait: (Duration::from_millis(10), Duration::from_millis(200)), ..Pace::default() }
}

#[test]
fn a_change_is_handed_on_at_once_and_only_the_newest() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    // Only the watch can tell within the test's time.
    let watch = StoreWatch::start(server.address(), 0, pace(Duration::from_secs(3600))).unwrap();
    wait_until("there is nothing", || watch.state().failure.is_some());
    assert!(watch.state().failure.unwrap().1.contains("has no configuration"));
    let first = server.write(&shared(1));
    assert_eq!(wait_for(&watch, first, &shared(1)), 0);
    assert_eq!((watch.state().revision, watch.state().failure), (first, None));
    for count in 2..10 {
        server.write(&shared(count));
    }
    let last = server.write(&shared(10));
    wait_until("all are seen", || watch.state().revision == last);
    assert_eq!(wait_for(&watch, last, &shared(10)), 0);
    // Whoever knows it already is not handed it again.
    let knows = StoreWatch::start(server.address(), last, pace(Duration::from_secs(3600))).unwrap();
    wait_until("it is read", || knows.state().revision == last);
    assert_eq!(knows.take(), None);
}

#[test]
fn restarts_and_compaction_lose_nothing() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let watch = StoreWatch::start(server.address(), 0, pace(Duration::from_secs(3600))).unwrap();
    for round in 1..4 {
        server.kill();
        wait_until("it is missed", || watch.state().failure.is_some());
        server.restart();
        let revision = server.write(&shared(round));
        wait_for(&watch, revision, &shared(round));
        wait_until("it is found again", || watch.state().failure.is_none());
        // Much happens that the watch is not for, and is forgotten.
        let etcd = server.client();
        for _ in 0..20 {
            etcd.transact(&[], &[Operation::Put("/other", "x")]).unwrap();
        }
        server.compact();
    }
}

#[test]
fn what_no_event_has_said_is_read_within_the_time() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let first = server.write(&shared(1));
    let watch = StoreWatch::start(server.address(), 0, pace(Duration::from_millis(100))).unwrap();
    wait_for(&watch, first, &shared(1));
    // Parts that change without the key that is watched: nothing but reading shows it.
    let etcd = server.client();
    etcd.transact(
        &[],
        &[Operation::Delete(ipip_lb::store::Key::From("/ipip-lb/parts/", "/ipip-lb/parts0"))],
    )
    .unwrap();
    wait_until("it is seen", || watch.state().failure.is_some());
    assert!(watch.state().failure.unwrap().1.contains("its parts are not all there"));
    let second = server.write(&shared(2));
    wait_for(&watch, second, &shared(2));
}
