//! A bar chart of rates.

use crate::svg::{begin, line, polyline, text};

/// Width of the chart, and margins from its edges to the bars.
const WIDTH: f64 = 810.0;
const LEFT: f64 = 370.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 40.0;
const BAR: f64 = 22.0;

/// The first and last power of ten of packets a second on the x axis.
const DECADES: [i32; 2] = [4, 9];

/// A bar for each name and rate, in packets a second, on a logarithmic axis.
#[must_use]
pub fn svg(rates: &[(String, f64)]) -> String {
    let height = TOP + BAR * rates.len() as f64 + 30.0;
    let mut svg = begin(WIDTH, height);
    for power in DECADES[0]..=DECADES[1] {
        let (x, bottom) = (x(10_f64.powi(power)), height - 25.0);
        polyline(&mut svg, "#ddd", &[(x, TOP), (x, bottom)]);
        text(&mut svg, (x, TOP - 8.0), "middle", &power_text(power));
    }
    for (index, (name, rate)) in rates.iter().enumerate() {
        let (y, right) = (TOP + BAR * index as f64, x(*rate));
        line(
            &mut svg,
            &format!(
                "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#1f77b4\"/>",
                y + 4.0,
                right - LEFT,
                BAR - 8.0
            ),
        );
        text(&mut svg, (LEFT - 8.0, y + 15.0), "end", name);
        text(&mut svg, (right + 6.0, y + 15.0), "start", &format!("{:.2} M", rate / 1e6));
    }
    svg + "</svg>\n"
}

fn x(rate: f64) -> f64 {
    let [first, last] = DECADES.map(f64::from);
    LEFT + (rate.max(1.0).log10() - first).max(0.0) / (last - first) * (WIDTH - LEFT - RIGHT)
}

fn power_text(power: i32) -> String {
    match power {
        ..6 => format!("{} k/s", 10_u32.pow(power as u32 - 3)),
        _ => format!("{} M/s", 10_u32.pow(power as u32 - 6)),
    }
}
