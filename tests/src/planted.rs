//! A forwarder with a planted fault that affects one packet.

use hotloop::dpdk::{Mempool, MempoolConfig};
use hotloop::engine::{Deployment, Graph};
use hotloop::prelude::*;
use hotloop::testing::{Plant, PlantedBurstStage, PlantedSink, PlantedSource, PlantedStage};
use std::str::FromStr;
use std::sync::OnceLock;

/// The index of a core's packet that is affected: one in the middle of a burst.
const FATEFUL: u64 = 999;

/// The place of a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Between the RX queue and the engine.
    Source,
    /// In a stage before the boundary, which returns a verdict for each packet.
    Stage,
    /// In a stage after the boundary, which takes bursts.
    BurstStage,
    /// Between the engine and the TX queue.
    Sink,
}

/// The kind of fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// A packet is freed and counted nowhere.
    Lose,
    /// A packet is neither freed nor emitted.
    Forget,
    /// A packet is emitted twice: the copy is not counted as created.
    Double,
    /// The code panics.
    Panic,
}

/// A fault that affects one packet of each core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The place.
    pub place: Place,
    /// The kind.
    pub deed: Deed,
}

impl Fault {
    /// Every place with every kind; panics only in stages.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let places = [Place::Source, Place::Stage, Place::BurstStage, Place::Sink];
        let deeds = [Deed::Lose, Deed::Forget, Deed::Double, Deed::Panic];
        let all = places.into_iter().flat_map(|place| deeds.map(|deed| Self { place, deed }));
        all.filter(|fault| fault.deed != Deed::Panic || fault.place == Place::Stage).collect()
    }

    /// The packet that triggers the plant at `place`.
    fn at(fault: Option<Self>, place: Place) -> u64 {
        let is_planted =
            fault.is_some_and(|fault| fault.place == place && fault.deed != Deed::Panic);
        if is_planted { FATEFUL } else { u64::MAX }
    }

    fn plant(fault: Option<Self>) -> Plant<Packet> {
        match fault.map(|fault| fault.deed) {
            Some(Deed::Forget) => Plant::Forget,
            Some(Deed::Double) => Plant::Double(copy),
            Some(Deed::Lose | Deed::Panic) | None => Plant::Lose,
        }
    }
}

impl FromStr for Fault {
    type Err = hotloop::Error;

    /// Place and kind in [`Debug`]'s form, with a dot between them: `Sink.Forget`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_meant = |fault: &Self| format!("{:?}.{:?}", fault.place, fault.deed) == text;
        let found = Self::all().into_iter().find(is_meant);
        found.ok_or_else(|| hotloop::Error::message(format!("{text} is no fault")))
    }
}

/// Parses a deployment: the number of workers, or of dispatchers and workers with a plus between
/// them.
///
/// # Errors
/// A text of another form.
pub fn deployment(text: &str) -> hotloop::Result<Deployment> {
    let count = |text: &str| {
        text.parse().map_err(|_| hotloop::Error::message(format!("{text} is no number of cores")))
    };
    Ok(match text.split_once('+') {
        Some((dispatchers, workers)) => {
            Deployment::pipeline([count(dispatchers)?, count(workers)?])
        }
        None => Deployment::run_to_completion(count(text)?),
    })
}

/// Forwards packets with odd numbers from one port to the other, spread over workers by number,
/// with the fault planted; the others are dropped as `even`.
pub fn forwarder<'a>(lan: &'a Port, wan: &'a Port, fault: Option<Fault>) -> impl Graph + 'a {
    let plant = Fault::plant(fault);
    let panics = fault.is_some_and(|fault| fault.deed == Deed::Panic);
    source(move |core| {
        let rx = lan.rx_queue(core)?;
        Ok::<_, hotloop::Error>(PlantedSource::new(rx, plant, Fault::at(fault, Place::Source)))
    })
    .stage(move |_| Number { count: 0, panics })
    .stage(move |_| PlantedStage::new(plant, Fault::at(fault, Place::Stage)))
    .shard_by(|packet: &Packet| u32::from(packet.data()[0]) << 24)
    .burst_stage(move |_| PlantedBurstStage::new(plant, Fault::at(fault, Place::BurstStage)))
    .sink(move |core| {
        let tx = wan.tx_queue(core)?;
        Ok::<_, hotloop::Error>(PlantedSink::new(tx, plant, Fault::at(fault, Place::Sink)))
    })
}

drop_reasons! {
    /// Why the forwarder drops.
    pub enum NumberDrop {
        /// The number is even.
        Even = "even",
    }
}

/// Numbers the packets of a core, in their first byte.
struct Number {
    count: u64,
    panics: bool,
}

impl Stage<Packet> for Number {
    type Out = Packet;
    type Drop = NumberDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, NumberDrop>, mut packet: Packet) -> Verdict<Packet> {
        self.count += 1;
        assert!(!self.panics || self.count <= FATEFUL, "planted");
        if self.count.is_multiple_of(2) {
            return cx.drop(packet, NumberDrop::Even);
        }
        packet.data_mut()[0] = (self.count / 2) as u8;
        Ok(packet)
    }
}

/// Copies a packet into a pool of its own, so that the ports' pools can be whole all the same.
fn copy(packet: &Packet) -> Packet {
    static POOL: OnceLock<Mempool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let config = MempoolConfig { mbuf_count: 1021, cache_count: 0, ..Default::default() };
        Mempool::new(crate::eal(), &config).expect("there is room for a small pool")
    });
    let mut copy = pool.alloc().expect("few packets are doubled");
    let data = copy.append(packet.data().len()).expect("buffers are of one size");
    data.copy_from_slice(packet.data());
    copy
}
