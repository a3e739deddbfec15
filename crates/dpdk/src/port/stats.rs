//! A port's counters.

use crate::errno::errno_text;
use hotloop_dpdk_sys as sys;
use std::ffi::CStr;

/// A port's counts since its start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortStats {
    /// Packets received.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets lost because no RX descriptor was free; `None` if neither the driver nor the kernel
    /// counts them.
    pub imissed: Option<u64>,
    /// Packets received with errors.
    pub ierrors: u64,
    /// Packets that could not be sent.
    pub oerrors: u64,
    /// Packets lost because no mbuf was free, including those that this crate could not copy.
    pub rx_nombuf: u64,
    /// Packets that a driver passed on with lengths that do not agree, and that were freed; not in
    /// `received`, though their bytes may be in `received_bytes`.
    pub rx_malformed: u64,
    /// Packets that a TX queue took and freed, since the device can't send packets of their kind.
    pub tx_refused: u64,
    /// Packets that arrived while no RX queue was claimed, and were freed, or lost in the kernel.
    pub rx_unclaimed: u64,
}

impl Default for PortStats {
    /// All zero.
    fn default() -> Self {
        Self {
            received: 0,
            received_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            imissed: Some(0),
            ierrors: 0,
            oerrors: 0,
            rx_nombuf: 0,
            tx_refused: 0,
            rx_malformed: 0,
            rx_unclaimed: 0,
        }
    }
}

impl PortStats {
    /// The counts after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        self.each(before, u64::saturating_sub)
    }

    /// The sum of both.
    pub(super) fn plus(&self, other: &Self) -> Self {
        self.each(other, |one, other| one + other)
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            received: of(self.received, other.received),
            received_bytes: of(self.received_bytes, other.received_bytes),
            sent: of(self.sent, other.sent),
            sent_bytes: of(self.sent_bytes, other.sent_bytes),
            imissed: self.imissed.zip(other.imissed).map(|(one, other)| of(one, other)),
            ierrors: of(self.ierrors, other.ierrors),
            oerrors: of(self.oerrors, other.oerrors),
            rx_nombuf: of(self.rx_nombuf, other.rx_nombuf),
            rx_malformed: of(self.rx_malformed, other.rx_malformed),
            tx_refused: of(self.tx_refused, other.tx_refused),
            rx_unclaimed: of(self.rx_unclaimed, other.rx_unclaimed),
        }
    }
}

/// The device's own counters, unchanged.
///
/// Other threads may poll meanwhile. rte_ethdev.h requires no lock around reading statistics:
/// DPDK's drivers keep them in plain 64-bit fields; one polling thread adds to each, and any other
/// may read it. They are only read and written in C, on machines with 64-bit words, where such a
/// field is read at once: a count is a value that the field had, the counts of one call may mix
/// several moments, and they are exact once polling has ended. This crate has no reference to any
/// of them. Counters of its own (`Inner`'s) are atomic.
///
/// # Safety
/// 1. The port exists and is not closed meanwhile.
pub(super) unsafe fn read(port_id: u16) -> Result<PortStats, String> {
    // SAFETY: 1. The port exists, by contract.
    let stats = unsafe { sys::sh_port_stats(port_id) };
    if stats.error != 0 {
        return Err(errno_text(stats.error));
    }
    Ok(PortStats {
        received: stats.ipackets,
        received_bytes: stats.ibytes,
        sent: stats.opackets,
        sent_bytes: stats.obytes,
        imissed: Some(stats.imissed),
        ierrors: stats.ierrors,
        oerrors: stats.oerrors,
        rx_nombuf: stats.rx_nombuf,
        rx_malformed: 0,
        tx_refused: 0,
        rx_unclaimed: 0,
    })
}

/// The device's extended counters, each with its name; as with [`read`], others may poll meanwhile.
///
/// # Safety
/// 1. The port exists and is not closed meanwhile.
pub(super) unsafe fn read_extended(port_id: u16) -> Result<Vec<(String, u64)>, String> {
    // SAFETY: 1. The port exists, by contract. 2. rte_ethdev.h: no table and size 0 request the
    // count.
    let count = unsafe { sys::sh_port_xstat_names(port_id, std::ptr::null_mut(), 0) };
    let Ok(count) = u32::try_from(count) else { return Err(errno_text(count)) };
    let mut names = vec![sys::sh_xstat_name { name: [0; 64] }; count as usize];
    // SAFETY: 1. The port exists, by contract. 2. The table has `count` entries.
    let named = unsafe { sys::sh_port_xstat_names(port_id, names.as_mut_ptr(), count) };
    let mut values = vec![sys::sh_xstat { id: 0, value: 0 }; count as usize];
    // SAFETY: 1. The port exists, by contract. 2. The table has `count` entries.
    let valued = unsafe { sys::sh_port_xstats(port_id, values.as_mut_ptr(), count) };
    if named < 0 || valued < 0 {
        return Err(errno_text(named.min(valued)));
    }
    values.truncate(valued as usize);
    let named = values.iter().filter_map(|value| {
        let name = names.get(usize::try_from(value.id).ok()?)?;
        // SAFETY: 1. The array is initialised; `c_char` and `u8` are alike.
        let bytes = unsafe { &*(std::ptr::from_ref(&name.name) as *const [u8; 64]) };
        let name = CStr::from_bytes_until_nul(bytes).ok()?;
        Some((name.to_string_lossy().into_owned(), value.value))
    });
    Ok(named.collect())
}
