//! The flow table compared with DPDK's and hashbrown's.

mod change;
mod flood;
mod keys;
mod lookup;
mod tables;

use crate::Bench;
use hotloop::arena::{Arena, Pages, Request};
use hotloop_measure::hugepages::Reserved;

/// Number of 2 MiB pages for all tables together.
const HUGEPAGE_COUNT: usize = 2_200;

/// All rows of the flow table, on the largest pages.
pub fn bench(bench: &mut Bench) {
    let row_count = bench.table.rows.len();
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    let largest = if reserved.is_ok() { Pages::Huge } else { without_reserved() };
    lookup::bench(bench, largest);
    flood::bench(bench, largest);
    change::churn(bench, largest);
    if let Err(reason) = &reserved
        && bench.table.rows.len() > row_count
    {
        bench.table.unshown.push(format!("flow rows on reserved 2 MiB pages: {reason}"));
    }
}

/// The largest pages available without a reservation.
fn without_reserved() -> Pages {
    let request = Request { pages: vec![Pages::Transparent], ..Request::new(4 << 20) };
    if Arena::new(request).is_ok() { Pages::Transparent } else { Pages::Small }
}

/// The pages' name in contests' names.
fn short(pages: Pages) -> &'static str {
    match pages {
        Pages::Huge => "2M",
        Pages::Small => "4K",
        _ => "THP",
    }
}
