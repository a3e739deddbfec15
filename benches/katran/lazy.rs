//! Katran, loaded on first use, and the account of its packets.

use hotloop_benches::peers::katran::{Counts, Files, Katran, Settings};
use std::cell::RefCell;
use std::time::Duration;

/// Katran with a full connection table, loaded on first use.
pub struct LazyKatran {
    loaded: RefCell<Option<Loaded>>,
    files: Files,
    settings: Settings,
    /// Number of flows that have had a packet before the measurement.
    flow_count: u32,
    /// Whether Katran limits the number of connections entered per second.
    is_limited: bool,
}

struct Loaded {
    katran: Katran,
    /// Katran's counters when its table was full.
    filled: Counts,
    /// Packets received since.
    packet_count: u64,
}

impl LazyKatran {
    pub fn new(files: &Files, settings: Settings, flow_count: u32, is_limited: bool) -> Self {
        Self { loaded: RefCell::new(None), files: files.clone(), settings, flow_count, is_limited }
    }

    fn load(&self) -> Result<Loaded, String> {
        let katran = Katran::open(&self.files, self.settings)?;
        katran.fill(self.flow_count, self.is_limited)?;
        let filled = katran.counts()?;
        Ok(Loaded { katran, filled, packet_count: 0 })
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Loaded) -> Result<T, String>) -> T {
        let mut loaded = self.loaded.borrow_mut();
        let loaded =
            loaded.get_or_insert_with(|| self.load().unwrap_or_else(|error| panic!("{error}")));
        use_it(loaded).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Times `count` packets through Katran, driver included, after `warm_count` that warm up. `dial` selects their flows.
    ///
    /// # Panics
    /// If Katran can't be loaded, or does not send the packets.
    pub fn play(&self, warm_count: u64, count: u64, dial: impl FnOnce(&Katran)) -> Duration {
        self.with(|loaded| {
            dial(&loaded.katran);
            loaded.packet_count += Katran::packets_of(warm_count, count);
            loaded.katran.time(warm_count, count, true)
        })
    }

    /// [`play`](Self::play) without Katran: the driver's time.
    pub fn drive(&self, warm_count: u64, count: u64, dial: impl FnOnce(&Katran)) -> Duration {
        self.with(|loaded| {
            dial(&loaded.katran);
            loaded.katran.time(warm_count, count, false)
        })
    }

    /// Checks that Katran has sent every packet since its table was filled to a backend, and that
    /// it knew all of their connections; or none of them, if they `are_new`.
    pub fn check(&self, are_new: bool) -> Result<(), String> {
        let loaded = self.loaded.borrow();
        let Some(Loaded { katran, filled, packet_count }) = &*loaded else { return Ok(()) };
        let counts = katran.counts()?;
        if counts.packets != filled.packets + packet_count {
            return Err(format!(
                "Katran counted {counts}, and not {packet_count} packets more than {filled}"
            ));
        }
        counts.check_since(filled, if are_new { *packet_count } else { 0 })
    }

    /// Checks that Katran knows the connections of `count` flows, starting with `first`.
    pub fn check_known(&self, first: u32, count: u32) -> Result<(), String> {
        let loaded = self.loaded.borrow();
        let Some(Loaded { katran, .. }) = &*loaded else { return Ok(()) };
        let before = katran.counts()?;
        katran.send_each(first, count)?;
        katran.counts()?.check_since(&before, 0)
    }
}
