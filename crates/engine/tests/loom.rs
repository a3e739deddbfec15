//! Every interleaving of a publisher and a subscriber. Loom reports a value that is freed while the
//! other thread may still read it, and an `Arc` that is never dropped.
#![cfg(loom)]

use hotloop_engine::{Publisher, Subscriber, publish};
use hotloop_ring::planted;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Value {
    /// Changed as the value is freed, which loom refuses while a read may be on its way.
    number: AtomicUsize,
}

impl Value {
    fn of(number: usize) -> Arc<Self> {
        Arc::new(Self { number: AtomicUsize::new(number) })
    }

    fn number(&self) -> usize {
        self.number.load(Relaxed)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.number.with_mut(|number| *number = usize::MAX);
    }
}

/// All interleavings with up to this many preemptions: with threads that wait for each other in
/// loops, complete coverage takes more than a minute.
fn explore(preemption_bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemption_bound);
    builder.check(model);
}

fn pair() -> (Publisher<Value>, Subscriber<Value>) {
    let (publisher, subscribers) = publish(Value::of(0));
    (publisher, subscribers.subscribe())
}

/// Polls this many times, and reads its value each time.
fn look(subscriber: &mut Subscriber<Value>, look_count: usize) {
    let mut last = subscriber.current().number();
    for _ in 0..look_count {
        let has_taken = subscriber.take_up();
        let now = subscriber.current().number();
        assert_eq!(has_taken, now > last);
        assert!(now >= last);
        last = now;
    }
}

/// The subscriber reaches the newest of three, while the publisher takes back and frees.
fn follow() {
    let (mut publisher, mut subscriber) = pair();
    let follower = thread::spawn(move || {
        while subscriber.current().number() < 2 {
            look(&mut subscriber, 1);
            thread::yield_now();
        }
        subscriber
    });
    publisher.publish(Value::of(1));
    publisher.publish(Value::of(2));
    while !publisher.collect() {
        thread::yield_now();
    }
    let subscriber = follower.join().unwrap();
    assert_eq!(subscriber.current().number(), 2);
}

/// The publisher is dropped while the subscriber polls.
fn leave_publisher() {
    let (mut publisher, mut subscriber) = pair();
    let follower = thread::spawn(move || look(&mut subscriber, 2));
    publisher.publish(Value::of(1));
    publisher.collect();
    drop(publisher);
    follower.join().unwrap();
}

/// The subscriber is dropped while the publisher publishes.
fn leave_subscriber() {
    let (mut publisher, mut subscriber) = pair();
    let follower = thread::spawn(move || look(&mut subscriber, 1));
    publisher.publish(Value::of(1));
    publisher.publish(Value::of(2));
    while !publisher.collect() {
        thread::yield_now();
    }
    follower.join().unwrap();
}

/// A core subscribes while the publisher publishes: it starts with either value, and reaches the
/// newest.
fn join() {
    let (mut publisher, subscribers) = publish(Value::of(0));
    let follower = thread::spawn(move || {
        let mut subscriber = subscribers.subscribe();
        drop(subscribers);
        while subscriber.current().number() < 1 {
            look(&mut subscriber, 1);
            thread::yield_now();
        }
        subscriber
    });
    publisher.publish(Value::of(1));
    let subscriber = follower.join().unwrap();
    assert_eq!(subscriber.current().number(), 1);
    assert!(publisher.collect());
}

#[test]
fn a_subscriber_follows() {
    explore(4, follow);
}

#[test]
fn a_core_may_join_while_values_are_published() {
    explore(4, join);
}

#[test]
fn the_publisher_may_go_first() {
    explore(5, leave_publisher);
}

#[test]
fn the_subscriber_may_go_first() {
    explore(4, leave_subscriber);
}

/// The models detect errors: without the order that a ring guarantees for its values, a value is
/// read before it is there, or freed while it is read.
#[test]
fn a_missing_order_is_found() {
    for name in ["show_record", "see_record"] {
        planted::weaken(Some(name));
        let explored = catch_unwind(AssertUnwindSafe(|| explore(3, follow)));
        planted::weaken(None);
        assert!(explored.is_err(), "`{name}` may be relaxed, or nothing notices");
    }
}
