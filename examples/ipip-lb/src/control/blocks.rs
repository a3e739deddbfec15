//! Blocked prefixes: services drop their packets.
//!
//! Part of [`Members`]. Blocks outlast configurations, and the overrides have exactly the prefixes
//! of the list.

use super::members::Members;
use crate::answer::{self, Change};
use crate::request::Block;
use crate::until::left_s;
use hotloop::packet::prefix::{Prefix, PrefixError, PrefixSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of blocked prefixes.
const BLOCKS_MAX: usize = 16_384;

/// The blocked prefixes.
#[derive(Debug, Default)]
pub struct BlockList {
    /// Each with the end of its block; `None` for a block without an end.
    ends: BTreeMap<Prefix, Option<Instant>>,
    /// The earliest of these ends.
    next_end: Option<Instant>,
}

impl BlockList {
    /// Blocks a prefix until `end`, in place of an earlier block.
    ///
    /// # Errors
    /// If too many prefixes are blocked.
    fn insert(&mut self, prefix: Prefix, end: Option<Instant>) -> Result<(), String> {
        if self.ends.len() >= BLOCKS_MAX && !self.ends.contains_key(&prefix) {
            return Err(format!(
                "{BLOCKS_MAX} prefixes are blocked, which is all that may be; unblock some, or \
                 block a shorter prefix in place of several"
            ));
        }
        self.ends.insert(prefix, end);
        self.find_next_end();
        Ok(())
    }

    /// Returns whether the prefix was blocked.
    fn remove(&mut self, prefix: Prefix) -> bool {
        let was_blocked = self.ends.remove(&prefix).is_some();
        self.find_next_end();
        was_blocked
    }

    /// Removes the blocks that have ended, and returns them.
    fn expire(&mut self, now: Instant) -> Vec<Prefix> {
        if self.next_end.is_none_or(|end| now < end) {
            return Vec::new();
        }
        let is_over = |_: &Prefix, end: &mut Option<Instant>| end.is_some_and(|end| end <= now);
        let expired = self.ends.extract_if(.., is_over).map(|(prefix, _)| prefix).collect();
        self.find_next_end();
        expired
    }

    fn find_next_end(&mut self) {
        self.next_end = self.ends.values().copied().flatten().min();
    }

    /// The form for workers; `None` if nothing is blocked.
    fn compiled(&self) -> Option<Arc<PrefixSet>> {
        (!self.ends.is_empty()).then(|| Arc::new(self.ends.keys().copied().collect()))
    }

    /// Every prefix with its remaining seconds; `None` for a block without an end.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = Block> {
        let block = move |(prefix, end): (&Prefix, &Option<Instant>)| Block {
            prefix: prefix.to_string(),
            for_s: end.map(|end| left_s(end, now)),
        };
        self.ends.iter().map(block)
    }

    /// The rows of `ctl blocks`.
    pub fn rows(&self, now: Instant) -> Vec<answer::Block> {
        let row = |Block { prefix, for_s }| answer::Block { prefix, left_s: for_s };
        self.all(now).map(row).collect()
    }
}

impl Members {
    /// Drops packets from a prefix to services, for a time or until it is unblocked.
    pub(super) fn block(&mut self, block: &Block) -> Result<Change, String> {
        let (prefix, for_s) = (parse(&block.prefix)?, block.for_s);
        let end = for_s.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        self.blocks.insert(prefix, end)?;
        self.set_blocked();
        Ok(Change::Blocked { prefix: prefix.to_string(), for_s })
    }

    /// Removes a block.
    pub(super) fn unblock(&mut self, prefix: &str) -> Result<Change, String> {
        let prefix = parse(prefix)?;
        if !self.blocks.remove(prefix) {
            return Err(format!("{prefix} is not blocked; ctl blocks lists what is"));
        }
        self.set_blocked();
        Ok(Change::Unblocked { prefix: prefix.to_string() })
    }

    /// Removes the blocks that have ended.
    pub(super) fn end_blocks(&mut self) {
        let expired = self.blocks.expire(Instant::now());
        for prefix in &expired {
            tracing::info!("{prefix} is no longer blocked: its time is over");
        }
        if !expired.is_empty() {
            self.set_blocked();
        }
    }

    /// Removes all blocks.
    pub(super) fn unblock_all(&mut self) {
        self.blocks = BlockList::default();
        self.set_blocked();
    }

    fn set_blocked(&mut self) {
        Arc::make_mut(&mut self.overrides).blocked = self.blocks.compiled();
        self.is_changed = true;
        self.note_change();
    }
}

fn parse(prefix: &str) -> Result<Prefix, String> {
    prefix.parse().map_err(|error: PrefixError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_in_their_time_and_are_named_once() {
        let (mut list, now) = (BlockList::default(), Instant::now());
        let after = |s| now + Duration::from_secs(s);
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let [forever, short, long] = ["10.0.0.0/8", "10.1.0.0/16", "::/0"].map(prefix);
        list.insert(forever, None).unwrap();
        list.insert(short, Some(after(5))).unwrap();
        list.insert(long, Some(after(1))).unwrap();
        list.insert(long, Some(after(9))).unwrap();
        assert_eq!(list.rows(now).len(), 3);
        assert_eq!(list.expire(after(4)), []);
        assert_eq!(list.expire(after(5)), [short]);
        assert_eq!(list.expire(after(60)), [long]);
        assert_eq!(list.expire(after(999_999)), []);
        assert!(list.compiled().is_some_and(|blocks| blocks.contains(short.network())));
        assert!(list.remove(forever) && !list.remove(forever));
        assert!(list.compiled().is_none());
    }

    #[test]
    fn there_is_a_limit_to_how_many_are_blocked() {
        let mut list = BlockList::default();
        let host = |number: usize| {
            Prefix::host(std::net::Ipv4Addr::from_bits(number as u32 + 0x0A00_0000).into())
        };
        for number in 0..BLOCKS_MAX {
            list.insert(host(number), None).unwrap();
        }
        assert!(list.insert(host(BLOCKS_MAX), None).unwrap_err().contains("unblock some"));
        list.insert(host(3), Some(Instant::now())).expect("it is one of them");
    }
}
