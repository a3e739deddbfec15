//! The Ethernet addresses of neighbours: one store for all cores, and the stage that waits for them.
//!
//! [`Neighbours`] maps an IP address on a [`Link`] to its Ethernet address. ARP and neighbour
//! discovery feed it, by the stage [`Learn`] or by [`Neighbours::learn_from`] in a stage that sees
//! their messages anyway, and so can any other source ([`Neighbours::learn`]). [`Neighbours`]
//! documents which messages are believed. [`Resolve`] writes the address into each outgoing packet,
//! asks for an unknown one, and holds a bounded number of packets until the answer comes. If the
//! system beside the program resolves the neighbours, it is asked instead of the link
//! ([`NextHop::of_system`]), and feeds them ([`Neighbours::set`]). [`NextHopWatch`] logs changes of
//! the neighbours that are next hops, outside the packet path.
//!
//! - This crate is for network functions that send to neighbours on a link. It uses packets and the
//!   vocabulary of stages, and knows neither engine nor driver.
//! - An address that a core reads is whole: an address that was known for this neighbour, never a
//!   mixture of two.
//! - In steady state no core waits for another, locks or allocates.
//!
//! ```
//! use hotloop_packet::memory::MemPacket;
//! use hotloop_packet::{PacketBuf, PortId, arp, build::udp, ethernet::MacAddress};
//! use hotloop_neighbours::{Lesson, Link, Neighbours, NextHop, Resolve};
//! use hotloop_stage::{Burst, BurstStage, Counters, Cx, DropReason, Instant, Output, Tally};
//! # use hotloop_neighbours::NeighbourDrop;
//! use std::net::Ipv4Addr;
//!
//! let link = Link {
//!     port: PortId::new(0),
//!     vlan: None,
//!     mac: MacAddress::new([2, 0, 0, 0, 0, 2]),
//!     address: Ipv4Addr::new(192, 0, 2, 2),
//! };
//! let (gateway, gateway_mac) = (Ipv4Addr::new(192, 0, 2, 1), MacAddress::new([2, 0, 0, 0, 0, 1]));
//!
//! // All cores share the neighbours; each has a stage of its own, at most 64 packets waiting there.
//! let neighbours = Neighbours::new(1_024);
//! let mut resolve = Resolve::new(neighbours.clone(), 64, move |_: &MemPacket| {
//!     Some(NextHop::v4(gateway, link))
//! });
//!
//! # let counters = Counters::new(NeighbourDrop::NAMES);
//! # let mut run = |packet: Option<MemPacket>| {
//! #     let (mut input, mut out, mut tally) = (Burst::new(), Burst::new(), Tally::default());
//! #     input.extend(packet);
//! #     let mut cx = Cx::new(&counters, Instant::from_ns(1));
//! #     let mut spill = |_: &mut Burst<_>| unreachable!();
//! #     let mut output = Output::new(&mut out, &mut spill, &mut tally);
//! #     resolve.process(&mut cx, &mut input, &mut output);
//! #     resolve.tick(&mut cx, &mut output);
//! #     drop(output);
//! #     std::iter::from_fn(move || out.pop()).collect::<Vec<_>>()
//! # };
//! // The packet waits; a request is sent in its place.
//! let mut request = run(Some(udp().packet_in_memory())).pop().unwrap();
//! assert!(arp::reply(&mut request, gateway_mac));
//! // The stage that receives the reply shows it to the neighbours.
//! let lesson = neighbours.learn_from(&link.into(), request.data(), Instant::from_ns(2));
//! assert_eq!(lesson, Lesson::Learned);
//! let packet = run(None).pop().unwrap();
//! assert_eq!(packet.data()[..6], gateway_mac.bytes());
//! ```

#![forbid(unsafe_code)]

mod asked;
mod claim;
mod entry;
mod key;
mod learn;
mod link;
mod resolve;
mod table;
mod watch;

pub use hotloop_stage::Outgoing;
pub use key::LinkId;
pub use learn::Learn;
pub use link::{Link, NextHop, Question};
pub use resolve::{NeighbourDrop, Next, NextHops, Resolve};
pub use table::{Lesson, Neighbour, NeighbourState, Neighbours};
pub use watch::NextHopWatch;
