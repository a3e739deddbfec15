//! CaptureNotes that captures add to packets: the backend that a packet goes to.
//!
//! Threads of captures read the service table here; no worker takes part.

use hotloop::engine::Record;
use hotloop::packet::own_header::OwnHeader;
use hotloop::stage::tap::TapPoint;
use hotloop_balancer::services::ServiceTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The service table in use, for the threads of captures.
#[derive(Clone, Debug)]
pub struct CaptureNotes(Arc<Mutex<Arc<ServiceTable>>>);

impl CaptureNotes {
    pub fn new(table: &Arc<ServiceTable>) -> Self {
        Self(Arc::new(Mutex::new(Arc::clone(table))))
    }

    /// Uses `table` from now on.
    pub fn follow(&self, table: &Arc<ServiceTable>) {
        let mut known = self.lock();
        if !Arc::ptr_eq(&known, table) {
            *known = Arc::clone(table);
        }
    }

    /// The backend of a packet that is in a backend's tunnel, or was when it was dropped. `None`
    /// for other packets, if the capture has cut the outer header, and after the backend's removal.
    pub fn of(&self, record: &Record<'_>) -> Option<String> {
        if record.point == TapPoint::Receive {
            return None;
        }
        let header = OwnHeader::of(record.data).filter(OwnHeader::is_tunnel)?;
        let is_backend = self.lock().is_backend(header.destination);
        is_backend.then(|| format!("to backend {}", header.destination))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ServiceTable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
