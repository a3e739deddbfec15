//! A device that is to be used, by its name.

use super::root::Root;

/// A device that a program is to open.
pub(super) struct Device {
    /// As it was named.
    pub(super) name: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// On the PCI bus, at this address.
    Pci(String),
    /// A kernel interface. The kernel sees its packets, too, unless XDP takes them before.
    Interface { name: String, is_seen: bool },
    /// One of DPDK's own, which needs nothing of the machine.
    Virtual,
}

impl Device {
    /// A device by its PCI address, its kernel interface, or a device string of DPDK's.
    pub(super) fn new(root: &Root, text: &str) -> Self {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let interface = parts.find_map(|part| part.strip_prefix("iface=")).map(str::to_owned);
        let kind = match (pci_address(first), interface) {
            (Some(address), _) => Kind::Pci(address),
            // net_tap's interface is made by the program.
            (None, _) if first.starts_with("net_tap") => Kind::Virtual,
            (None, Some(name)) => {
                Kind::Interface { name, is_seen: !first.starts_with("net_af_xdp") }
            }
            (None, None) if root.has(&interface_folder(first)) => {
                Kind::Interface { name: first.to_owned(), is_seen: true }
            }
            (None, None) if first.starts_with("net_") => Kind::Virtual,
            (None, None) => Kind::Interface { name: first.to_owned(), is_seen: true },
        };
        Self { name: text.to_owned(), kind }
    }

    /// Its folder in sysfs, where it has one.
    pub(super) fn folder(&self) -> Option<String> {
        match &self.kind {
            Kind::Pci(address) => Some(pci_folder(address)),
            Kind::Interface { name, .. } => Some(interface_folder(name)),
            Kind::Virtual => None,
        }
    }

    /// Whether a program has to lock memory for it.
    pub(super) fn locks_memory(&self) -> bool {
        !matches!(self.kind, Kind::Virtual)
    }

    /// Its NUMA node, where it has one.
    pub(super) fn node(&self, root: &Root) -> Option<usize> {
        let folder = self.folder()?;
        let own = root.number(&format!("{folder}/numa_node"));
        let node = own.or_else(|_| root.number(&format!("{folder}/device/numa_node")));
        node.ok().and_then(|node| usize::try_from(node).ok())
    }
}

/// A PCI address with its domain, 0000:01:00.0; the domain may be left out.
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
    // A name with a slash is of no interface, and must not lead to another folder.
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
