//! The state of a cluster of three nodes and of connections to it.

use crate::scope::{Begins, Scope};
use hotloop_agreement::{Birth, Choice, Claim, Entry, Known, Member, Outcome, Phase, Stage, Step};

/// Number of nodes.
pub const NODES: usize = 3;

/// Whether a node runs, and whether it gets packets.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Up {
    Down,
    /// It starts, and gets no packets.
    Joining,
    /// It gets packets.
    Receiving,
    /// It is no member any more.
    Removed,
}

/// A client's connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Client {
    #[default]
    None,
    /// It has sent a SYN.
    Opening,
    /// A backend has answered.
    Open,
    Over,
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    #[default]
    Nothing,
    Entry,
    /// A tombstone.
    Ended,
}

/// A node's knowledge of a key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Slot {
    pub kind: Kind,
    pub backend: u8,
    pub birth: u8,
    pub is_shared: bool,
    pub is_established: bool,
    pub is_used: bool,
    /// Which connection of the port it belongs to.
    pub connection: u8,
    /// Marks of time since the last packet, 2 at most.
    pub idle: u8,
}

impl Slot {
    pub fn known(&self) -> Known<u8> {
        let birth = Birth::from_bits(u64::from(self.birth));
        match self.kind {
            Kind::Nothing => Known::Nothing,
            Kind::Ended => Known::Ended(birth),
            _ => Known::Entry(Entry {
                backend: self.backend,
                birth,
                is_shared: self.is_shared,
                stage: if self.is_established { Stage::Established } else { Stage::Opening },
                is_used: self.is_used,
            }),
        }
    }

    /// A tombstone keeps its connection's backend if its end may be claimed.
    pub fn set(&mut self, known: Known<u8>, scope: &Scope) {
        let Self { connection, idle, .. } = *self;
        let keeps_backend = scope.other_stage == Stage::Closing;
        *self = match known {
            Known::Nothing => Self::default(),
            Known::Ended(birth) => Self {
                kind: Kind::Ended,
                backend: if keeps_backend { self.backend } else { 0 },
                birth: small(birth),
                is_shared: true,
                connection,
                ..Self::default()
            },
            Known::Entry(entry) => Self {
                kind: Kind::Entry,
                backend: entry.backend,
                birth: small(entry.birth),
                is_shared: entry.is_shared,
                is_established: entry.stage != Stage::Opening,
                is_used: entry.is_used,
                connection,
                idle,
            },
        };
    }
}

/// The bits of a birth.
pub fn small(birth: Birth) -> u8 {
    u8::try_from(birth.to_bits()).expect("few births")
}

/// A claim on its way, as a bit of a set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InFlight {
    pub claim: Claim<u8>,
    pub connection: u8,
}

/// Number of different claims to a key.
pub const CLAIMS: u32 = 2 * 16 * 3;

impl InFlight {
    /// Its number: births are below 16, backends below 3, and there are two connections at most. Its stage
    /// travels only in scopes that ask for it.
    pub fn number(self) -> u32 {
        let Claim { backend, birth, .. } = self.claim;
        let birth = u32::from(small(birth));
        assert!(birth < 16 && backend < 3 && (1..=2).contains(&self.connection), "{self:?}");
        (u32::from(self.connection - 1) * 16 + birth) * 3 + u32::from(backend)
    }

    pub fn numbered(number: u32, in_other_stage: u128, other_stage: Stage) -> Self {
        let backend = (number % 3) as u8;
        let birth = Birth::from_bits(u64::from(number / 3 % 16));
        let stage =
            if in_other_stage >> number & 1 == 1 { other_stage } else { Stage::Established };
        let connection = (number / 48) as u8 + 1;
        Self { claim: Claim { backend, birth, stage }, connection }
    }
}

/// The numbers in a set of claims.
pub fn numbers(mut set: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let number = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(number)
    })
}

/// A node's view of another one's moves of the reference table.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct View {
    /// Four times the table's number, plus the step.
    pub phase: u8,
    pub is_waiting: bool,
    pub generation: u8,
    /// For which generations it has walked; 0 if it hasn't.
    pub walked_for: u8,
}

impl View {
    pub fn member(self) -> Member {
        Member {
            phase: phase_of(self.phase),
            generation: u64::from(self.generation),
            is_waiting: self.is_waiting,
            walked_for: (self.walked_for != 0).then_some(u64::from(self.walked_for)),
        }
    }
}

pub fn phase_of(number: u8) -> Phase {
    let step = Step::from_number(number % 4).expect("one of four");
    Phase { table: u32::from(number / 4), step }
}

pub fn number_of(phase: Phase) -> u8 {
    u8::try_from(phase.table).expect("few tables") * 4 + phase.step as u8
}

/// All nodes' knowledge of one port of a client, and the client's own.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Claims on their way to each node.
    pub net: [u128; NODES],
    /// The claims among them in the [other stage](Scope::other_stage).
    pub in_other_stage: u128,
    pub slot: [Slot; NODES],
    /// Which peers have not acknowledged the claim to each node's entry.
    pub owed: [u8; NODES],
    /// The backend by each node's current table.
    pub current: [u8; NODES],
    pub is_loose: [bool; NODES],
    /// The client's connection.
    pub state: Client,
    pub backend: u8,
    /// The backends that have got its SYN.
    pub syn: u8,
    /// Marks of time since its last packet.
    pub silent: u8,
    /// Which connection of the port it is.
    pub connection: u8,
    /// All nodes have had it right once, and nothing on its way contradicts them.
    pub is_settled: bool,
    /// A bound excuses it: its SYN came to two nodes that chose differently, or the port was used again
    /// while claims were on their way.
    pub is_excused: bool,
    /// A claim was lost with the only nodes that had it.
    pub is_lost: bool,
    pub births: u8,
    pub syns: u8,
    /// Changes of current tables so far.
    pub changes: u8,
}

/// A cluster of three nodes, and connections to it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct State<const K: usize> {
    pub keys: [Key; K],
    pub up: [Up; NODES],
    pub phase: [u8; NODES],
    /// Marks of time for which a node still waits after a loss of memory.
    pub wait: [u8; NODES],
    pub generation: [u8; NODES],
    pub walked_for: [u8; NODES],
    /// Each node's view of each.
    pub view: [[View; NODES]; NODES],
    /// Of which peers a node that starts has the snapshot.
    pub taken: [u8; NODES],
    pub kills: u8,
    pub removals: u8,
    /// The backend that has died, plus one.
    pub dead: u8,
    /// Which nodes have noticed it.
    pub notices: [bool; NODES],
}

impl Key {
    /// The key at the beginning of a search. `reference` is the backend in the reference table in use.
    fn begun(begins: Begins, reference: u8) -> Self {
        let mut key = Self { current: [reference; NODES], ..Self::default() };
        let opens = |key: &mut Self| {
            (key.state, key.backend, key.syn) = (Client::Open, reference, 1 << reference);
            key.connection += 1;
            key.births += 1;
            key.syns += 1;
        };
        let first = Slot {
            kind: Kind::Entry,
            backend: reference,
            birth: 2,
            is_established: true,
            is_used: true,
            connection: 1,
            ..Slot::default()
        };
        if begins != Begins::Empty {
            opens(&mut key);
            key.slot[0] = first;
        }
        if !matches!(begins, Begins::Empty | Begins::Open) {
            key.end();
        }
        if matches!(begins, Begins::Again | Begins::Met | Begins::Left) {
            opens(&mut key);
        }
        let met = Slot { birth: 0, connection: 2, ..first };
        match begins {
            Begins::Empty | Begins::Open | Begins::Over => {}
            Begins::Again => {
                key.silent = 1;
                key.slot[0].idle = 1;
                key.slot[1] = Slot { birth: 4, connection: 2, idle: 1, is_used: false, ..first };
            }
            Begins::Met => {
                key.silent = 1;
                key.slot[0].idle = 2;
                key.slot[2] = met;
            }
            Begins::Left => {
                let end = Slot { kind: Kind::Ended, birth: 3, connection: 1, ..Slot::default() };
                key.slot[0] = Slot { backend: reference, ..end };
                key.slot[2] = met;
            }
        }
        key
    }
}

impl<const K: usize> State<K> {
    /// All nodes receive packets, and choose as the first reference table does.
    pub fn new(scope: &Scope) -> Self {
        let key = |key: usize| Key::begun(scope.begins, scope.tables[key][0]);
        let phase = match scope.begins {
            Begins::Empty | Begins::Open | Begins::Over => [0; NODES],
            Begins::Again => [1, 0, 1],
            Begins::Met | Begins::Left => [1; NODES],
        };
        let mut state = Self {
            keys: std::array::from_fn(key),
            up: [Up::Receiving; NODES],
            phase,
            wait: [0; NODES],
            generation: [0; NODES],
            walked_for: [0; NODES],
            view: Default::default(),
            taken: [0; NODES],
            kills: 0,
            removals: 0,
            dead: 0,
            notices: [false; NODES],
        };
        let claiming = match scope.begins {
            Begins::Empty | Begins::Open | Begins::Over | Begins::Again => [].as_slice(),
            Begins::Met => &[2],
            Begins::Left => &[0, 2],
        };
        claiming.iter().for_each(|&node| state.claim(node, 0, scope));
        state.check(scope);
        state
    }

    /// Whether a node runs.
    pub fn runs(&self, node: usize) -> bool {
        matches!(self.up[node], Up::Joining | Up::Receiving)
    }

    /// The nodes that run, as a set.
    pub fn running(&self) -> u8 {
        (0..NODES).filter(|&node| self.runs(node)).fold(0, |set, node| set | 1 << node)
    }

    /// The choice of a node's tables for a key.
    pub fn choice(&self, scope: &Scope, node: usize, key: usize) -> Choice<u8> {
        let phase = phase_of(self.phase[node]);
        let table = |number: u32| scope.tables[key][number as usize];
        let current = self.keys[key].current[node];
        let of_reference = table(phase.in_use());
        Choice {
            current,
            reference: of_reference,
            is_reference_gone: self.notices[node] && of_reference + 1 == self.dead,
            other: scope.mutant.other(phase).map(table),
            is_loose: self.keys[key].is_loose[node],
        }
    }

    /// The backend to which a node would send a packet of the client's connection.
    pub fn backend(&self, scope: &Scope, node: usize, key: usize) -> u8 {
        let known = self.keys[key].slot[node].known();
        known.backend(&self.choice(scope, node, key))
    }

    /// A node's moves, as it reports them.
    pub fn own_view(&self, node: usize) -> View {
        View {
            phase: self.phase[node],
            is_waiting: self.wait[node] != 0,
            generation: self.generation[node],
            walked_for: self.walked_for[node],
        }
    }

    /// A node's view of another one, at this moment.
    pub fn heard(&self, scope: &Scope, node: usize, of: usize) -> View {
        let is_stale = scope.has_stale_views || self.up[of] == Up::Down;
        if is_stale { self.view[node][of] } else { self.own_view(of) }
    }

    /// The generations of all members, as a node knows them. Never 0.
    pub fn generations(&self, scope: &Scope, node: usize) -> u8 {
        (0..NODES).fold(64, |all, of| {
            let generation = match of {
                _ if self.up[of] == Up::Removed => 3,
                _ if of == node => self.generation[node],
                _ => self.heard(scope, node, of).generation,
            };
            assert!(generation < 4, "few generations");
            all | generation << (2 * of)
        })
    }

    /// Takes an outcome at a node, and sends its claim.
    pub fn enter(&mut self, scope: &Scope, node: usize, key: usize, outcome: Outcome<u8>) {
        let mut known = outcome.known;
        let claim = outcome.claim.filter(|reason| !scope.mutant.hides(*reason));
        if outcome.claim.is_some()
            && claim.is_none()
            && let Known::Entry(entry) = &mut known
        {
            entry.is_shared = self.keys[key].slot[node].is_shared
                && self.keys[key].slot[node].kind == Kind::Entry;
        }
        self.keys[key].slot[node].set(known, scope);
        if claim.is_some() {
            self.claim(node, key, scope);
        }
    }

    /// Sends a claim to a node's entry to all members; those that are down get it with their snapshots.
    pub fn claim(&mut self, node: usize, key: usize, scope: &Scope) {
        let Key { slot, owed, net, in_other_stage, .. } = &mut self.keys[key];
        let slot = &mut slot[node];
        slot.is_shared = true;
        let stage = match slot.kind {
            Kind::Ended => Stage::Closing,
            _ if slot.is_established => Stage::Established,
            _ => Stage::Opening,
        };
        let is_other = stage == scope.other_stage && stage != Stage::Established;
        let claim = Claim {
            backend: slot.backend,
            birth: Birth::from_bits(u64::from(slot.birth)),
            stage: if is_other { stage } else { Stage::Established },
        };
        let number = InFlight { claim, connection: slot.connection.max(1) }.number();
        if is_other {
            *in_other_stage |= 1 << number;
        } else {
            *in_other_stage &= !(1 << number);
        }
        for to in (0..NODES).filter(|&to| to != node && self.up[to] != Up::Removed) {
            owed[node] |= 1 << to;
            if self.up[to] != Up::Down {
                net[to] |= 1 << number;
            }
        }
    }
}

impl Key {
    /// The client's connection ends.
    pub fn end(&mut self) {
        (self.state, self.backend, self.syn, self.silent) = (Client::Over, 0, 0, 0);
        (self.is_settled, self.is_excused) = (false, false);
    }
}
