//! The promises to connections that a search checks in each state.

use crate::scope::Scope;
use crate::state::{Client, InFlight, Key, Kind, NODES, State, Up, numbers, small};

impl<const K: usize> State<K> {
    /// Whether no claim to a key is on its way, or owed to a node that runs.
    pub fn is_quiet(&self, key: usize) -> bool {
        let running = self.running();
        let Key { net, owed, .. } = &self.keys[key];
        (0..NODES).all(|node| !self.runs(node) || net[node] == 0 && owed[node] & running == 0)
    }

    /// Whether all nodes that run have acknowledged all claims to a key.
    fn is_acknowledged(&self, key: usize) -> bool {
        let running = self.running();
        (0..NODES).all(|node| !self.runs(node) || self.keys[key].owed[node] & running == 0)
    }

    /// Whether a claim on its way would send packets of a key elsewhere.
    fn is_contested(&self, scope: &Scope, key: usize) -> bool {
        let it = &self.keys[key];
        (0..NODES).filter(|&node| self.runs(node)).any(|node| {
            numbers(it.net[node]).any(|number| {
                let claim = InFlight::numbered(number, it.in_other_stage, scope.other_stage).claim;
                let birth = small(claim.birth);
                let slot = &it.slot[node];
                let wins = slot.kind == Kind::Nothing
                    || birth > slot.birth
                    || birth == slot.birth
                        && slot.kind == Kind::Entry
                        && claim.backend < slot.backend;
                claim.backend != it.backend && wins
            })
        })
    }

    /// The violated promise, if there is one. Notes which connections have settled.
    pub fn check(&mut self, scope: &Scope) -> Option<&'static str> {
        (0..K).find_map(|key| self.check_key(scope, key))
    }

    fn check_key(&mut self, scope: &Scope, key: usize) -> Option<&'static str> {
        let it = &self.keys[key];
        if it.state != Client::Open {
            return None;
        }
        let is_right = (0..NODES).all(|node| {
            self.up[node] != Up::Receiving || self.backend(scope, node, key) == it.backend
        });
        if it.is_settled && !is_right && !scope.allows_moments {
            return Some("a settled connection's packet would go to another backend");
        }
        let is_promised = !it.is_excused && !it.is_lost;
        if !is_right && is_promised && self.is_quiet(key) {
            return Some("all claims are acknowledged, and a node is wrong");
        }
        let mut receiving = (0..NODES).filter(|&node| self.up[node] == Up::Receiving);
        let first = receiving.next().map(|node| self.backend(scope, node, key));
        let do_agree = receiving.all(|node| Some(self.backend(scope, node, key)) == first);
        // Not promised if the port was used again while claims to its last connection were on their way.
        let is_first = it.connection == 1;
        if is_first && !do_agree && !it.is_lost && self.is_quiet(key) {
            return Some("all claims are acknowledged, and two nodes differ");
        }
        let settles =
            is_right && !it.is_lost && self.is_acknowledged(key) && !self.is_contested(scope, key);
        self.keys[key].is_settled |= settles;
        None
    }
}
