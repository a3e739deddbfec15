//! Lines and words of a picture.

/// Adds a line of SVG.
pub fn line(svg: &mut String, words: &str) {
    svg.push_str(words);
    svg.push('\n');
}

/// Adds words with their beginning, end or middle at a position.
pub fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    line(svg, &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"));
}
