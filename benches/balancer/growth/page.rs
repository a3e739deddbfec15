//! The page of the book: the picture, and a row for each size.

use super::machine::caches;
use super::series::{Point, STEP_MAX, Series, short};
use hotloop_measure::table::{Table, instructions};

/// The explanation of the table.
pub fn notes() -> Vec<String> {
    let caches: Vec<_> = caches().iter().map(ToString::to_string).collect();
    vec![
        "hits of small TCP packets in random order, on one core; connections grow with 10 services of 4 \
         backends, services with 1M connections and 4 backends, backends with 1M connections and 10 \
         services"
            .to_owned(),
        "memory: a worker's tables of connections, IPv4's and IPv6's; the service table, and a worker's \
         counts of backends"
            .to_owned(),
        format!(
            "a step is the time of a packet over that of the size before, in turns with it; above {STEP_MAX} a \
             cache has to explain it: one that held at least half of what hits read (IPv4's table, a line \
             of each backend of a service, its counts), and does not hold it all any more"
        ),
        format!("caches: {}", caches.join(", ")),
    ]
}

/// The picture, and the table with its notes.
pub fn markdown(all: &[Series], table: &Table) -> String {
    let mut text = "![Nanoseconds a packet by connections, services and backends](growth.svg)\n\n\
                    | hits with | ns a packet | instructions | connections | services | step | outgrown | \
                    result | spread | kept |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for series in all {
        let rows = series.points.iter().map(|point| row(series.name, point));
        text.extend(rows);
    }
    text + "\n" + &table.list()
}

fn row(name: &str, point: &Point) -> String {
    let Point { count, figure, memory, step, .. } = point;
    let instructions = instructions([point.instructions, None]);
    let [connections, services] = [memory.connections.bytes, memory.services_bytes].map(mebibytes);
    let (factor, outgrown, result, spread, kept) = match step {
        Some(step) => (
            format!("{:.2}", 1.0 / step.row.ratio),
            step.outgrown.join(", "),
            step.row.result,
            step.row.spread,
            step.row.rounds,
        ),
        None => {
            let result = if point.is_settled() { "" } else { "unsettled" };
            (String::new(), String::new(), result, point.spread(), figure.count)
        }
    };
    format!(
        "| {} {name} | {:.1} | {instructions} | {connections} | {services} | {factor} | {outgrown} | \
         {result} | {:.0} % | {kept} |\n",
        short(*count),
        figure.value,
        spread * 100.0
    )
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
