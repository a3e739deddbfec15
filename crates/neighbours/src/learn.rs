//! The stage that finds neighbours in received packets.

use crate::claim::may_be_one;
use crate::link::Link;
use crate::table::{Lesson, Neighbours};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Counter, Cx, Gauge, Instant, NoDrops, Stage, Verdict};
use std::sync::Arc;

/// Shows packets to the [`Neighbours`], like [`learn_from`](Neighbours::learn_from), and passes all
/// of them on.
///
/// The gauges are counts of frames. `learned` and `changed`: the neighbour became known or got
/// another Ethernet address; `doubted`: the claim caused a question to the neighbour; `refused`:
/// the claim was not believed.
#[derive(Debug)]
pub struct Learn {
    neighbours: Arc<Neighbours>,
    links: Box<[Link]>,
    /// Number of times that each of [`LESSONS`] was learned.
    counts: [Arc<Counter>; LESSONS.len()],
}

const LESSONS: [(Lesson, &str); 4] = [
    (Lesson::Learned, "learned"),
    (Lesson::Changed, "changed"),
    (Lesson::Doubted, "doubted"),
    (Lesson::Refused, "refused"),
];

impl Learn {
    /// Learns from packets of these links. Packets of other ports teach nothing. A station with
    /// addresses of both families is two links of one port.
    ///
    /// # Panics
    /// If two links are different VLANs of one port: frames have no tags here to distinguish them.
    #[must_use]
    pub fn new(neighbours: Arc<Neighbours>, links: impl IntoIterator<Item = Link>) -> Self {
        let links: Box<[Link]> = links.into_iter().collect();
        let is_one = |a: &Link, b: &Link| a.port != b.port || a.vlan == b.vlan;
        let are_apart = links.iter().all(|a| links.iter().all(|b| is_one(a, b)));
        assert!(are_apart, "two VLANs of one port");
        Self { neighbours, links, counts: Default::default() }
    }

    #[cold]
    fn learn(&self, packet: &impl PacketBuf, now: Instant) {
        let ingress = packet.ingress();
        for link in self.links.iter().filter(|link| Some(link.port) == ingress) {
            let lesson = self.neighbours.learn_from(link, packet.data(), now);
            let counts = LESSONS.iter().zip(&self.counts);
            counts
                .filter(|((counted, _), _)| *counted == lesson)
                .for_each(|(_, count)| count.add(1));
        }
    }
}

impl<P: PacketBuf> Stage<P> for Learn {
    type Out = P;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<P> {
        if may_be_one(packet.data()) {
            self.learn(&packet, cx.now());
        }
        Ok(packet)
    }

    fn gauges(&self) -> Vec<Gauge> {
        LESSONS.iter().zip(&self.counts).map(|((_, name), count)| Gauge::new(name, count)).collect()
    }
}
