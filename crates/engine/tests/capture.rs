//! Captures of a running engine: their contents, their losses, and how they end.

use hotloop_engine::{
    Assembly, Capture, CaptureConfig, CaptureError, Chain, Deployment, Drops, Engine, Graph,
    Points, Record, SNAP_BYTES_MAX, source,
};
use hotloop_stage::tap::{Filter, Seen, TapPoint};
use hotloop_stage::{
    Burst, Carries, Cx, Error, Instant, Sink, Source, Stage, Verdict, drop_reasons,
};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant as Moment};

/// A packet in two segments: its number, and a tail of its number modulo 100 bytes.
struct Frame {
    head: [u8; 8],
    tail: Vec<u8>,
}

impl Frame {
    fn new(number: u64) -> Self {
        let head = number.to_be_bytes();
        Self { head, tail: vec![head[7]; number as usize % 100] }
    }

    const fn number(&self) -> u64 {
        u64::from_be_bytes(self.head)
    }
}

impl Carries for Frame {
    fn bytes(&self) -> &[u8] {
        &self.head
    }

    fn total_bytes(&self) -> usize {
        8 + self.tail.len()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        take(&self.head);
        take(&self.tail);
    }
}

/// Yields `count` numbered packets; the boundary's cores are distinguished by the number.
struct Numbers {
    next: u64,
    end: u64,
}

impl Source for Numbers {
    type Item = Frame;

    fn poll(&mut self, burst: &mut Burst<Frame>) -> usize {
        let count = (burst.room() as u64).min(self.end - self.next);
        burst.extend((self.next..self.next + count).map(Frame::new));
        self.next += count;
        count as usize
    }

    fn finished(&self) -> bool {
        self.next == self.end
    }
}

drop_reasons! { enum ThirdDrop { Third = "third", Seventh = "seventh" } }

/// Drops each third packet and each seventh, and complements the others.
struct Thin;

impl Stage<Frame> for Thin {
    type Out = Frame;
    type Drop = ThirdDrop;

    fn packet(&mut self, cx: &mut Cx<'_, ThirdDrop>, mut frame: Frame) -> Verdict<Frame> {
        match frame.number() {
            number if number % 3 == 0 => cx.drop(frame, ThirdDrop::Third),
            number if number % 7 == 0 => cx.drop(frame, ThirdDrop::Seventh),
            _ => {
                frame.head.iter_mut().for_each(|byte| *byte = !*byte);
                Ok(frame)
            }
        }
    }
}

/// Takes all packets except every eleventh, which it leaves for ever.
#[derive(Default)]
struct Taker(Arc<AtomicU64>);

impl Sink for Taker {
    type Item = Frame;

    fn send(&mut self, burst: &mut Burst<Frame>) -> usize {
        let mut count = 0;
        while burst.as_slice().first().is_some_and(|frame| !frame.number() % 11 != 0) {
            burst.pop();
            count += 1;
        }
        self.0.fetch_add(count as u64, Relaxed);
        count
    }
}

fn graph(count: u64) -> impl Graph {
    source(move |_| Ok::<_, Infallible>(Numbers { next: 0, end: count }))
        .stage(|_| Thin)
        .sink(|_| Ok::<_, Infallible>(Taker::default()))
}

/// One record of a capture: the point, the number and the bytes.
type Copied = (TapPoint, Vec<u8>, u32);

fn drain(capture: &mut Capture) -> Vec<Copied> {
    let mut copied = Vec::new();
    let mut take = |record: &Record<'_>| {
        copied.push((record.point, record.data.to_vec(), record.total_bytes));
        Ok::<_, Infallible>(())
    };
    while capture.drain(&mut take).unwrap() {}
    copied
}

fn whole(number: u64, is_sent: bool) -> Vec<u8> {
    let Frame { mut head, tail } = Frame::new(number);
    if is_sent {
        head.iter_mut().for_each(|byte| *byte = !*byte);
    }
    [head.as_slice(), &tail].concat()
}

const COUNT: u64 = 5000;

/// Steps until the source has ended, with `work` after every turn.
fn step_all(assembly: &mut Assembly<'_>, mut work: impl FnMut()) {
    while !assembly.is_exhausted() {
        assembly.step(0, Instant::from_ns(1));
        work();
    }
    assembly.step(0, Instant::from_ns(2));
}

fn plan_and<R>(count: u64, work: impl FnOnce(&mut Assembly<'_>) -> R) -> R {
    let plan = Engine::plan(graph(count), Deployment::run_to_completion(1)).unwrap();
    let mut assembly = plan.assemble().unwrap();
    let result = work(&mut assembly);
    let report = assembly.finish(Instant::from_ns(3));
    assert_eq!(report.received, report.sent + report.dropped.values().sum::<u64>(), "{report}");
    result
}

fn way_of(number: u64) -> Option<TapPoint> {
    match number {
        number if number.is_multiple_of(3) => Some(TapPoint::Drop("third")),
        number if number.is_multiple_of(7) => Some(TapPoint::Drop("seventh")),
        _ => None,
    }
}

#[test]
fn a_capture_equals_what_passed() {
    let copied = plan_and(COUNT, |assembly| {
        let config = CaptureConfig { points: Points::ALL, ..CaptureConfig::default() };
        let mut capture = assembly.taps().capture(&config).unwrap();
        step_all(assembly, || ());
        capture.stop();
        assembly.step(0, Instant::from_ns(2));
        // Long after the packets have been changed, sent and freed.
        let copied = drain(&mut capture);
        assert!(capture.is_over());
        assert_eq!((capture.totals().lost, capture.totals().filtered), (0, 0));
        assert_eq!(capture.totals().seen, copied.len() as u64);
        copied
    });
    let of = |wanted: fn(TapPoint) -> bool| {
        let of = copied.iter().filter(move |(point, ..)| wanted(*point));
        of.map(|(point, data, total)| {
            assert_eq!(data.len(), *total as usize);
            (*point, data.clone())
        })
        .collect::<Vec<_>>()
    };
    let received: Vec<_> =
        (0..COUNT).map(|number| (TapPoint::Receive, whole(number, false))).collect();
    assert!(of(|point| point == TapPoint::Receive) == received);
    let sent = (0..COUNT).filter(|number| way_of(*number).is_none());
    let sent: Vec<_> = sent.map(|number| (TapPoint::Send, whole(number, true))).collect();
    assert!(of(|point| point == TapPoint::Send) == sent);
    let dropped = (0..COUNT).filter_map(|number| Some((way_of(number)?, whole(number, false))));
    let dropped: Vec<_> = dropped.collect();
    let by_stage = |point| matches!(point, TapPoint::Drop("third" | "seventh"));
    assert!(of(by_stage) == dropped);
    // A packet that the sink leaves holds up the packets after it in its burst.
    assert!(of(|point| point == TapPoint::Drop("tx_full")).len() > 100);
}

/// Wants even numbers.
struct Even;

impl Filter for Even {
    fn select(&self, packets: &[Seen<'_>]) -> u64 {
        let bits = packets.iter().enumerate();
        bits.map(|(index, seen)| u64::from(seen.bytes[7].is_multiple_of(2)) << index).sum()
    }
}

#[test]
fn filter_reason_snap_length_and_sampling_choose() {
    plan_and(COUNT, |assembly| {
        let drops = Drops::For(vec!["seventh".to_owned()]);
        let config = CaptureConfig {
            points: Points { receive: false, send: false, drops },
            filter: Some(Arc::new(Even)),
            snap_bytes: 12,
            sample: 4,
            ..CaptureConfig::default()
        };
        let mut capture = assembly.taps().capture(&config).unwrap();
        step_all(assembly, || ());
        capture.stop();
        assembly.step(0, Instant::from_ns(2));
        let seen: Vec<_> = (0..COUNT)
            .filter(|number| way_of(*number) == Some(TapPoint::Drop("seventh")))
            .collect();
        let wanted: Vec<_> = seen.iter().filter(|number| number.is_multiple_of(2)).collect();
        let copied = drain(&mut capture);
        let expected = wanted.iter().step_by(4).map(|&&number| {
            let whole = whole(number, false);
            let total = whole.len() as u32;
            (TapPoint::Drop("seventh"), whole[..whole.len().min(12)].to_vec(), total)
        });
        assert_eq!(copied, expected.collect::<Vec<_>>());
        let totals = capture.totals();
        assert_eq!(totals.seen, seen.len() as u64);
        assert_eq!(totals.filtered, (seen.len() - wanted.len()) as u64);
        assert_eq!(totals.left_out, (wanted.len() - copied.len()) as u64);
        assert_eq!(totals.lost, 0);
    });
}

#[test]
fn a_capture_that_nobody_drains_loses_records_and_no_packets() {
    let count = 50_000;
    plan_and(count, |assembly| {
        let config =
            CaptureConfig { points: Points::RECEIVE, page_count: 2, ..CaptureConfig::default() };
        let mut capture = assembly.taps().capture(&config).unwrap();
        step_all(assembly, || ());
        capture.stop();
        assembly.step(0, Instant::from_ns(2));
        let copied = drain(&mut capture);
        let totals = capture.totals();
        assert_eq!(totals.seen, count);
        assert_eq!(totals.lost + copied.len() as u64, count);
        assert!(totals.lost > 0 && copied.len() > 1000, "{totals:?}");
        // The copied records are the first ones, whole.
        let first = (0..copied.len() as u64).map(|number| whole(number, false));
        assert!(copied.iter().map(|(_, data, _)| data.clone()).eq(first));
    });
}

#[test]
fn a_drained_capture_gets_its_pages_again_and_again() {
    let count = 50_000;
    plan_and(count, |assembly| {
        let config =
            CaptureConfig { points: Points::RECEIVE, page_count: 2, ..CaptureConfig::default() };
        let mut capture = assembly.taps().capture(&config).unwrap();
        let mut copied = Vec::new();
        step_all(assembly, || copied.extend(drain(&mut capture)));
        capture.stop();
        assembly.step(0, Instant::from_ns(2));
        copied.extend(drain(&mut capture));
        assert_eq!(capture.totals().lost, 0);
        let all = (0..count).map(|number| whole(number, false));
        assert!(copied.iter().map(|(_, data, _)| data.clone()).eq(all));
    });
}

#[test]
fn several_captures_run_at_a_time_and_numbers_come_back() {
    plan_and(COUNT, |assembly| {
        let taps = assembly.taps();
        let config = CaptureConfig { page_count: 2, ..CaptureConfig::default() };
        for _ in 0..3 {
            let mut captures: Vec<_> = (0..8).map(|_| taps.capture(&config).unwrap()).collect();
            assert_eq!(taps.capture(&config).unwrap_err(), CaptureError::TooMany);
            assembly.step(0, Instant::from_ns(1));
            captures.iter_mut().for_each(Capture::stop);
            assert!(captures.iter().all(|capture| !capture.is_over()));
            assert_eq!(taps.capture(&config).unwrap_err(), CaptureError::TooMany);
            assembly.step(0, Instant::from_ns(1));
            for capture in &mut captures {
                let copied = drain(capture);
                assert!(capture.is_over());
                assert_eq!(
                    copied.iter().filter(|(point, ..)| *point == TapPoint::Receive).count(),
                    64
                );
            }
        }
    });
}

#[test]
fn what_there_is_not_is_named() {
    plan_and(COUNT, |assembly| {
        let taps = assembly.taps();
        let refused = |config: CaptureConfig| taps.capture(&config).unwrap_err().to_string();
        let default = CaptureConfig::default;
        assert_eq!(
            refused(CaptureConfig { core: Some(1), ..default() }),
            "there is no worker 1: there are 1, numbered from 0"
        );
        let points = Points { drops: Drops::For(vec!["thrid".to_owned()]), ..Points::RECEIVE };
        assert_eq!(
            refused(CaptureConfig { points, ..default() }),
            "nothing is dropped as \"thrid\"; packets may be dropped as seventh, third, tx_full, \
             tx_refused"
        );
        for snap_bytes in [0, SNAP_BYTES_MAX + 1] {
            assert!(refused(CaptureConfig { snap_bytes, ..default() }).contains("snap length"));
        }
        assert!(refused(CaptureConfig { sample: 0, ..default() }).contains("sampling"));
        assert!(refused(CaptureConfig { page_count: 1, ..default() }).contains("pages"));
    });
}

/// Yields packets until the engine stops.
struct Endless(u64);

impl Source for Endless {
    type Item = Frame;

    fn poll(&mut self, burst: &mut Burst<Frame>) -> usize {
        let count = burst.room().min(8);
        burst.extend((self.0..self.0 + count as u64).map(Frame::new));
        self.0 += count as u64;
        count
    }
}

fn endless(deployment: Deployment, control: impl FnOnce(&hotloop_engine::Control<'_>)) {
    let graph = source(|_| Ok::<_, Error>(Endless(0)))
        .stage(|_| Thin)
        .shard_by(|frame| frame.number() as u32)
        .sink(|_| Ok::<_, Error>(Taker::default()));
    let plan = Engine::plan(graph, deployment).unwrap();
    let report = plan.run(control).unwrap();
    assert!(report.received > 0);
}

fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Moment::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Moment::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn cores_on_threads_are_captured_again_and_again() {
    for deployment in [Deployment::run_to_completion(2), Deployment::pipeline([1, 1])] {
        endless(deployment, |control| {
            for round in 0..5 {
                let config = CaptureConfig { points: Points::ALL, ..CaptureConfig::default() };
                let mut capture = control.taps().capture(&config).unwrap();
                let points = [const { Cell::new(0_u64) }; 3];
                let mut count = |record: &Record<'_>| {
                    assert_eq!(record.data.len(), record.total_bytes as usize);
                    let point = match record.point {
                        TapPoint::Receive => 0,
                        TapPoint::Send => 1,
                        TapPoint::Drop(_) => 2,
                    };
                    points[point].set(points[point].get() + 1);
                    Ok::<_, Infallible>(())
                };
                within("some of each", || {
                    capture.drain(&mut count).unwrap();
                    points.iter().all(|count| count.get() > 1000)
                });
                capture.stop();
                within("the end", || {
                    capture.drain(&mut count).unwrap();
                    capture.is_over()
                });
                let totals = capture.totals();
                assert_eq!(
                    totals.seen,
                    points.iter().map(Cell::get).sum::<u64>() + totals.lost,
                    "{round}"
                );
            }
        });
    }
}

#[test]
fn a_capture_outlives_the_run_and_still_has_what_was_copied() {
    let mut left = None;
    endless(Deployment::run_to_completion(1), |control| {
        let config = CaptureConfig { points: Points::RECEIVE, ..CaptureConfig::default() };
        let capture = control.taps().capture(&config).unwrap();
        within("a packet", || capture.totals().seen > 0);
        left = Some((capture, control.taps()));
    });
    let (mut capture, taps) = left.unwrap();
    let copied = drain(&mut capture);
    assert!(capture.is_over() && !copied.is_empty());
    assert_eq!(copied.len() as u64 + capture.totals().lost, capture.totals().seen);
    let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let ns = capture.epoch_offset_ns();
    assert!(day.as_nanos().cast_signed() - ns < 60_000_000_000, "{ns}");
    // Nothing is left to capture, and the capture soon shows it.
    assert!(taps.capture(&CaptureConfig::default()).unwrap().is_over());
}
