//! Reference tables as texts, on their way between nodes: in parts, since a text may be longer than a
//! frame.

use super::sha256;
use super::wire::{PART_BYTES_MAX, Part};
use std::sync::Arc;

/// A reference table: its text, which only the balancer's program reads, and its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reference {
    /// The number of the table: all nodes have the same table with this number.
    pub number: u32,
    /// Its text.
    pub text: Arc<str>,
    /// A digest of the text: not 0.
    pub digest: u64,
}

impl Reference {
    /// The table with this number and this text.
    #[must_use]
    pub fn new(number: u32, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self { number, digest: digest_of(&text), text }
    }
}

/// A digest of a reference table's text: not 0.
#[must_use]
pub fn digest_of(text: &str) -> u64 {
    ((u128::from_be_bytes(sha256(text)) >> 64) as u64).max(1)
}

/// The tables that a peer has sent.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    whole: Vec<Reference>,
    /// The number and the beginning of a text.
    begun: Option<(u32, Vec<u8>)>,
}

/// Maximum number of whole texts that are kept of a peer: those of a move.
const WHOLE_MAX: usize = 2;

impl Arriving {
    /// Adds a part.
    ///
    /// # Errors
    /// If it isn't the next one, or the whole is no text.
    pub fn add(&mut self, part: &Part<'_>) -> Result<(), &'static str> {
        let (number, mut text) = match self.begun.take() {
            Some(begun) if part.offset > 0 => begun,
            _ => (part.number, Vec::new()),
        };
        if number != part.number || text.len() != part.offset as usize {
            return Err("sent parts of a reference table out of order");
        }
        text.extend_from_slice(part.bytes);
        if text.len() < part.text_bytes as usize {
            self.begun = Some((number, text));
            return Ok(());
        }
        let text = String::from_utf8(text).map_err(|_| "sent a reference table that is no text")?;
        self.whole.retain(|reference| reference.number != number);
        if self.whole.len() == WHOLE_MAX {
            self.whole.remove(0);
        }
        self.whole.push(Reference::new(number, text));
        Ok(())
    }

    /// The complete tables.
    pub fn whole(&self) -> &[Reference] {
        &self.whole
    }
}

/// The tables that a peer gets.
#[derive(Debug, Default)]
pub(super) struct Departing {
    tables: Vec<Reference>,
    /// Number of tables that were sent.
    sent_count: usize,
    /// Position in the next one, in bytes.
    offset: usize,
}

impl Departing {
    /// Sets the tables to send; nothing is sent twice.
    pub fn set(&mut self, tables: &[Reference]) {
        if tables == self.tables {
            return;
        }
        let is_sent = |table: &&Reference| self.tables[..self.sent_count].contains(table);
        let (sent, new): (Vec<_>, Vec<_>) = tables.iter().partition(is_sent);
        self.sent_count = sent.len();
        self.offset = 0;
        self.tables = sent.into_iter().chain(new).cloned().collect();
    }

    /// The next part, if there is one.
    pub fn next(&mut self) -> Option<Part<'_>> {
        let table = self.tables.get(self.sent_count)?;
        let (offset, bytes) = (self.offset, table.text.as_bytes());
        let end = bytes.len().min(offset + PART_BYTES_MAX);
        (self.offset, self.sent_count) = match end == bytes.len() {
            true => (0, self.sent_count + 1),
            false => (end, self.sent_count),
        };
        Some(Part {
            number: table.number,
            text_bytes: bytes.len() as u32,
            offset: offset as u32,
            bytes: &bytes[offset..end],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends everything that is due. Returns the number of parts.
    fn send(departing: &mut Departing, arriving: &mut Arriving) -> usize {
        let mut count = 0;
        while let Some(part) = departing.next() {
            arriving.add(&part).unwrap();
            count += 1;
        }
        count
    }

    #[test]
    fn texts_arrive_in_parts_and_once() {
        let (mut departing, mut arriving) = (Departing::default(), Arriving::default());
        let long = "ä".repeat(PART_BYTES_MAX);
        let [first, second] = [Reference::new(3, "short"), Reference::new(4, long)];
        departing.set(std::slice::from_ref(&first));
        assert_eq!(send(&mut departing, &mut arriving), 1);
        departing.set(&[first.clone(), second.clone()]);
        assert_eq!(send(&mut departing, &mut arriving), 2);
        assert_eq!(arriving.whole(), [first.clone(), second.clone()]);
        departing.set(&[second.clone(), first.clone()]);
        assert_eq!(send(&mut departing, &mut arriving), 0);
        let third = Reference::new(5, "");
        departing.set(std::slice::from_ref(&third));
        assert_eq!(send(&mut departing, &mut arriving), 1);
        assert_eq!(arriving.whole(), [second, third]);
    }

    #[test]
    fn a_text_that_changes_while_it_is_sent_begins_again() {
        let (mut departing, mut arriving) = (Departing::default(), Arriving::default());
        let [before, after] =
            ["a", "b"].map(|text| Reference::new(1, text.repeat(2 * PART_BYTES_MAX)));
        departing.set(&[before]);
        arriving.add(&departing.next().unwrap()).unwrap();
        departing.set(std::slice::from_ref(&after));
        send(&mut departing, &mut arriving);
        assert_eq!(arriving.whole(), [after]);
    }

    #[test]
    fn parts_out_of_order_and_bytes_that_are_no_text_are_refused() {
        let part = |number, offset, bytes| Part { number, text_bytes: 4, offset, bytes };
        let mut arriving = Arriving::default();
        assert!(arriving.add(&part(1, 2, b"ab")).is_err());
        arriving.add(&part(1, 0, b"ab")).unwrap();
        assert!(arriving.add(&part(2, 2, b"ab")).is_err());
        arriving.add(&part(1, 0, b"ab")).unwrap();
        assert!(arriving.add(&part(1, 3, b"a")).is_err());
        assert!(arriving.add(&part(1, 0, b"\xff\xff\xff\xff")).is_err());
        assert_eq!(arriving.whole(), []);
    }
}
