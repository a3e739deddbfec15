//! Following a store through all of its failures.

use super::etcd::Server;
use super::shared;
use hotloop_cluster::store::etcd::Operation;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::store::{Key, Pace, StoreWatch, Task};
use hotloop_tests::wait_until;
use std::sync::Arc;
use std::time::Duration;

/// Waits until the watch returns this configuration, and returns the number of earlier ones.
/// Proposals get no answer.
fn wait_for(watch: &StoreWatch, revision: i64, text: &str) -> usize {
    let mut others = 0;
    wait_until("it is handed on", || {
        let Some(Task::Adopt(stored)) = watch.take() else { return false };
        others += usize::from(stored.revision != revision);
        stored.revision == revision && stored.text == text
    });
    others
}

/// A node that reads on its own only after `again`.
fn pace(again: Duration) -> Pace {
    let wait = (Duration::from_millis(10), Duration::from_millis(200));
    Pace { again, wait, lease_s: 3600, ..Pace::default() }
}

fn follow(server: &Server, in_force: Option<Arc<Stored>>, again: Duration) -> StoreWatch {
    StoreWatch::start(server.address(), "a", in_force, pace(again)).unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_change_is_handed_on_at_once_and_only_the_newest() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    // Only the watch can report it within the test's time.
    let watch = follow(&server, None, HOUR);
    wait_until("there is nothing", || watch.state().failure.is_some());
    assert!(watch.state().failure.unwrap().1.contains("has no configuration"));
    let first = server.force(&shared(1));
    assert_eq!(wait_for(&watch, first, &shared(1)), 0);
    assert_eq!((watch.state().revision, watch.state().failure), (first, None));
    for count in 2..10 {
        server.force(&shared(count));
    }
    let last = server.force(&shared(10));
    wait_until("all are seen", || watch.state().revision == last);
    assert_eq!(wait_for(&watch, last, &shared(10)), 0);
    // A node that has it already doesn't get it again.
    let name = server.address().to_string();
    let known = |text| Some(Arc::new(Stored { name: name.clone(), revision: last, text }));
    let knows = follow(&server, known(shared(10)), HOUR);
    wait_until("it is read", || knows.state().revision == last);
    assert_eq!(knows.take(), None);
    // A restored store may have another text under the same revision.
    let knows = follow(&server, known(shared(9)), HOUR);
    assert_eq!(wait_for(&knows, last, &shared(10)), 0);
}

#[test]
fn restarts_and_compaction_lose_nothing() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let watch = follow(&server, None, HOUR);
    for round in 1..4 {
        server.kill();
        wait_until("it is missed", || watch.state().failure.is_some());
        server.restart();
        let revision = server.force(&shared(round));
        wait_for(&watch, revision, &shared(round));
        wait_until("it is found again", || watch.state().failure.is_none());
        // Many changes outside the watch happen, and are compacted.
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
    let first = server.force(&shared(1));
    let watch = follow(&server, None, Duration::from_millis(100));
    wait_for(&watch, first, &shared(1));
    // An operator restores by hand the earlier value of `current`, whose parts are gone.
    let etcd = server.client();
    let before = etcd.page(Key::One("/ipip-lb/current"), 0, 1).unwrap().values.remove(0).value;
    let second = server.force(&shared(2));
    wait_for(&watch, second, &shared(2));
    etcd.transact(&[], &[Operation::Put("/ipip-lb/current", &before)]).unwrap();
    wait_until("it is seen", || watch.state().failure.is_some());
    assert!(watch.state().failure.unwrap().1.contains("its parts are not all there"));
    let third = server.force(&shared(3));
    wait_for(&watch, third, &shared(3));
    wait_until("all is well again", || watch.state().failure.is_none());
}
