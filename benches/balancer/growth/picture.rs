//! The picture: a line for each series.

use super::series::{Series, short};
use hotloop_measure::svg::{begin, line, polyline, text};

/// Size of the picture, and margins from its edges to the axes.
const SIZE: [f64; 2] = [760.0, 420.0];
const LEFT: f64 = 50.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;

/// The x axis ends at this power of ten.
const DECADE_COUNT: u32 = 8;

const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];

/// The series as lines in SVG: counts on a logarithmic x axis, nanoseconds on the y axis. Points
/// that are not settled are hollow.
pub fn svg(all: &[Series]) -> String {
    let points = all.iter().flat_map(|series| &series.points);
    let most_ns = points.map(|point| point.figure.value).fold(1.0, f64::max);
    let scale = Scale { top_ns: (most_ns / 10.0).ceil() * 10.0 };
    let [width, height] = SIZE;
    let mut svg = begin(width, height);
    scale.grid(&mut svg);
    for (series, colour) in all.iter().zip(COLOURS) {
        scale.series(&mut svg, series, colour);
    }
    svg + "</svg>\n"
}

/// The end of the y axis.
struct Scale {
    top_ns: f64,
}

impl Scale {
    fn x(&self, count: u32) -> f64 {
        LEFT + f64::from(count).log10() / f64::from(DECADE_COUNT) * (SIZE[0] - LEFT - RIGHT)
    }

    fn y(&self, ns: f64) -> f64 {
        SIZE[1] - BOTTOM - ns / self.top_ns * (SIZE[1] - TOP - BOTTOM)
    }

    /// The axes, with a line at each power of ten and each ten nanoseconds.
    fn grid(&self, svg: &mut String) {
        let (left, right, bottom) = (LEFT, SIZE[0] - RIGHT, SIZE[1] - BOTTOM);
        for count in (0..=DECADE_COUNT).map(|power| 10_u32.pow(power)) {
            let x = self.x(count);
            polyline(svg, "#ddd", &[(x, TOP), (x, bottom)]);
            text(svg, (x, bottom + 18.0), "middle", &short(count));
        }
        for ns in (0..=self.top_ns as u32).step_by(10).map(f64::from) {
            let y = self.y(ns);
            polyline(svg, if ns == 0.0 { "black" } else { "#ddd" }, &[(left, y), (right, y)]);
            text(svg, (left - 6.0, y + 4.0), "end", &ns.to_string());
        }
        polyline(svg, "black", &[(left, TOP), (left, bottom)]);
        text(svg, (left - 6.0, TOP - 12.0), "start", "ns a packet");
        let middle = left.midpoint(right);
        text(svg, (middle, bottom + 38.0), "middle", "connections, services or backends");
    }

    /// A line through the points of a series, with its name above the last.
    fn series(&self, svg: &mut String, series: &Series, colour: &str) {
        let at = |point: &super::series::Point| (self.x(point.count), self.y(point.figure.value));
        let places: Vec<_> = series.points.iter().map(at).collect();
        polyline(svg, colour, &places);
        for (point, (x, y)) in series.points.iter().zip(&places) {
            let fill = if point.is_settled() { colour } else { "white" };
            let circle = format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" stroke=\"{colour}\" fill=\"{fill}\"/>"
            );
            line(svg, &circle);
        }
        if let Some(&(x, y)) = places.last() {
            let x = x.min(SIZE[0] - RIGHT - 30.0);
            text(svg, (x, y - 12.0), "middle", series.name);
        }
    }
}
