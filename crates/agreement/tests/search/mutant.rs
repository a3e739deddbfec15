//! Faults in the rules, one at a time, that the search has to find.

use hotloop_agreement::{Phase, Reason, Step};

/// A rule that is left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    None,
    /// A node takes part in a move at once after a loss of memory.
    NoWait,
    /// A node marks before its claims are acknowledged.
    NoAcknowledgement,
    /// A walk counts for any generations.
    NoGenerations,
    /// A node forgets the table before when it switches.
    OneTableAfterSwitch,
    /// A node that compares connections with both tables claims nothing before its walk.
    SilentWhenReady,
    /// A node that starts goes on when a peer ends that it has no snapshot of.
    GoesOnJoining,
    /// There are no loose slots.
    NeverLoose,
    /// In a loose slot, only connections that are opening are claimed.
    LooseIfOpening,
    /// An ended connection is forgotten.
    NoTombstones,
    /// A packet doesn't keep the closing entry of the port's connection before.
    ClosesInUse,
    /// A claim that joins another one drops what is owed.
    NoDuty,
    /// An entry that agrees with a claim ends with its own connection, not with the claim's.
    ShortJoin,
    /// An entry that packets use takes the birth of the claim that it agrees with.
    TakesBirth,
    /// An end counts, though packets have come since.
    EndsInUse,
    /// A node that keeps its entry against a claim doesn't claim it.
    NoDispute,
    /// Claims of a dead node aren't passed on.
    NotInherited,
    /// The next connection after one that peers know isn't claimed.
    SilentSuccessor,
    /// Exceptions aren't claimed.
    SilentException,
    /// New connections of a loose slot aren't claimed.
    SilentLoose,
    /// A walk leaves out connections that peers have claimed.
    WalksOwnOnly,
    /// A connection in use yields to a mere SYN.
    YieldsToSyn,
    /// A connection that doesn't yield to a SYN takes its birth.
    EqualDispute,
}

impl Mutant {
    pub const ALL: &[Self] = &[
        Self::NoWait,
        Self::NoAcknowledgement,
        Self::NoGenerations,
        Self::OneTableAfterSwitch,
        Self::SilentWhenReady,
        Self::GoesOnJoining,
        Self::NeverLoose,
        Self::LooseIfOpening,
        Self::NoTombstones,
        Self::ClosesInUse,
        Self::NoDuty,
        Self::ShortJoin,
        Self::TakesBirth,
        Self::EndsInUse,
        Self::NoDispute,
        Self::NotInherited,
        Self::SilentSuccessor,
        Self::SilentException,
        Self::SilentLoose,
        Self::WalksOwnOnly,
        Self::YieldsToSyn,
        Self::EqualDispute,
    ];

    /// Whether it keeps claims for this reason to itself.
    pub fn hides(self, reason: Reason) -> bool {
        matches!(
            (self, reason),
            (Self::NoDuty, Reason::Duty)
                | (Self::NoDispute, Reason::Dispute)
                | (Self::NotInherited, Reason::Inherited)
                | (Self::SilentSuccessor, Reason::Successor)
                | (Self::SilentException, Reason::Exception)
                | (Self::SilentLoose, Reason::Loose)
        )
    }

    /// The other table that connections are compared with.
    pub fn other(self, phase: Phase) -> Option<u32> {
        match self {
            Self::OneTableAfterSwitch if phase.step == Step::Switched => None,
            _ => phase.other(),
        }
    }
}
