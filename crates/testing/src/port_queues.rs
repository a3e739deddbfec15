//! The queues of a memory port.

use crate::PooledPacket;
use crate::port_state::{Input, Output, PortState, lock};
use hotloop_stage::{Burst, Device, Sink, Source};
use std::fmt;
use std::sync::{Arc, Mutex};

/// An RX queue of a [`MemoryPort`](crate::MemoryPort): a [`Source`] of packets from its pool.
pub struct MemoryRx {
    pub(crate) port: Arc<PortState>,
    pub(crate) wire: Arc<Mutex<Input>>,
}

impl Source for MemoryRx {
    type Item = PooledPacket;

    fn poll(&mut self, burst: &mut Burst<PooledPacket>) -> usize {
        let mut input = lock(&self.wire);
        let mut count = 0;
        for _ in 0..burst.room() {
            if !input.load() {
                break;
            }
            match self.port.config.pool.take(&input.next) {
                Some(mut packet) => {
                    packet.set_ingress(self.port.config.id);
                    burst.push(packet);
                    count += 1;
                }
                None if self.port.config.lossless => break,
                None => input.nombuf_count += 1,
            }
            input.loaded = false;
        }
        input.received_count += count as u64;
        count
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.port) as Arc<dyn Device>]
    }

    fn lossless(&self) -> bool {
        self.port.config.lossless
    }

    fn waiting_count(&mut self) -> Option<usize> {
        Some(lock(&self.wire).waiting_count())
    }

    fn finished(&self) -> bool {
        let input = lock(&self.wire);
        input.ended && !input.loaded && input.waiting.is_empty()
    }
}

/// A TX queue of a [`MemoryPort`](crate::MemoryPort): a [`Sink`] that takes everything.
pub struct MemoryTx {
    pub(crate) port: Arc<PortState>,
    pub(crate) wire: Arc<Mutex<Output>>,
}

impl Sink for MemoryTx {
    type Item = PooledPacket;

    fn send(&mut self, burst: &mut Burst<PooledPacket>) -> usize {
        let mut output = lock(&self.wire);
        let count = burst.len();
        while let Some(packet) = burst.pop() {
            if self.port.config.records_sent {
                output.frames.push(packet.to_frame());
            }
            output.kept.push_back(packet);
            if output.kept.len() > self.port.config.tx_kept_count {
                output.kept.pop_front();
            }
        }
        output.sent_count += count as u64;
        count
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.port) as Arc<dyn Device>]
    }
}

impl fmt::Debug for MemoryRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRx").field("received", &lock(&self.wire).received_count).finish()
    }
}

impl fmt::Debug for MemoryTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTx").field("sent", &lock(&self.wire).sent_count).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Frame, MemoryPort, PacketPool, PortConfig};
    use hotloop_packet::{PacketBuf, PortId};
    use hotloop_stage::{Burst, Core, DeviceCounters, Sink, Source};

    fn core(index: usize) -> Core {
        Core::new(index, index + 1)
    }

    fn numbered(count: u8) -> impl Iterator<Item = Frame> {
        (0..count).map(|number| Frame::new([number]))
    }

    #[test]
    fn a_poll_takes_no_more_than_the_burst_has_room_for() {
        let port = MemoryPort::new("p");
        let mut rx = port.rx_queue(&core(0)).unwrap();
        port.feed(0, numbered(100));
        let mut burst = Burst::new();
        burst.set_limit(10);
        assert_eq!((rx.poll(&mut burst), burst.len()), (10, 10));
        burst.set_limit(64);
        assert_eq!((rx.poll(&mut burst), rx.poll(&mut burst)), (54, 0));
        assert_eq!(port.waiting_count(0), 36);
        assert_eq!(port.device().counters().received, 64);
    }

    #[test]
    fn packets_have_the_id_of_the_port_that_received_them() {
        for id in [None, Some(PortId::new(0)), Some(PortId::new(u16::MAX))] {
            let port = MemoryPort::with_config("p", PortConfig { id, ..PortConfig::default() });
            let mut rx = port.rx_queue(&core(0)).unwrap();
            port.feed(0, numbered(1));
            let mut burst = Burst::new();
            rx.poll(&mut burst);
            assert_eq!((burst.pop().unwrap().ingress(), port.id()), (id, id));
        }
        let made = PacketPool::of(1).take(&Frame::default()).unwrap();
        assert_eq!(made.ingress(), None);
    }

    #[test]
    fn an_empty_pool_loses_frames_and_counts_them() {
        let config = PortConfig { pool: PacketPool::of(3), ..PortConfig::default() };
        let port = MemoryPort::with_config("p", config);
        let mut rx = port.rx_queue(&core(0)).unwrap();
        port.feed(0, numbered(5));
        let mut burst = Burst::new();
        assert_eq!(rx.poll(&mut burst), 3);
        let expected = DeviceCounters { received: 3, rx_nombuf: 2, ..DeviceCounters::default() };
        assert_eq!(port.device().counters(), expected);
    }

    #[test]
    fn a_lossless_port_waits_for_packets_and_loses_nothing() {
        let config =
            PortConfig { pool: PacketPool::of(3), lossless: true, ..PortConfig::default() };
        let port = MemoryPort::with_config("p", config);
        let mut rx = port.rx_queue(&core(0)).unwrap();
        port.feed(0, numbered(5));
        port.end_input();
        let mut burst = Burst::new();
        assert_eq!((rx.poll(&mut burst), rx.finished()), (3, false));
        burst.clear();
        assert_eq!((rx.poll(&mut burst), rx.finished()), (2, true));
        let bytes: Vec<_> = std::iter::from_fn(|| burst.pop()).map(|p| p.to_frame()).collect();
        assert_eq!(bytes, [Frame::new([3]), Frame::new([4])]);
        assert_eq!(port.device().counters().rx_nombuf, 0);
    }

    #[test]
    fn a_generator_goes_on_until_it_says_so() {
        let port = MemoryPort::new("p");
        let mut rx = port.rx_queue(&core(1)).unwrap();
        port.feed(1, [Frame::new([200])]);
        port.generate(1, |number, frame| {
            frame.bytes.push(number as u8);
            frame.timestamp_ns = Some(number * 10);
            number < 2
        });
        let mut burst = Burst::new();
        assert_eq!((rx.poll(&mut burst), rx.finished()), (3, true));
        let frames: Vec<_> = burst.as_slice().iter().map(|p| p.to_frame()).collect();
        let generated = [Frame::new([0]).captured_at(0), Frame::new([1]).captured_at(10)];
        assert_eq!(frames, [&[Frame::new([200])][..], &generated].concat());
    }

    #[test]
    fn sent_packets_are_home_once_the_port_is_stopped() {
        let port = MemoryPort::new("p");
        let (mut rx, mut tx) = (port.rx_queue(&core(0)).unwrap(), port.tx_queue(&core(0)).unwrap());
        port.feed(0, numbered(40));
        let mut burst = Burst::new();
        rx.poll(&mut burst);
        assert_eq!(tx.send(&mut burst), 40);
        assert_eq!(port.pool().out_count(), 32);
        drop((rx, tx));
        let device = port.device();
        assert!(device.check_pools().unwrap_err().to_string().contains("32 never came back"));
        device.stop().unwrap();
        device.check_pools().unwrap();
        assert_eq!(device.counters().sent, 40);
        assert_eq!(port.take_all_sent(), numbered(40).collect::<Vec<_>>());
        assert!(port.take_sent(0).is_empty());
    }

    #[test]
    fn an_rx_queue_is_claimed_once_and_tx_queues_as_often_as_there_are_sinks() {
        let port = MemoryPort::new("lan");
        let _claimed = port.rx_queue(&core(2)).unwrap();
        let message = port.rx_queue(&core(2)).unwrap_err().to_string();
        assert_eq!(message, "RX queue 2 of port lan is claimed already");
        // An exit and the sink of one core, on the same port.
        let frames = |number: usize| numbered(10 * number as u8).skip(5 * number);
        for number in [1, 2] {
            let mut tx = port.tx_queue(&core(2)).unwrap();
            let mut burst = Burst::new();
            burst.extend(frames(number).map(|frame| port.pool().take(&frame).unwrap()));
            assert_eq!(tx.send(&mut burst), 5 * number);
        }
        assert_eq!(port.take_sent(2), frames(1).collect::<Vec<_>>());
        assert_eq!(port.take_sent(2 + core(2).count()), frames(2).collect::<Vec<_>>());
    }
}
