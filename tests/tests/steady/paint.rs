//! An RX queue of net_null that fills its frames with contents.

use crate::traffic::{Kind, Template};
use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;

/// Offsets of the source address of an IPv4 frame, and of its source port after that, in bytes.
const SOURCE_ADDRESS: std::ops::Range<usize> = 26..30;
const SOURCE_PORT: std::ops::Range<usize> = 34..36;

/// An RX queue of net_null; its frames get the contents of a round, again and again.
#[derive(Debug)]
pub struct Painted<'a> {
    rx: RxQueue,
    round: &'a [Template],
    next: usize,
    flow_count: u32,
}

impl<'a> Painted<'a> {
    pub fn new(rx: RxQueue, round: &'a [Template]) -> Self {
        Self { rx, round, next: 0, flow_count: 0 }
    }

    fn paint(&mut self, packet: &mut Packet) {
        let template = &self.round[self.next];
        self.next = if self.next + 1 == self.round.len() { 0 } else { self.next + 1 };
        if template.kind == Kind::NoHeadroom {
            packet.prepend(packet.headroom_bytes()).expect("as much as there is");
        }
        packet.truncate(0);
        let data = packet.append(template.bytes.len()).expect("a buffer takes a frame");
        data.copy_from_slice(&template.bytes);
        if matches!(template.kind, Kind::NewFlow | Kind::NewPort) {
            self.flow_count += 1;
            let [high, low @ ..] = self.flow_count.to_be_bytes();
            if template.kind == Kind::NewFlow {
                // Limits apply to addresses, so each flow has its own.
                let [net, host @ ..] = low;
                data[SOURCE_ADDRESS].copy_from_slice(&[
                    100,
                    net.wrapping_add(64),
                    host[0],
                    host[1],
                ]);
                data[SOURCE_PORT].copy_from_slice(&[1, high]);
            } else {
                data[SOURCE_PORT].copy_from_slice(&low[1..]);
            }
        }
    }
}

impl Source for Painted<'_> {
    type Item = Packet;

    fn poll(&mut self, burst: &mut Burst<Packet>) -> usize {
        let before = burst.len();
        let count = self.rx.poll(burst);
        for packet in &mut burst.as_mut_slice()[before..] {
            self.paint(packet);
        }
        count
    }

    fn start(&mut self, facts: &Limits) -> hotloop::Result<()> {
        self.rx.start(facts)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.rx.devices()
    }
}
