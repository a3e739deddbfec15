//! Interfaces of the kernel: losses before the engine, and their counters.

use super::shapes::{End, flows, send, wait_until, wired};
use hotloop::dpdk::{Mbuf, RxQueue};
use hotloop::packet::build::udp;
use hotloop::packet::ip::is_truncated;
use hotloop::prelude::*;
use hotloop::stage::{Burst, Core, Device, Error, Limits, LinkState, Reopening, Source};
use hotloop::testing::malformed_frames;
use hotloop_tests::network::{Network, Peer, ip, kernel_received, reassembled};
use hotloop_tests::{alone, device, eal, tool};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs an engine until it has received, or the port has lost, `count` packets.
fn receive(port: &Port, deployment: Deployment, count: u64, meanwhile: impl FnOnce()) -> Report {
    let graph = source(|core| port.rx_queue(core))
        .shard_by(|packet: &Packet| u32::from(*packet.data().last().unwrap_or(&0)) << 24)
        .stage(|_| End)
        .sink(|core| port.tx_queue(core));
    let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(4096).unwrap();
    let report = plan.run(|control| {
        meanwhile();
        wait_until(|| {
            let lost = port.stats().unwrap().imissed.unwrap_or(0);
            control.snapshot().received + lost + reassembled() >= count
        });
    });
    report.unwrap_or_else(|error| panic!("{deployment}: {error}"))
}

#[test]
fn what_the_kernel_drops_is_reported_as_lost_by_the_device() {
    alone(|| {
        let Some(_network) = wired() else { return };
        let port = Port::open(eal(), &device("net_af_packet", ",iface=a")).unwrap();
        let mut peer = Peer::new("b");
        // The ring has room for 512 frames until it is polled.
        send(&mut peer, &flows(5000));
        let report = receive(&port, Deployment::run_to_completion(1), 5000, || ());
        assert_eq!((report.received, report.nic_loss.imissed), (512, Some(4488)), "{report}");

        // Each start resets the counts, and reading twice counts once.
        let report = receive(&port, Deployment::run_to_completion(1), 100, || {
            send(&mut peer, &flows(100));
            assert_eq!(port.stats().unwrap(), port.stats().unwrap());
        });
        assert_eq!((report.received, report.nic_loss.imissed), (100, Some(0)), "{report}");
    });
}

#[test]
fn what_no_descriptor_was_free_for_is_known_to_the_packet() {
    alone(|| {
        let Some(_network) = wired() else { return };
        for (driver, arguments, other_end) in [
            ("net_af_packet", ",iface=a", "b"),
            ("net_af_xdp", ",iface=a,force_copy=1", "b"),
            ("net_pcap", ",iface=a", "b"),
            ("net_tap", ",iface=hltap0", "hltap0"),
        ] {
            let port = Port::open(eal(), &device(driver, arguments)).unwrap();
            let core = Core::new(0, 1);
            let (mut rx, tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
            rx.start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false }).unwrap();
            let mut peer = Peer::new(other_end);
            send(&mut peer, &flows(20_000));
            let mut received = 0;
            // More polls than the number of bursts that any of them keeps.
            for _ in 0..10_000 {
                received += rx.poll(&mut Burst::new()) as u64;
            }
            let stats = port.stats().unwrap();
            assert_eq!((stats.received, stats.rx_nombuf), (received, 0), "{driver}: {stats:?}");
            assert_eq!(stats.imissed, Some(20_000 - received), "{driver}: {stats:?}");
            assert!(received < 20_000, "{driver} loses nothing, which shows nothing");
            drop((rx, tx));
        }
    });
}

#[test]
fn what_no_mbuf_was_free_for_waits_and_is_not_lost() {
    alone(|| {
        let Some(_network) = wired() else { return };
        let port = Port::open(eal(), &device("net_af_packet", ",iface=a")).unwrap();
        let core = Core::new(0, 1);
        let (mut rx, tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
        rx.start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false }).unwrap();
        let (mut peer, mut sent, mut held) = (Peer::new("b"), 0, Vec::new());
        let mut receive = |held: &mut Vec<Mbuf>| {
            for _ in 0..1000 {
                let mut burst = Burst::new();
                rx.poll(&mut burst);
                held.extend(std::iter::from_fn(|| burst.pop()));
            }
        };
        // The ring has room for 512.
        while held.len() == sent && sent < 100_000 {
            send(&mut peer, &flows(300));
            sent += 300;
            receive(&mut held);
        }
        let (before, stats) = (held.len(), port.stats().unwrap());
        assert!(before < sent, "there are mbufs for {sent} packets, which shows nothing");
        assert_eq!((stats.received, stats.imissed, stats.rx_nombuf), (before as u64, Some(0), 0));
        held.clear();
        receive(&mut held);
        assert_eq!(before + held.len(), sent);
        drop((held, rx, tx));
    });
}

#[test]
fn frames_are_cut_to_what_the_port_says() {
    alone(|| {
        for (arguments, frame_bytes) in [("", 2048), (",framesz=1024,blocksz=4096", 1024)] {
            let Some(_network) = wired() else { return };
            let device = device("net_af_packet", &format!(",iface=a,qpairs=2{arguments}"));
            let port = Port::open(eal(), &device).unwrap();
            let core = Core::new(0, 1);
            let (mut rx, tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
            rx.start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false }).unwrap();
            // With several queues, every version of the driver makes the kernel reassemble
            // fragments.
            let fragments = udp().payload([7; 3000]).build_fragments(1400);
            send(&mut Peer::new("b"), &fragments);
            let mut burst = Burst::new();
            let deadline = Instant::now() + Duration::from_secs(10);
            while rx.poll(&mut burst) == 0 && Instant::now() < deadline {}
            let received = burst.pop().unwrap();
            assert_eq!(Some(received.len_bytes() as u16), port.cut_bytes());
            assert!((frame_bytes - 80..frame_bytes).contains(&received.len_bytes()));
            assert!(is_truncated(received.data(), received.len_bytes()));
            drop((rx, tx));
        }
        let port = Port::open(eal(), &device("net_null", "")).unwrap();
        assert_eq!(port.cut_bytes(), None);
    });
}

#[test]
fn every_queue_of_a_device_is_polled_however_many_are_claimed() {
    alone(|| {
        let Some(_network) = wired() else { return };
        let mut peer = Peer::new("b");
        for (deployment, pair_count) in [
            (Deployment::run_to_completion(1), 3),
            (Deployment::pipeline([1, 2]), 2),
            (Deployment::pipeline([2, 3]), 4),
        ] {
            let arguments = format!(",iface=a,qpairs={pair_count}");
            let port = Port::open(eal(), &device("net_af_packet", &arguments)).unwrap();
            let report = receive(&port, deployment, 1000, || {
                for _ in 0..10 {
                    send(&mut peer, &flows(100));
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let loss = report.nic_loss;
            let lost = loss.imissed.expect("packet sockets count");
            assert_eq!(report.received + lost, 1000, "{deployment}: {report}");
            assert!(report.received > 900 && loss.rx_unclaimed == 0, "{deployment}: {report}");
        }
    });
}

#[test]
fn a_program_that_was_started_meanwhile_takes_no_packets_of_a_later_port() {
    alone(|| {
        let Some(_network) = wired() else { return };
        let mut peer = Peer::new("b");
        let mut programs = Vec::new();
        for _ in 0..2 {
            let port = Port::open(eal(), &device("net_af_packet", ",iface=a,qpairs=2")).unwrap();
            let report = receive(&port, Deployment::run_to_completion(2), 100, || {
                programs.push(tool("sleep").unwrap().arg("60").spawn().unwrap());
                send(&mut peer, &flows(100));
            });
            assert_eq!((report.received, report.nic_loss.imissed), (100, Some(0)), "{report}");
        }
        for mut program in programs {
            program.kill().unwrap();
            program.wait().unwrap();
        }
    });
}

#[test]
fn malformed_frames_are_received_or_known_to_be_lost_to_the_packet() {
    alone(|| {
        for (driver, arguments) in [
            ("net_af_packet", ",iface=a,qpairs=2"),
            ("net_pcap", ",iface=a"),
            ("net_af_xdp", ",iface=a,force_copy=1"),
        ] {
            let Some(_network) = wired() else { return };
            let port = Port::open(eal(), &device(driver, arguments)).unwrap();
            let report = receive(&port, Deployment::run_to_completion(1), 2000, || {
                let mut peer = Peer::new("b");
                for frames in malformed_frames(1, 2000).chunks(64) {
                    send(&mut peer, frames);
                    std::thread::sleep(Duration::from_millis(1));
                }
                wait_until(|| kernel_received("a") >= 2000);
            });
            let loss = report.nic_loss;
            let lost = loss.imissed.unwrap() + loss.rx_nombuf + loss.rx_malformed;
            // With several queues, the driver makes the kernel reassemble fragments, and pass on
            // only whole datagrams.
            let kept = if driver == "net_af_packet" { reassembled() } else { 0 };
            assert_eq!(report.received + lost + kept, 2000, "{driver}: {kept} kept; {report}");
            assert_eq!(kept > 0, driver == "net_af_packet");
        }
    });
}

/// A burst a millisecond, so that the sending ring has room when its interface disappears.
struct Paced {
    queue: RxQueue,
    next: Option<Instant>,
}

impl Source for Paced {
    type Item = Mbuf;

    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return 0;
        }
        self.next = Some(Instant::now() + Duration::from_millis(1));
        self.queue.poll(burst)
    }

    fn start(&mut self, facts: &Limits) -> Result<(), Error> {
        self.queue.start(facts)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.queue.devices()
    }
}

#[test]
fn what_a_device_took_when_its_interface_had_gone_is_reported_as_failed() {
    alone(|| {
        let Some(_network) = wired() else { return };
        let null = Port::open(eal(), &device("net_null", "")).unwrap();
        let port = Port::open(eal(), &device("net_af_packet", ",iface=a")).unwrap();
        let paced = |core: &Core| Ok::<_, Error>(Paced { queue: null.rx_queue(core)?, next: None });
        let graph = source(paced).sink(|core| port.tx_queue(core));
        let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
        let report = plan.run(|control| {
            wait_until(|| control.snapshot().sent > 1000);
            ip(&["link", "delete", "dev", "a"]).unwrap();
            wait_until(|| control.devices()[1].link_state() == Some(LinkState::Gone));
            wait_until(|| control.devices()[1].counters().tx_failed > 0);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let name = port.name();
        assert!(report.devices.tx_failed > 0, "{report}");
        assert!(report.notes.contains(&format!("{name}: its interface has gone")), "{report}");
        assert!(report.to_string().contains("tx_failed"), "{report}");
    });
}

/// Deletes the interface `a`, makes it anew, and reopens the device, as a program does.
fn delete_and_reopen(network: &Network, device: &dyn Device) {
    ip(&["link", "delete", "dev", "a"]).unwrap();
    wait_until(|| device.link_state() == Some(LinkState::Gone));
    assert_eq!(device.reopen().unwrap(), Reopening::Waiting, "there is none to be opened");
    network.pair("a", "b").unwrap();
    wait_until(|| device.reopen().unwrap() == Reopening::Done);
    assert_eq!(device.link_state(), Some(LinkState::Up));
    assert_eq!(device.reopen().unwrap(), Reopening::Done, "there is nothing to do");
}

/// The MAC address of the interface `a`.
fn mac_of_a() -> String {
    let output = tool("ip").unwrap().args(["-brief", "link", "show", "dev", "a"]).output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    line.split_whitespace().nth(2).unwrap().to_owned()
}

#[test]
fn a_device_whose_interface_was_made_anew_goes_on_under_the_same_run() {
    alone(|| {
        for (driver, arguments, deployment) in [
            ("net_af_packet", ",iface=a,qpairs=2", Deployment::run_to_completion(2)),
            ("net_af_packet", ",iface=a,qpairs=3", Deployment::pipeline([1, 2])),
            ("net_pcap", ",iface=a", Deployment::run_to_completion(1)),
        ] {
            let Some(network) = wired() else { return };
            let port = Port::open(eal(), &device(driver, arguments)).unwrap();
            let (mac, id) = (mac_of_a(), port.id().unwrap());
            let graph = source(|core| port.rx_queue(core))
                .shard_by(move |packet: &Packet| {
                    assert_eq!(packet.ingress(), Some(id), "before and after it was opened again");
                    u32::from(*packet.data().last().unwrap_or(&0)) << 24
                })
                .stage(|_| End)
                .sink(|core| port.tx_queue(core));
            let report = Engine::plan(graph, deployment).unwrap().run(|control| {
                for round in 1..=3 {
                    send(&mut Peer::new("b"), &flows(100));
                    wait_until(|| control.snapshot().received == 100 * round);
                    delete_and_reopen(&network, control.devices()[0].as_ref());
                    assert_eq!(port.id().unwrap(), id);
                    if port.has_own_mac() {
                        assert_eq!(mac_of_a(), mac, "neighbours know the port by its address");
                    }
                }
            });
            let report = report.unwrap_or_else(|error| panic!("{driver}, {deployment}: {error}"));
            assert_eq!(report.received, 300, "{driver}, {deployment}: {report}");
            assert_eq!(report.nic_loss.imissed, Some(0), "{driver}, {deployment}: {report}");
            assert!(report.pools_whole, "{report}");
            let note = format!("{}: its interface had gone; opened again: 3", port.name());
            assert!(report.notes.contains(&note), "{report}");
            assert!(report.notes.iter().all(|note| !note.contains("has gone")), "{report}");
        }
    });
}

#[test]
fn a_queue_that_has_nothing_to_send_lets_its_device_be_opened_again() {
    alone(|| {
        let Some(network) = wired() else { return };
        let silent = Port::open(eal(), &device("net_ring", "")).unwrap();
        let port = Port::open(eal(), &device("net_af_packet", ",iface=a")).unwrap();
        let graph = source(|core| silent.rx_queue(core)).sink(|core| port.tx_queue(core));
        let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
        let report = plan.run(|control| {
            let device = control.devices().into_iter().find(|device| device.name() == port.name());
            let device = device.unwrap();
            delete_and_reopen(&network, device.as_ref());
            // Packets to a port that only sends are freed meanwhile, not only when it stops.
            send(&mut Peer::new("b"), &flows(100));
            wait_until(|| device.counters().rx_unclaimed == 100);
            assert_eq!(kernel_received("a"), 100);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(report.nic_loss.rx_unclaimed, 100, "{report}");
    });
}

#[test]
fn a_device_that_cannot_be_opened_again_says_so() {
    alone(|| {
        let Some(_network) = wired() else { return };
        for (driver, arguments) in [
            ("net_af_xdp", ",iface=a,force_copy=1"),
            ("net_tap", ",iface=hltap1"),
            ("net_null", ""),
        ] {
            let port = Port::open(eal(), &device(driver, arguments)).unwrap();
            let graph = source(|core| port.rx_queue(core)).sink(|core| port.tx_queue(core));
            let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
            let report = plan.run(|control| {
                let reopening = control.devices()[0].reopen().unwrap();
                assert_eq!(reopening, Reopening::Impossible, "{driver}");
            });
            report.unwrap_or_else(|error| panic!("{driver}: {error}"));
        }
    });
}
