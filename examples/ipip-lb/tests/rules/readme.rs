//! The table of packet rules in the book names tests that exist.

use std::fs;
use std::path::Path;

/// The names between backticks in a cell: `file::test`, `file::start_of_a_test…`, `…start` for the
/// same file as before, `file::…` for all of a file, or the name of another file of tests.
fn named(cell: &str) -> Vec<(String, String)> {
    let mut file = String::new();
    let mut names = Vec::new();
    for name in cell.split('`').skip(1).step_by(2) {
        let test = match name.split_once("::") {
            Some((its_file, test)) => {
                file = its_file.to_owned();
                test
            }
            None if name.starts_with('…') => name,
            None => {
                file.clear();
                name
            }
        };
        names.push((file.clone(), test.trim_matches('…').to_owned()));
    }
    names
}

#[test]
fn every_test_that_the_readme_names_is_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(folder.join("../../docs/balancer/packets.md")).unwrap();
    let table = page.split("| rule | source | test |").nth(1).expect("the table of rules");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut count = 0;
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let is_heading = cells[0].trim().starts_with("**");
        let names = named(cells[2]);
        assert!(is_heading || !names.is_empty(), "no test is named: {row}");
        for (file, test) in names {
            if file.is_empty() {
                assert!(folder.join(format!("tests/{test}.rs")).exists(), "{row}");
            } else {
                let source = folder.join(format!("tests/rules/{file}.rs"));
                let source = fs::read_to_string(&source).expect("a file of tests");
                assert!(source.contains(&format!("fn {test}")), "{file}::{test}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count} tests");
}
