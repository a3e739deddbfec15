//! The chart of loads: received rates over offered rates.

use super::sweep::Sweep;
use hotloop_measure::svg::{begin, line, polyline, text};

/// Size of the chart, and margins from its edges to the axes.
const SIZE: [f64; 2] = [760.0, 380.0];
const LEFT: f64 = 50.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;

const COLOURS: [&str; 4] = ["#d62728", "#ff7f0e", "#1f77b4", "#2ca02c"];

/// A line for each receiver, in millions of datagrams a second, and the line without loss.
pub fn svg(all: &[Sweep]) -> String {
    let steps = || all.iter().flat_map(|sweep| &sweep.steps);
    let most = steps().map(|step| step.sent_pps / 1e6).fold(0.1, f64::max);
    let top = (most * 5.0).ceil() / 5.0;
    let [width, height] = SIZE;
    let x = |mpps: f64| LEFT + mpps / top * (width - LEFT - RIGHT);
    let y = |mpps: f64| height - BOTTOM - mpps / top * (height - TOP - BOTTOM);
    let mut svg = begin(width, height);
    for step in 0..=5 {
        let mpps = top * f64::from(step) / 5.0;
        polyline(&mut svg, "#ddd", &[(x(0.0), y(mpps)), (x(top), y(mpps))]);
        polyline(&mut svg, "#ddd", &[(x(mpps), y(0.0)), (x(mpps), y(top))]);
        text(&mut svg, (LEFT - 6.0, y(mpps) + 4.0), "end", &format!("{mpps:.2}"));
        text(&mut svg, (x(mpps), y(0.0) + 18.0), "middle", &format!("{mpps:.2}"));
    }
    polyline(&mut svg, "#999", &[(x(0.0), y(0.0)), (x(top), y(top))]);
    text(&mut svg, (LEFT, TOP - 12.0), "start", "received, millions a second");
    text(&mut svg, (x(top / 2.0), y(0.0) + 38.0), "middle", "sent, millions a second");
    for ((sweep, colour), place) in all.iter().zip(COLOURS).zip(0..) {
        let point =
            |step: &crate::programs::Measured| (x(step.sent_pps / 1e6), y(step.received_pps / 1e6));
        polyline(&mut svg, colour, &sweep.steps.iter().map(point).collect::<Vec<_>>());
        let label = (LEFT + 14.0, TOP + 16.0 + 16.0 * f64::from(place));
        line(
            &mut svg,
            &format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>",
                label.0 - 8.0,
                label.1 - 4.0
            ),
        );
        text(&mut svg, label, "start", sweep.name);
    }
    svg + "</svg>\n"
}
