//! Visits all states of a scope, the nearest first.

use crate::permute::{ORDERS, least};
use crate::scope::Scope;
use crate::state::{Client, NODES, State};
use crate::steps::{Detail, Label, Steps};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

/// The outcome of a search.
pub enum Found {
    /// All states of the scope were seen, and nothing was violated.
    Holds { states: usize, depth: usize, settled: usize, moved: usize, took: Duration },
    /// A state violates something; the steps that lead to it.
    Falls { states: usize, why: &'static str, trace: String },
    /// Nothing was found up to this depth; there are more states than the scope allows.
    GaveUp { states: usize, depth: usize, took: Duration },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds { states, depth, settled, moved, took } => write!(
                f,
                "holds, all {states} states, {depth} steps at most, settled in {settled}, past a \
                 move in {moved}, {took:.1?}"
            ),
            Self::Falls { states, why, trace } => {
                write!(f, "falls after {states} states: {why}:{trace}")
            }
            Self::GaveUp { states, depth, took } => {
                write!(f, "NOT all: {states} states, up to {depth} steps, {took:.1?}")
            }
        }
    }
}

/// Searches a scope.
pub fn explore(scope: &Scope) -> Found {
    match scope.tables.len() {
        1 => Search::<1>::new(scope).run(),
        _ => Search::<2>::new(scope).run(),
    }
}

/// The first way to a state: the state before, the step, and the order of its nodes afterwards.
struct Reached {
    from: u32,
    by: Label,
    order: u8,
}

struct Search<'a, const K: usize> {
    scope: &'a Scope,
    seen: HashSet<u128, BuildHasherDefault<Fingerprints>>,
    log: Vec<Reached>,
    settled: usize,
    moved: usize,
}

impl<'a, const K: usize> Search<'a, K> {
    fn new(scope: &'a Scope) -> Self {
        Self { scope, seen: HashSet::default(), log: Vec::new(), settled: 0, moved: 0 }
    }

    fn run(&mut self) -> Found {
        let began = Instant::now();
        let first = State::<K>::new(self.scope);
        self.seen.insert(fingerprint(&first));
        let mut frontier = vec![(first, u32::MAX)];
        let (mut depth, mut buffer) = (0, Vec::new());
        while !frontier.is_empty() {
            let mut reached = Vec::new();
            for (state, id) in &frontier {
                let mut steps = Steps::after(state, self.scope, buffer);
                for (by, next) in steps.found.drain(..) {
                    match self.visit(*id, by, next) {
                        Ok(new) => reached.extend(new),
                        Err(why) => {
                            let states = self.seen.len();
                            return Found::Falls { states, why, trace: self.trace() };
                        }
                    }
                }
                buffer = steps.found;
            }
            frontier = reached;
            depth += 1;
            if self.seen.len() > self.scope.states_max {
                return Found::GaveUp { states: self.seen.len(), depth, took: began.elapsed() };
            }
        }
        let (states, took) = (self.seen.len(), began.elapsed());
        Found::Holds { states, depth, settled: self.settled, moved: self.moved, took }
    }

    /// Takes note of a state, if it is new.
    fn visit(
        &mut self,
        from: u32,
        by: Label,
        mut next: State<K>,
    ) -> Result<Option<(State<K>, u32)>, &'static str> {
        let bad = next.check(self.scope);
        self.forget_unasked(&mut next);
        let (next, order) = least(&next);
        if !self.seen.insert(fingerprint(&next)) && bad.is_none() {
            return Ok(None);
        }
        self.log.push(Reached { from, by, order });
        if let Some(why) = bad {
            return Err(why);
        }
        self.settled += usize::from(next.keys.iter().any(|key| key.is_settled));
        self.moved += usize::from(next.phase.iter().any(|&phase| phase >= 4));
        let id = u32::try_from(self.log.len() - 1).expect("fewer states than that");
        Ok(Some((next, id)))
    }

    /// Makes states equal that differ in nothing that any step of the scope asks for. Which entries are
    /// used matters only if a port has several connections; in other scopes no entry is.
    fn forget_unasked(&self, next: &mut State<K>) {
        if self.scope.connections > 1 {
            return;
        }
        for key in &mut next.keys {
            key.slot.iter_mut().for_each(|slot| slot.is_used = false);
            if self.scope.syns == 1 {
                key.slot.iter_mut().for_each(|slot| slot.is_established = false);
                if key.state == Client::Open {
                    key.syn = 0;
                }
            }
        }
    }

    /// The steps to the last state.
    fn trace(&self) -> String {
        let mut path = Vec::new();
        let mut id = self.log.len() - 1;
        while let Some(reached) = self.log.get(id) {
            path.push(reached);
            id = reached.from as usize;
        }
        // The node at each place, after the orders up to here.
        let mut names = ['A', 'B', 'C'];
        let mut text = String::new();
        for Reached { by, order, .. } in path.into_iter().rev() {
            let Label { name, node, detail, key } = by;
            write!(text, " {name}").expect("strings take all");
            if K > 1 {
                write!(text, "[{key}]").expect("strings take all");
            }
            if let Some(node) = node {
                write!(text, "@{}", names[usize::from(*node)]).expect("strings take all");
            }
            match detail {
                Detail::Nothing => {}
                Detail::Peer(peer) => {
                    write!(text, "({})", names[usize::from(*peer)]).expect("strings take all")
                }
                Detail::Backend(backend) => write!(text, "(b{backend})").expect("strings take all"),
            }
            let before = names;
            for node in 0..NODES {
                names[ORDERS[usize::from(*order)][node]] = before[node];
            }
        }
        text
    }
}

fn fingerprint<const K: usize>(state: &State<K>) -> u128 {
    let mut hasher = SipHasher13::new();
    state.hash(&mut hasher);
    hasher.finish128().as_u128()
}

/// Takes fingerprints as they are: they are hashes already.
#[derive(Default)]
struct Fingerprints(u64);

impl Hasher for Fingerprints {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().take(8).fold(0, |all, &byte| all << 8 | u64::from(byte));
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
