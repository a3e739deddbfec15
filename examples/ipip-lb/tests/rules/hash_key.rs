//! The secret of the hashes that choose workers and backends.

use crate::deployed::{Running, in_both, preamble, service};
use hotloop::packet::build::tcp;
use std::collections::HashSet;

const KEY: &str = "hash_key = \"0f1e2d3c4b5a69788796a5b4c3d2e1f0\"";
const OTHER_KEY: &str = "hash_key = \"0f1e2d3c4b5a69788796a5b4c3d2e1f1\"";

const FOUR: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

fn config(hash_key: &str, scheduler: &str) -> String {
    let keys = format!("scheduler = \"{scheduler}\"");
    preamble(hash_key) + &service("web", "203.0.113.10 tcp 80", &keys, &FOUR)
}

fn client(number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    format!("100.64.{high}.{low}:4000")
}

/// The backends of these clients' connections, in order.
fn backends(lb: &mut Running<'_>, clients: &[u16]) -> Vec<String> {
    let syn = |number: &u16| tcp().from(client(*number)).to("203.0.113.10:80").build();
    clients.iter().map(|number| lb.backend(syn(number))).collect()
}

fn all() -> Vec<u16> {
    (0..2000).collect()
}

#[test]
fn clients_chosen_by_the_public_hashes_meet_on_one_backend_only_without_a_key() {
    for scheduler in ["maglev", "source"] {
        let (public, _) = in_both(&config("", scheduler), 2, |lb| backends(lb, &all()));
        let chosen: Vec<_> =
            all().into_iter().filter(|it| public[usize::from(*it)] == FOUR[0]).collect();
        assert!(chosen.len() > 400, "{}", chosen.len());
        let mut by_key = HashSet::new();
        for key in [KEY, OTHER_KEY] {
            let (went, _) = in_both(&config(key, scheduler), 2, |lb| backends(lb, &chosen));
            let hit_count = went.iter().filter(|it| **it == FOUR[0]).count();
            assert!((chosen.len() / 6..chosen.len() / 3).contains(&hit_count), "{hit_count}");
            by_key.insert(went);
        }
        assert_eq!(by_key.len(), 2, "two keys, two ways to spread");
    }
}

#[test]
fn clients_chosen_by_the_public_hashes_meet_on_one_worker_only_without_a_key() {
    // Indexed by the number in the client's address.
    let workers = |lb: &mut Running<'_>| {
        backends(lb, &all());
        let mut workers = vec![0; all().len()];
        for (worker, key, _) in lb.connections() {
            let octets = key.source().to_string();
            let mut octets = octets.split('.').skip(2).map(|it| it.parse::<usize>().unwrap());
            workers[octets.next().unwrap() * 256 + octets.next().unwrap()] = worker;
        }
        workers
    };
    let (public, _) = in_both(&config("", "maglev"), 2, workers);
    let (keyed, _) = in_both(&config(KEY, "maglev"), 2, workers);
    let both = |it: &usize| public[*it] == 0 && keyed[*it] == 0;
    let (of_first, of_both) =
        (public.iter().filter(|it| **it == 0).count(), (0..2000).filter(both).count());
    assert!((of_first * 2 / 5..of_first * 3 / 5).contains(&of_both), "{of_both} of {of_first}");
}

/// Balancers of one cluster choose alike, also one after the other.
#[test]
fn balancers_with_one_key_agree() {
    let (first, _) = in_both(&config(KEY, "maglev"), 1, |lb| backends(lb, &all()));
    let (second, _) = in_both(&config(KEY, "maglev"), 2, |lb| backends(lb, &all()));
    assert_eq!(first, second);
}
