//! Packets of many flows, from memory and back into it: as cheap as real headers can be.
//!
//! Packet buffers circulate: the source writes a frame's headers into a buffer, the sink returns it
//! through a ring. This costs little, and the same for every network function between the two.

mod frames;

pub use frames::{ACK, FLOWS_MAX, SERVICE_PORT, SERVICES, SYN, Writer};

use crate::buffer::Buffer;
use hotloop::ring::{Consumer, Producer, ring};
use hotloop::stage::{BURST_CAPACITY, Burst, Core, Error, Sink, Source};
use hotloop_measure::random::Random;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

/// The settings of a source that can change while it runs.
#[derive(Debug)]
pub struct Dial {
    /// The next flow in sequential order.
    next: AtomicU32,
    /// The flow after the last: of random ones, or in sequential order.
    end: AtomicU32,
    /// 1 if flows come in random order.
    is_random: AtomicU8,
    flags: AtomicU8,
}

impl Dial {
    /// Switches to packets with these flags of random flows below `end`.
    pub fn random(&self, end: u32, flags: u8) {
        self.flags.store(flags, Relaxed);
        self.end.store(end, Relaxed);
        self.is_random.store(1, Release);
    }

    /// Switches to one packet with these flags of each flow from `first` up to `end`, and then
    /// to no packets.
    pub fn one_of_each(&self, first: u32, end: u32, flags: u8) {
        // No packets between the two.
        self.end.store(0, Relaxed);
        self.is_random.store(0, Release);
        self.flags.store(flags, Relaxed);
        self.next.store(first, Relaxed);
        self.end.store(end, Release);
    }

    /// Switches to no packets.
    pub fn pause(&self) {
        self.one_of_each(0, 0, 0);
    }

    /// The next flow in sequential order.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.next.load(Acquire)
    }
}

/// A source and a sink, and the buffers that circulate between them.
#[derive(Debug)]
pub struct Loop {
    dial: Arc<Dial>,
    source: Mutex<Option<Generator>>,
    sink: Mutex<Option<Collector>>,
}

/// The source.
#[derive(Debug)]
pub struct Generator {
    home: Consumer<Buffer>,
    writer: Writer,
    dial: Arc<Dial>,
    random: Random,
}

/// The sink.
#[derive(Debug)]
pub struct Collector {
    home: Producer<Buffer>,
}

impl Loop {
    /// With this many buffers, which limit the packets in flight.
    #[must_use]
    pub fn new(buffer_count: usize, writer: Writer) -> Self {
        let (mut producer, home) = ring(buffer_count);
        producer.push_burst(buffer_count, Buffer::new);
        let dial = Arc::new(Dial {
            next: AtomicU32::new(0),
            end: AtomicU32::new(0),
            is_random: AtomicU8::new(0),
            flags: AtomicU8::new(ACK),
        });
        let generator =
            Generator { home, writer, dial: Arc::clone(&dial), random: Random::seeded(7) };
        Self {
            dial,
            source: Mutex::new(Some(generator)),
            sink: Mutex::new(Some(Collector { home: producer })),
        }
    }

    /// The settings that control what the source sends: nothing, at first.
    #[must_use]
    pub fn dial(&self) -> Arc<Dial> {
        Arc::clone(&self.dial)
    }

    /// The source, for one core.
    ///
    /// # Errors
    /// The source was already taken.
    pub fn source(&self, _: &Core) -> Result<Generator, Error> {
        take(&self.source)
    }

    /// The sink, for one core.
    ///
    /// # Errors
    /// The sink was already taken.
    pub fn sink(&self, _: &Core) -> Result<Collector, Error> {
        take(&self.sink)
    }
}

fn take<T>(end: &Mutex<Option<T>>) -> Result<T, Error> {
    let end = end.lock().unwrap_or_else(PoisonError::into_inner).take();
    end.ok_or_else(|| Error::message("a loop has one source and one sink"))
}

impl Source for Generator {
    type Item = Buffer;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Buffer>) -> usize {
        let Self { home, writer, dial, random } = self;
        let is_random = dial.is_random.load(Acquire) == 1;
        let (end, flags) = (dial.end.load(Acquire), dial.flags.load(Relaxed));
        let room = burst.room().min(BURST_CAPACITY);
        let mut next = dial.next.load(Relaxed);
        let left = if is_random { room } else { end.saturating_sub(next) as usize };
        let first = burst.len();
        let count = home.pop_into(room.min(left), burst);
        let buffers = &mut burst.as_mut_slice()[first..];
        if is_random {
            buffers.iter_mut().for_each(|buffer| writer.write(buffer, random.below(end), flags));
            return count;
        }
        for buffer in buffers {
            writer.write(buffer, next, flags);
            next += 1;
        }
        if count > 0 {
            dial.next.store(next, Release);
        }
        count
    }
}

impl Sink for Collector {
    type Item = Buffer;

    #[inline]
    fn send(&mut self, burst: &mut Burst<Buffer>) -> usize {
        self.home.push_from(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round_and_the_dial_is_obeyed() {
        let loop_ = Loop::new(100, Writer::new(10));
        let core = Core::new(0, 1);
        let (mut source, mut sink) = (loop_.source(&core).unwrap(), loop_.sink(&core).unwrap());
        assert!(loop_.source(&core).is_err() && loop_.sink(&core).is_err());
        let mut burst = Burst::new();
        assert_eq!(source.poll(&mut burst), 0);
        let dial = loop_.dial();
        dial.one_of_each(5, 205, SYN);
        let mut counts = Vec::new();
        while dial.next() < 205 {
            counts.push(source.poll(&mut burst));
            assert_eq!(sink.send(&mut burst), *counts.last().unwrap());
        }
        assert_eq!((counts.iter().sum::<usize>(), source.poll(&mut burst)), (200, 0));
        dial.random(3, ACK);
        let taken: usize = (0..3).map(|_| source.poll(&mut burst) + sink.send(&mut burst)).sum();
        assert!(taken >= 128, "{taken}");
        dial.pause();
        assert_eq!(source.poll(&mut burst), 0);
    }
}
