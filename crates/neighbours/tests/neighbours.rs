//! The table of known neighbours, and the stage that waits for them.

use hotloop_neighbours::{
    Lesson, Link, LinkId, NeighbourDrop, NeighbourState, Neighbours, Next, NextHop, NextHops,
    Resolve,
};
use hotloop_packet::arp::{self, ArpMessage};
use hotloop_packet::build::{arp_request, udp};
use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::memory::MemPacket;
use hotloop_packet::nd::{self, NdMessage};
use hotloop_packet::{PacketBuf, PortId, ipv4::Ipv4View};
use hotloop_stage::{BurstStage, Instant};
use hotloop_testing::bench_burst;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

const LINK: Link<Ipv4Addr> = Link {
    port: PortId::new(0),
    vlan: None,
    mac: MacAddress::new([2, 0, 0, 0, 0, 1]),
    address: Ipv4Addr::new(192, 0, 2, 1),
};

const WAITING_MAX: usize = 8;

fn second(count: u64) -> Instant {
    Instant::from_ns(1_000_000_000 * count)
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

fn mac(number: u8) -> MacAddress {
    MacAddress::new([2, 0, 0, 0, 9, number])
}

/// Sends each packet to its destination, except to those outside of 192.0.2.0/24.
fn resolve(
    neighbours: &Arc<Neighbours>,
) -> Resolve<MemPacket, impl FnMut(&MemPacket) -> Option<NextHop>> {
    Resolve::new(Arc::clone(neighbours), WAITING_MAX, |packet: &MemPacket| {
        let view = Ipv4View::parse(packet.data().get(14..)?).ok()?;
        let destination = view.destination();
        (destination.octets()[..3] == [192, 0, 2]).then(|| NextHop::v4(destination, LINK))
    })
}

fn to(number: u8, port: u16) -> MemPacket {
    udp().to(format!("192.0.2.{number}:{port}")).packet_in_memory()
}

fn is_request(packet: &MemPacket, target: Ipv4Addr) -> bool {
    ArpMessage::of_frame(packet.data()).is_some_and(|message| {
        message.operation() == arp::operation::REQUEST
            && message.target().address == target
            && message.sender() == arp::Neighbour { mac: LINK.mac, address: LINK.address }
    })
}

#[test]
fn packets_wait_in_order_for_the_answer_to_one_request() {
    let neighbours = Neighbours::new(64);
    let mut bench = bench_burst(resolve(&neighbours));
    let mut out = bench.feed([to(7, 1), to(7, 2)]);
    assert_eq!((out.packets().len(), out.created()), (1, 1));
    let mut request = out.packets()[0].clone();
    assert!(is_request(&request, host(7)));

    assert!(arp::reply(&mut request, mac(7)));
    assert_eq!(neighbours.learn_from(&LINK.into(), request.data(), second(0)), Lesson::Learned);
    // Waiting packets go first, even if the neighbour is known when the third packet comes.
    out = bench.feed([to(7, 3)]);
    let sent: Vec<_> = out.packets().iter().map(|packet| packet.data().to_vec()).collect();
    let expected = [1, 2, 3].map(|port| {
        let mut packet = to(7, port);
        hotloop_packet::ethernet::set_addresses(&mut packet, LINK.mac, mac(7));
        packet.data().to_vec()
    });
    assert_eq!((sent, out.created()), (expected.to_vec(), 0));
    assert_eq!(neighbours.known(second(1)).len(), 1);
}

#[test]
fn what_is_not_answered_is_asked_for_three_times_and_dropped() {
    let neighbours = Neighbours::new(64);
    let mut bench = bench_burst(resolve(&neighbours)).at(second(10));
    assert_eq!(bench.feed([to(7, 1)]).created(), 1);
    let mut request_count = 1;
    for tenth in 1..30 {
        bench = bench.at(Instant::from_ns(10_000_000_000 + tenth * 100_000_000));
        let out = bench.tick::<MemPacket>();
        assert!(out.packets().iter().all(|packet| is_request(packet, host(7))));
        request_count += out.created();
    }
    assert_eq!(request_count, 3);
    bench = bench.at(second(13));
    let out = bench.tick::<MemPacket>();
    assert_eq!((out.packets().len(), out.dropped(NeighbourDrop::Unresolved)), (0, 1));
}

#[test]
fn a_neighbour_is_asked_again_while_it_is_used_and_forgotten_after_a_minute() {
    let neighbours = Neighbours::new(64);
    neighbours.learn(LINK.id(), host(7).into(), mac(7), second(0));
    let mut bench = bench_burst(resolve(&neighbours)).at(second(29));
    assert_eq!(bench.feed([to(7, 1)]).created(), 0);
    bench = bench.at(second(30));
    let out = bench.feed([to(7, 1), to(7, 2)]);
    assert_eq!((out.packets().len(), out.created()), (3, 1));
    // Only this neighbour is asked, and its answer keeps it valid for another half a minute.
    let mut reply = out.packets().iter().find(|p| is_request(p, host(7))).unwrap().clone();
    assert_eq!(reply.data()[..6], mac(7).bytes());
    let state =
        |now| neighbours.get(LINK.id(), host(7).into(), now).map(|neighbour| neighbour.state);
    assert_eq!(state(second(30)), Some(NeighbourState::Probing));
    assert!(arp::reply(&mut reply, mac(7)));
    let lesson = neighbours.learn_from(&LINK.into(), reply.data(), second(31));
    assert_eq!((lesson, state(second(31))), (Lesson::Confirmed, Some(NeighbourState::Reachable)));
    bench = bench.at(second(60));
    let out = bench.feed([to(7, 1)]);
    assert_eq!((out.packets()[0].data()[..6].to_vec(), out.created()), (mac(7).bytes().into(), 0));
    assert_eq!(state(second(61)), Some(NeighbourState::Stale));
    bench = bench.at(second(91));
    let out = bench.feed([to(7, 1)]);
    assert!(out.packets().len() == 1 && is_request(&out.packets()[0], host(7)));
    assert_eq!(state(second(91)), None);
    assert!(neighbours.known(second(91)).is_empty());
    assert_eq!(bench.finish::<MemPacket>().dropped(NeighbourDrop::Unresolved), 1);
}

#[test]
fn no_more_packets_wait_than_may_and_half_of_them_for_one_neighbour() {
    let neighbours = Neighbours::new(64);
    let mut bench = bench_burst(resolve(&neighbours));
    let out = bench.feed((0..20).map(|port| to(7, port)));
    assert_eq!(out.dropped(NeighbourDrop::QueueFull), 20 - WAITING_MAX as u64 / 2);
    let out = bench.feed((0..20).map(|port| to(8 + (port % 2) as u8, port)));
    assert_eq!(out.dropped(NeighbourDrop::QueueFull), 20 - WAITING_MAX as u64 / 2);
    assert_eq!(out.created(), 2);
    // Packets without a next hop pass, and so do packets to a known neighbour.
    neighbours.learn(LINK.id(), host(3).into(), mac(3), second(0));
    let out = bench.feed([to(3, 1), udp().to("198.51.100.1:1").packet_in_memory()]);
    assert_eq!(out.packets().len(), 2);
    assert_eq!(out.packets()[1].data(), udp().to("198.51.100.1:1").build());
    let dropped = bench.finish::<MemPacket>().dropped(NeighbourDrop::Unresolved);
    assert_eq!(dropped, WAITING_MAX as u64);
}

#[test]
fn what_the_system_says_holds_until_it_says_something_else() {
    let (neighbours, address) = (Neighbours::new(8), host(7).into());
    let known = || neighbours.mac(LinkId::SYSTEM, address, second(1_000_000));
    neighbours.learn(LinkId::SYSTEM, address, mac(6), second(1));
    neighbours.set(address, mac(7));
    neighbours.learn(LinkId::SYSTEM, address, mac(8), second(2));
    neighbours.learn_from(&LINK.into(), &arp_request(host(7), LINK.address), second(3));
    assert_eq!(known(), Some(mac(7)));
    neighbours.set(address, mac(8));
    assert_eq!(known(), Some(mac(8)));
    let state = neighbours.get(LinkId::SYSTEM, address, second(1)).map(|neighbour| neighbour.state);
    assert_eq!(state, Some(NeighbourState::System));
    neighbours.forget(address);
    assert_eq!(known(), None);
    assert_eq!(neighbours.mac(LinkId::SYSTEM, address, second(0)), None);
    neighbours.learn(LinkId::SYSTEM, address, mac(9), second(1_000_000));
    assert_eq!(known(), Some(mac(9)));
}

/// Sends all packets the same way, which changes.
struct OneWay(Rc<Cell<Next>>);

impl NextHops<MemPacket> for OneWay {
    fn next(&mut self, _: &mut MemPacket) -> Next {
        self.0.get()
    }
}

#[test]
fn the_system_is_asked_and_the_way_may_change_while_packets_wait() {
    let neighbours = Neighbours::new(64);
    let by = |number| Next::To(NextHop::of_system(host(number).into(), LINK.mac));
    let way = Rc::new(Cell::new(by(7)));
    let stage = Resolve::by(Arc::clone(&neighbours), WAITING_MAX, OneWay(Rc::clone(&way)));
    let mut bench = bench_burst(stage).at(second(10));
    let out = bench.feed([to(1, 1), to(2, 2)]);
    assert_eq!((out.packets().len(), out.created()), (0, 0));
    assert_eq!(neighbours.take_requests(), [IpAddr::from(host(7))]);
    assert!(neighbours.take_requests().is_empty());
    // A second later, the neighbour is asked again.
    bench = bench.at(second(11));
    assert!(bench.tick::<MemPacket>().packets().is_empty());
    assert_eq!(neighbours.take_requests(), [IpAddr::from(host(7))]);
    // Waiting packets take another way.
    way.set(by(8));
    neighbours.set(host(8).into(), mac(8));
    let out = bench.feed([to(3, 3)]);
    let macs = [mac(8).bytes(), LINK.mac.bytes()].concat();
    assert_eq!(out.packets().len(), 3);
    assert!(out.packets().iter().all(|packet| packet.data()[..12] == macs));

    way.set(by(9));
    assert!(bench.feed([to(4, 4)]).packets().is_empty());
    way.set(Next::NoRoute);
    assert_eq!(bench.feed([to(5, 5)]).dropped(NeighbourDrop::NoRoute), 1);
    bench = bench.at(second(12));
    assert_eq!(bench.tick::<MemPacket>().dropped(NeighbourDrop::NoRoute), 1);
    way.set(by(9));
    assert!(bench.feed([to(6, 6)]).packets().is_empty());
    way.set(Next::AsIs);
    bench = bench.at(second(13));
    assert_eq!(bench.tick::<MemPacket>().packets()[0].data(), to(6, 6).data());
}

#[test]
fn neighbours_in_ipv6_are_solicited() {
    let own: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let target: Ipv6Addr = "2001:db8::2".parse().unwrap();
    let neighbours = Neighbours::new(8);
    let link = Link { port: LINK.port, vlan: None, mac: LINK.mac, address: own };
    let next_hop = move |_: &MemPacket| Some(NextHop::v6(target, link));
    let mut bench = bench_burst(Resolve::new(Arc::clone(&neighbours), 4, next_hop));
    let out = bench.feed([udp().to("[2001:db8::2]:53").packet_in_memory()]);
    let mut request = out.packets()[0].clone();
    let message = NdMessage::of_frame(request.data()).unwrap();
    assert_eq!((message.target(), message.neighbour()), (target, Some((own, LINK.mac))));
    assert_eq!(nd::advertise(&mut request, mac(2)), Ok(true));
    assert_eq!(neighbours.learn_from(&link.into(), request.data(), second(0)), Lesson::Learned);
    let out = bench.tick::<MemPacket>();
    assert_eq!(out.packets()[0].data()[..12], [mac(2).bytes(), LINK.mac.bytes()].concat());
    assert_eq!(neighbours.known(second(0))[0].address, IpAddr::from(target));
}

#[test]
fn messages_about_addresses_that_nobody_asked_for_are_ignored() {
    let neighbours = Neighbours::new(8);
    let frame = arp_request(host(7), LINK.address);
    assert_eq!(neighbours.learn_from(&LINK.into(), &frame, second(0)), Lesson::Nothing);
    assert_eq!(neighbours.learn_from(&LINK.into(), &udp().build(), second(0)), Lesson::Nothing);
    assert!(neighbours.known(second(0)).is_empty());
}

#[test]
fn the_station_that_claimed_a_neighbour_is_kept_with_the_number_of_claims() {
    let neighbours = Neighbours::new(8);
    neighbours.learn(LINK.id(), host(7).into(), mac(7), second(0));
    let claimed = |number: u8, at: u64| {
        let mut frame = arp_request(host(7), LINK.address);
        for sender in [6, 22] {
            frame[sender..sender + 6].copy_from_slice(&mac(number).bytes());
        }
        let lesson = neighbours.learn_from(&LINK.into(), &frame, second(at));
        let known = neighbours.get(LINK.id(), host(7).into(), second(at)).unwrap();
        assert_eq!((known.mac, known.is_router), (mac(7), false));
        (lesson, known.claimed_by)
    };
    assert_eq!(claimed(7, 1).1, None);
    assert_eq!(claimed(8, 2), (Lesson::Doubted, Some((mac(8), 1))));
    assert_eq!(claimed(9, 3), (Lesson::Refused, Some((mac(8), 1))));
    neighbours.learn(LINK.id(), host(7).into(), mac(7), second(4));
    assert_eq!(claimed(9, 5), (Lesson::Doubted, Some((mac(9), 2))));
    // Another neighbour in its place begins anew.
    for number in 100..120 {
        neighbours.learn(LINK.id(), host(number).into(), mac(number), second(100));
    }
    assert!(neighbours.known(second(100)).iter().all(|neighbour| neighbour.claimed_by.is_none()));
}

#[test]
fn addresses_without_a_station_displace_none_that_answers() {
    let neighbours = Neighbours::new(1);
    for number in 0..8 {
        neighbours.learn(LINK.id(), host(number).into(), mac(number), second(u64::from(number)));
    }
    let mut bench = bench_burst(resolve(&neighbours)).at(second(20));
    assert_eq!(bench.feed((100..200).map(|number| to(number, 1))).created(), 0);
    assert_eq!(neighbours.known(second(20)).len(), 8);
    // A neighbour that answers displaces the one that has not answered for the longest time.
    neighbours.learn(LINK.id(), host(8).into(), mac(8), second(20));
    let known = |number: u8| neighbours.mac(LINK.id(), host(number).into(), second(20));
    assert_eq!((known(0), known(1), known(8)), (None, Some(mac(1)), Some(mac(8))));
    bench.finish::<MemPacket>();
}

#[test]
fn no_core_sees_half_an_entry() {
    // Two threads fight for eight places while this one reads.
    let (neighbours, is_over) = (Neighbours::new(1), AtomicBool::new(false));
    let have_begun = Barrier::new(3);
    std::thread::scope(|scope| {
        for turn in 0..2 {
            let (neighbours, is_over, have_begun) = (&neighbours, &is_over, &have_begun);
            scope.spawn(move || {
                let mut number: u8 = turn;
                neighbours.learn(LINK.id(), host(number).into(), mac(number), second(0));
                have_begun.wait();
                while !is_over.load(Relaxed) {
                    number = number.wrapping_add(2);
                    neighbours.learn(LINK.id(), host(number).into(), mac(number), second(0));
                }
            });
        }
        // On busy CPUs, the reads could be over before the first entry.
        have_begun.wait();
        let mut seen_count = 0_u64;
        for round in 0..if cfg!(miri) { 50 } else { 200_000_u32 } {
            let number = round as u8;
            if let Some(found) = neighbours.mac(LINK.id(), host(number).into(), second(0)) {
                assert_eq!(found, mac(number));
                seen_count += 1;
            }
        }
        is_over.store(true, Relaxed);
        assert!(cfg!(miri) || seen_count > 0);
    });
    let known = neighbours.known(second(0));
    assert!(!known.is_empty() && known.len() <= 8);
}

#[test]
fn the_stage_says_how_much_it_holds_and_asks() {
    let neighbours = Neighbours::new(8);
    let stage = resolve(&neighbours);
    let gauges = stage.gauges();
    let mut bench = bench_burst(stage);
    bench.feed([to(7, 1), to(7, 2)]);
    let counts: Vec<_> =
        gauges.iter().map(|gauge| (gauge.name.bare(), gauge.counter.count())).collect();
    assert_eq!(counts, [("waiting", 2), ("requests", 1)]);
    bench.finish::<MemPacket>();
    assert_eq!(gauges[0].counter.count(), 0);
}
