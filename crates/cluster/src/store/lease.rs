//! A lease that is kept alive by frequent calls.

use super::error::StoreError;
use super::etcd::Etcd;
use std::time::{Duration, Instant};

/// A lease of a store, which is granted when it is first needed, and again after it has ended.
#[derive(Debug)]
pub(super) struct Lease {
    ttl_s: u32,
    id: Option<i64>,
    /// The time of the next keep-alive.
    due: Instant,
}

impl Lease {
    /// A lease that ends `ttl_s` seconds after it was last kept alive.
    pub fn new(ttl_s: u32) -> Self {
        Self { ttl_s, id: None, due: Instant::now() }
    }

    /// The lease's number. 0, which is not a lease, before the first successful call of
    /// [`keep`](Self::keep).
    pub fn id(&self) -> i64 {
        self.id.unwrap_or(0)
    }

    /// When the lease must next be kept alive.
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// When the lease ends, or has ended, unless it is kept alive.
    pub fn end(&self) -> Instant {
        self.due + Duration::from_secs(self.ttl_s.into()) * 2 / 3
    }

    /// Keeps the lease alive if that is due, at a third of its duration, or requests a new one.
    /// Returns whether it is a new one.
    ///
    /// # Errors
    /// The store's error.
    pub fn keep(&mut self, etcd: &Etcd) -> Result<bool, StoreError> {
        let now = Instant::now();
        let due = now + Duration::from_secs(self.ttl_s.into()) / 3;
        if let Some(id) = self.id {
            if now < self.due {
                return Ok(false);
            }
            if etcd.keep_alive(id)? > 0 {
                self.due = due;
                return Ok(false);
            }
        }
        self.id = None;
        self.id = Some(etcd.grant(self.ttl_s)?);
        self.due = due;
        Ok(true)
    }

    /// Notes that the store does not know the lease: the next call requests a new one.
    pub const fn lose(&mut self) {
        self.id = None;
    }

    /// Ends the lease, and with it its keys.
    ///
    /// # Errors
    /// The store's error.
    pub fn revoke(&mut self, etcd: &Etcd) -> Result<(), StoreError> {
        self.id.take().map_or(Ok(()), |id| etcd.revoke(id))
    }
}
