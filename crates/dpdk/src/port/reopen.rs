//! Reopens a device after its interface was deleted, once another of the same name exists. Its
//! queues stay with their owners.

use super::inner::{Inner, Phase, PluggedIn, State, plug_in};
use super::{plug, start, stats};
use crate::Error;
use crate::errno::errno_text;
use crate::lock::{Control, lock};
use hotloop_dpdk_sys as sys;
use hotloop_stage::{Limits, LinkState, Reopening};
use std::sync::atomic::Ordering::Relaxed;

impl Inner {
    /// Goes as far as possible without waiting.
    pub(super) fn reopen(&self) -> Result<Reopening, Error> {
        let mut control = Control::lock()?;
        let mut state = lock(&self.state);
        if !self.driver.reopens {
            return Ok(Reopening::Impossible);
        }
        let Some(interface) = &mut state.interface else { return Ok(Reopening::Impossible) };
        if interface.link_state() != Some(LinkState::Gone) {
            return Ok(Reopening::Done);
        }
        if !interface.exists() || !self.gate.shut() {
            return Ok(Reopening::Waiting);
        }
        if let Phase::Started { port_id, before, limits } = state.phase {
            // SAFETY: 1. The port is this one, by the invariant of `Phase::Started`. 2. Nobody
            // polls: `Gate::shut` has found no queue inside, and none enters before the gate is
            // opened.
            unsafe { self.halt(&mut control, &mut state, port_id, &before) };
            state.phase = Phase::Away { port_id, limits };
            // SAFETY: 1. The port was stopped just now. 2. As above.
            unsafe { plug::unplug(&mut control, &self.device, port_id) }?;
        }
        let Phase::Away { port_id, limits } = state.phase else { return Ok(Reopening::Impossible) };
        let plugged = plug_in(&mut control, &self.device)?;
        let found = plugged.port_id;
        let opened = self.open_again(&mut control, &mut state, plugged, port_id, &limits);
        if opened.is_err() {
            // SAFETY: 1. The port is the device's, which was plugged in just now, and is not started:
            // that is the last step. 2. No queue is inside the gate, which is shut.
            let _ = unsafe { plug::unplug(&mut control, &self.device, found) };
        }
        opened.map(|()| Reopening::Done)
    }

    /// Restores the configuration of the device that was plugged in, and starts it.
    fn open_again(
        &self,
        control: &mut Control,
        state: &mut State,
        plugged: PluggedIn,
        port_id: u16,
        limits: &Limits,
    ) -> Result<(), Error> {
        let PluggedIn { port_id: found, sockets, interface } = plugged;
        if found != port_id {
            // Packets refer to their port by the old number. DPDK assigns the lowest free one,
            // which belongs to another device that is away: that one must be reopened first.
            let error = format!("DPDK's number of the port is {found}, and was {port_id}");
            return Err(self.unreadable("itself when opened again", error));
        }
        self.restore_mac(control, port_id)?;
        start::start(self, control, state, port_id, limits)?;
        (state.sockets, state.interface) = (sockets, interface);
        // SAFETY: 1. The port exists: it was plugged in, and the control lock is held since.
        let before = self.counted_before(unsafe { stats::read(port_id) });
        state.phase = Phase::Started { port_id, before, limits: *limits };
        self.reopened.fetch_add(1, Relaxed);
        self.gate.open(port_id);
        Ok(())
    }

    /// Sets the interface's address to the port's, which its neighbours know, if it differs.
    fn restore_mac(&self, control: &Control, port_id: u16) -> Result<(), Error> {
        let (_, mac) = plug::describe(control, &self.device, port_id)?;
        if mac == self.mac || !self.driver.has_own_mac {
            return Ok(());
        }
        // SAFETY: 1. The port exists: it was plugged in, and the control lock is held since. 2. The six
        // bytes are read during the call.
        let result = unsafe { sys::sh_port_set_mac(port_id, self.mac.bytes().as_ptr()) };
        if result == 0 {
            return Ok(());
        }
        Err(Error::Configure {
            device: self.text(),
            step: format!("giving its interface the MAC address {}", self.mac),
            error: errno_text(result),
            said: String::new(),
            remedy: "give it that address, or the right to change it (CAP_NET_ADMIN)".into(),
        })
    }
}
