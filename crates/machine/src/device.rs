//! Tells devices apart by their names.

use super::root::Root;

/// A device that a program will open.
pub(super) struct Device {
    /// The name that the user gave.
    pub(super) name: String,
    pub(super) kind: DeviceKind,
}

pub(super) enum DeviceKind {
    /// A device on the PCI bus, with its address.
    Pci(String),
    /// A kernel interface. The kernel sees its packets, too, unless XDP takes them first.
    Interface { name: String, is_seen: bool },
    /// One of DPDK's own, which needs nothing of the machine.
    Virtual,
}

impl Device {
    /// Finds the kind of a device from a PCI address, a kernel interface or one of DPDK's device
    /// strings.
    pub(super) fn new(root: &Root, text: &str) -> Self {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let interface = parts.find_map(|part| part.strip_prefix("iface=")).map(str::to_owned);
        let kind = match (pci_address(first), interface) {
            (Some(address), _) => DeviceKind::Pci(address),
            // The program creates net_tap's interface.
            (None, _) if first.starts_with("net_tap") => DeviceKind::Virtual,
            (None, Some(name)) => {
                DeviceKind::Interface { name, is_seen: !first.starts_with("net_af_xdp") }
            }
            (None, None) if root.has(&interface_folder(first)) => {
                DeviceKind::Interface { name: first.to_owned(), is_seen: true }
            }
            (None, None) if first.starts_with("net_") => DeviceKind::Virtual,
            (None, None) => DeviceKind::Interface { name: first.to_owned(), is_seen: true },
        };
        Self { name: text.to_owned(), kind }
    }

    /// The device's folder in sysfs. `None` for a virtual device.
    pub(super) fn folder(&self) -> Option<String> {
        match &self.kind {
            DeviceKind::Pci(address) => Some(pci_folder(address)),
            DeviceKind::Interface { name, .. } => Some(interface_folder(name)),
            DeviceKind::Virtual => None,
        }
    }

    /// Whether a program must lock memory for the device.
    pub(super) fn locks_memory(&self) -> bool {
        !matches!(self.kind, DeviceKind::Virtual)
    }

    /// The device's NUMA node, if known.
    pub(super) fn node(&self, root: &Root) -> Option<usize> {
        let folder = self.folder()?;
        let own = root.number(&format!("{folder}/numa_node"));
        let node = own.or_else(|_| root.number(&format!("{folder}/device/numa_node")));
        node.ok().and_then(|node| usize::try_from(node).ok())
    }
}

/// A PCI address with its domain, 0000:01:00.0. `text` may omit the domain.
fn pci_address(text: &str) -> Option<String> {
    let (bus, function) = text.rsplit_once('.')?;
    let parts: Vec<_> = bus.split(':').collect();
    let is_hex =
        |text: &&str, bytes| text.len() == bytes && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_function = matches!(function.as_bytes(), [b'0'..=b'7']);
    match parts[..] {
        [bus, slot] if is_function && is_hex(&bus, 2) && is_hex(&slot, 2) => {
            Some(format!("0000:{text}"))
        }
        [domain, bus, slot]
            if is_function && is_hex(&domain, 4) && is_hex(&bus, 2) && is_hex(&slot, 2) =>
        {
            Some(text.to_owned())
        }
        _ => None,
    }
}

/// The folder of a PCI address in sysfs.
pub(super) fn pci_folder(address: &str) -> String {
    format!("sys/bus/pci/devices/{address}")
}

/// The folder of a kernel interface in sysfs.
pub(super) fn interface_folder(name: &str) -> String {
    // A name with a slash belongs to no interface, and must not lead to another folder.
    format!("sys/class/net/{}", name.replace('/', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_differ_from_names() {
        let address = |text| pci_address(text);
        assert_eq!(address("01:00.0").as_deref(), Some("0000:01:00.0"));
        assert_eq!(address("abcd:ef:1f.7").as_deref(), Some("abcd:ef:1f.7"));
        for name in
            ["eth0", "eth0.100", "net_null0", "1:00.0", "0000:01:00.8", "0000:01:00.", "", "::."]
        {
            assert_eq!(address(name), None, "{name}");
        }
    }
}
