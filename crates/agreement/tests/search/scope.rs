//! How much happens in a search.

use crate::mutant::Mutant;
use hotloop_agreement::Stage;

/// The events that a search may take, and their numbers.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    /// For each key, the backends that the reference tables choose, the one in use first.
    pub tables: &'static [&'static [u8]],
    pub backends: u8,
    /// How many nodes are killed. Each may start again, with nothing but its phase.
    pub kills: u8,
    /// How many dead nodes an operator removes.
    pub removals: u8,
    /// Whether a removed node comes back, without its disk.
    pub returns: bool,
    /// Whether nodes start without their phase, and take their peers'.
    pub forgets_phase: bool,
    /// How often a node's current table changes, for each key.
    pub changes: u8,
    /// How often the client sends the SYN of a connection.
    pub syns: u8,
    /// How many connections a port has, one after the other.
    pub connections: u8,
    /// A SYN may be late: it arrives after the connection is open.
    pub has_late_syns: bool,
    /// Current tables differ from the reference at once, whether slots are loose or not.
    pub is_hasty: bool,
    pub begins: Begins,
    /// Nodes get each other's phases late.
    pub has_stale_views: bool,
    /// A claim arrives once at most, not any number of times.
    pub delivers_once: bool,
    /// Answers come back by any node.
    pub has_replies: bool,
    /// A backend dies, and nodes notice it one after the other.
    pub has_death: bool,
    /// The stage that claims carry beside [`Stage::Established`]. If it is [`Stage::Closing`], ends are
    /// claimed, too.
    pub other_stage: Stage,
    /// Packets may go wrong for as long as claims are on their way, and the connection isn't promised
    /// anything after a silence.
    pub allows_moments: bool,
    pub mutant: Mutant,
    /// The search gives up beyond this number of states.
    pub states_max: usize,
}

/// The state of things at the beginning of a search.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begins {
    /// There was no connection yet.
    Empty,
    /// The first node has a connection on its backend in the reference table. No other node knows it.
    Open,
    /// Likewise, but the connection is over, and the node's entry still there.
    Over,
    /// Likewise, and the port's next connection has begun at the second node. The table moves: all but that
    /// node compare with both. An idle timeout's length has passed.
    Again,
    /// Likewise, but the second node has forgotten it, and compares with both, too. The third met it in its
    /// midst, and has claimed it.
    Met,
    /// The first node has the end of a connection that it had met in its midst. The third has met the port's
    /// next one in its midst. The table moves, and both nodes have claimed them.
    Left,
}

/// The least of all scopes.
const NARROW: Scope = Scope {
    name: "",
    tables: &[&[0]],
    backends: 2,
    kills: 0,
    removals: 0,
    returns: false,
    forgets_phase: false,
    changes: 0,
    syns: 1,
    connections: 1,
    has_late_syns: false,
    is_hasty: true,
    begins: Begins::Empty,
    has_stale_views: false,
    delivers_once: true,
    has_replies: false,
    has_death: false,
    other_stage: Stage::Established,
    allows_moments: false,
    mutant: Mutant::None,
    states_max: 100_000_000,
};

/// The reference table stays, and current tables change on each node by itself.
const FIXED: Scope = Scope { delivers_once: false, ..NARROW };

/// The reference table moves from backend 0 to backend 1.
const MOVES: Scope = Scope { tables: &[&[0, 1]], begins: Begins::Open, ..NARROW };

/// The same, while connections begin.
const MOVES_AND_BEGINS: Scope = Scope { begins: Begins::Empty, ..MOVES };

/// The reference table moves while the end of the port's last connection is still being claimed.
const MOVES_AND_ENDS: Scope =
    Scope { begins: Begins::Left, other_stage: Stage::Closing, connections: 2, ..MOVES };

/// A SYN of an open connection comes to another node, which may have another current table. Of two equal births,
/// the lower backend wins.
const HASTY_LATE_SYNS: Scope = Scope {
    changes: 1,
    syns: 2,
    has_late_syns: true,
    other_stage: Stage::Opening,
    allows_moments: true,
    begins: Begins::Open,
    ..FIXED
};

/// Searched in each run of the tests.
#[rustfmt::skip]
pub const SCOPES: &[Scope] = &[
    Scope { name: "fixed-changes2-kill1", changes: 2, kills: 1, ..FIXED },
    Scope { name: "fixed-changes3-backends3", changes: 3, backends: 3, ..FIXED },
    Scope { name: "fixed-changes1-kills2", changes: 1, kills: 2, ..FIXED },
    Scope { name: "fixed-late-syns", changes: 2, syns: 2, has_late_syns: true, is_hasty: false, ..FIXED },
    Scope { name: "fixed-hasty-late-syns", ..HASTY_LATE_SYNS },
    Scope { name: "fixed-hasty-late-syns-lower", tables: &[&[1]], ..HASTY_LATE_SYNS },
    Scope { name: "fixed-port-again", changes: 1, connections: 2, ..FIXED },
    Scope { name: "fixed-replies", changes: 2, kills: 1, has_replies: true, ..FIXED },
    Scope { name: "fixed-death", has_death: true, begins: Begins::Open, connections: 2, delivers_once: true, ..FIXED },
    Scope { name: "fixed-two-keys", tables: &[&[0], &[1]], changes: 1, ..FIXED },
    Scope { name: "moves-changes1", changes: 1, ..MOVES_AND_BEGINS },
    Scope { name: "moves-changes2-backends3", changes: 2, backends: 3, ..MOVES_AND_BEGINS },
    Scope { name: "moves-replies", changes: 1, has_replies: true, ..MOVES_AND_BEGINS },
    Scope { name: "moves-ends", ..MOVES_AND_ENDS },
    Scope { name: "moves-twice", tables: &[&[0, 1, 0]], ..MOVES_AND_BEGINS },
    Scope { name: "moves-twice-changes1", tables: &[&[0, 1, 2]], changes: 1, backends: 3, ..MOVES_AND_BEGINS },
];

/// Searched by name only.
#[rustfmt::skip]
pub const LONG_SCOPES: &[Scope] = &[
    Scope { name: "moves-stale-views", has_stale_views: true, ..MOVES },
    Scope { name: "moves-kill1", kills: 1, ..MOVES },
    Scope { name: "moves-removal", kills: 1, removals: 1, ..MOVES },
    Scope { name: "moves-return", kills: 1, removals: 1, returns: true, ..MOVES },
    Scope { name: "moves-kill1-forgets-phase", kills: 1, forgets_phase: true, ..MOVES },
    Scope { name: "moves-kills2-forgets-phase", kills: 2, forgets_phase: true, ..MOVES },
    Scope { name: "moves-two-keys", tables: &[&[0, 1], &[1, 0]], ..MOVES },
    Scope { name: "moves-changes1-kill1", changes: 1, kills: 1, ..MOVES_AND_BEGINS },
    Scope { name: "moves-port-again-after-one", begins: Begins::Over, connections: 2, ..MOVES },
    Scope { name: "moves-port-again", connections: 2, ..MOVES_AND_BEGINS },
    Scope { name: "moves-stale-views-kill1", has_stale_views: true, kills: 1, ..MOVES },
    Scope { name: "moves-kills2", kills: 2, ..MOVES },
    Scope { name: "moves-death", has_death: true, connections: 2, ..MOVES_AND_BEGINS },
];

impl Mutant {
    /// The scope in which the search finds it.
    pub fn scope(self) -> Scope {
        let scope = match self {
            Self::None => NARROW,
            Self::NoWait | Self::NoGenerations => Scope { kills: 1, ..MOVES },
            Self::NoAcknowledgement | Self::SilentWhenReady => MOVES,
            Self::OneTableAfterSwitch => Scope { changes: 1, ..MOVES_AND_BEGINS },
            Self::GoesOnJoining => Scope { kills: 2, changes: 1, ..FIXED },
            Self::NeverLoose => Scope { changes: 1, syns: 2, has_late_syns: true, ..FIXED },
            Self::LooseIfOpening => {
                Scope { changes: 1, syns: 2, has_late_syns: true, is_hasty: false, ..FIXED }
            }
            Self::NoTombstones => Scope { changes: 2, connections: 2, ..FIXED },
            Self::ClosesInUse => Scope { begins: Begins::Again, connections: 2, ..MOVES },
            Self::ShortJoin | Self::TakesBirth => {
                Scope { begins: Begins::Met, connections: 2, ..MOVES }
            }
            Self::EndsInUse => MOVES_AND_ENDS,
            Self::NoDuty => Scope { changes: 1, connections: 2, kills: 1, ..FIXED },
            Self::NoDispute => Scope { changes: 1, syns: 2, ..FIXED },
            Self::NotInherited => Scope { changes: 1, kills: 1, ..FIXED },
            Self::SilentSuccessor => Scope { changes: 1, connections: 2, ..FIXED },
            Self::SilentException => Scope { changes: 1, ..FIXED },
            Self::SilentLoose => {
                Scope { changes: 1, syns: 2, has_late_syns: true, is_hasty: false, ..FIXED }
            }
            Self::WalksOwnOnly => Scope { kills: 1, ..MOVES_AND_BEGINS },
            Self::YieldsToSyn => HASTY_LATE_SYNS,
            Self::EqualDispute => Scope { tables: &[&[1]], ..HASTY_LATE_SYNS },
        };
        Scope { name: "its scope", mutant: self, ..scope }
    }
}
