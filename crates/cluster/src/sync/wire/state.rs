//! The bodies of frames about a node itself: its state, and the backends that it drains.

use super::Reader;
use hotloop_agreement::Standing;
use hotloop_agreement::barrier::{Member, Phase, Step};
use hotloop_balancer::clock::STEPS_MAX;
use std::num::NonZeroU64;

/// A node's report of its own state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NodeState {
    /// The [digest](hotloop_balancer::services::ServiceTable::digest) of its service table.
    pub tables: u64,
    /// Whether the node knows what its peers know, as far as they could be reached.
    pub is_ready: bool,
    /// The time by the cluster's [clock](hotloop_balancer::clock), in steps.
    pub clock: u64,
    /// Its reference tables.
    pub standing: Standing,
}

impl NodeState {
    /// Whether this state was different before: the time is no news.
    #[must_use]
    pub fn is_news_to(&self, next: &Self) -> bool {
        Self { clock: next.clock, ..*self } != *next
    }
}

/// Backends that nodes drain until no node has connections to them, each by a digest of its name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Drains {
    /// The backends that the node drains, at most [`DRAINS_MAX`].
    pub asked: Vec<u64>,
    /// The node's numbers of connections to backends that its peers drain, at most [`DRAINS_MAX`].
    pub counts: Vec<(u64, u64)>,
}

/// Maximum number of questions, and of answers, in one message.
pub const DRAINS_MAX: usize = 1_000;

/// The flags of a [`NodeState`].
const READY: u8 = 1;
const WAITING: u8 = 2;

pub(super) fn node_state(mut reader: Reader<'_>) -> Option<NodeState> {
    let (tables, flags) = (reader.u64()?, reader.byte()?);
    let clock = reader.u64()?.min(STEPS_MAX);
    let phase = Phase { table: reader.u32()?, step: Step::from_number(reader.byte()?)? };
    let generation = reader.u64()?;
    let mut digest = || Some(NonZeroU64::new(reader.u64()?).map(NonZeroU64::get));
    let (walked_for, in_use, other, wanted) = (digest()?, digest()?, digest()?, digest()?);
    let is_waiting = flags & WAITING != 0;
    let member = Member { phase, generation, is_waiting, walked_for };
    let standing = Standing { member, in_use, other, wanted };
    Some(NodeState { tables, is_ready: flags & READY != 0, clock, standing })
}

pub(super) fn put_node_state(out: &mut Vec<u8>, state: &NodeState) {
    let NodeState { tables, is_ready, clock, standing } = state;
    let Standing { member, in_use, other, wanted } = standing;
    let Member { phase, generation, is_waiting, walked_for } = member;
    out.extend(tables.to_be_bytes());
    out.push(if *is_ready { READY } else { 0 } | if *is_waiting { WAITING } else { 0 });
    out.extend(clock.to_be_bytes());
    out.extend(phase.table.to_be_bytes());
    out.push(phase.step as u8);
    out.extend(generation.to_be_bytes());
    for digest in [walked_for, in_use, other, wanted] {
        out.extend(digest.unwrap_or(0).to_be_bytes());
    }
}

pub(super) fn drains(mut reader: Reader<'_>) -> Option<Drains> {
    let (asked_count, count) = (reader.u16()?.into(), reader.u16()?.into());
    if asked_count > DRAINS_MAX || count > DRAINS_MAX {
        return None;
    }
    let asked = (0..asked_count).map(|_| reader.u64()).collect::<Option<_>>()?;
    let counts = (0..count).map(|_| reader.u64().zip(reader.u64()));
    let counts = counts.collect::<Option<_>>()?;
    reader.0.is_empty().then_some(Drains { asked, counts })
}

pub(super) fn put_drains(out: &mut Vec<u8>, Drains { asked, counts }: &Drains) {
    let lengths = [asked.len(), counts.len()];
    lengths.iter().for_each(|length| out.extend((*length as u16).to_be_bytes()));
    let numbers = counts.iter().flat_map(|(digest, count)| [digest, count]);
    asked.iter().chain(numbers).for_each(|number| out.extend(number.to_be_bytes()));
}
