//! Boundaries, at which packets change cores.

use super::bounds::IntoShard;
use super::group::{Group, Input, Rings};
use super::node::Node;
use crate::deployment::Deployment;
use crate::node_info::NodeInfo;
use crate::panic_origin::record;
use crate::settle::{BurstCounts, abandon_received, settle};
use crate::turn::TurnContext;
use hotloop_ring::{Mesh, Producers};
use hotloop_stage::tap::{TapEvent, TapPoint, show};
use hotloop_stage::{BURST_CAPACITY, Burst, Carries, Counters, DropReason, Instant, drop_reasons};
use hotloop_watch::{Place, PlaceKind};
use std::marker::PhantomData;
use std::sync::Arc;

/// The core of the next group that a packet goes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shard {
    /// The core that owns this hash: equal hashes meet on one core.
    Hash(u32),
    /// The core with this number; past the last core, counting starts over.
    Worker(usize),
}

impl From<u32> for Shard {
    #[inline]
    fn from(hash: u32) -> Self {
        Self::Hash(hash)
    }
}

impl Shard {
    /// The core, of `core_count`, for the packet. Hashes are split into ranges of equal size.
    #[inline(always)]
    #[must_use]
    pub const fn worker(self, core_count: usize) -> usize {
        match self {
            Self::Hash(hash) => ((hash as u64 * core_count as u64) >> 32) as usize,
            Self::Worker(worker) => worker % core_count,
        }
    }
}

/// Total capacity of the rings to one core, in packets, unless the plan sets another.
const RINGS_CAPACITY: usize = 4096;

/// Minimum capacity of each of these rings.
const RING_CAPACITY_MIN: usize = 64;

/// Selects a core of the next group for each packet.
pub trait Key<T>: Sync {
    /// The name of the boundary.
    const NAME: &'static str;

    /// Whether all packets of a core go to one core of the next group, in their order.
    const IS_HANDOFF: bool;

    /// The core of the next group, of `core_count`. Not called if there is only one choice.
    fn worker(&self, item: &T, core_count: usize) -> usize;
}

/// Selects by a function of the packet.
pub struct ByShard<F, I>(F, PhantomData<fn() -> I>);

impl<F, I> ByShard<F, I> {
    pub const fn new(key: F) -> Self {
        Self(key, PhantomData)
    }
}

impl<T, I: IntoShard, F: Fn(&T) -> I + Sync> Key<T> for ByShard<F, I> {
    const NAME: &'static str = "shard_by";
    const IS_HANDOFF: bool = false;

    #[inline(always)]
    fn worker(&self, item: &T, core_count: usize) -> usize {
        (self.0)(item).into_shard().worker(core_count)
    }
}

/// Selects by the sending core.
pub struct Handoff;

impl<T> Key<T> for Handoff {
    const NAME: &'static str = "handoff";
    const IS_HANDOFF: bool = true;

    fn worker(&self, _: &T, _: usize) -> usize {
        unreachable!("a handoff leaves no choice")
    }
}

drop_reasons! {
    enum BoundaryDrop { RingFull = "ring_full" }
}

/// The boundary from one core into the next group, with this core's own share of that group, if it
/// has one.
pub struct Boundary<'a, T: Carries, K, D> {
    key: &'a K,
    out: Out<T>,
    own: Option<Own<T, D>>,
}

/// The index of a core in the next group, and the core's share of that group. Boxed: chains are
/// made on the stack, and bursts are large.
type Own<T, D> = (usize, Box<Group<Rings<T>, D>>);

/// The rings to the cores of the next group, with a burst for each.
struct Out<T> {
    /// `None` once the rings are closed.
    rings: Option<Producers<T>>,
    /// The core that all packets go to, if there is only one choice.
    only: Option<usize>,
    lanes: Box<[Burst<T>]>,
    name: String,
    number: u32,
    group: usize,
    counters: Arc<Counters>,
}

impl<'a, T: Carries, K: Key<T>, D: Node<T>> Boundary<'a, T, K, D> {
    /// The boundary after `group`, on its core `index`, with `rings` to every core of the next group.
    pub fn new(
        key: &'a K,
        group: usize,
        index: usize,
        name: String,
        rings: Producers<T>,
        own: Option<Box<Group<Rings<T>, D>>>,
    ) -> Self {
        let only = K::IS_HANDOFF.then_some(index % rings.consumer_count());
        let out = Out::new(group, name, rings, only);
        Self { key, out, own: own.map(|own| (index, own)) }
    }

    /// Sends each packet to the core that the key selects.
    #[inline(always)]
    fn distribute(&mut self, context: TurnContext<'_>, burst: &mut Burst<T>) {
        let Self { key, out, own } = self;
        let (own_index, mut input) = match own {
            Some((index, group)) => {
                // So that no packet must be run in the middle of the burst.
                if group.input.burst().len() + burst.len() > BURST_CAPACITY {
                    group.run_own(context.watch);
                    context.watch.enter(out.number);
                }
                (*index, Some(&mut group.input))
            }
            None => (usize::MAX, None),
        };
        let kept_before = input.as_mut().map_or(0, |input| input.burst().len());
        let mut selecting = Selecting { out: &mut *out, input, kept_before };
        let core_count = selecting.out.lanes.len();
        burst.fetch();
        while let Some(item) = burst.pop() {
            let worker = key.worker(&item, core_count);
            match &mut selecting.input {
                Some(input) if worker == own_index => input.burst().push(item),
                _ => selecting.out.lanes[worker].push(item),
            }
        }
        selecting.count_kept();
        std::mem::forget(selecting);
        out.flush(context.now);
    }
}

/// A burst being distributed. If the key panicked, the drop counts the packets before, and the
/// packet of the panic as lost.
struct Selecting<'a, T: Carries> {
    out: &'a mut Out<T>,
    input: Option<&'a mut Input<Rings<T>>>,
    kept_before: usize,
}

impl<T: Carries> Selecting<'_, T> {
    /// Counts the packets that stay on this core.
    #[inline(always)]
    fn count_kept(&mut self) {
        if let Some(input) = &mut self.input {
            let kept = input.burst().len() - self.kept_before;
            self.out.count_kept(kept);
            input.count(kept, kept);
        }
    }
}

impl<T: Carries> Drop for Selecting<'_, T> {
    #[cold]
    fn drop(&mut self) {
        record(&self.out.name);
        self.count_kept();
        self.out.counters.received.add(1);
        self.out.counters.panicked.add(1);
    }
}

impl<T: Carries> Out<T> {
    fn new(group: usize, name: String, rings: Producers<T>, only: Option<usize>) -> Self {
        let core_count = rings.consumer_count();
        let lanes = (0..core_count).map(|_| Burst::new()).collect();
        let counters = Arc::new(Counters::new(BoundaryDrop::NAMES));
        let only = only.or((core_count == 1).then_some(0));
        Self { rings: Some(rings), only, lanes, name, number: 0, group, counters }
    }

    /// Counts packets that stay on this core.
    #[inline(always)]
    fn count_kept(&self, count: usize) {
        self.counters.received.add(count as u64);
        self.counters.emitted.add(count as u64);
    }

    #[inline(always)]
    fn flush(&mut self, now: Instant) {
        for worker in 0..self.lanes.len() {
            let lane = &mut self.lanes[worker];
            if !lane.is_empty() {
                Self::send(&mut self.rings, &self.counters, now, worker, lane);
            }
        }
    }

    /// Moves a burst into its ring. Packets without room are the newest ones, and are dropped.
    #[inline(never)]
    fn send(
        rings: &mut Option<Producers<T>>,
        counters: &Counters,
        now: Instant,
        worker: usize,
        burst: &mut Burst<T>,
    ) {
        let received = burst.len();
        let pushed = rings.as_mut().map_or(0, |rings| rings.push_from(worker, burst));
        if !burst.is_empty() && counters.is_tapped() {
            let point = TapPoint::Drop(BoundaryDrop::NAMES[BoundaryDrop::RingFull.index()]);
            show(TapEvent { counters, point, now }, burst, 0);
        }
        let dropped = burst.len() as u64;
        counters.count_drops(BoundaryDrop::RingFull.index(), dropped);
        burst.clear();
        let (received, emitted) = (received as u64, pushed as u64);
        counters.crossed.add(emitted);
        settle(
            counters,
            BurstCounts { received, emitted, dropped, ..BurstCounts::default() },
            false,
        );
    }
}

impl<T: Carries, K: Key<T>, D: Node<T>> Node<T> for Boundary<'_, T, K, D> {
    #[inline(always)]
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<T>) {
        let Self { out, own, .. } = self;
        context.watch.enter(out.number);
        if let Some((_, group)) = own {
            group.follow(context.now);
        }
        match (out.only, own) {
            (None, _) => self.distribute(context, burst),
            (Some(only), Some((index, group))) if only == *index => {
                out.count_kept(burst.len());
                group.pass(context, burst);
            }
            (Some(only), _) => Out::send(&mut out.rings, &out.counters, context.now, only, burst),
        }
    }

    #[inline(always)]
    fn turn(&mut self, context: TurnContext<'_>) -> usize {
        self.own.as_mut().map_or(0, |(_, group)| group.turn_own(context))
    }

    fn close(&mut self, context: TurnContext<'_>) -> bool {
        self.out.rings = None;
        self.own.as_mut().is_none_or(|(_, group)| {
            group.follow(context.now);
            group.close(context.watch)
        })
    }

    fn room(&mut self) -> usize {
        let rings = self.out.rings.as_mut().map_or(0, Producers::free_count_min);
        let own = self.own.as_mut().map_or(usize::MAX, |(_, group)| group.room());
        rings.min(own)
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        see(&mut self.out);
        if let Some((_, group)) = &mut self.own {
            group.visit(see);
        }
    }
}

impl<T: Carries> NodeInfo for Out<T> {
    fn place(&self) -> Place {
        Place::new(PlaceKind::Boundary, self.group, &self.name, &self.counters)
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn in_flight(&self) -> usize {
        self.lanes.iter().map(Burst::len).sum()
    }

    fn in_flight_max(&self) -> usize {
        self.lanes.len() * BURST_CAPACITY
    }

    fn abandon(&mut self) {
        for lane in &mut self.lanes {
            abandon_received(&self.counters, lane);
        }
        self.rings = None;
    }
}

/// The rings between `group` and the next one.
pub fn mesh<T>(
    deployment: Deployment,
    group: usize,
    is_handoff: bool,
    ring_capacity: Option<usize>,
) -> Mesh<T> {
    let (senders, receivers) = (deployment.cores_in(group), deployment.cores_in(group + 1));
    let is_joined = |from: usize, to: usize| match deployment.is_run_to_completion() {
        true => from != to && !is_handoff,
        false => to == from % receivers || !is_handoff,
    };
    let rings_per_core = if is_handoff { senders.div_ceil(receivers) } else { senders };
    let capacity = (RINGS_CAPACITY / rings_per_core).max(RING_CAPACITY_MIN);
    Mesh::joined(senders, receivers, ring_capacity.unwrap_or(capacity), is_joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_split_evenly_and_stay_in_range() {
        for core_count in 1..=7 {
            let mut counts = vec![0; core_count];
            for step in 0..10_000_u32 {
                counts[Shard::Hash(step * (u32::MAX / 10_000)).worker(core_count)] += 1;
            }
            let fair = 10_000 / core_count;
            assert!(counts.iter().all(|&count: &usize| count.abs_diff(fair) <= 2), "{counts:?}");
            assert_eq!(Shard::Hash(u32::MAX).worker(core_count), core_count - 1);
            assert!(Shard::Worker(usize::MAX).worker(core_count) < core_count);
        }
    }
}
