//! A small network function with the behaviour of real ones: looks its packets up in bursts, drops,
//! owns flows, holds packets for a while, and creates some of its own.

use hotloop_engine::Clock;
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Carries, Cx, Instant, Output, Stage, Verdict, drop_reasons,
};
use hotloop_testing::{Frame, PacketPool, PooledPacket, Rng};

/// Number of flows. Each is a shard of its own.
pub const FLOW_COUNT: u8 = 32;

/// The kind of a packet that [`Batch`] made.
pub const KIND_CREATED: u8 = 200;

/// Kinds of packets that trigger panics.
mod panics {
    pub const IN_LOOKUP: u8 = 201;
    pub const IN_PARSE: u8 = 202;
    pub const IN_OWN: u8 = 203;
    pub const IN_PROCESS: u8 = 204;
    pub const IN_TICK: u8 = 205;
    pub const IN_FINISH: u8 = 206;
    pub const IN_KEY: u8 = 207;
}

/// Panics, without printing, if the packet is of that kind.
fn panic_at(kind: u8, packet: &impl Carries) {
    if packet.bytes().get(4) == Some(&kind) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

/// The shard of a flow: the highest bits of its hash are its number.
pub fn shard(flow: u8) -> u32 {
    u32::from(flow) * (u32::MAX / u32::from(FLOW_COUNT))
}

/// The first of the kinds that [`Parse`] refuses.
const KIND_REFUSED: u8 = 240;

/// Flow, RX queue, number and kind, in this order; the rest repeats the number's low byte.
pub const HEADER_BYTES: usize = 5;

/// A frame of some flow; now and then one that triggers a panic.
pub fn frame(queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
    let mut frame = calm_frame(queue_index, number, rng);
    if rng.below(4000) == 0
        && let Some(kind) = frame.bytes.get_mut(4)
    {
        *kind = panics::IN_LOOKUP + rng.below(7) as u8;
    }
    frame
}

/// A frame of some flow; now and then one that is too short or must be refused.
pub fn calm_frame(queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
    if rng.permille(20) {
        return Frame::new(vec![1; rng.index(HEADER_BYTES)]);
    }
    let flow = rng.below(u64::from(FLOW_COUNT)) as u8;
    let kind = if rng.permille(70) { KIND_REFUSED } else { 0 };
    let [high, low] = (number as u16).to_be_bytes();
    let mut bytes = vec![flow, queue_index as u8, high, low, kind];
    bytes.extend(std::iter::repeat_n(low, rng.index(120)));
    // A frame every ten milliseconds or so, not quite in order.
    Frame::new(bytes).captured_at(1_000_000_000 + number * 10_000_000 + rng.below(30_000_000))
}

drop_reasons! {
    pub enum ParseDrop { Short = "short", Refused = "refused" }
}

/// A packet with a complete header.
pub struct Parsed {
    packet: PooledPacket,
    flow: u8,
}

impl Parsed {
    pub fn shard(&self) -> u32 {
        panic_at(panics::IN_KEY, self);
        shard(self.flow)
    }
}

impl Carries for Parsed {
    fn bytes(&self) -> &[u8] {
        self.packet.bytes()
    }

    fn total_bytes(&self) -> usize {
        self.packet.total_bytes()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.packet.each_segment(take);
    }

    fn arrival(&self) -> Option<Instant> {
        self.packet.arrival()
    }
}

/// Finds the flows of a burst before it takes a packet.
pub struct Parse;

impl BurstStage<PooledPacket> for Parse {
    type Out = Parsed;
    type Drop = ParseDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, ParseDrop>,
        input: &mut Burst<PooledPacket>,
        out: &mut Output<'_, Parsed>,
    ) {
        let mut flows = [None; BURST_CAPACITY];
        for (flow, packet) in flows.iter_mut().zip(input.as_slice()) {
            panic_at(panics::IN_LOOKUP, packet);
            *flow = packet.bytes().first_chunk::<HEADER_BYTES>().map(|header| header[0]);
        }
        out.map_indexed(input, |index, packet| {
            panic_at(panics::IN_PARSE, &packet);
            let Some(flow) = flows[index] else { return cx.drop(packet, ParseDrop::Short).ok() };
            if packet.bytes()[4] >= KIND_REFUSED {
                return cx.drop(packet, ParseDrop::Refused).ok();
            }
            Some(Parsed { packet, flow })
        });
    }
}

drop_reasons! {
    pub enum OwnDrop { Early = "early" }
}

/// Owns flows. With the packets' own clock, it drops packets that come before their time, which
/// none may.
pub struct Own {
    pub clock: Clock,
}

impl Stage<Parsed> for Own {
    type Out = PooledPacket;
    type Drop = OwnDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OwnDrop>, parsed: Parsed) -> Verdict<PooledPacket> {
        panic_at(panics::IN_OWN, &parsed);
        if self.clock == Clock::Capture && parsed.arrival().is_some_and(|at| at > cx.now()) {
            return cx.drop(parsed, OwnDrop::Early);
        }
        Ok(parsed.packet)
    }
}

drop_reasons! {
    pub enum BatchDrop { Stale = "stale", Unfinished = "unfinished" }
}

/// Collects eight packets, or fewer for a millisecond, and passes them on together, every third
/// time with one of its own. Drops packets older than a second, and the rest at the end.
pub struct Batch {
    pool: PacketPool,
    held: Vec<PooledPacket>,
    since: Instant,
    release_count: u64,
}

impl Batch {
    const HELD_MAX: usize = 8;

    pub fn new(pool: &PacketPool) -> Self {
        let held = Vec::with_capacity(Self::HELD_MAX);
        Self { pool: pool.clone(), held, since: Instant::default(), release_count: 0 }
    }

    fn release(&mut self, out: &mut Output<'_, PooledPacket>) {
        self.held.drain(..).for_each(|packet| out.push(packet));
        self.release_count += 1;
        if self.release_count.is_multiple_of(3) {
            let created = self.pool.take(&Frame::new([0, 0, 0, 0, KIND_CREATED]));
            created.into_iter().for_each(|packet| out.push_created(packet));
        }
    }
}

impl BurstStage<PooledPacket> for Batch {
    type Out = PooledPacket;
    type Drop = BatchDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, BatchDrop>,
        input: &mut Burst<PooledPacket>,
        out: &mut Output<'_, PooledPacket>,
    ) {
        while let Some(packet) = input.pop() {
            if self.held.is_empty() {
                self.since = cx.now();
            }
            panic_at(panics::IN_PROCESS, &packet);
            self.held.push(packet);
            if self.held.len() == Self::HELD_MAX {
                self.release(out);
            }
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, BatchDrop>, out: &mut Output<'_, PooledPacket>) {
        self.held.iter().for_each(|packet| panic_at(panics::IN_TICK, packet));
        let age_ns = cx.now().ns_since(self.since);
        if self.held.is_empty() || age_ns < 1_000_000 {
            return;
        }
        if age_ns < 1_000_000_000 {
            return self.release(out);
        }
        for packet in self.held.drain(..) {
            cx.discard(packet, BatchDrop::Stale);
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, BatchDrop>, _: &mut Output<'_, PooledPacket>) {
        self.held.iter().for_each(|packet| panic_at(panics::IN_FINISH, packet));
        for packet in self.held.drain(..) {
            cx.discard(packet, BatchDrop::Unfinished);
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn held_max(&self) -> usize {
        Self::HELD_MAX
    }
}
