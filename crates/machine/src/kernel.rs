//! Checks kernel settings of the whole machine.

use super::finding::Verdict;
use super::machine::Machine;
use super::root::Unread;

/// Clock sources that are read in a few nanoseconds, without a system call.
const FAST_CLOCKS: [&str; 4] = ["tsc", "arch_sys_counter", "timebase", "riscv_clocksource"];

/// Clock sources of virtual machines: also without a system call, but slower.
const GUEST_CLOCKS: [&str; 2] = ["kvm-clock", "hyperv_clocksource_tsc_page"];

/// Fill level that counts as full for the kernel's connection table, in percent.
const TABLE_FULL_PERCENT: i64 = 90;

/// Whether the time is quick to read.
pub(super) fn clock(machine: &Machine) -> Result<Verdict, Unread> {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let current = machine.root.name(&format!("{folder}/current_clocksource"))?;
    let available = machine.root.text(&format!("{folder}/available_clocksource"));
    let has_tsc = available.is_ok_and(|all| all.split_whitespace().any(|name| name == "tsc"));
    let is_guest = GUEST_CLOCKS.contains(&current.as_str());
    if FAST_CLOCKS.contains(&current.as_str()) || is_guest && !has_tsc {
        return Ok(Verdict::ok(format!("clock source {current}")));
    }
    Ok(Verdict::speed(
        format!("the clock source is {current}"),
        "each look at the time takes a system call or a slow device, up to a microsecond; the kernel \
         leaves the TSC where it does not trust it, and then no figure by it is right",
        match has_tsc {
            true => format!("echo tsc > /{folder}/current_clocksource"),
            false => {
                "dmesg | grep -i tsc  # where the CPU's TSC is known to be invariant: boot with \
                      tsc=reliable"
                    .to_owned()
            }
        },
    ))
}

/// Whether threads with real-time scheduling leave some time to others: sched(7).
pub(super) fn real_time(machine: &Machine) -> Result<Verdict, Unread> {
    match machine.root.number("proc/sys/kernel/sched_rt_runtime_us")? {
        -1 => Ok(Verdict::safety(
            "real-time threads may take all of a CPU's time",
            "one that polls starves the kernel's own threads there: RCU stalls, hanging disks, a machine \
             that has to be reset",
            "sysctl kernel.sched_rt_runtime_us=950000",
        )),
        us => Ok(Verdict::ok(format!("real-time threads may take {us} us of each period"))),
    }
}

/// Whether the kernel's connection table has room.
pub(super) fn connection_table(machine: &Machine) -> Result<Verdict, Unread> {
    let Some((count, max)) = connections(machine)? else {
        return Ok(Verdict::ok("the kernel tracks no connections"));
    };
    if count.saturating_mul(100) < max.saturating_mul(TABLE_FULL_PERCENT) {
        return Ok(Verdict::ok(format!("the kernel tracks {count} connections, at most {max}")));
    }
    Ok(Verdict::safety(
        format!("the kernel's table of connections is full: {count} of {max}"),
        "it drops new connections, of ssh and routing daemons too: \"nf_conntrack: table full\"",
        format!("sysctl net.netfilter.nf_conntrack_max={}", max.max(1 << 16).saturating_mul(4)),
    ))
}

/// The number of connections tracked in this network namespace, and the most allowed. `None` if the
/// kernel tracks no connections.
pub(super) fn connections(machine: &Machine) -> Result<Option<(i64, i64)>, Unread> {
    let folder = "proc/sys/net/netfilter";
    let count = match machine.root.number(&format!("{folder}/nf_conntrack_count")) {
        Err(unread) if unread.is_missing && machine.root.has("proc/sys/net") => return Ok(None),
        count => count?,
    };
    // Without a rule that asks for it, the module is loaded but sees no packet.
    if count == 0 {
        return Ok(None);
    }
    Ok(Some((count, machine.root.number(&format!("{folder}/nf_conntrack_max"))?)))
}
