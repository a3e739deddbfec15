//! The links of Markdown files: every relative path must exist, every anchor must be a heading.
//!
//! Files under `crates/*/src` are left out: rustdoc includes them and checks their links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::tidy::files::{self, File};

/// Checks every Markdown file of the workspace, and prints each broken link.
pub fn run() -> Result<(), Failure> {
    let files = files::all(Path::new("."))?.0;
    let pages: Vec<&File> = files.iter().filter(|file| is_page(file)).collect();
    let (mut link_count, mut broken_count) = (0, 0);
    for page in &pages {
        for (line_index, link) in links(&page.text) {
            link_count += 1;
            if let Err(why) = resolve(&page.path, &link) {
                broken_count += 1;
                eprintln!("links: {}:{}: {link}: {why}", page.path.display(), line_index + 1);
            }
        }
    }
    if broken_count > 0 {
        return Err(Failure::failed(format!("{broken_count} broken links")));
    }
    println!("links: {} files, {link_count} relative links", pages.len());
    Ok(())
}

fn is_page(file: &File) -> bool {
    let is_in_source =
        file.path.starts_with("crates") && file.path.iter().any(|folder| folder == "src");
    file.extension() == "md" && !is_in_source
}

/// The lines outside fenced code, with inline code blanked, from index 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fence = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((index, line.to_owned())),
            _ => {}
        }
        None
    })
}

/// The relative targets of `[text](target)` and `[label]: target`, with the index of their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (index, line) in prose(text) {
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let label = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let targets = inline.map(|(target, _)| target).chain(label.map(|(_, target)| target));
        let targets = targets.filter_map(|target| target.split_whitespace().next());
        let is_relative = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
        links.extend(targets.filter(is_relative).map(|target| (index, target.to_owned())));
    }
    links
}

/// Checks that the target exists, relative to the page.
fn resolve(page: &Path, link: &str) -> Result<(), String> {
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = match path {
        "" => page.to_path_buf(),
        _ => page.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path)),
    };
    if !target.exists() {
        return Err("no such file".into());
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let text = fs::read_to_string(&target).map_err(|error| error.to_string())?;
    if anchors(&text).contains(anchor) { Ok(()) } else { Err("no such heading".into()) }
}

/// GitHub's anchors for headings: the second of the same name ends in `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let mut names = std::iter::once(slug.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_and_to_other_sites_are_left_out() {
        let text = "[a](b.md), [c](d.md#e \"title\") `[f](g.md)`\n```\n[h](i.md)\n```\n\
                    [j](https://example.org/k) ![l](m.svg)\n[n]: o.md\n";
        let links = links(text);
        let links: Vec<_> = links.iter().map(|(line, link)| (*line, link.as_str())).collect();
        assert_eq!(links, [(0, "b.md"), (0, "d.md#e"), (4, "m.svg"), (5, "o.md")]);
    }

    #[test]
    fn a_missing_file_and_a_missing_heading_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        let text = "# A page: `what` it is\n```\n# no heading\n```\n## Again\n## Again\n";
        fs::write(&page, text).unwrap();
        for link in ["page.md", "#a-page-what-it-is", "page.md#again", "#again-1"] {
            assert_eq!(resolve(&page, link), Ok(()), "{link}");
        }
        for link in ["other.md", "#no-heading", "page.md#again-2"] {
            assert!(resolve(&page, link).is_err(), "{link}");
        }
    }
}
