//! Lines and words of a picture.

/// The beginning of a picture of this width and height, on white.
#[must_use]
pub fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    )
}

/// Adds a line of SVG.
pub fn line(svg: &mut String, words: &str) {
    svg.push_str(words);
    svg.push('\n');
}

/// Adds a line through these places.
pub fn polyline(svg: &mut String, colour: &str, places: &[(f64, f64)]) {
    let places: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let places = places.join(" ");
    line(svg, &format!("<polyline points=\"{places}\" stroke=\"{colour}\" fill=\"none\"/>"));
}

/// Adds words with their beginning, end or middle at a position.
pub fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    line(svg, &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"));
}
