//! What captures add to a packet: the backend that it goes to. Threads of captures read it, and no worker does.

use hotloop::engine::Record;
use hotloop::stage::tap::TapPoint;
use hotloop_balancer::own_header::OwnHeader;
use hotloop_balancer::services::ServiceTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The service table in use, for the threads of captures. No worker has to do with it.
#[derive(Clone, Debug)]
pub struct Notes(Arc<Mutex<Arc<ServiceTable>>>);

impl Notes {
    pub fn new(table: &Arc<ServiceTable>) -> Self {
        Self(Arc::new(Mutex::new(Arc::clone(table))))
    }

    /// From now on `table` is in use.
    pub fn follow(&self, table: &Arc<ServiceTable>) {
        let mut known = self.lock();
        if !Arc::ptr_eq(&known, table) {
            *known = Arc::clone(table);
        }
    }

    /// The backend of a packet that is in the tunnel to it, or was when it was dropped. Nothing of other packets, nor
    /// where the capture has left out a part of the outer header, nor once the backend was removed.
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
