//! Packets of health checks through the tunnels: they leave like clients' packets, and replies are
//! taken out of the traffic.

use super::{WEB, web};
use crate::deployed::{BACKENDS_MAC, OWN_MAC, Running, assert_dropped, in_both, preamble};
use hotloop::packet::build::{tcp, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, SYN};

const PROBE_SOURCE: &str = "192.0.2.9:40000";

fn config() -> String {
    format!(
        "[health]\nprobe_source = [\"192.0.2.9\"]\n{}{}",
        preamble(""),
        web("health = { kind = \"tcp\", via = \"tunnel\" }", &["10.0.0.1"])
    )
}

/// The packets received for health checks.
fn received(lb: &mut Running<'_>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let channel = lb.handles.probe_channel.as_mut().expect("a probe source is configured");
    channel.receive(|frame| frames.push(frame.to_vec()));
    frames
}

fn send(lb: &mut Running<'_>, flow: u16, frame: &[u8]) {
    lb.handles.probe_channel.as_mut().expect("a probe source is configured").send(flow, frame);
}

#[test]
fn probes_leave_by_the_port_towards_backends_and_are_created() {
    let (_, [report, _]) = in_both(&config(), 2, |lb| {
        let probe = tcp().from(PROBE_SOURCE).to(WEB).tunnelled("192.0.2.1", "10.0.0.1").build();
        for flow in 0..40 {
            send(lb, flow, &probe);
        }
        // A worker sends a few in each turn.
        let sent: Vec<_> = (0..10).flat_map(|_| lb.feed(&[])).collect();
        assert_eq!(sent.len(), 40);
        for sent in sent {
            assert!(!sent.to_client);
            assert_eq!(sent.frame[..12], [BACKENDS_MAC, OWN_MAC].concat());
            assert_eq!(sent.frame[12..], probe[12..]);
        }
    });
    assert_eq!((report.received, report.created, report.sent), (0, 40, 40));
}

#[test]
fn replies_to_the_probe_source_are_handed_over_and_counted() {
    let (_, [report, _]) = in_both(&config(), 2, |lb| {
        assert_eq!(received(lb), Vec::<Vec<u8>>::new(), "and there is room from now on");
        lb.feed(&[]);
        let reply = || tcp().from(WEB).to(PROBE_SOURCE).tcp_flags(SYN | ACK);
        let probe = tcp().from(PROBE_SOURCE).to(WEB).tunnelled("192.0.2.1", "10.0.0.1").build();
        let refused = unreachable(&probe).from("10.0.0.1").to("192.0.2.1").build();
        lb.none(reply());
        assert_eq!(received(lb), [reply().build()], "by direct return");
        lb.none(reply().tunnelled("10.0.0.1", "192.0.2.1"));
        assert_eq!(received(lb).len(), 1, "by the return path");
        lb.none(refused.clone());
        assert_eq!(received(lb), [refused]);
        // Packets for others are not taken.
        lb.none(udp().from("10.0.0.1:1").to("192.0.2.10:1"));
        assert_eq!(received(lb).len(), 0);
    });
    assert_dropped(&report, &[("probe_reply", 3), ("punt", 1)]);
}

#[test]
fn a_flood_of_replies_is_dropped_and_delays_nothing() {
    let (_, [report, _]) = in_both(&config(), 1, |lb| {
        received(lb);
        lb.feed(&[]);
        let flood: Vec<_> = (0..1000)
            .map(|port| tcp().from(WEB).to(format!("192.0.2.9:{}", 1 + port)).build())
            .collect();
        assert_eq!(lb.feed(&flood), []);
        lb.one(tcp().from("198.51.100.7:1").to(WEB));
        assert_eq!(received(lb).len(), 128);
        // There is room again, and a packet longer than a buffer is lost.
        lb.feed(&[]);
        lb.none(flood[0].clone());
        lb.none(udp().from(WEB).to(PROBE_SOURCE).payload([0; 3000]));
        assert_eq!(received(lb).len(), 1);
    });
    assert_dropped(&report, &[("probe_reply", 129), ("probe_reply_lost", 873)]);
}
