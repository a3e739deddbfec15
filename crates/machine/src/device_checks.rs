//! Checks the devices that programs will open.

use super::device::{Device, DeviceKind, interface_folder, pci_folder};
use super::finding::Verdict;
use super::kernel::connections;
use super::machine::Machine;
use super::root::{Root, Unread};

/// Kernel drivers that share a NIC with DPDK: "Bifurcated Driver" in DPDK's guide.
const SHARED_DRIVERS: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];

/// Drivers that hand a device to a program without an IOMMU.
const UNSAFE_DRIVERS: [&str; 2] = ["uio_pci_generic", "igb_uio"];

/// The result of a check. `None` if the check does not apply to the device.
type Checked = Result<Option<Verdict>, Unread>;

/// Whether the device exists.
pub(super) fn exists(machine: &Machine, device: &Device) -> Checked {
    let name = &device.name;
    let Some(folder) = device.folder() else {
        return Ok(Some(Verdict::ok(format!("{name} is one of DPDK's own"))));
    };
    let all = folder.rsplit_once('/').map_or("", |(all, _)| all);
    machine.root.names(all)?;
    if machine.root.has(&folder) {
        return Ok(Some(Verdict::ok(format!("{name} is there"))));
    }
    Ok(Some(Verdict::safety(
        format!("there is no {name}"),
        "a program that opens it can't start",
        format!("ls /{all}  # and take one of these"),
    )))
}

/// The address of a PCI device that exists.
fn pci<'a>(machine: &Machine, device: &'a Device) -> Option<&'a str> {
    match &device.kind {
        DeviceKind::Pci(address) if machine.root.has(&pci_folder(address)) => Some(address),
        _ => None,
    }
}

/// The device's driver. `None` if no driver is bound.
fn driver_of(root: &Root, address: &str) -> Result<Option<String>, Unread> {
    match root.link(&format!("{}/driver", pci_folder(address))) {
        Ok(driver) => Ok(Some(driver)),
        Err(unread) if unread.is_missing => Ok(None),
        Err(unread) => Err(unread),
    }
}

/// Whether the device's driver hands it to programs: "Linux Drivers" in DPDK's guide.
pub(super) fn driver(machine: &Machine, device: &Device) -> Checked {
    let Some(address) = pci(machine, device) else { return Ok(None) };
    let bind = format!("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {address}");
    let driver = driver_of(&machine.root, address)?;
    Ok(Some(match driver.as_deref() {
        Some("vfio-pci") => Verdict::ok(format!("{address} is bound to vfio-pci")),
        Some(driver) if SHARED_DRIVERS.contains(&driver) => {
            Verdict::ok(format!("{address} is used beside the kernel's driver {driver}"))
        }
        Some(driver) if UNSAFE_DRIVERS.contains(&driver) => Verdict::safety(
            format!("{address} is bound to {driver}"),
            "no IOMMU stands between the device and memory: a wrong address overwrites anything, the \
             kernel included",
            bind,
        ),
        Some(driver) => Verdict::safety(
            format!("{address} is bound to the kernel's driver {driver}"),
            "a program that opens it can't start; what uses its interface now, such as ssh, \
             loses it when the driver changes",
            bind,
        ),
        None => Verdict::safety(
            format!("no driver is bound to {address}"),
            "a program that opens it can't start",
            bind,
        ),
    }))
}

/// Whether an IOMMU stands between the device and memory.
pub(super) fn iommu(machine: &Machine, device: &Device) -> Checked {
    let Some(address) = pci(machine, device) else { return Ok(None) };
    let driver = driver_of(&machine.root, address)?;
    if driver.is_some_and(|driver| SHARED_DRIVERS.contains(&driver.as_str())) {
        return Ok(None);
    }
    let fix = "boot with intel_iommu=on iommu=pt, and turn on VT-d or AMD-Vi in the firmware; a virtual \
               machine gets one from its host";
    let group = match machine.root.link(&format!("{}/iommu_group", pci_folder(address))) {
        Err(unread) if !unread.is_missing => return Err(unread),
        group => group.ok(),
    };
    let Some(group) = group else {
        return Ok(Some(Verdict::safety(
            format!("{address} is behind no IOMMU"),
            "vfio-pci refuses it, or in its no-IOMMU mode lets it write to any memory",
            fix,
        )));
    };
    let name = machine.root.text(&format!("sys/kernel/iommu_groups/{group}/name"));
    if name.is_ok_and(|name| name.contains("noiommu")) {
        return Ok(Some(Verdict::safety(
            format!("{address} is used in vfio's no-IOMMU mode"),
            "a wrong address may overwrite any memory, even the kernel's",
            fix,
        )));
    }
    Ok(Some(Verdict::ok(format!("{address} is in IOMMU group {group}"))))
}

/// Whether the kernel has released all devices of the IOMMU group, as vfio requires: "VFIO" in the
/// kernel's documentation.
pub(super) fn group(machine: &Machine, device: &Device) -> Checked {
    let Some(address) = pci(machine, device) else { return Ok(None) };
    let root = &machine.root;
    let Ok(group) = root.link(&format!("{}/iommu_group", pci_folder(address))) else {
        return Ok(None);
    };
    if driver_of(root, address)?.as_deref() != Some("vfio-pci") {
        return Ok(None);
    }
    for other in root.names(&format!("sys/kernel/iommu_groups/{group}/devices"))? {
        if let Some(driver) = driver_of(root, &other)?
            && !["vfio-pci", "pcieport", "pci-stub"].contains(&driver.as_str())
        {
            return Ok(Some(Verdict::safety(
                format!("{other}, in the IOMMU group of {address}, is bound to {driver}"),
                "vfio gives out whole groups: a program that opens the device can't start",
                format!("dpdk-devbind.py --bind=vfio-pci {other}"),
            )));
        }
    }
    Ok(Some(Verdict::ok(format!("nothing else in IOMMU group {group} is the kernel's"))))
}

/// Whether workers run on the device's own node.
pub(super) fn node(machine: &Machine, device: &Device) -> Checked {
    let Some(folder) = device.folder().filter(|folder| machine.root.has(folder)) else {
        return Ok(None);
    };
    // A virtual interface, such as veth, is on no node.
    let is_made = matches!(device.kind, DeviceKind::Interface { .. });
    if is_made && !machine.root.has(&format!("{folder}/device")) {
        return Ok(None);
    }
    let (name, nodes) = (&device.name, machine.nodes()?);
    if let [(node, _)] = nodes[..] {
        return Ok(Some(Verdict::ok(format!("{name} and all CPUs are on node {node}"))));
    }
    let workers = machine.workers()?;
    let Some(own) = device.node(&machine.root) else {
        return Err(Unread::new(format!("{name} does not report its node")));
    };
    let near = nodes.iter().find(|(node, _)| *node == own).map(|(_, cpus)| cpus);
    let near =
        near.ok_or_else(|| Unread::new(format!("{name} is on node {own}, which has no CPUs")))?;
    let far = workers.without(near);
    if far.is_empty() {
        return Ok(Some(Verdict::ok(format!("{name} and its workers are on node {own}"))));
    }
    Ok(Some(Verdict::speed(
        format!("{name} is on node {own}, {} elsewhere", far.in_words()),
        "each packet crosses from one socket to the other, and its memory is far from one of the two",
        format!(
            "hotloop-doctor --device '{name}' --cpus {near}  # choose workers' CPUs among these"
        ),
    )))
}

/// Whether a PCI device uses all lanes that it has.
pub(super) fn lanes(machine: &Machine, device: &Device) -> Checked {
    let Some(address) = pci(machine, device) else { return Ok(None) };
    let number = |name: &str| machine.root.number(&format!("{}/{name}", pci_folder(address)));
    let (now, most) = match (number("current_link_width"), number("max_link_width")) {
        // A device inside the chip set, or inside a virtual machine, has no link.
        (Err(unread), _) | (_, Err(unread)) if unread.is_missing => return Ok(None),
        (now, most) => (now?, most?),
    };
    // 0 and 255 stand for no link.
    if now <= 0 || most == 255 || now >= most {
        return Ok(Some(Verdict::ok(format!("{address} has {now} PCIe lanes of {most}"))));
    }
    Ok(Some(Verdict::speed(
        format!("{address} has {now} PCIe lanes of {most}"),
        "the bus is slower than the NIC: packets are lost as imissed while cores are idle",
        format!(
            "lspci -vv -s {address} | grep -i lnk  # then move the NIC to a slot with {most} lanes"
        ),
    )))
}

/// Whether the kernel tracks the connections of a device's packets as well.
pub(super) fn tracking(machine: &Machine, device: &Device) -> Checked {
    let DeviceKind::Interface { name, is_seen: true } = &device.kind else { return Ok(None) };
    if !machine.root.has(&interface_folder(name)) {
        return Ok(None);
    }
    let Some((count, _)) = connections(machine)? else {
        return Ok(Some(Verdict::ok(format!("the kernel tracks no connections of {name}"))));
    };
    Ok(Some(Verdict::speed(
        format!(
            "the kernel looks up each packet of {name} in its table of {count} connections, too"
        ),
        "it works on the same packets on the same machine, and what it loses looks like the program's loss",
        format!(
            "nft add table inet hotloop && nft add chain inet hotloop early '{{ type filter hook \
             prerouting priority raw; }}' && nft add rule inet hotloop early iifname {name} notrack"
        ),
    )))
}
