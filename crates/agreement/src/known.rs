//! A node's knowledge of one connection, and its changes by packets, claims and time.

use std::cmp::Ordering;

/// When a connection began, as far as nodes compare it: of two claims to one key, the later wins.
///
/// A node takes a number that is greater than all that it has seen, so that a connection that begins
/// once its predecessor of the same ports is known gets a later one, whatever the clocks of the nodes.
///
/// The end of a connection must never end a later one of the same ports. A node can't distinguish the two
/// if it has seen no SYN. So packets that it sees in the midst of a connection belong to one that is later
/// than any it knows to have ended, and to one that is later than any it learns of from peers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Birth(u64);

impl Birth {
    /// Of a connection that was entered in its midst: earlier than all others.
    pub const UNKNOWN: Self = Self(0);

    /// The birth with this number, which may not be 0: the time of a clock that is never earlier than a birth
    /// that the node has seen.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number << 1)
    }

    /// Of a connection that a node met in its midst, and that may be the one after this: later than this one,
    /// and earlier than the next that begins with a SYN.
    #[must_use]
    pub const fn adopted(self) -> Self {
        Self(self.0 | 1)
    }

    /// The [adopted](Self::adopted) birth of a connection that a node met in its midst after the end of this
    /// one. This one may have been adopted, too, and the next SYN comes a step later at least.
    #[must_use]
    pub const fn after_end(self) -> Self {
        if self.is_adopted() { Self(self.0 + 2) } else { self.adopted() }
    }

    /// Whether it is one that was [adopted](Self::adopted).
    #[must_use]
    pub const fn is_adopted(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether the SYN of the connection itself gave it this birth.
    #[must_use]
    pub const fn is_of_syn(self) -> bool {
        self.0 != Self::UNKNOWN.0 && !self.is_adopted()
    }

    /// The number that it was made of; 0 if that is unknown.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 >> 1
    }

    /// The number as it is sent.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The birth of [`to_bits`](Self::to_bits).
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The backends that a node's tables choose for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Choice<B> {
    /// By the current table, which is the node's own.
    pub current: B,
    /// By the reference table in use.
    pub reference: B,
    /// The reference's backend is gone, so that unknown connections go by the current table.
    pub is_reference_gone: bool,
    /// By the other reference table, if peers may use two.
    pub other: Option<B>,
    /// Whether the slot is loose: some node's current table may soon differ from the reference there.
    pub is_loose: bool,
}

impl<B: Copy + Eq> Choice<B> {
    /// Whether a connection on `backend` is an exception: a node that doesn't know it would send its
    /// packets elsewhere.
    #[must_use]
    pub fn is_exception(&self, backend: B) -> bool {
        backend != self.reference || self.other.is_some_and(|other| other != backend)
    }

    /// The backend of a connection that the node doesn't know.
    #[must_use]
    pub const fn of_unknown(&self) -> B {
        if self.is_reference_gone { self.current } else { self.reference }
    }

    /// Why peers have to learn of a connection on `backend` from its birth.
    fn reason(&self, backend: B) -> Option<Reason> {
        let is_exception = self.is_exception(backend);
        is_exception.then_some(Reason::Exception).or(self.is_loose.then_some(Reason::Loose))
    }
}

/// A node's knowledge of a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Known<B> {
    /// Nothing.
    #[default]
    Nothing,
    /// A connection.
    Entry(Entry<B>),
    /// That a connection of this birth has ended, and that claims to it may still come (a tombstone).
    Ended(Birth),
}

/// A connection that a node has entered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<B> {
    /// The backend that gets its packets.
    pub backend: B,
    /// When it began.
    pub birth: Birth,
    /// Whether any peer counts on it: this node has claimed it, or a peer has.
    pub is_shared: bool,
    /// How far it has come.
    pub stage: Stage,
    /// Whether packets in its midst have come here. They may be of the port's next connection.
    pub is_used: bool,
}

/// A connection as one node describes it to all others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim<B> {
    /// The backend that gets its packets.
    pub backend: B,
    /// When it began.
    pub birth: Birth,
    /// How far it has come.
    pub stage: Stage,
}

/// How far a connection has come, as one node has seen it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// No more than its SYN has been seen.
    Opening,
    /// More than its SYN has been seen. Connections of protocols other than TCP are always established.
    Established,
    /// Its end has been seen.
    Closing,
}

/// Why a node claims a connection to its peers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Its backend is not the one in the reference tables.
    Exception,
    /// Its slot is loose.
    Loose,
    /// Peers may still have an earlier connection of the key.
    Successor,
    /// Another claim has changed it while not all peers had acknowledged its own.
    Duty,
    /// A peer claims another backend, but doesn't know of this connection.
    Dispute,
    /// The node that claims it is gone, perhaps before all others got the claim.
    Inherited,
}

/// The result of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome<B> {
    /// The node's knowledge from now on.
    pub known: Known<B>,
    /// Why all peers get a claim, if they do.
    pub claim: Option<Reason>,
}

impl<B> From<Known<B>> for Outcome<B> {
    fn from(known: Known<B>) -> Self {
        Self { known, claim: None }
    }
}

impl<B> Outcome<B> {
    /// An entry, which peers learn of for this reason.
    fn entered(entry: Entry<B>, claim: Option<Reason>) -> Self {
        let is_shared = entry.is_shared || claim.is_some();
        Self { known: Known::Entry(Entry { is_shared, ..entry }), claim }
    }
}

impl<B: Copy + Ord> Known<B> {
    /// The backend for a packet that doesn't begin a connection.
    #[must_use]
    pub const fn backend(&self, choice: &Choice<B>) -> B {
        match self {
            Self::Entry(entry) => entry.backend,
            Self::Nothing | Self::Ended(_) => choice.of_unknown(),
        }
    }

    /// After a SYN. `now` is later than all births that the node has seen.
    ///
    /// A SYN for an entry may be the port's next connection. It stays on its backend, as only the
    /// backend can distinguish the two, but as another one: peers may have ended the first meanwhile.
    #[must_use]
    pub fn after_syn(self, choice: &Choice<B>, now: Birth) -> Outcome<B> {
        match self {
            Self::Entry(entry) if !entry.is_shared && entry.stage == Stage::Opening => self.into(),
            Self::Entry(entry) => {
                let of_peers = entry.is_shared.then_some(Reason::Successor);
                let reason = of_peers.or_else(|| choice.reason(entry.backend));
                // One that is established may be used by the packets that follow: nodes can't tell.
                let is_used = entry.stage == Stage::Established;
                let stage = if is_used { entry.stage } else { Stage::Opening };
                let next = Entry { birth: now, stage, is_used, ..entry };
                Outcome::entered(next, reason)
            }
            Self::Nothing | Self::Ended(_) => {
                let backend = choice.current;
                let of_peers = matches!(self, Self::Ended(_)).then_some(Reason::Successor);
                let (stage, is_shared, is_used) = (Stage::Opening, false, false);
                let new = Entry { backend, birth: now, is_shared, stage, is_used };
                Outcome::entered(new, of_peers.or_else(|| choice.reason(backend)))
            }
        }
    }

    /// After a packet in the midst of a connection, from its client or about it. Of a connection that is
    /// closing, call this for data only: they belong to the port's next one.
    #[must_use]
    pub fn after_packet(self, choice: &Choice<B>) -> Outcome<B> {
        self.after_packet_for(choice.of_unknown(), choice)
    }

    /// After a packet of the backend, which came back by this node.
    #[must_use]
    pub fn after_reply(self, backend: B, choice: &Choice<B>) -> Outcome<B> {
        self.after_packet_for(backend, choice)
    }

    fn after_packet_for(self, backend: B, choice: &Choice<B>) -> Outcome<B> {
        let adopted = |backend, birth, of_peers: Option<Reason>| {
            let (stage, is_shared, is_used) = (Stage::Established, false, true);
            let entry = Entry { backend, birth, is_shared, stage, is_used };
            Outcome::entered(entry, of_peers.or_else(|| choice.reason(backend)))
        };
        match self {
            Self::Entry(entry) if entry.stage == Stage::Closing => {
                let of_peers = entry.is_shared.then_some(Reason::Successor);
                adopted(entry.backend, entry.birth.after_end(), of_peers)
            }
            Self::Entry(entry) => {
                Self::Entry(Entry { stage: Stage::Established, is_used: true, ..entry }).into()
            }
            Self::Nothing => adopted(backend, Birth::UNKNOWN, None),
            Self::Ended(before) => adopted(backend, before.after_end(), Some(Reason::Successor)),
        }
    }

    /// Whether a claim agrees with the entry. Then the entry lasts as long as the longer of both, also
    /// if the claim is the earlier one: the port's connection before may have left the entry, and the
    /// claim be of a node that met the present one in its midst.
    #[must_use]
    pub fn joins(&self, claim: &Claim<B>) -> bool {
        matches!(self, Self::Entry(entry) if entry.backend == claim.backend)
    }

    /// After a peer's claim.
    ///
    /// The later birth wins, and of two equal ones the lower backend, so that all nodes decide alike. A
    /// connection that is established doesn't yield to a claim of its own SYN, which the client has sent
    /// again and by another node: it is claimed again, with [`now`](Circumstances::now) as its birth. One
    /// whose SYN did not come here yields: a late packet of the port's connection before may have left it.
    ///
    /// If both have the same backend and birth, they are the same connection, and the later stage counts.
    ///
    /// An end counts as if it had been known at once: packets that came later are of the port's next
    /// connection, unless the entry is known to be the one that has ended.
    #[must_use]
    pub fn after_claim(self, claim: Claim<B>, at: Circumstances) -> Outcome<B> {
        let inherited = at.is_orphaned.then_some(Reason::Inherited);
        let Self::Entry(entry) = self else {
            return match self {
                // Met in its midst by a node that didn't know of the one before.
                Self::Ended(before) if claim.birth == Birth::UNKNOWN => {
                    let entry = Entry { birth: before.after_end(), ..claim.entry() };
                    Outcome::entered(entry, Some(Reason::Successor))
                }
                Self::Ended(before) if claim.birth <= before => self.into(),
                _ => Outcome::entered(claim.entry(), inherited),
            };
        };
        let is_of_one_syn = claim.birth == entry.birth && entry.birth.is_of_syn();
        let may_be_before = claim.birth >= entry.birth && !is_of_one_syn;
        let is_end = claim.stage == Stage::Closing && entry.stage != Stage::Closing;
        if is_end && may_be_before && at.is_used_since {
            let next = Entry { birth: claim.birth.after_end(), ..entry };
            return Outcome::entered(next, Some(Reason::Successor));
        }
        let is_same = entry.backend == claim.backend;
        let is_later = claim.birth > entry.birth
            || claim.birth == entry.birth && claim.backend < entry.backend;
        // One that is closing has sent its last SYN.
        let may_be_its =
            entry.stage == Stage::Established && entry.birth.is_of_syn() && at.is_syn_again;
        if is_later && !is_same && claim.stage == Stage::Opening && may_be_its {
            let again = Entry { birth: at.now, ..entry };
            return Outcome::entered(again, Some(Reason::Dispute));
        }
        match (is_later, is_same) {
            (true, true) => {
                let is_used = entry.is_used;
                // It may be the port's next connection.
                let birth = if is_used { claim.birth.adopted() } else { claim.birth };
                let stage = entry.stage_with(&claim);
                let entered = Entry { birth, stage, is_used, ..claim.entry() };
                let later = (birth != claim.birth).then_some(Reason::Successor);
                let owed = at.is_owed.then_some(Reason::Duty);
                Outcome::entered(entered, later.or(owed).or(inherited))
            }
            (true, false) => Outcome::entered(claim.entry(), inherited),
            (false, true) => {
                let stage = entry.stage_with(&claim);
                Self::Entry(Entry { is_shared: true, stage, ..entry }).into()
            }
            (false, false) if entry.is_shared => self.into(),
            (false, false) => Outcome::entered(entry, Some(Reason::Dispute)),
        }
    }

    /// After the connection's end, or its last packet's idle timeout. Peers may count on one that they
    /// know of: their claims to it must find it ended.
    #[must_use]
    pub const fn after_end(self) -> Self {
        match self {
            Self::Entry(entry) if entry.is_shared => Self::Ended(entry.birth),
            Self::Entry(_) | Self::Nothing => Self::Nothing,
            Self::Ended(_) => self,
        }
    }
}

/// The circumstances of a claim, beside the entry and the claim itself.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Some peer has not acknowledged this node's own claim to the entry.
    pub is_owed: bool,
    /// The node of the claim is gone, perhaps before others got the claim.
    pub is_orphaned: bool,
    /// The claimed connection began so soon before or after the entry's, and no later than packets of the
    /// entry came, that its SYN may be the same one.
    pub is_syn_again: bool,
    /// The entry's last packet, as far as this node knows, came so long after the claimed connection's that,
    /// if that has ended, the packet is not its own.
    pub is_used_since: bool,
    /// Later than all births that the node has seen, the claim's among them.
    pub now: Birth,
}

impl<B> Entry<B> {
    /// The stage after a claim that [joins](Known::joins) the entry.
    fn stage_with(&self, claim: &Claim<B>) -> Stage {
        match claim.birth.cmp(&self.birth) {
            Ordering::Less => self.stage,
            // It takes the place of one that is closing.
            Ordering::Greater if self.stage == Stage::Closing => claim.stage,
            Ordering::Greater | Ordering::Equal => self.stage.max(claim.stage),
        }
    }
}

impl<B> Claim<B> {
    const fn entry(self) -> Entry<B>
    where
        B: Copy,
    {
        Entry {
            backend: self.backend,
            birth: self.birth,
            is_shared: true,
            stage: self.stage,
            is_used: false,
        }
    }
}
