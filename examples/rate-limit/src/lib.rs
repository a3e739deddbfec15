//! A rate limiter: each source of packets has a token bucket of its own.
//!
//! The network function is [`limited`], from the packets that a port receives to those that may pass. It
//! knows sources and sinks, not DPDK, so its tests run on plain memory.
//!
//! - One core owns a source: [`shard_by`](Chain::shard_by) sends its packets there, so buckets need no lock.
//! - [`Limiter`] takes bursts in two phases. First it reads the sources of all packets and prefetches their
//!   buckets; then it takes a token for each packet.
//!
//! ```
//! use hotloop::prelude::*;
//! use hotloop::stage::TokenRate;
//! use rate_limit::{LimitDrop, Limiter, Limits};
//!
//! let limits = Limits { rate: TokenRate::per_second(10, 2), sources_max: 1_000 };
//! let mut bench = bench_burst(Limiter::new(&Core::new(0, 1), limits)?);
//! let out = bench.feed(vec![udp().from("10.0.0.1:53"); 3]);
//! assert_eq!((out.packets().len(), out.dropped(LimitDrop::OverRate)), (2, 1));
//! # Ok::<(), hotloop::Error>(())
//! ```
#![forbid(unsafe_code)]

use hotloop::flow::{Config, HashSeed, Hint, Hints, hash_words};
use hotloop::packet::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::prelude::*;
use hotloop::stage::{Counter, Gauge, TokenBucket, TokenRate};
use std::{net::Ipv4Addr, sync::Arc};

drop_reasons! {
    /// Why the limiter drops packets.
    pub enum LimitDrop {
        /// Its source has sent more than it may.
        OverRate = "over_rate",
        /// Its source is new, and the core has no room for another.
        TableFull = "table_full",
    }
}

/// The operator's limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The rate at which each source's bucket gets tokens, one for each packet.
    pub rate: TokenRate,
    /// The maximum number of sources that each core remembers.
    pub sources_max: usize,
}

/// A source: an IPv4 address, or the upper half of an IPv6 address, as one host may have all of its /64.
pub type SourceKey = [u64; 2];

/// The seed of the hash that distributes sources to cores.
const SEED: HashSeed = HashSeed::new(0);

/// The source of a frame. `None` if it carries no IP.
fn source_of(frame: &[u8]) -> Option<SourceKey> {
    match ethernet::network_layer(frame)? {
        (ETHERTYPE_IPV4, at) => {
            let source: [u8; 4] = *frame.get(at + 12..)?.first_chunk()?;
            Some([0, u64::from(Ipv4Addr::from(source).to_bits())])
        }
        (ETHERTYPE_IPV6, at) => Some([u64::from_be_bytes(*frame.get(at + 8..)?.first_chunk()?), 0]),
        _ => None,
    }
}

/// The limiter, from received packets to those that may pass. Packets without IP pass.
pub fn limited<P: PacketBuf>(chain: impl Chain<Out = P>, limits: Limits) -> impl Chain<Out = P> {
    chain.shard_by(shard).try_burst_stage(move |core| Limiter::new(core, limits))
}

/// The hash that selects the core of a packet's source.
pub fn shard<P: PacketBuf>(packet: &P) -> u32 {
    source_of(packet.data()).map_or(0, |source| (hash_words(&source, &SEED) >> 32) as u32)
}

/// The stage that drops the packets of sources that send too much, with the buckets of one core.
pub struct Limiter {
    limits: Limits,
    buckets: Table<SourceKey, TokenBucket>,
    /// The hints for a burst's buckets in their table.
    hints: Hints,
    /// The number of sources that are remembered.
    source_count: Arc<Counter>,
}

/// The number of places that are checked for silent sources in each turn of the core.
const EXPIRE_BUDGET: usize = 15;

impl Limiter {
    /// The limiter of a core, which knows no source yet.
    ///
    /// # Errors
    /// There is not enough memory for the buckets.
    pub fn new(core: &Core, limits: Limits) -> hotloop::Result<Self> {
        // A source that is silent until its bucket is full may be forgotten.
        let idle_ns = limits.rate.time_to_fill().as_nanos() as u64;
        let config = Config::new(limits.sources_max, idle_ns);
        let buckets = Table::new(Arena::on(core.node())?, config)?;
        Ok(Self { limits, buckets, hints: Hints::new(), source_count: Arc::default() })
    }

    /// Takes a token from the bucket of a source.
    #[inline]
    fn take(&mut self, source: SourceKey, hint: Hint, now: Instant) -> Result<(), LimitDrop> {
        let handle = match self.buckets.find(&source, hint, now) {
            Some((handle, _)) => handle,
            None => {
                let full = TokenBucket::default();
                let inserted = self.buckets.insert(source, full, now, &mut |_, _| ());
                inserted.map_err(|_| LimitDrop::TableFull)?
            }
        };
        let has_token = self.buckets[handle].take(&self.limits.rate, 1, now);
        if has_token { Ok(()) } else { Err(LimitDrop::OverRate) }
    }
}

impl<P: PacketBuf> BurstStage<P> for Limiter {
    type Out = P;
    type Drop = LimitDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, LimitDrop>,
        input: &mut Burst<P>,
        out: &mut Output<'_, P>,
    ) {
        // First phase: the memory of all buckets is on its way at once.
        let mut sources = [None; BURST_CAPACITY];
        for (source, packet) in sources.iter_mut().zip(input.iter_mut()) {
            *source = source_of(packet.data());
        }
        self.buckets.hint_burst(sources[..input.len()].iter().copied(), &mut self.hints);
        // Second phase: each packet becomes one output or one counted drop.
        out.map_indexed(input, |index, packet| {
            let Some(source) = sources[index] else { return Some(packet) };
            match self.take(source, self.hints.at(index), cx.now()) {
                Ok(()) => Some(packet),
                Err(reason) => cx.drop(packet, reason).ok(),
            }
        });
    }

    fn tick(&mut self, cx: &mut Cx<'_, LimitDrop>, _: &mut Output<'_, P>) {
        self.buckets.expire(cx.now(), EXPIRE_BUDGET, |_, _| {});
        self.source_count.set(self.buckets.len() as u64);
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("sources", &self.source_count)]
    }
}

/// The page's sample, included here to be compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
