//! Finds the installed DPDK by its files, without loading it.

use super::finding::Verdict;
use super::machine::Machine;
use super::root::{Root, Unread};

/// Folders of libraries: those of distributions, and those of DPDK's own installation.
const FOLDERS: [&str; 6] =
    ["usr/lib64", "usr/lib", "lib64", "usr/local/lib64", "usr/local/lib", "opt/dpdk/lib"];

/// The oldest ABI that hotloop is built for, of DPDK 22.11. The release of each November has the
/// next ABI: "ABI Policy" in DPDK's guide.
const ABI_MIN: u32 = 23;

/// An installed DPDK.
struct Library {
    folder: String,
    /// Such as 23.0.
    abi: String,
    major: u32,
}

impl Library {
    /// Later releases of the year add to an ABI: 23.0 belongs to 22.11, 23.1 to 23.03.
    fn release(&self) -> String {
        let major = self.major;
        match self.abi.split_once('.').map_or("", |(_, minor)| minor) {
            "0" => format!("DPDK {}.11", major.saturating_sub(1)),
            "1" => format!("DPDK {major}.03"),
            "2" => format!("DPDK {major}.07"),
            _ => "DPDK".to_owned(),
        }
    }

    fn drivers(&self) -> String {
        format!("{}/dpdk/pmds-{}", self.folder, self.abi)
    }
}

/// Whether a usable DPDK is installed.
pub(super) fn version(machine: &Machine) -> Result<Verdict, Unread> {
    let newest = newest(&machine.root)?;
    let what = format!("{} (ABI {}) in /{}", newest.release(), newest.abi, newest.folder);
    if newest.major >= ABI_MIN {
        return Ok(Verdict::ok(what));
    }
    Ok(Verdict::safety(
        what,
        "programs of hotloop need DPDK 22.11 or later, and do not start with this one",
        "apt-get install dpdk  # on Debian 12, Ubuntu 24.04 and later; else build it from source",
    ))
}

/// Whether the drivers are in the folder that DPDK searches.
pub(super) fn drivers(machine: &Machine) -> Result<Verdict, Unread> {
    let newest = newest(&machine.root)?;
    let names = match machine.root.names(&newest.drivers()) {
        Err(unread) if !unread.is_missing => return Err(unread),
        names => names.unwrap_or_default(),
    };
    let is_net = |name: &&String| name.starts_with("librte_net_") && name.contains(".so");
    let mut nets: Vec<_> =
        names.iter().filter(is_net).filter_map(|name| name.split(".so").next()).collect();
    nets.dedup();
    if nets.is_empty() {
        return Ok(Verdict::safety(
            format!("no drivers of network devices in /{}", newest.drivers()),
            "DPDK loads drivers from there when it starts: without them no device can be opened",
            "apt-get install dpdk  # which has all drivers of the distribution",
        ));
    }
    Ok(Verdict::ok(format!("{} drivers of network devices in /{}", nets.len(), newest.drivers())))
}

fn newest(root: &Root) -> Result<Library, Unread> {
    let mut all: Vec<_> = FOLDERS.iter().flat_map(|folder| libraries(root, folder)).collect();
    for folder in ["usr/lib", "lib", "usr/local/lib"] {
        let below = root.names(folder).unwrap_or_default();
        // Debian has a folder for each architecture.
        let below = below.iter().filter(|name| name.contains("-linux-gnu"));
        all.extend(below.flat_map(|name| libraries(root, &format!("{folder}/{name}"))));
    }
    let newest =
        all.into_iter().reduce(|one, other| if other.major > one.major { other } else { one });
    newest.ok_or_else(|| {
        Unread::new(
            "no librte_eal in the system's folders of libraries: DPDK is elsewhere, or missing",
        )
    })
}

fn libraries(root: &Root, folder: &str) -> Vec<Library> {
    let library = |name: String| {
        let abi = name.strip_prefix("librte_eal.so.")?;
        // librte_eal.so.23 is a link to librte_eal.so.23.0.
        let (major, _) = abi.split_once('.')?;
        Some(Library { folder: folder.to_owned(), abi: abi.to_owned(), major: major.parse().ok()? })
    };
    root.names(folder).unwrap_or_default().into_iter().filter_map(library).collect()
}
