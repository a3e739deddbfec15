//! Plugging devices in and out. Every function here takes the proof of the control lock.

use super::config::Capabilities;
use super::rss::RssFields;
use crate::device::{DeviceString, check_captures};
use crate::errno::errno_text;
use crate::lock::Control;
use crate::{Error, log};
use hotloop_dpdk_sys as sys;
use hotloop_packet::ethernet::MacAddress;
use std::ffi::{CStr, CString};
use std::ptr::NonNull;

/// Maximum number of net_ring's rings: `RTE_PMD_RING_MAX_RX_RINGS`.
const NET_RING_RINGS_MAX: usize = 16;

/// Plugs the device in, and returns its port. A device on a bus may have been found by EAL itself
/// at its start. A virtual device that exists already belongs to nobody, and was not checked.
pub(super) fn plug(_: &mut Control, device: &DeviceString) -> Result<u16, Error> {
    let [bus, name, arguments] = device.for_hotplug();
    if !device.is_virtual()
        && let Some(port_id) = find(&name)
    {
        return Ok(port_id);
    }
    check_captures(device).map_err(|(problem, remedy)| Error::DeviceString {
        device: device.text().into(),
        problem,
        remedy,
    })?;
    let (result, said) = log::capture(|| {
        // SAFETY: 1. C strings. 2. The control lock is held. 3. The driver's arguments were
        // checked: they are those of a `DeviceString`, rebuilt. 4. Its handlers read each
        // argument's value, and every argument has one: `Argument::parse`. tests/devices.rs tries
        // every argument.
        unsafe { sys::rte_eal_hotplug_add(bus.as_ptr(), name.as_ptr(), arguments.as_ptr()) }
    });
    let error = match result {
        // The generic error of drivers; not EPERM.
        -1 => "its driver refuses it".into(),
        ..0 => errno_text(result),
        0.. => "it has no Ethernet port".into(),
    };
    find(&name).filter(|_| result >= 0).ok_or_else(|| {
        if result >= 0 {
            // SAFETY: 1. As above; nobody uses the device.
            unsafe { sys::rte_eal_hotplug_remove(bus.as_ptr(), name.as_ptr()) };
        }
        Error::Probe { device: device.text().into(), error, said, remedy: remedy(device).into() }
    })
}

fn remedy(device: &DeviceString) -> &'static str {
    if device.is_virtual() {
        "check its arguments, the files and interfaces they name, and the right to use them"
    } else {
        "check the address (lspci -D), that the device is bound to vfio-pci, and that EAL runs with \
         PCI (EAL arguments after `--`; the embedded default has --no-pci)"
    }
}

fn find(name: &CString) -> Option<u16> {
    let mut port_id = 0;
    // SAFETY: 1. A C string, and a number to write to. 2. The control lock is held: both callers
    // have its proof.
    let result = unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &mut port_id) };
    (result == 0).then_some(port_id)
}

/// Closes the port and plugs its device out.
///
/// # Safety
/// 1. The port is the device's and is stopped. 2. None of its queues is polled again.
pub(super) unsafe fn unplug(
    _: &mut Control,
    device: &DeviceString,
    port_id: u16,
) -> Result<(), Error> {
    let [bus, name, _] = device.for_hotplug();
    if name.to_bytes().starts_with(b"net_ring") {
        empty_rings(device.name());
    }
    let (result, said) = log::capture(|| {
        // SAFETY: 1. The port exists and is stopped, by contract. 2. The control lock is held.
        let closed = unsafe { sys::rte_eth_dev_close(port_id) };
        // SAFETY: 1. C strings. 2. The control lock is held. 3. Nobody uses the device, by
        // contract.
        let removed = unsafe { sys::rte_eal_hotplug_remove(bus.as_ptr(), name.as_ptr()) };
        if closed != 0 { closed } else { removed }
    });
    if result == 0 {
        if name.to_bytes().starts_with(b"net_ring") {
            free_rings(device.name());
        }
        return Ok(());
    }
    Err(Error::Configure {
        device: device.text().into(),
        step: "closing it".into(),
        error: errno_text(result),
        said,
        remedy: "the device stays unusable in this process".into(),
    })
}

/// Frees the mbufs that net_ring's rings still hold: the driver would only free the rings.
fn empty_rings(device_name: &str) {
    for ring in rings(device_name) {
        // SAFETY: 1. The ring exists, as `rings` has checked, and holds mbufs that were sent. 2.
        // The port is stopped and none of its queues is polled again, by `unplug`'s contract, so
        // this is the only consumer.
        while let Some(mbuf) = NonNull::new(unsafe { sys::sh_ring_take(ring) }) {
            // SAFETY: 1. The ring owned the mbuf, and this code does now; it is not used after.
            unsafe { sys::sh_mbuf_free(mbuf.as_ptr()) };
        }
    }
}

/// Frees the rings that net_ring leaves behind: it frees one per configured queue, of the 16 it
/// made, and cannot be plugged in again under the same name while others exist.
fn free_rings(device_name: &str) {
    for ring in rings(device_name) {
        // SAFETY: 1. The ring exists, as `rings` has checked. 2. Nobody uses it any more: `unplug`
        // calls this once the device is gone.
        unsafe { sys::rte_ring_free(ring) };
    }
}

/// The rings of a net_ring device, by the names its driver gives them.
fn rings(device_name: &str) -> impl Iterator<Item = *mut sys::rte_ring> {
    (0..NET_RING_RINGS_MAX).filter_map(move |index| {
        let mut name = format!("ETH_RXTX{index}_{device_name}");
        name.truncate(sys::SH_RING_NAME_MAX as usize - 1);
        let name = CString::new(name).ok()?;
        // SAFETY: 1. A C string. 2. rte_ring.h: the lookup takes a lock of its own.
        let ring = unsafe { sys::rte_ring_lookup(name.as_ptr()) };
        (!ring.is_null()).then_some(ring)
    })
}

/// The index of the port's kernel interface, 0 if there is none, and the port's number of RX
/// queues.
pub(super) fn interface(_: &Control, port_id: u16) -> (u32, u16) {
    // SAFETY: 1. The port exists: the caller has plugged it in and holds the control lock.
    let info = unsafe { sys::sh_port_info(port_id) };
    (info.interface, info.rx_queue_count_max)
}

/// The properties that a port's device reports.
pub(super) fn describe(
    _: &Control,
    device: &DeviceString,
    port_id: u16,
) -> Result<(Capabilities, MacAddress), Error> {
    let unreadable = |what, result| Error::Read {
        device: device.text().into(),
        what,
        error: errno_text(result),
    };
    // SAFETY: 1. The port exists: the caller has plugged it in and holds the control lock.
    let info = unsafe { sys::sh_port_info(port_id) };
    if info.error != 0 {
        return Err(unreadable("what it can do", info.error));
    }
    let mut mac = [0; 6];
    // SAFETY: 1. The port exists, as above. 2. `mac` has room for the six bytes.
    let result = unsafe { sys::sh_port_mac(port_id, mac.as_mut_ptr()) };
    if result != 0 {
        return Err(unreadable("its MAC address", result));
    }
    let driver = if info.driver_name.is_null() {
        String::new()
    } else {
        // SAFETY: 1. rte_ethdev.h: the name is a C string, the driver's own.
        unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned()
    };
    // SAFETY: 1. The port exists, as above.
    let node = unsafe { sys::rte_eth_dev_socket_id(port_id) };
    let capabilities = Capabilities {
        driver,
        rx_queue_count_max: info.rx_queue_count_max,
        tx_queue_count_max: info.tx_queue_count_max,
        frame_bytes_max: info.frame_bytes_max,
        rx_buffer_bytes_min: info.rx_buffer_bytes_min,
        scatters: info.scatters,
        gathers: info.gathers,
        rss_fields: RssFields::from_bits(info.rss_fields),
        rss_key_bytes: info.rss_key_bytes,
        node: u32::try_from(node).ok(),
    };
    Ok((capabilities, MacAddress::new(mac)))
}
