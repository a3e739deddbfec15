//! Checks the CPUs of workers for other threads, ticks and callbacks.

use super::cgroup::Cgroup;
use super::cpu_list::CpuList;
use super::finding::Verdict;
use super::machine::{Machine, allowed};
use super::root::Unread;

/// Whether programs can run on the CPUs at all.
pub(super) fn usable(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    if !machine.are_workers_named {
        return Ok(Verdict::unknown(format!(
            "no --cpus: the CPUs of workers; assuming {}",
            workers.in_words()
        )));
    }
    let online = machine.root.some_cpus("sys/devices/system/cpu/online");
    let offline = online.as_ref().map(|online| workers.without(online)).unwrap_or_default();
    if let Some(cpu) = offline.iter().next() {
        return Ok(Verdict::safety(
            format!("{} not online", are(&offline)),
            "a program can't start there",
            format!("echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"),
        ));
    }
    let outside = Cgroup::of(&machine.root).and_then(|group| group.cpus(&machine.root));
    if let Ok(cpuset) = outside
        && !workers.without(&cpuset).is_empty()
    {
        return Ok(Verdict::safety(
            format!("{} not in this cgroup's cpuset, {cpuset}", are(&workers.without(&cpuset))),
            "a program can't start there",
            format!("systemctl set-property <UNIT> AllowedCPUs={}", cpuset.or(workers)),
        ));
    }
    let outside = workers.without(&allowed(&machine.root)?);
    online?;
    if outside.is_empty() {
        return Ok(Verdict::ok(format!("{} online, and may be used", are(workers))));
    }
    Ok(Verdict::speed(
        format!("{} not in the CPU affinity that programs inherit here", are(&outside)),
        "a program that is started so uses other CPUs, or refuses these: isolated CPUs have to be asked for",
        format!("taskset -c {} <PROGRAM>", workers.or(&machine.others()?)),
    ))
}

/// Whether workers share physical cores with each other or with other threads.
pub(super) fn smt(machine: &Machine) -> Result<Verdict, Unread> {
    const WHY: &str =
        "two hardware threads share one core's units and first-level caches: each gets about half";
    let workers = machine.workers()?;
    let mut shared = CpuList::default();
    let mut beside = CpuList::default();
    for cpu in workers.iter() {
        let siblings = machine.siblings(cpu)?.without(&[cpu].into_iter().collect());
        shared = shared.or(&siblings.and(workers));
        beside = beside.or(&siblings.without(workers));
    }
    if !shared.is_empty() {
        return Ok(Verdict::speed(
            format!("of {}, several are hardware threads of one core", shared.in_words()),
            WHY,
            "lscpu -e  # then give workers CPUs of different cores",
        ));
    }
    // CPUs that are not isolated at all are another finding.
    let isolated = machine.isolated().unwrap_or_default();
    let open = beside.without(&isolated);
    if !open.is_empty() && workers.without(&isolated).is_empty() {
        let fix =
            open.iter().map(|cpu| format!("echo 0 > /sys/devices/system/cpu/cpu{cpu}/online"));
        return Ok(Verdict::speed(
            format!(
                "workers are isolated, but other programs may run on their cores' other threads, {open}"
            ),
            WHY,
            fix.collect::<Vec<_>>().join("; "),
        ));
    }
    Ok(Verdict::ok(match beside.len() {
        0 => format!("no hardware thread beside {}", workers.in_words()),
        _ => format!("workers share no core; {} beside them have none", beside.in_words()),
    }))
}

/// Whether the scheduler keeps other threads away.
pub(super) fn isolated(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    let open = workers.without(&machine.isolated()?);
    if open.is_empty() {
        return Ok(Verdict::ok(format!("{} isolated", are(workers))));
    }
    Ok(Verdict::speed(
        format!("{} not isolated", are(&open)),
        "the scheduler puts other threads there: while one runs, the worker polls nothing and the queue fills",
        format!("boot with isolcpus={workers}"),
    ))
}

/// Whether the kernel's timer interrupts workers.
pub(super) fn tick(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    let without_tick = machine.root.cpus("sys/devices/system/cpu/nohz_full").map_err(|unread| {
        match machine.root.has("sys/devices/system/cpu/online") && unread.is_missing {
            true => Unread::new("this kernel is built without nohz_full, or does not report it"),
            false => unread,
        }
    })?;
    let ticking = workers.without(&without_tick);
    if ticking.is_empty() {
        return Ok(Verdict::ok(format!("no tick on {} while one thread runs", workers.in_words())));
    }
    Ok(Verdict::speed(
        format!("the kernel's timer interrupts {}", ticking.in_words()),
        "100 to 1,000 interrupts a second, each of which delays a burst by some microseconds",
        format!("boot with nohz_full={workers}"),
    ))
}

/// Whether callbacks of RCU run on workers' CPUs. `nohz_full` moves them away, too: "NO_HZ:
/// Reducing Scheduling-Clock Ticks" in the kernel's documentation.
pub(super) fn rcu(machine: &Machine) -> Result<Verdict, Unread> {
    let workers = machine.workers()?;
    let listed = |name: &str| match machine.boot_parameter(name)?.as_deref() {
        None => Ok(CpuList::default()),
        Some("all") => Ok(workers.clone()),
        Some(list) => list
            .parse()
            .map_err(|_| Unread::new(format!("/proc/cmdline: {name}={list} lists no CPUs"))),
    };
    let without_tick = match machine.root.cpus("sys/devices/system/cpu/nohz_full") {
        Ok(cpus) => cpus,
        Err(_) => listed("nohz_full")?,
    };
    let offloaded = listed("rcu_nocbs")?.or(&without_tick).or(&offloaded(machine));
    let burdened = workers.without(&offloaded);
    if burdened.is_empty() {
        return Ok(Verdict::ok(format!("callbacks of RCU run elsewhere than on {workers}")));
    }
    Ok(Verdict::speed(
        format!("callbacks of RCU run on {}", burdened.in_words()),
        "the kernel frees there, in a softirq, what other CPUs gave up: pauses of up to milliseconds",
        format!("boot with rcu_nocbs={workers}"),
    ))
}

/// CPUs with threads for their callbacks (rcuop/N, rcuos/N). Some kernels are built with such
/// threads for all CPUs, regardless of the command line. A container does not see them.
fn offloaded(machine: &Machine) -> CpuList {
    let cpu = |process: &String| {
        process.parse::<u32>().ok()?;
        let name = machine.root.text(&format!("proc/{process}/comm")).ok()?;
        name.strip_prefix("rcuo")?.split_once('/')?.1.parse().ok()
    };
    machine.root.names("proc").unwrap_or_default().iter().filter_map(cpu).collect()
}

/// The CPUs as the subject of a sentence.
fn are(cpus: &CpuList) -> String {
    let verb = if cpus.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", cpus.in_words())
}
