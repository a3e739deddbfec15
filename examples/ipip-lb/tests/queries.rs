//! The cost of a query for a worker: the same for any query.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::bench::Lb;
use hotloop::engine::{LIST_BUDGET, LIST_ROWS_MAX, LIST_TURNS_MAX, ListPage};
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::SYN;
use hotloop_balancer::balance::{Filter, Query, QueryPage, Row, TargetSet};
use hotloop_balancer::services::TargetId;
use hotloop_balancer::spec::ServiceSpec;
use ipip_lb::config::Config;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const SERVICES: u32 = 100_000;

/// Maximum number of connections of each IP version.
const CONNECTIONS_MAX: usize = 4096;

/// Maximum duration of a turn with a query, as a rule.
const TURN: Duration = Duration::from_micros(10);

/// A balancer of 100,000 services that share one backend.
fn lb() -> Lb {
    let mut config = Config::parse("lb.toml", crate::bench::CONFIG).unwrap();
    config.balancer.connections_max = CONNECTIONS_MAX;
    let Some(service) = config.services.iter().find(|it| it.name == "everything").cloned() else {
        unreachable!("the configuration has this service")
    };
    config.services = (0..SERVICES)
        .map(|index| ServiceSpec {
            name: format!("s{index}"),
            address: vip(index).to_string().parse().unwrap(),
            ..service.clone()
        })
        .collect();
    Lb::of_config(config)
}

fn vip(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(20, 0, 0, 0).to_bits() + index)
}

/// Lists the matching connections on the worker. Returns their number, the number of turns, and the
/// median duration of a turn.
fn list(lb: &mut Lb, filter: Filter) -> (u64, usize, Duration) {
    let page = Box::new(ListPage::new(Query::Matching(filter), 10));
    lb.asker.ask(0, page).expect("the worker has no other query");
    let mut turns = Vec::new();
    loop {
        let start = Instant::now();
        lb.tick();
        turns.push(start.elapsed());
        if let Some(page) = lb.asker.answer(0) {
            turns.sort();
            return (page.matching_count(), turns.len(), turns[turns.len() / 2]);
        }
    }
}

#[test]
fn a_question_costs_the_same_few_slots_a_turn_whatever_its_filter() {
    let mut lb = lb();
    let syn = |index| tcp().from("198.51.100.7:4000").to(format!("{}:80", vip(index)));
    let count = CONNECTIONS_MAX as u32 / 2;
    let frames: Vec<_> =
        (0..count).map(|it| syn(it * (SERVICES / count)).tcp_flags(SYN).build()).collect();
    lb.feed(&frames);
    assert_eq!(lb.connections(), count as usize);

    let targets = lb.services().targets().iter().enumerate();
    let all: Vec<_> = targets.filter_map(|(slot, target)| target.id(slot)).collect();
    assert_eq!(all.len(), SERVICES as usize);
    let of = |targets: &[TargetId]| Some(TargetSet::new(targets.iter().copied()));
    let filters = [
        ("none", Filter::default(), u64::from(count)),
        ("a port", Filter { port: Some(81), ..Filter::default() }, 0),
        ("one target", Filter { targets: of(&all[..1]), ..Filter::default() }, 1),
        ("100,000 targets", Filter { targets: of(&all), ..Filter::default() }, count.into()),
    ];
    // The table of IPv6, which has no connections, is left out, and empty places take no turns as
    // long as flows are near.
    let turns = count as usize / LIST_BUDGET..=count as usize / LIST_BUDGET + 2;
    let mut turn_counts = HashSet::new();
    for (what, filter, matching) in filters {
        let (matching_count, turn_count, turn) = list(&mut lb, filter);
        println!("{what}: {turn_count} turns of {LIST_BUDGET} connections, {turn:?} each");
        assert_eq!(matching_count, matching, "{what}");
        assert!(turns.contains(&turn_count), "{what}: {turn_count} turns");
        assert!(turn < 10 * TURN, "{what}: {turn:?} a turn");
        turn_counts.insert(turn_count);
    }
    assert_eq!(turn_counts.len(), 1, "the number of turns depends on the filter: {turn_counts:?}");
}

/// Fills a page on the worker. Returns the page and the number of turns.
fn fill(lb: &mut Lb, page: QueryPage) -> (QueryPage, usize) {
    lb.asker.ask(0, page).expect("the worker has no other query");
    for turn_count in 1.. {
        lb.tick();
        if let Some(page) = lb.asker.answer(0) {
            return (page, turn_count);
        }
    }
    unreachable!("a page ends")
}

#[test]
fn a_listing_of_a_large_table_comes_in_pages_of_a_few_rows() {
    const COUNT: u32 = 100_000;
    let mut config = Config::parse("lb.toml", crate::bench::CONFIG).unwrap();
    config.balancer.connections_max = COUNT as usize;
    let mut lb = Lb::of_config(config);
    let client = |index| std::net::SocketAddr::from((vip(index), 4000));
    for from in (0..COUNT).step_by(1000) {
        let syn = |index| tcp().from(client(index)).to("203.0.113.10:80").tcp_flags(SYN).build();
        lb.feed(&(from..from + 1000).map(syn).collect::<Vec<_>>());
    }
    assert_eq!(lb.connections(), COUNT as usize);
    for limit in [10, 50_000] {
        let mut page = Box::new(ListPage::new(Query::Matching(Filter::default()), limit));
        let (mut found, mut matching_count, mut page_count) = (HashSet::new(), 0, 0);
        while !page.is_over() {
            page.turn_page(limit - found.len());
            let turn_count;
            (page, turn_count) = fill(&mut lb, page);
            assert!(turn_count <= LIST_TURNS_MAX && page.rows().len() <= LIST_ROWS_MAX);
            let before = found.len();
            found.extend(page.rows().iter().map(|row| match row {
                Row::Matching(key, _) => *key,
                Row::Flow(..) => panic!("{row:?}"),
            }));
            assert_eq!(found.len(), before + page.rows().len(), "one is listed twice");
            matching_count += page.matching_count();
            page_count += 1;
        }
        println!("{limit} of {COUNT} connections: {page_count} pages");
        assert_eq!((found.len(), matching_count), (limit, u64::from(COUNT)));
    }
}

/// The set has exactly the targets that it was made of, also if generations differ.
#[test]
fn a_target_set_holds_its_targets_and_no_others() {
    let mut lb = Lb::with("", "");
    let ids = |lb: &Lb| -> Vec<TargetId> {
        let targets = lb.services().targets().iter().enumerate();
        targets.filter_map(|(slot, target)| target.id(slot)).collect()
    };
    let before = ids(&lb);
    let half = TargetSet::new(before.iter().copied().step_by(2));
    for (index, id) in before.iter().enumerate() {
        assert_eq!(half.contains(*id), index % 2 == 0, "{id:?}");
    }
    assert!(!before.iter().any(|id| TargetSet::new([]).contains(*id)));
    // Other targets get the same slots.
    let old_services = std::mem::take(&mut lb.config.services);
    lb.reload();
    lb.config.services = old_services;
    for service in &mut lb.config.services {
        service.backends.retain(|it| it.address != IpAddr::from([10, 0, 0, 1]));
    }
    lb.reload();
    let after = ids(&lb);
    let all_before = TargetSet::new(before.iter().copied());
    assert!(after.iter().any(|id| before.iter().any(|old| old.slot() == id.slot())));
    assert!(!after.iter().any(|id| all_before.contains(*id)));
}
