//! Forwarding on one core compared with `dpdk-testpmd`: processes of their own that take turns on
//! one CPU.

use crate::forwarder::{Case, Forwarder};
use crate::testpmd::{Settings, Testpmd};
use hotloop_measure::alternate::Rates;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;

/// Number of 2 MiB pages that both need at a time.
const HUGEPAGE_COUNT: usize = 600;

/// Rows of cases by their names, each with its target ratio. Cases that need hugepages are left out
/// without them.
pub fn bench(cases: &[(String, Case, f64)], instrument: &Instrument, table: &mut Table) {
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    for (name, case, aim) in cases {
        eprintln!("measuring {name}");
        let rates = match &reserved {
            Err(reason) if case.hugepages => Err(reason.to_string()),
            _ => rates(name, case, instrument),
        };
        match rates {
            Ok(None) => (),
            Ok(Some(rates)) => {
                let (ours, theirs) = rates.figures();
                table.rows.push(Row::rate(name, "testpmd", "Mpps", (&ours, &theirs), *aim));
            }
            Err(reason) => table.unshown.push(format!("{name}: {reason}")),
        }
    }
}

fn rates(name: &str, case: &Case, instrument: &Instrument) -> Result<Option<Rates>, String> {
    Rates::of(name, instrument, || {
        let theirs = Testpmd::start(&Settings::of(case))?;
        Ok((Forwarder::start(case)?, theirs))
    })
}
