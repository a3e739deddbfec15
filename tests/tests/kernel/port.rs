//! Packets to and from the kernel, directly and through an engine.

use super::ping::ping;
use super::{network, run};
use hotloop::packet::build::{echo_request, udp};
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::stage::{Burst, Core, Error, LinkState, Sink, Source};
use hotloop_kernel::{
    FRAME_COUNT, KernelFollower, KernelPort, KernelSource, KernelTables, Mbufs, PortOrKernel,
    PuntLimit, PuntLimits, PuntReason, Supply, TapConfig,
};
use hotloop_tests::network::kernel_received;
use hotloop_tests::{Host, alone, device, eal, wait_until};
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Provides packets in memory, up to this number.
#[derive(Debug)]
struct Memory(AtomicUsize);

impl Supply for Memory {
    type Packet = MemPacket;

    fn take(&self) -> Option<MemPacket> {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        taken.ok().map(|_| MemPacket::with_room(&[], 64, 1_514))
    }
}

const UNLIMITED: PuntLimits =
    PuntLimits::all(PuntLimit { per_second: 1_000_000_000, burst: 1_000_000 });

fn core() -> Core {
    Core::new(0, 1)
}

/// A port with an interface `k0` that has an address, and a neighbour that it need not ask for.
fn port(limits: PuntLimits, packet_count: usize) -> KernelPort<Memory> {
    // The kernel must send nothing of its own on it.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    let memory = Memory(AtomicUsize::new(packet_count));
    let port = KernelPort::open(&TapConfig::named("k0"), limits, memory).unwrap();
    run("address add 192.0.2.1/24 dev k0");
    run("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev k0");
    port
}

/// Offers packets as the engine does, and returns the number taken.
fn send(
    sink: &mut impl Sink<Item = MemPacket>,
    packets: impl IntoIterator<Item = MemPacket>,
) -> u64 {
    let mut sent = 0;
    let mut packets = packets.into_iter().peekable();
    let mut burst = Burst::new();
    while packets.peek().is_some() {
        burst.extend(packets.by_ref().take(64));
        while !burst.is_empty() {
            sent += sink.send(&mut burst);
        }
    }
    sent as u64
}

/// Receives a datagram and returns its length. Other tests of this process may interrupt that with
/// net_tap's signals for new frames.
fn receive(socket: &UdpSocket, room: &mut [u8]) -> usize {
    loop {
        match socket.recv(room) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

#[test]
fn what_is_punted_arrives_and_each_kind_has_its_limit() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let icmp_limit = PuntLimit { per_second: 1, burst: 100 };
    let port = port(UNLIMITED.with(PuntReason::Icmp, icmp_limit), 0);
    let listener = UdpSocket::bind("192.0.2.1:4000").unwrap();
    listener.set_read_timeout(Some(super::WITHIN)).unwrap();
    let mut sink = port.sink(&core()).unwrap();
    let before = kernel_received("k0");

    let to_host = |payload: &str| {
        let source = "02:00:00:00:00:02".parse().unwrap();
        let frame = udp().from("192.0.2.2:9").to("192.0.2.1:4000").payload(payload);
        frame.macs(source, port.mac()).packet_in_memory()
    };
    // More than there are frames, and slow enough for the receiver: one after the other.
    let mut room = [0; 2_000];
    for number in 0..3 * FRAME_COUNT {
        let payload = format!("datagram {number}");
        assert_eq!(send(&mut sink, [to_host(&payload)]), 1);
        let len = receive(&listener, &mut room);
        assert_eq!(&room[..len], payload.as_bytes());
    }
    // Pings are limited, and one source gets half of the burst limit; other packets are not
    // limited.
    let pings = (0..500).map(|number| echo_request(1, number).packet_in_memory());
    let sent = send(&mut sink, pings);
    assert!((50..60).contains(&sent), "{sent}");
    assert_eq!(send(&mut sink, [to_host("after"), to_host(&"x".repeat(1_472))]), 2);
    // The interface takes 1,500 bytes and tags.
    let too_long = to_host(&"x".repeat(1_481));
    assert_eq!(send(&mut sink, [too_long]), 0);

    let counters = port.counters();
    println!("{counters:?}");
    let expected = 3 * FRAME_COUNT as u64 + 2;
    assert_eq!(counters.punted[PuntReason::Host as usize], (PuntReason::Host, expected));
    assert_eq!(counters.punted[PuntReason::Icmp as usize], (PuntReason::Icmp, sent));
    assert_eq!(counters.limited[PuntReason::Icmp as usize], (PuntReason::Icmp, 500 - sent));
    assert_eq!(counters.punted_too_long, 1);
    assert_eq!(sink.refused_count(), 500 - sent + 1);
    let devices = sink.devices();
    drop(sink);
    devices[0].stop().unwrap();
    assert_eq!(kernel_received("k0") - before, expected + sent);
    let counters = devices[0].counters();
    assert_eq!((counters.sent, counters.tx_failed), (expected + sent, 0));
}

#[test]
fn what_the_kernel_sends_is_received_in_order_and_waits_for_memory() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let port = port(UNLIMITED, 150);
    let mut source = port.source(&core()).unwrap();
    assert!(port.source(&core()).unwrap_err().to_string().contains("claimed already"));
    let mut other = port.source(&Core::new(1, 2)).unwrap();
    let socket = UdpSocket::bind("192.0.2.1:5000").unwrap();
    for number in 0..200_u32 {
        socket.send_to(&number.to_be_bytes(), "192.0.2.2:6000").unwrap();
    }
    let mut received = Vec::new();
    let mut poll = |source: &mut KernelSource<_>, want: usize| {
        let mut burst = Burst::new();
        wait_until("they have come", || {
            source.poll(&mut burst);
            received.extend(std::iter::from_fn(|| burst.pop()));
            received.len() >= want
        });
        received.len()
    };
    assert_eq!(poll(&mut source, 150), 150);
    // No packet is left; the frame that got none waits, and is the next.
    wait_until("the others wait", || source.waiting_count() == Some(50));
    assert_eq!(poll(&mut source, 150), 150);
    assert_eq!(source.waiting_count(), Some(50));
    port_memory(&port, 1_000);
    assert_eq!(poll(&mut source, 200), 200);
    assert_eq!((source.waiting_count(), other.waiting_count()), (Some(0), Some(0)));
    for (number, packet) in (0_u32..).zip(&received) {
        let frame = packet.data();
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 2]);
        assert_eq!(frame[6..12], port.mac().bytes());
        assert_eq!(frame[42..], number.to_be_bytes());
    }
    assert_eq!(other.poll(&mut Burst::new()), 0);
    assert_eq!(port.counters().received, 200);
    // Another engine may follow.
    drop(source);
    let _source = port.source(&core()).unwrap();
}

/// Adds `count` packets to the port's supply.
fn port_memory(port: &KernelPort<Memory>, count: usize) {
    port.supply().0.fetch_add(count, Relaxed);
}

#[test]
fn a_deleted_interface_is_said_to_be_gone_and_nothing_hangs() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let port = port(UNLIMITED, 100);
    let (mut source, mut sink) = (port.source(&core()).unwrap(), port.sink(&core()).unwrap());
    let device = source.devices().remove(0);
    assert_eq!(device.link_state(), Some(LinkState::Up));
    run("link del k0");
    wait_until("it is gone", || device.link_state() == Some(LinkState::Gone));
    // No more at once than the thread has room for.
    for count in (100..=1_000).step_by(100) {
        assert_eq!(send(&mut sink, (0..100).map(|_| udp().packet_in_memory())), 100);
        wait_until("they could not be written", || port.counters().write_failed == count);
    }
    assert_eq!(source.poll(&mut Burst::new()), 0);
    drop((source, sink));
    device.stop().unwrap();
    assert_eq!(port.counters().write_failed, 1_000);
}

/// The port that a packet leaves by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Wire,
    Kernel,
}

/// Runs `meanwhile` while an engine carries everything between a wire and the kernel.
fn carry(
    port: &Port,
    kernel: &KernelPort<Mbufs>,
    cores: usize,
    meanwhile: impl FnOnce(),
) -> Report {
    let graph = source(|core: &Core| {
        let wire = PortOrKernel::Port(port.rx_queue(core)?);
        Ok::<_, Error>(sources([wire, PortOrKernel::Kernel(kernel.source(core)?)]))
    })
    .stage(|_| {
        each(|packet: Packet| {
            let way = if packet.ingress().is_some() { Way::Kernel } else { Way::Wire };
            Routed { packet, route: way }
        })
    })
    .sink(|core: &Core| {
        let wire = PortOrKernel::Port(port.tx_queue(core)?);
        let kernel = PortOrKernel::Kernel(kernel.sink(core)?);
        Ok::<_, Error>(outlets([(Way::Wire, wire), (Way::Kernel, kernel)]))
    });
    let plan = Engine::plan(graph, Deployment::run_to_completion(cores)).unwrap();
    plan.run(|_| meanwhile()).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that the port's interface knows both addresses of the peer, with the same Ethernet
/// address.
fn check_neighbours(tables: &KernelTables, kernel: &KernelPort<Mbufs>) {
    let [v4, v6] = ["192.0.2.2", "2001:db8::2"].map(|address| {
        let known = tables.neighbour(kernel.interface_index(), address.parse().unwrap());
        known.and_then(|known| known.mac)
    });
    assert!(v4.is_some() && v4 == v6 && v4 != Some(kernel.mac()), "{v4:?} {v6:?}");
}

/// Number of packet sockets in this network (packet(7)). A closed device's sockets stay open until each
/// process that was forked in the meantime, and inherited them, has called `exec`.
fn packet_socket_count() -> usize {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    sockets.lines().skip(1).count()
}

#[test]
fn pings_arp_and_neighbour_discovery_work_in_both_directions() {
    alone(|| {
        let _network = match network() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        // The other end of the wire is in a namespace of its own.
        let peer = Host::start(&["b0"]);
        peer.does(|| {
            run("link set dev b0 up");
            run("address add 192.0.2.2/24 dev b0");
            run("address add 2001:db8::2/64 dev b0");
        });
        let by_peer = |to: &str, count| {
            let to: IpAddr = to.parse().unwrap();
            peer.does(move || ping(to, count))
        };
        // The kernel must not use the wire: it answers by the port.
        run("link set dev a0 arp off");
        std::fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1").unwrap();
        let mbufs = Mbufs::new(eal(), 2_048, 4_096, false);
        let kernel = KernelPort::open(&TapConfig::named("k0"), UNLIMITED, mbufs).unwrap();
        run("address add 192.0.2.1/24 dev k0");
        run("address add 2001:db8::1/64 dev k0");
        let known = KernelFollower::start().unwrap();
        for cores in [1, 2] {
            wait_until("the sockets of the run before are closed", || packet_socket_count() == 0);
            let wire = device("net_af_packet", &format!(",iface=a0,qpairs={cores}"));
            let port = Port::open(eal(), &wire).unwrap();
            let mut answered = Vec::new();
            let report = carry(&port, &kernel, cores, || {
                for (host, peer) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
                    answered.push(by_peer(host, 100));
                    answered.push(ping(peer.parse().unwrap(), 100));
                }
                known.read(|tables| check_neighbours(tables, &kernel));
                // The next run begins without neighbours.
                run("neigh flush dev k0");
            });
            println!("{report}\n{:?}", kernel.counters());
            assert!(report.is_whole(), "{report}");
            assert_eq!(answered, [100; 4], "{report}");
        }
        let counters = kernel.counters();
        let punted = |reason| counters.punted[reason as usize].1;
        assert!(punted(PuntReason::Icmp) >= 800, "{counters:?}");
        assert!(punted(PuntReason::Neighbour) >= 2, "{counters:?}");
        assert!(counters.limited.iter().all(|(_, count)| *count == 0), "{counters:?}");
    });
}
