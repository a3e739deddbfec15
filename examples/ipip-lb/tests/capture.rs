//! Captures of the balancer: records of received packets are as received, whatever happened to the
//! packets since.

use crate::deployed::{Running, in_all, preamble, service};
use hotloop::engine::{Capture, CaptureConfig, Drops, Points, Record};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::stage::tap::TapPoint;
use std::convert::Infallible;
use std::time::Duration;

fn config() -> String {
    format!("{}{}", preamble(""), service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"]))
}

fn request(number: u16) -> PacketBuilder {
    tcp().from(format!("198.51.100.7:{number}")).to("203.0.113.10:80")
}

/// The records, sorted by their bytes: there is no order between cores.
fn taken(running: &mut Running<'_>, capture: &mut Capture) -> Vec<(TapPoint, Vec<u8>)> {
    capture.stop();
    running.advance(Duration::ZERO);
    let mut taken = Vec::new();
    let mut take = |record: &Record<'_>| {
        taken.push((record.point, record.data.to_vec()));
        Ok::<_, Infallible>(())
    };
    while capture.drain(&mut take).unwrap() {}
    assert!(capture.is_over());
    assert_eq!(capture.totals().lost, 0);
    taken.sort_by(|(_, one), (_, other)| one.cmp(other));
    taken
}

fn begin(running: &Running<'_>, points: Points) -> Capture {
    let config = CaptureConfig { points, page_count: 4, ..CaptureConfig::default() };
    running.taps().capture(&config).unwrap()
}

#[test]
fn what_was_received_and_then_encapsulated_reads_as_it_was_received() {
    let frames: Vec<_> = (1..=100).map(|number| request(number).payload([7; 50]).build()).collect();
    let ((received, sent), _) = in_all(&config(), |running| {
        let mut receiving = begin(running, Points::RECEIVE);
        let mut sending = begin(running, Points::SEND);
        // The captures are not read before all packets have left.
        let mut left: Vec<_> = running.feed_spread(&frames);
        left.sort_by(|one, other| one.frame.cmp(&other.frame));
        let received = taken(running, &mut receiving);
        let sent = taken(running, &mut sending);
        let left = left.into_iter().map(|sent| (TapPoint::Send, sent.frame));
        assert_eq!(sent, left.collect::<Vec<_>>());
        (received, sent.len())
    });
    let mut expected: Vec<_> =
        frames.iter().map(|frame| (TapPoint::Receive, frame.clone())).collect();
    expected.sort_by(|(_, one), (_, other)| one.cmp(other));
    assert_eq!((received, sent), (expected, 100));
}

#[test]
fn what_is_dropped_is_captured_by_its_reason() {
    let expired: Vec<_> = (1..=9).map(|number| request(number).ttl(1).build()).collect();
    let strange: Vec<_> = (1..=5).map(|it| request(it).to("203.0.113.10:81").build()).collect();
    let frames: Vec<_> =
        expired.iter().chain(&strange).cloned().chain([request(1).build()]).collect();
    let ((one, all), report) = in_all(&config(), |running| {
        let drops = Drops::For(vec!["no_service".to_owned()]);
        let mut one = begin(running, Points { receive: false, send: false, drops });
        let mut all = begin(running, Points::DROP);
        running.feed_spread(&frames);
        (taken(running, &mut one), taken(running, &mut all))
    });
    let point = |reason, frames: &[Vec<u8>]| {
        frames.iter().map(|frame| (TapPoint::Drop(reason), frame.clone())).collect::<Vec<_>>()
    };
    let sorted = |mut all: Vec<(TapPoint, Vec<u8>)>| {
        all.sort_by(|(_, one), (_, other)| one.cmp(other));
        all
    };
    assert_eq!(one, sorted(point("no_service", &strange)));
    let reasons = [point("ttl_expired", &expired), point("no_service", &strange)].concat();
    assert_eq!(all, sorted(reasons), "{report}");
}
