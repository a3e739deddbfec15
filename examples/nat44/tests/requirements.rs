//! The tables of the README.

use crate::lab::settings;
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop::prelude::*;
use nat44::connections::Connection;
use std::collections::BTreeSet;
use std::path::Path;

/// The first words of the rows that each table must have.
fn wanted() -> Vec<(&'static str, Vec<String>)> {
    let numbers = |count| (1..=count).map(|number| format!("REQ-{number}")).collect();
    let mut sections: Vec<_> = (2..=12).map(|number| format!("section {number}")).collect();
    sections.splice(..1, ["section 2.1".to_owned(), "section 2.2".to_owned()]);
    vec![
        ("RFC 4787", numbers(14)),
        ("RFC 5382", numbers(10)),
        ("RFC 5508", numbers(11)),
        ("RFC 6888", numbers(15)),
        ("RFC 7857", sections),
    ]
}

/// The names of all tests of the program.
fn tests() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts =
        files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap());
    let names = |text: String| -> Vec<String> {
        let after = text.split("#[test]\nfn ").skip(1);
        after.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())).collect()
    };
    texts.flat_map(names).collect()
}

#[test]
fn each_requirement_has_a_row_and_each_test_in_it_exists() {
    let readme = include_str!("../README.md");
    let tests = tests();
    for (rfc, wanted) in wanted() {
        let table = readme.split_once(&format!("| {rfc}, ")).expect(rfc).1;
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut numbers = Vec::new();
        for row in rows {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let [_, number, _, met, _] = cells[..] else { panic!("{row}") };
            numbers.push(number.to_owned());
            let named = met.split('`').skip(1).step_by(2);
            let named: Vec<_> = named.filter(|name| name.contains('_') && met != "-").collect();
            for name in &named {
                let is_reason = ["no_port", "host_limit"].contains(name);
                assert!(
                    is_reason || tests.contains(*name),
                    "{rfc} {number}: there is no test {name}"
                );
            }
        }
        assert_eq!(numbers, wanted, "{rfc}");
    }
}

#[test]
fn the_memory_of_a_session_is_as_listed() {
    let bytes = |count| Table::<FlowKeyV4, Connection>::bytes(count).unwrap();
    let count = settings().connections;
    let figures =
        format!("| {count} | {} | {:.1} |", bytes(count), bytes(count) as f64 / count as f64);
    assert!(include_str!("../README.md").contains(&figures), "{figures}");
}
