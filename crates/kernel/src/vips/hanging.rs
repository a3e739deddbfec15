//! Whether threads of this process hang, by a thread that watches the others.

use super::guard::VipGuard;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// The announcer's view.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    reports: Arc<Reports>,
    change_count: u64,
    was_late: bool,
}

/// The last report, and the number of reports.
#[derive(Debug, Default)]
struct Reports {
    is_any: AtomicBool,
    change_count: AtomicU64,
}

impl Hanging {
    /// Whether VIPs must stay withdrawn, as of the last [`turn`](Self::turn).
    pub(super) fn is_any(&self) -> bool {
        self.was_late || self.reports.is_any.load(SeqCst)
    }

    /// Returns whether the routes must be checked, because a thread hangs or continues: the guard
    /// may have deleted them.
    pub(super) fn turn(&mut self, was_late: bool) -> bool {
        let change_count = self.reports.change_count.load(SeqCst);
        let is_changed = (change_count, was_late) != (self.change_count, self.was_late);
        (self.change_count, self.was_late) = (change_count, was_late);
        is_changed
    }

    pub(super) fn reporter(&self, guard: Option<&VipGuard>) -> HangReporter {
        let guard = guard.and_then(VipGuard::try_clone);
        HangReporter { reports: Arc::clone(&self.reports), guard }
    }
}

/// Reports to a [`VipAnnouncer`](super::VipAnnouncer), from the thread that watches the others, that
/// threads hang or continue.
#[derive(Debug)]
pub struct HangReporter {
    reports: Arc<Reports>,
    guard: Option<VipGuard>,
}

impl HangReporter {
    /// Reports whether any thread hangs now. While one does, VIPs stay withdrawn; the guard deletes
    /// their routes before this returns.
    pub fn report(&self, is_any: bool) {
        self.reports.is_any.store(is_any, SeqCst);
        self.reports.change_count.fetch_add(1, SeqCst);
        let Some(guard) = self.guard.as_ref().filter(|_| is_any) else { return };
        let start = Instant::now();
        match guard.withdraw() {
            Ok(()) => {
                let ms = start.elapsed().as_secs_f64() * 1e3;
                tracing::warn!("announce: VIPs are withdrawn, in {ms:.1} ms");
            }
            Err(error) => tracing::error!("announce: the guard does not withdraw VIPs: {error}"),
        }
    }
}
