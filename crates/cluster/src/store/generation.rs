//! Writing a configuration's parts, ahead of what names them.

use super::error::StoreError;
use super::layout::{Part, Pointer};
use super::phases::{Snapshot, Store, Transaction, Write};

/// How many parts are written in a transaction, of which etcd takes 128, and with how many bytes.
const BATCH_PARTS_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 1_000_000;

/// The parts of a configuration, in a store, under a name of their own.
#[derive(Debug)]
pub struct Generation(Pointer);

impl Generation {
    /// Writes the parts under this name, which is of hexadecimal digits and new. Nothing refers to them
    /// yet.
    ///
    /// # Errors
    /// The store's; what it has then of these parts is deleted with what is committed next.
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

    /// What `current` says where this is in force.
    #[must_use]
    pub fn pointer(&self) -> String {
        self.0.to_text()
    }

    /// Deletes the parts of all others, for the transaction that commits this one: whoever has written
    /// others since does not replace what is in force then, and so can't propose them.
    #[must_use]
    pub fn without_others(&self) -> Vec<Write> {
        let (own, own_end) = self.0.parts_range();
        vec![Write::DeleteFrom("parts/".into(), own), Write::DeleteFrom(own_end, "parts0".into())]
    }

    /// Deletes the parts again, unless this is in force or proposed, or may have become so since the store
    /// had `seen`.
    ///
    /// # Errors
    /// The store's.
    pub fn delete(&self, store: &impl Store, seen: &Snapshot) -> Result<(), StoreError> {
        let pointer = self.pointer();
        if seen.current().1 == pointer || seen.proposed().is_some_and(|(_, it)| it == pointer) {
            return Ok(());
        }
        let (own, own_end) = self.0.parts_range();
        let writes = vec![Write::DeleteFrom(own, own_end)];
        store.transact(&Transaction { conditions: seen.unchanged(), writes }, 0).map(drop)
    }
}

/// How many parts are written next, one at least.
fn batch_len(parts: &[Part<'_>]) -> usize {
    let mut bytes = 0;
    let fits = parts.iter().take(BATCH_PARTS_MAX).take_while(|part| {
        bytes += part.text().len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}
