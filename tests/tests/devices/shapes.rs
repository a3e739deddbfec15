//! Every device of the table in docs/devices.md, in each shape of a port: receiving, sending, or
//! both. net_memif is covered by the tests of udp-sink and udp-source, which share one, and by
//! `hotloop-dpdk`.

use hotloop::engine::NicLoss;
use hotloop::packet::build::udp;
use hotloop::prelude::*;
use hotloop_capture::{read_frames, write_frames};
use hotloop_tests::network::{Network, Peer, kernel_received};
use hotloop_tests::{alone, device, eal};
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of packets in each direction.
const COUNT: usize = 100;

drop_reasons! {
    /// Why packets end here.
    pub enum EndDrop {
        /// All of them do.
        Counted = "counted",
    }
}

/// Drops and counts every packet.
pub struct End;

impl Stage<Packet> for End {
    type Out = Packet;
    type Drop = EndDrop;

    fn packet(&mut self, cx: &mut Cx<'_, EndDrop>, packet: Packet) -> Verdict<Packet> {
        cx.drop(packet, EndDrop::Counted)
    }
}

/// Datagrams of `count` flows.
pub fn flows(count: usize) -> Vec<Vec<u8>> {
    let flow = |index: usize| udp().from(format!("198.51.100.7:{}", 1000 + index)).build();
    (0..count).map(flow).collect()
}

/// Sends all of them.
pub fn send(peer: &mut Peer, frames: &[Vec<u8>]) {
    let count = peer.send(frames.iter().map(Vec::as_slice));
    assert_eq!(count, frames.len() as u64, "the kernel takes every frame");
}

/// Waits until a condition holds, for ten seconds at most.
pub fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A network with a wire between `a` and `b`; `None` if that is impossible here.
pub fn wired() -> Option<Network> {
    let made = Network::enter().and_then(|network| network.pair("a", "b").map(|()| network));
    made.map_err(|why| println!("skipped: {why}")).ok()
}

/// The queues that are claimed.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Receives,
    Sends,
    Both,
}

/// Runs an engine with the port in this shape. A sending port sends frames from a file.
fn run(text: &str, shape: Shape, folder: &Path, control: impl FnOnce(&Control<'_>)) -> Report {
    let port = Port::open(eal(), text).unwrap_or_else(|error| panic!("{error}"));
    let nothing = Port::open(eal(), &device("net_null", "")).unwrap();
    let input = folder.join("feed.pcap");
    write_frames(&input, flows(COUNT)).unwrap();
    let file = device("net_pcap", &format!(",rx_pcap={}", input.display()));
    let file = Port::open(eal(), &file).unwrap();

    let (rx, tx) = match shape {
        Shape::Receives => (&port, &nothing),
        Shape::Sends => (&file, &port),
        Shape::Both => (&port, &port),
    };
    let graph = source(|core| rx.rx_queue(core)).sink(|core| tx.tx_queue(core));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let report = plan.run(control);
    report.unwrap_or_else(|error| panic!("{text} {shape:?}: {error}"))
}

/// Waits until all frames of the file were sent.
fn all_sent(control: &Control<'_>) {
    wait_until(|| control.snapshot().sent >= COUNT as u64);
}

/// Runs each shape of an interface of the kernel, each time in a network of its own, because
/// net_af_xdp does not release an interface before the process ends. The device's other end is
/// `peer`. `notices` is whether unrequested packets are counted.
fn check_interface(driver: &str, arguments: &str, peer: &str, notices: bool) {
    let folder = tempfile::tempdir().unwrap();
    for shape in [Shape::Receives, Shape::Sends, Shape::Both] {
        let Some(_network) = wired() else { return };
        let mut passed = 0;
        let report = run(&device(driver, arguments), shape, folder.path(), |control| {
            send(&mut Peer::new(peer), &flows(COUNT));
            wait_until(|| control.snapshot().sent >= COUNT as u64);
            // The kernel passes frames on with a delay.
            std::thread::sleep(Duration::from_millis(200));
            passed = kernel_received(peer);
        });
        let what = format!("{driver} {shape:?}: {report}");
        let (count, loss) = (COUNT as u64, report.nic_loss);
        assert_eq!((report.received, report.sent), (count, count), "{what}");
        let (unclaimed, sent) = match shape {
            Shape::Receives => (0, 0),
            Shape::Sends if notices => (count, count),
            Shape::Sends | Shape::Both => (0, count),
        };
        assert_eq!((loss.rx_unclaimed, loss.rx_nombuf), (unclaimed, 0), "{what}");
        assert_eq!(loss.imissed.unwrap_or(0), 0, "{what}");
        assert_eq!(passed, sent, "{what}");
    }
}

#[test]
fn af_packet_receives_and_sends_and_does_either() {
    alone(|| {
        check_interface("net_af_packet", ",iface=a", "b", true);
        check_interface("net_af_packet", ",iface=a,qpairs=2", "b", true);
    });
}

#[test]
fn af_xdp_receives_and_sends_and_does_either() {
    alone(|| check_interface("net_af_xdp", ",iface=a,force_copy=1", "b", true));
}

#[test]
fn tap_receives_and_sends_and_does_either() {
    alone(|| check_interface("net_tap", ",iface=hltap1", "hltap1", true));
}

#[test]
fn pcap_receives_and_sends_and_does_either() {
    // If no RX queue is claimed, the driver ignores all arrivals.
    alone(|| check_interface("net_pcap", ",iface=a", "b", false));
}

#[test]
fn files_are_read_and_written_and_either() {
    alone(|| {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
        write_frames(&input, flows(COUNT)).unwrap();
        let rx = format!(",rx_pcap={}", input.display());
        let tx = format!(",tx_pcap={}", output.display());
        for (arguments, shape) in [
            (rx.clone(), Shape::Receives),
            (tx.clone(), Shape::Sends),
            (rx.clone() + &tx, Shape::Both),
            (rx.clone() + &tx, Shape::Receives),
            (rx + &tx, Shape::Sends),
        ] {
            let report = run(&device("net_pcap", &arguments), shape, folder.path(), all_sent);
            let count = COUNT as u64;
            assert_eq!((report.received, report.sent), (count, count), "{arguments}: {report}");
            if !matches!(shape, Shape::Receives) {
                let written = read_frames(&output).unwrap();
                assert_eq!(written.len(), COUNT, "{arguments}");
            }
        }
    });
}

#[test]
fn null_and_ring_receive_and_send_and_do_either() {
    alone(|| {
        let folder = tempfile::tempdir().unwrap();
        for shape in [Shape::Receives, Shape::Both] {
            let text = device("net_null", ",size=60");
            let report = run(&text, shape, folder.path(), all_sent);
            assert!(report.received >= COUNT as u64, "{report}");
        }
        let report = run(&device("net_null", ""), Shape::Sends, folder.path(), all_sent);
        assert_eq!(report.sent, COUNT as u64, "{report}");
        // Packets sent into a ring stay there until they are received, which `loops` does.
        for (shape, sent) in [(Shape::Receives, 0), (Shape::Sends, COUNT as u64), (Shape::Both, 0)]
        {
            let report = run(&device("net_ring", ""), shape, folder.path(), |control| {
                wait_until(|| control.snapshot().sent >= sent);
            });
            assert_eq!(report.sent, sent, "{shape:?}: {report}");
            assert_eq!(report.nic_loss, NicLoss::default(), "{shape:?}: {report}");
        }
    });
}
