//! Limits of this process's cgroups, of versions 1 and 2: cgroups(7).

use super::cpu_list::CpuList;
use super::finding::Verdict;
use super::machine::Machine;
use super::root::{Root, Unread};

/// Possible mount points of cgroups of version 2.
const UNIFIED: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// The cgroups of this process.
pub(super) struct Cgroup {
    /// Hierarchies of version 1: their controllers, and the path.
    old: Vec<(String, String)>,
    /// The path in the hierarchy of version 2.
    unified: Option<String>,
}

impl Cgroup {
    pub(super) fn of(root: &Root) -> Result<Self, Unread> {
        let text = root.text("proc/self/cgroup")?;
        let mut group = Self { old: Vec::new(), unified: None };
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                return Err(Unread::new(format!("/proc/self/cgroup: {line:?} is no cgroup")));
            };
            // Groups above the root of this namespace are hidden.
            let path = path.trim_matches('/').replace("../", "").replace("..", "");
            match controllers {
                "" => group.unified = Some(path),
                names => group.old.push((names.to_owned(), path)),
            }
        }
        Ok(group)
    }

    /// Folders with a controller's files, from the innermost group to the outermost.
    fn folders(&self, controller: &str) -> Vec<String> {
        let has = |names: &str| names.split(',').any(|name| name == controller);
        let old = self.old.iter().filter(|(names, _)| has(names)).flat_map(|(names, path)| {
            let mounts = [format!("sys/fs/cgroup/{names}"), format!("sys/fs/cgroup/{controller}")];
            mounts.into_iter().map(move |mount| (mount, path.clone()))
        });
        let unified = self.unified.iter();
        let unified =
            unified.flat_map(|path| UNIFIED.map(|mount| (mount.to_owned(), path.clone())));
        let mut folders = Vec::new();
        for (mount, path) in old.chain(unified) {
            let mut path = path.as_str();
            while !path.is_empty() {
                folders.push(format!("{mount}/{path}"));
                path = path.rsplit_once('/').map_or("", |(above, _)| above);
            }
            folders.push(mount);
        }
        folders
    }

    /// CPUs that the innermost group may use.
    pub(super) fn cpus(&self, root: &Root) -> Result<CpuList, Unread> {
        let names = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
        let folders = self.folders("cpuset");
        let files = folders.iter().flat_map(|folder| names.map(|name| format!("{folder}/{name}")));
        let found = files.map(|file| root.some_cpus(&file)).find(|cpus| cpus.is_ok());
        found.unwrap_or_else(|| Err(Unread::new("no cgroup lists the CPUs that it may use")))
    }

    /// The lowest quota of the group and all above it, in CPUs. `None` if there is no quota.
    fn quota(&self, root: &Root) -> Result<Option<f64>, Unread> {
        let mut least: Option<f64> = None;
        for folder in self.folders("cpu") {
            let quota = match root.text(&format!("{folder}/cpu.max")) {
                Ok(text) => ratio(text.split_whitespace()),
                Err(_) => {
                    let file = |name: &str| root.text(&format!("{folder}/cpu.cfs_{name}_us"));
                    let (Ok(quota), Ok(period)) = (file("quota"), file("period")) else { continue };
                    ratio([quota.as_str(), &period].into_iter())
                }
            };
            least = least.into_iter().chain(quota).reduce(f64::min);
        }
        let is_mounted = root.has("sys/fs/cgroup");
        if least.is_none() && !is_mounted {
            return Err(Unread::new("/sys/fs/cgroup is not there"));
        }
        Ok(least)
    }
}

/// A quota and its period, in microseconds, as CPUs. `None` for "max" and -1, which mean unlimited.
fn ratio<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<f64> {
    let mut next = || parts.next()?.parse().ok().filter(|us: &f64| *us > 0.0);
    Some(next()? / next()?)
}

/// Whether a quota stops workers, which poll all the time.
pub(super) fn quota(machine: &Machine) -> Result<Verdict, Unread> {
    let worker_count = machine.workers()?.len();
    let Some(quota) = Cgroup::of(&machine.root)?.quota(&machine.root)? else {
        return Ok(Verdict::ok("no quota of CPU time"));
    };
    if quota > worker_count as f64 {
        return Ok(Verdict::ok(format!(
            "a quota of {quota:.2} CPUs is more than {worker_count} workers take"
        )));
    }
    Ok(Verdict::speed(
        format!(
            "this cgroup has a quota of {quota:.2} CPUs, for {worker_count} workers and control"
        ),
        "workers poll all the time: once the quota of a period is used up, all threads stop until the next",
        "systemctl set-property <UNIT> CPUQuota=  # for a container: start it without --cpus",
    ))
}

/// Whether a group may use fewer huge pages than the machine has.
pub(super) fn huge_pages(machine: &Machine) -> Result<Verdict, Unread> {
    let sizes = machine.root.names("sys/kernel/mm/hugepages")?;
    let group = Cgroup::of(&machine.root)?;
    for size in sizes {
        let Some(kib) = size.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"))
        else {
            continue;
        };
        let kib: i64 = kib.parse().map_err(|_| Unread::new(format!("{size} is no page size")))?;
        let count = machine.root.number(&format!("sys/kernel/mm/hugepages/{size}/nr_hugepages"))?;
        let name =
            if kib >= 1 << 20 { format!("{}GB", kib >> 20) } else { format!("{}MB", kib >> 10) };
        let names = [format!("hugetlb.{name}.max"), format!("hugetlb.{name}.limit_in_bytes")];
        let folders = group.folders("hugetlb");
        let files = folders
            .iter()
            .flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
        // "max" is no number.
        let limit = files.filter_map(|file| machine.root.number(&file).ok()).min();
        if let Some(limit) = limit.filter(|limit| limit >> 10 < count.saturating_mul(kib)) {
            return Ok(Verdict::safety(
                format!(
                    "this cgroup may use {} MiB of the {name} pages, of which {} MiB are \
                    reserved",
                    limit >> 20,
                    count.saturating_mul(kib) >> 10
                ),
                "a program that goes beyond is killed by SIGBUS when it first writes to a page",
                format!("echo max > /sys/fs/cgroup/<GROUP>/hugetlb.{name}.max"),
            ));
        }
    }
    Ok(Verdict::ok("no limit below the huge pages that are reserved"))
}
