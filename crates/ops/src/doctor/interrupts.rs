//! Interrupts of devices on workers' CPUs.

use super::cpu_list::CpuList;
use super::finding::Verdict;
use super::machine::Machine;
use super::root::{Root, Unread};

/// The most interrupts that are named; the others are counted.
const NAMED_MAX: usize = 4;

/// An interrupt of a device that came to a CPU, and goes there still.
struct Interrupt {
    number: u32,
    name: String,
    /// How often it came.
    count: u64,
}

/// Whether interrupts of devices go to workers' CPUs.
pub(super) fn affinity(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    let found = on(&machine.root, workers)?;
    if found.is_empty() {
        return Ok(Verdict::ok(format!("no device has interrupted {workers} and may go on to")));
    }
    let numbers: Vec<_> = found.iter().map(|irq| irq.number.to_string()).collect();
    Ok(Verdict::speed(
        what(workers, &found),
        "each delays a burst by some microseconds, more with the work that follows from it",
        format!(
            "for irq in {}; do echo {} > /proc/irq/$irq/smp_affinity_list; done  # where irqbalance \
             runs: IRQBALANCE_BANNED_CPULIST={workers}",
            numbers.join(" "),
            machine.others_text(),
        ),
    ))
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

/// The interrupts of devices that have come to these CPUs, and are still sent to one of them. Those
/// that were never raised there, such as of a disk's queue for a CPU which does not use it, are left
/// out; so are the kernel's own (timers, calls of functions), which have no number. The most frequent is
/// first.
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
            found.push(Interrupt { number, name, count });
        }
    }
    found.sort_by_key(|irq| std::cmp::Reverse(irq.count));
    Ok(found)
}
