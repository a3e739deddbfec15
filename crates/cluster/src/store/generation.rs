//! Writes a configuration's parts, before the key that refers to them.

use super::error::StoreError;
use super::layout::{Part, Pointer};
use super::phases::{Snapshot, Store, Transaction, Write};

/// Maximum number of parts in a transaction, out of etcd's 128 operations, and maximum number of
/// bytes.
const BATCH_PARTS_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 1_000_000;

/// The parts of a configuration, in a store, under their own name.
#[derive(Debug)]
pub struct Generation(Pointer);

impl Generation {
    /// Writes the parts under this name, which must be new and consist of hexadecimal digits.
    /// Nothing refers to them yet.
    ///
    /// # Errors
    /// The store's error; parts already written are deleted with the next commit.
    pub fn write(store: &impl Store, name: &str, parts: &[Part<'_>]) -> Result<Self, StoreError> {
        let generation = Self(Pointer::to(name, parts));
        let (folder, _) = generation.0.parts_range();
        let (mut rest, mut written) = (parts, 0..);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_len(rest));
            // In this order no index is lost at the end of a batch.
            let indexed = batch.iter().zip(written.by_ref());
            let put = |(part, index): (&Part<'_>, usize)| {
                Write::Put(format!("{folder}{index:06}-{}", part.label), part.text().to_owned())
            };
            let writes = indexed.map(put).collect();
            store.transact(&Transaction { conditions: Vec::new(), writes }, 0)?;
            rest = after;
        }
        Ok(generation)
    }

    /// The value of `current` if this generation is in force.
    #[must_use]
    pub fn pointer(&self) -> String {
        self.0.to_text()
    }

    /// Deletes the parts of all others, for the transaction that commits this one: a proposer that
    /// has written other parts since does not replace the present revision then, and so can't
    /// propose them.
    #[must_use]
    pub fn without_others(&self) -> Vec<Write> {
        let (own, own_end) = self.0.parts_range();
        vec![Write::DeleteFrom("parts/".into(), own), Write::DeleteFrom(own_end, "parts0".into())]
    }

    /// Deletes the parts again, unless this generation is in force or proposed, or may have become
    /// so since the store was in the state `seen`.
    ///
    /// # Errors
    /// The store's error.
    pub fn delete(&self, store: &impl Store, seen: &Snapshot) -> Result<(), StoreError> {
        let pointer = self.pointer();
        if seen.current().1 == pointer
            || seen.proposed().is_some_and(|(_, proposed)| proposed == pointer)
        {
            return Ok(());
        }
        let (own, own_end) = self.0.parts_range();
        let writes = vec![Write::DeleteFrom(own, own_end)];
        store.transact(&Transaction { conditions: seen.unchanged(), writes }, 0).map(drop)
    }
}

/// Number of parts to write next, at least one.
fn batch_len(parts: &[Part<'_>]) -> usize {
    let mut bytes = 0;
    let fits = parts.iter().take(BATCH_PARTS_MAX).take_while(|part| {
        bytes += part.text().len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}
