//! Watches the links of a run's devices, and returns the devices' counters.

use hotloop_engine::Control;
use hotloop_stage::{Device, LinkState, Reopening};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the control thread checks the links: a lost one is reported well within a second.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Checks the links of a run's devices, and logs changes.
pub(crate) struct Links {
    devices: Vec<(Arc<dyn Device>, Option<LinkState>)>,
    due: Instant,
}

impl Links {
    pub(crate) fn of(control: &Control<'_>) -> Self {
        let devices = control.devices().into_iter();
        let devices = devices.map(|device| (Arc::clone(&device), device.link_state())).collect();
        Self { devices, due: Instant::now() }
    }

    /// Checks the links, if it is time to, and logs changes.
    pub(crate) fn turn(&mut self) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + LOOK_INTERVAL;
        for (device, known) in &mut self.devices {
            let state = device.link_state();
            let (before, name) = (std::mem::replace(known, state), device.name());
            match state {
                _ if state == before => {}
                Some(LinkState::Gone) => tracing::error!(
                    "{name}: its interface has gone: nothing passes until {}",
                    what_helps(device.as_ref())
                ),
                Some(LinkState::Down) => tracing::warn!("{name}: the link is down"),
                Some(LinkState::Up) => tracing::info!("{name}: the link is up"),
                None => {}
            }
            if state == Some(LinkState::Gone) {
                reopen(device.as_ref());
            }
        }
    }
}

/// How to bring back a device without its interface.
fn what_helps(device: &dyn Device) -> &'static str {
    match device.reopen() {
        Ok(Reopening::Impossible) => "the program is started again",
        _ => "there is one of its name again",
    }
}

/// Tries to reopen a device after its interface went away.
fn reopen(device: &dyn Device) {
    match device.reopen() {
        Ok(Reopening::Done) => {
            tracing::info!("{}: its interface is back, and was opened again", device.name());
        }
        Ok(Reopening::Waiting | Reopening::Impossible) => {}
        Err(error) => tracing::error!(
            "{}: its interface is back, and could not be opened again, which is tried four times a \
             second: {error}",
            device.name()
        ),
    }
}

/// Each device, its link, and its counters since its start, for `status`.
pub(crate) fn to_json(control: &Control<'_>) -> Vec<Value> {
    let device = |device: Arc<dyn Device>| {
        let link = device.link_state().map(|state| state.to_string());
        let counters = device.counters();
        json!({
            "name": device.name(),
            "link": link,
            "received": counters.received,
            "received_bytes": counters.received_bytes,
            "sent": counters.sent,
            "sent_bytes": counters.sent_bytes,
            "imissed": counters.imissed,
            "rx_nombuf": counters.rx_nombuf,
            "reopened": counters.reopened,
        })
    };
    control.devices().into_iter().map(device).collect()
}

/// Every figure of each device that has any, under the driver's own names: the answer to `xstats`.
pub(crate) fn xstats(control: &Control<'_>) -> Value {
    let device = |device: Arc<dyn Device>| {
        let xstats: serde_json::Map<_, _> =
            device.xstats().into_iter().map(|(name, figure)| (name, figure.into())).collect();
        (!xstats.is_empty()).then(|| json!({"name": device.name(), "xstats": xstats}))
    };
    control.devices().into_iter().filter_map(device).collect()
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states = self.devices.iter().map(|(device, state)| (device.name(), state));
        f.debug_map().entries(states).finish()
    }
}
