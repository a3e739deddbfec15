//! Checks workers' CPUs for interrupts of devices.

use super::cpu_list::CpuList;
use super::finding::Verdict;
use super::machine::Machine;
use super::root::{Root, Unread};

/// The most interrupts named in a finding. The rest are counted.
const NAMED_MAX: usize = 4;

/// An interrupt of a device that came to a CPU, and is still sent there.
struct Interrupt {
    number: u32,
    name: String,
    /// How often it came.
    count: u64,
    /// Whether only the kernel chooses its CPUs, as for the queues of disks. `false` on older
    /// kernels, which do not report that.
    is_managed: bool,
}

/// Whether interrupts of devices go to workers' CPUs.
pub(super) fn affinity(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    let found = on(&machine.root, workers)?;
    if found.is_empty() {
        return Ok(Verdict::ok(format!("no device has interrupted {workers} and may go on to")));
    }
    let why = "each delays a burst by some microseconds, more with the work that follows from it";
    let fix = fix(workers, &machine.others_text(), &found);
    Ok(Verdict::speed(what(workers, &found), why, fix))
}

fn fix(workers: &CpuList, others: &str, found: &[Interrupt]) -> String {
    let numbers = |is_managed| {
        let of_kind = found.iter().filter(move |irq| irq.is_managed == is_managed);
        of_kind.map(|irq| irq.number.to_string()).collect::<Vec<_>>().join(" ")
    };
    let (moved, managed) = (numbers(false), numbers(true));
    let moving = format!(
        "for irq in {moved}; do echo {others} > /proc/irq/$irq/smp_affinity_list; done  # where \
         irqbalance runs: IRQBALANCE_BANNED_CPULIST={workers}"
    );
    let booting = format!(
        "boot with isolcpus=managed_irq,domain,{workers}  # only the kernel can move {managed}"
    );
    match (moved.is_empty(), managed.is_empty()) {
        (_, true) => moving,
        (true, false) => booting,
        (false, false) => format!("{moving}; {booting}"),
    }
}

fn what(cpus: &CpuList, found: &[Interrupt]) -> String {
    let count = found.iter().fold(0, |sum: u64, irq| sum.saturating_add(irq.count));
    let named = found.iter().take(NAMED_MAX);
    let mut names: Vec<_> = named.map(|irq| format!("{} ({})", irq.number, irq.name)).collect();
    if found.len() > NAMED_MAX {
        names.push(format!("{} more", found.len() - NAMED_MAX));
    }
    format!("interrupts go to {}, {count} so far: {}", cpus.in_words(), names.join(", "))
}

/// The device interrupts that have come to these CPUs and are still sent to one of them, the most
/// frequent first. Interrupts that never fired there are left out, e.g. a disk queue of an unused
/// CPU. So are the kernel's own (timers, function calls), which have no number.
fn on(root: &Root, cpus: &CpuList) -> Result<Vec<Interrupt>, Unread> {
    let text = root.text("proc/interrupts")?;
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let columns: Vec<usize> =
        head.filter_map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    if columns.is_empty() {
        return Err(Unread::new("/proc/interrupts names no CPUs"));
    }
    let mut found = Vec::new();
    for line in lines {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let counts = columns.iter().zip(rest.split_whitespace());
        let counts = counts.filter(|(cpu, _)| cpus.contains(**cpu));
        let counts = counts.filter_map(|(_, count)| count.parse::<u64>().ok());
        let count = counts.fold(0, u64::saturating_add);
        if count == 0 {
            continue;
        }
        let sent_to = root
            .cpus(&format!("proc/irq/{number}/effective_affinity_list"))
            .ok()
            .filter(|sent_to| !sent_to.is_empty());
        let sent_to = match sent_to {
            Some(sent_to) => sent_to,
            None => root.cpus(&format!("proc/irq/{number}/smp_affinity_list"))?,
        };
        if !sent_to.and(cpus).is_empty() {
            let name = rest.split_whitespace().next_back().unwrap_or_default().to_owned();
            let is_managed = root.is_read_only(&format!("proc/irq/{number}/smp_affinity_list"));
            found.push(Interrupt { number, name, count, is_managed });
        }
    }
    found.sort_by_key(|irq| std::cmp::Reverse(irq.count));
    Ok(found)
}
