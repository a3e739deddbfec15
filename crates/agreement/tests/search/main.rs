//! Explores all orders of events in small clusters that run the crate's rules.
//!
//! `HOTLOOP_SEARCH=moves-kill,NoWait cargo test -p hotloop-agreement -- --nocapture` searches scopes and
//! mutants by the beginnings of their names, long ones included.

#![allow(clippy::print_stdout, reason = "what a search has seen")]

mod explore;
mod mutant;
mod permute;
mod promises;
mod scope;
mod state;
mod steps;

use explore::{Found, explore};
use mutant::Mutant;
use scope::{LONG_SCOPES, SCOPES};

/// Whether to search what has this name; `None` if no names were given.
fn is_named(name: &str) -> Option<bool> {
    let names = std::env::var("HOTLOOP_SEARCH").ok()?;
    Some(names.split(',').any(|begins| name.starts_with(begins)))
}

#[test]
fn the_rules_hold_in_all_scopes() {
    let short = SCOPES.iter().filter(|scope| is_named(scope.name).unwrap_or(true));
    let long = LONG_SCOPES.iter().filter(|scope| is_named(scope.name).unwrap_or(false));
    let mut failed = Vec::new();
    for scope in short.chain(long) {
        let found = explore(scope);
        println!("{}: {found}", scope.name);
        if !matches!(found, Found::Holds { .. }) {
            failed.push(scope.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_rule_is_needed() {
    let mut survived = Vec::new();
    for mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if is_named(&name).unwrap_or(true) {
            let found = explore(&mutant.scope());
            println!("{name}: {found}");
            if !matches!(found, Found::Falls { .. }) {
                survived.push(name);
            }
        }
    }
    assert!(survived.is_empty(), "{survived:?}");
}
