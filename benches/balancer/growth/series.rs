//! Sizes of one kind, each measured in turns with the previous one.

use super::machine::{Cache, Capacity, caches};
use hotloop::arena::Pages;
use hotloop::flow::Table;
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop_balancer::connection::Connection;
use hotloop_balancer::counts::TargetCounts;
use hotloop_benches::bed::{Bed, HUGEPAGE_BYTES, LazyBed, Setup, TableMemory, to_enter};
use hotloop_measure::contest::{Contest, Outcome, Side};
use hotloop_measure::figure::Figure;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::row::{Row, SPREAD_MAX};

/// A step to the next size that costs more than this, as a factor of the time per packet, must be
/// explained by a cache.
pub const STEP_MAX: f64 = 1.5;

/// Number of connections while services or backends grow.
const FLOW_COUNT: u32 = 1_000_000;

/// Number of services while connections or backends grow.
const SERVICE_COUNT: u32 = 10;

/// Number of warm-up packets per connection before counting, since one random packet per connection
/// leaves out a third of the connections; up to a maximum in total.
const PASS_PACKETS: u32 = 4;
const PASS_MAX: u32 = 2_000_000;

const PAGE_BYTES: usize = 4 << 10;
const LINE_BYTES: usize = 64;

/// The growing quantity.
#[derive(Clone, Copy)]
pub struct Growth {
    pub name: &'static str,
    pub counts: &'static [u32],
    setup: fn(u32) -> Setup,
}

/// The measurements of one kind.
pub struct Series {
    pub name: &'static str,
    pub points: Vec<Point>,
}

/// The measurement of one size.
pub struct Point {
    pub count: u32,
    /// Nanoseconds a packet.
    pub figure: Figure,
    pub instructions: Option<f64>,
    pub memory: TableMemory,
    /// The step from the previous size.
    pub step: Option<Step>,
}

/// A size compared with the previous one.
pub struct Step {
    pub row: Row,
    /// The caches that the larger size outgrows.
    pub outgrown: Vec<String>,
}

impl Growth {
    /// All kinds.
    pub const ALL: [Self; 3] = [
        Self {
            name: "connections",
            counts: &[1_000, 8_000, 64_000, 512_000, 4_000_000, 16_000_000, 64_000_000],
            setup: |count| Setup::hits(SERVICE_COUNT, count),
        },
        Self {
            name: "services",
            counts: &[1, 10, 100, 1_000, 10_000, 100_000],
            setup: |count| Setup::hits(count, FLOW_COUNT),
        },
        Self {
            name: "backends",
            counts: &[1, 3, 10, 100, 650],
            setup: |count| Setup { backend_count: count, ..Setup::hits(SERVICE_COUNT, FLOW_COUNT) },
        },
    ];

    /// The parameters of a size.
    fn setup(&self, count: u32, is_counting: bool) -> Setup {
        let Setup { service_count, backend_count, flow_count, .. } = (self.setup)(count);
        let hits = Setup::hits(service_count, to_enter(flow_count, is_counting));
        Setup { backend_count, ..hits }
    }

    /// Leaves out the largest sizes while the connections of all sizes together take more than
    /// `room_bytes`. Returns which, and why.
    pub fn fit(&mut self, room_bytes: usize) -> Vec<String> {
        let mut left_out = Vec::new();
        while let Some((&count, fewer)) = self.counts.split_last()
            && self.connections_bytes() > room_bytes
        {
            let (name, bytes) = (self.side(count), self.connections_bytes());
            let [needed, room] = [bytes, room_bytes].map(|bytes| bytes >> 20);
            left_out.push(format!("{name}: needs {needed} MiB, and there are {room}"));
            self.counts = fewer;
        }
        left_out
    }

    /// Pages of 2 MiB that all sizes take together.
    pub fn hugepage_count(&self) -> usize {
        self.counts.iter().map(|count| (self.setup)(*count).hugepage_count()).sum()
    }

    fn connections_bytes(&self) -> usize {
        self.counts.iter().map(|count| (self.setup)(*count).connections_bytes()).sum()
    }

    /// The name of a size.
    fn side(&self, count: u32) -> String {
        format!("{} {}", short(count), self.name)
    }

    /// Measures each size in turns with the previous one. Returns `None` if they are only counted.
    pub fn measure(&self, instrument: &mut Instrument) -> Result<Option<Series>, String> {
        let is_counting = instrument.is_counting();
        let sizes: Vec<_> =
            self.counts.iter().map(|count| self.size(*count, is_counting)).collect();
        let pairs = sizes.windows(2).map(|pair| {
            let contest = Contest::new(&format!("growth/{}", pair[1].name));
            contest.with(pair[0].side()).with(pair[1].side()).run(instrument)
        });
        // Don't stop at the first `None`: a process that counts returns `None` for all.
        let outcomes: Vec<_> = pairs.collect();
        let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
        let series = outcomes
            .filter(|outcomes| !outcomes.is_empty())
            .map(|outcomes| Series { name: self.name, points: points(&sizes, &outcomes) });
        sizes.into_iter().try_for_each(|size| size.bed.finish())?;
        Ok(series)
    }

    fn size(&self, count: u32, is_counting: bool) -> Size {
        let setup = self.setup(count, is_counting);
        let bed = LazyBed::new(move || Bed::balancer(&setup));
        Size { count, name: self.side(count), setup, bed }
    }
}

/// One size, while it is measured.
struct Size {
    count: u32,
    name: String,
    setup: Setup,
    bed: LazyBed,
}

impl Size {
    fn side(&self) -> Side<'_> {
        let pass = u64::from((PASS_PACKETS * self.setup.flow_count).min(PASS_MAX));
        Side::new(&self.name, |count| self.bed.with(|bed| bed.play(count))).pass(pass)
    }

    fn point(&self, outcome: &Outcome, step: Option<Step>) -> Point {
        let memory = self.bed.with(|bed| bed.memory().expect("a balancer's"));
        let (figure, instructions) = (outcome.figure(&self.name), outcome.instructions(&self.name));
        Point { count: self.count, figure, instructions, memory, step }
    }
}

/// All sizes; each except the first was measured beside the previous one.
fn points(sizes: &[Size], outcomes: &[Outcome]) -> Vec<Point> {
    let caches = caches();
    let mut points = vec![sizes[0].point(&outcomes[0], None)];
    for (pair, outcome) in sizes.windows(2).zip(outcomes) {
        let touched: Vec<_> = pair.iter().map(Touched::by).collect();
        let is_outgrown = |cache: &&Cache| touched[0].half_fits(cache) && !touched[1].fits(cache);
        let outgrown: Vec<_> =
            caches.iter().filter(is_outgrown).map(|cache| cache.name.clone()).collect();
        // If a cache is outgrown, any step is accepted.
        let aim = if outgrown.is_empty() { 1.0 / STEP_MAX } else { 0.0 };
        let sides = (&*pair[1].name, &*pair[0].name);
        let row = outcome.row(&format!("hits, {}", pair[1].name), "ns a packet", sides, aim);
        points.push(pair[1].point(outcome, Some(Step { row, outgrown })));
    }
    points
}

impl Series {
    /// The steps from size to size.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.points.iter().filter_map(|point| point.step.as_ref())
    }
}

impl Point {
    /// The range of the figure's closest three quarters, relative to the figure.
    pub fn spread(&self) -> f64 {
        self.figure.spread() / self.figure.value
    }

    /// Whether enough slices were undisturbed, and the quarters of the run agree.
    pub fn is_settled(&self) -> bool {
        self.figure.settled && self.spread() <= SPREAD_MAX
    }
}

/// The memory read by packets of all connections together.
struct Touched {
    bytes: usize,
    page_count: usize,
}

impl Touched {
    /// IPv4's connection table; and for each target a line and its counts, on pages of 4 KiB.
    fn by(size: &Size) -> Self {
        let memory = size.bed.with(|bed| bed.memory().expect("a balancer's"));
        let capacity = size.setup.connections_max as usize;
        let table_bytes =
            Table::<FlowKeyV4, (Connection, u32)>::bytes(capacity).expect("can be addressed");
        let page_bytes = match memory.connections.pages {
            Pages::Small => PAGE_BYTES,
            Pages::Transparent | Pages::Huge | Pages::Gigantic => HUGEPAGE_BYTES,
        };
        let targets_bytes = memory.target_count * (LINE_BYTES + size_of::<TargetCounts>());
        Self {
            bytes: table_bytes + targets_bytes,
            page_count: table_bytes.div_ceil(page_bytes) + targets_bytes.div_ceil(PAGE_BYTES),
        }
    }

    fn fits(&self, cache: &Cache) -> bool {
        match cache.capacity {
            Capacity::Bytes(bytes) => self.bytes <= bytes,
            Capacity::Pages(count) => self.page_count <= count,
        }
    }

    fn half_fits(&self, cache: &Cache) -> bool {
        Self { bytes: self.bytes / 2, page_count: self.page_count / 2 }.fits(cache)
    }
}

/// The number in few characters.
pub fn short(count: u32) -> String {
    match count {
        _ if count > 0 && count.is_multiple_of(1_000_000) => format!("{}M", count / 1_000_000),
        _ if count > 0 && count.is_multiple_of(1_000) => format!("{}K", count / 1_000),
        _ => count.to_string(),
    }
}
