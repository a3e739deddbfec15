//! Any sequence of operations on a publisher and its subscribers behaves like a simple model, and
//! every value is freed once, as soon as it is no longer needed.

use hotloop_engine::{Publisher, Subscriber, Subscribers, publish};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const SUBSCRIBER_COUNT: usize = 3;
const OPERATION_COUNT_MAX: usize = 80;

/// Number of times that each value was freed, by the value's number.
type Frees = Arc<[AtomicU32]>;

struct Value {
    number: usize,
    frees: Frees,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.frees[self.number].fetch_add(1, SeqCst);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Publish,
    Collect,
    TakeUp(usize),
    Subscribe,
    DropSubscriber(usize),
    DropPublisher,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Publish),
        4 => Just(Op::Collect),
        12 => (0..2 * SUBSCRIBER_COUNT).prop_map(Op::TakeUp),
        1 => Just(Op::Subscribe),
        1 => (0..2 * SUBSCRIBER_COUNT).prop_map(Op::DropSubscriber),
        1 => Just(Op::DropPublisher),
    ]
}

/// The values of one subscriber, by number.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The value that it reads; `None` once the subscriber is gone.
    current: Option<usize>,
    coming: Option<usize>,
    back: Option<usize>,
    handed_over: usize,
    /// Whether a value was sent and the previous one is not collected yet.
    is_out: bool,
}

impl Lane {
    fn values(&self) -> impl Iterator<Item = usize> {
        [self.current, self.coming, self.back].into_iter().flatten()
    }
}

/// The expected position of every value.
struct Model {
    /// The last published value; `None` once the publisher is gone.
    newest: Option<usize>,
    lanes: Vec<Lane>,
}

impl Model {
    fn collect(&mut self) -> bool {
        let newest = self.newest.expect("there is a publisher");
        for lane in &mut self.lanes {
            if lane.current.is_none() {
                *lane = Lane { handed_over: newest, ..Lane::default() };
                continue;
            }
            lane.is_out &= lane.back.take().is_none();
            if !lane.is_out && lane.handed_over != newest {
                (lane.coming, lane.handed_over, lane.is_out) = (Some(newest), newest, true);
            }
        }
        self.lanes.iter().all(|lane| lane.handed_over == newest && !lane.is_out)
    }

    fn take_up(&mut self, index: usize) -> bool {
        let lane = &mut self.lanes[index];
        let Some(coming) = lane.coming.take() else { return false };
        assert_eq!(lane.back, None, "one value at a time is on its way back");
        lane.back = lane.current.replace(coming);
        true
    }

    fn is_needed(&self, number: usize) -> bool {
        self.newest == Some(number)
            || self.lanes.iter().flat_map(Lane::values).any(|value| value == number)
    }
}

struct Run {
    /// The ends of control and of the factories.
    ends: Option<(Publisher<Value>, Subscribers<Value>)>,
    subscribers: Vec<Option<Subscriber<Value>>>,
    model: Model,
    frees: Frees,
    made_count: usize,
}

impl Run {
    fn new() -> Self {
        let frees: Frees = (0..=OPERATION_COUNT_MAX).map(|_| AtomicU32::new(0)).collect();
        let first = Arc::new(Value { number: 0, frees: Arc::clone(&frees) });
        let (publisher, subscribers) = publish(first);
        let taken = (0..SUBSCRIBER_COUNT).map(|_| Some(subscribers.subscribe())).collect();
        let lane = Lane { current: Some(0), ..Lane::default() };
        let model = Model { newest: Some(0), lanes: vec![lane; SUBSCRIBER_COUNT] };
        let ends = Some((publisher, subscribers));
        Self { ends, subscribers: taken, model, frees, made_count: 1 }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Publish => {
                let Some((publisher, _)) = &mut self.ends else { return };
                let number = self.made_count;
                self.made_count += 1;
                publisher.publish(Arc::new(Value { number, frees: Arc::clone(&self.frees) }));
                self.model.newest = Some(number);
                self.model.collect();
            }
            Op::Collect => {
                let Some((publisher, _)) = &mut self.ends else { return };
                assert_eq!(publisher.collect(), self.model.collect());
            }
            Op::TakeUp(index) => {
                let Some(Some(subscriber)) = self.subscribers.get_mut(index) else { return };
                assert_eq!(subscriber.take_up(), self.model.take_up(index));
            }
            Op::Subscribe => {
                let Some((_, subscribers)) = &self.ends else { return };
                self.subscribers.push(Some(subscribers.subscribe()));
                let newest = self.model.newest.expect("there is a publisher");
                let lane = Lane { current: Some(newest), handed_over: newest, ..Lane::default() };
                self.model.lanes.push(lane);
            }
            Op::DropSubscriber(index) => {
                if index >= self.subscribers.len() {
                    return;
                }
                self.subscribers[index] = None;
                let lane = &mut self.model.lanes[index];
                lane.current = None;
                if self.ends.is_none() {
                    *lane = Lane::default();
                }
            }
            Op::DropPublisher => {
                self.ends = None;
                self.model.newest = None;
                self.model
                    .lanes
                    .iter_mut()
                    .filter(|lane| lane.current.is_none())
                    .for_each(|lane| *lane = Lane::default());
            }
        }
        self.check();
    }

    fn check(&self) {
        for (subscriber, lane) in self.subscribers.iter().zip(&self.model.lanes) {
            let current = subscriber.as_ref().map(|subscriber| subscriber.current().number);
            assert_eq!(current, lane.current);
        }
        for number in 0..self.made_count {
            let expected = u32::from(!self.model.is_needed(number));
            assert_eq!(self.frees[number].load(SeqCst), expected, "value {number}");
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_the_model(ops in prop::collection::vec(op(), 0..OPERATION_COUNT_MAX)) {
        let mut run = Run::new();
        for op in ops {
            run.apply(op);
        }
        let Run { ends, subscribers, frees, made_count, .. } = run;
        drop((ends, subscribers));
        prop_assert!(frees[..made_count].iter().all(|count| count.load(SeqCst) == 1));
    }
}

/// However slow a subscriber is, values that it never saw are freed at once.
#[test]
fn what_is_superseded_before_it_is_handed_over_is_freed() {
    let mut run = Run::new();
    (0..50).for_each(|_| run.apply(Op::Publish));
    let freed_count = run.frees.iter().filter(|count| count.load(SeqCst) == 1).count();
    assert_eq!(freed_count, 51 - 3, "all but the first, the one handed over and the newest");
    for index in 0..SUBSCRIBER_COUNT {
        run.apply(Op::TakeUp(index));
    }
    run.apply(Op::Collect);
    for index in 0..SUBSCRIBER_COUNT {
        run.apply(Op::TakeUp(index));
        assert_eq!(run.subscribers[index].as_ref().unwrap().current().number, 50);
    }
    assert!(run.ends.as_mut().unwrap().0.collect());
}
