//! Nodes have no names: of all states that differ only in which node is which, one stands for all.

use crate::state::{NODES, State, View};

/// All orders of the nodes: node `n` goes to place `order[n]`.
pub const ORDERS: [[usize; NODES]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The least of a state's permutations among those that sort what each node has for itself, and the
/// number of its order. Equal for all permutations of a state, and mostly the only one of its kind.
pub fn least<const K: usize>(state: &State<K>) -> (State<K>, u8) {
    let own: [_; NODES] = std::array::from_fn(|node| own(state, node));
    let sorts = |order: &[usize; NODES]| {
        let sorts =
            |(one, other): (usize, usize)| order[one] > order[other] || own[one] <= own[other];
        [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)].into_iter().all(sorts)
    };
    let orders = (0..6u8).filter(|order| sorts(&ORDERS[usize::from(*order)]));
    let all = orders.map(|order| (permuted(state, ORDERS[usize::from(order)]), order));
    all.min().expect("some order sorts them")
}

/// All of a node that names no other node.
fn own<const K: usize>(state: &State<K>, node: usize) -> impl Ord + use<K> {
    let keys: [_; K] = std::array::from_fn(|key| {
        let key = &state.keys[key];
        (key.slot[node], key.net[node], key.current[node], key.is_loose[node])
    });
    let State { up, phase, wait, generation, notices, .. } = state;
    (up[node], phase[node], wait[node], generation[node], notices[node], keys)
}

fn permuted<const K: usize>(state: &State<K>, to: [usize; NODES]) -> State<K> {
    let mut next = *state;
    let set = |set: u8| (0..NODES).fold(0, |all, node| all | (set >> node & 1) << to[node]);
    let generations = |all: u8| {
        let of = |node: usize| (all >> (2 * node) & 3) << (2 * to[node]);
        if all == 0 { 0 } else { (0..NODES).fold(64, |all, node| all | of(node)) }
    };
    for (from, to_place) in to.into_iter().enumerate() {
        next.up[to_place] = state.up[from];
        next.phase[to_place] = state.phase[from];
        next.wait[to_place] = state.wait[from];
        next.generation[to_place] = state.generation[from];
        next.notices[to_place] = state.notices[from];
        next.walked_for[to_place] = generations(state.walked_for[from]);
        next.taken[to_place] = set(state.taken[from]);
        for (of, of_place) in to.into_iter().enumerate() {
            let view = state.view[from][of];
            let walked_for = generations(view.walked_for);
            next.view[to_place][of_place] = View { walked_for, ..view };
        }
        for (next, key) in next.keys.iter_mut().zip(&state.keys) {
            next.current[to_place] = key.current[from];
            next.is_loose[to_place] = key.is_loose[from];
            next.slot[to_place] = key.slot[from];
            next.net[to_place] = key.net[from];
            next.owed[to_place] = set(key.owed[from]);
        }
    }
    next
}
