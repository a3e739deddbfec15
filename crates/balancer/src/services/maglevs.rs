//! The Maglev tables, which service tables share. Uses a lock that workers never take. Equal
//! backends with equal weights share one table.

use crate::maglev::Maglev;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The Maglev tables in use, by their backends, weights and number of slots. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Maglevs(Arc<Mutex<HashMap<Ingredients, Weak<Maglev>>>>);

type Ingredients = (Vec<(IpAddr, u32)>, u32);

impl Maglevs {
    /// The table of these backends: an existing one, or else a new one.
    pub(super) fn table(&self, weights: Vec<(IpAddr, u32)>, slot_count: u32) -> Arc<Maglev> {
        let key = (weights, slot_count);
        if let Some(maglev) = self.known(&key) {
            return maglev;
        }
        // No thread waits for the lock while a table is filled.
        let maglev = Arc::new(Maglev::new(&key.0, slot_count as usize));
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.insert(key, Arc::downgrade(&maglev));
        maglev
    }

    fn known(&self, key: &Ingredients) -> Option<Arc<Maglev>> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(key).and_then(Weak::upgrade)
    }

    /// Forgets the tables that no service table uses any more.
    pub(super) fn forget(&self) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, maglev| maglev.strong_count() > 0);
    }
}
