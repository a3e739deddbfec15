//! Measures every rung in turn, several times.

mod idle;
mod page;
mod rates;
mod rungs;
mod sleeper;

use crate::UdpBed;
use crate::programs::{Measured, Window, measure};
use hotloop_measure::distance::{Distance, around};
use hotloop_measure::figure::{Figure, QUARTER_COUNT, median};
use rungs::{Part, Rung};

/// Number of measurements of each rung, in turn with the others.
const ROUND_COUNT: usize = 2 * QUARTER_COUNT;

/// A rung, and its measurements in each round.
struct Climbed<'r> {
    rung: &'r Rung,
    /// The cores' distance, if nothing else is between sender and receiver.
    distance: Option<Distance>,
    rounds: Vec<Measured>,
    /// The error of the latest round that failed.
    failure: Option<String>,
}

impl Climbed<'_> {
    fn name(&self) -> String {
        let name = self.rung.name;
        self.distance
            .map_or(name.to_owned(), |distance| format!("{name}, {} cores", distance.name()))
    }

    /// A figure of all rounds.
    fn figure(&self, of: impl Fn(&Measured) -> f64) -> Figure {
        Figure::of_rounds(self.rounds.iter().map(of))
    }

    /// The median round.
    fn middle(&self) -> Option<&Measured> {
        let rates: Vec<_> = self.rounds.iter().map(|measured| measured.received_pps).collect();
        let middle = if rates.is_empty() { 0.0 } else { median(rates) };
        let distance = |measured: &&Measured| (measured.received_pps - middle).abs();
        self.rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

/// Climbs the ladder, and measures the cost of sleeping and the precision of rates.
///
/// # Errors
/// The error message of a program that fails; and if the tables can't be written.
pub fn run(bed: &UdpBed) -> Result<(), String> {
    let folder = bed.folder().to_str().ok_or("the temporary folder has a name that is no text")?;
    let rungs = rungs::all(folder);
    let mut all: Vec<_> = rungs.iter().flat_map(entries).collect();
    for round in 0..ROUND_COUNT {
        for rung in &rungs {
            eprintln!("{}, round {} of {ROUND_COUNT}", rung.name, round + 1);
            let climbed = climb(bed, rung);
            let distance = climbed.as_ref().map_or(None, |(_, distance)| *distance);
            let mut of_rung = all.iter_mut().filter(|climbed| std::ptr::eq(climbed.rung, rung));
            match climbed {
                // If the distance of the cores changed, the round counts for neither.
                Ok((measured, _)) => of_rung
                    .find(|climbed| climbed.distance == distance)
                    .into_iter()
                    .for_each(|climbed| climbed.rounds.push(measured.clone())),
                Err(error) => of_rung.for_each(|climbed| climbed.failure = Some(error.clone())),
            }
        }
    }
    let (mut rows, mut unshown) = (rates::rows(bed.folder())?, Vec::new());
    match idle::rows(bed.folder(), &mut unshown) {
        Ok(of_idle) => rows.extend(of_idle),
        Err(reason) => unshown.push(reason),
    }
    page::publish(&all, rows, unshown)
}

/// One for each distance of cores, if that matters.
fn entries(rung: &Rung) -> Vec<Climbed<'_>> {
    let climbed = |distance| Climbed { rung, distance, rounds: Vec::new(), failure: None };
    match rung.part {
        Part::Memory => Distance::ALL.map(|distance| climbed(Some(distance))).into(),
        _ => vec![climbed(None)],
    }
}

/// The measurement, and the distance of the cores, if that matters and did not change.
fn climb(bed: &UdpBed, rung: &Rung) -> Result<(Measured, Option<Distance>), String> {
    let UdpBed { wire, .. } = bed;
    if rung.part == Part::Memory {
        let source = rung.source.as_deref().map(|arguments| (None, arguments));
        let (seen, measured) =
            around(|| measure(bed.folder(), Window::SHORT, (None, &rung.sink), source))?;
        return Ok((measured, seen.distance()));
    }
    wire.steer(rung.softirq_cpu)?;
    let source = rung.source.as_deref().map(|arguments| (Some(&wire.sender), arguments));
    let measured = measure(bed.folder(), Window::LONG, (Some(&wire.receiver), &rung.sink), source)?;
    Ok((measured, None))
}
