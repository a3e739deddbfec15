//! The report for people.

use crate::report::Report;
use crate::wait::CoreTime;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.deployment)?;
        writeln!(f, "  received {:>14}", self.received)?;
        writeln!(f, "  created  {:>14}", self.created)?;
        writeln!(f, "  sent     {:>14}", self.sent)?;
        writeln!(f, "  dropped  {:>14}", self.dropped_sum())?;
        for (reason, count) in &self.dropped {
            writeln!(f, "    {reason:<22} {count:>14}")?;
        }
        let share = percent(self.crossed, self.received);
        writeln!(f, "  crossed  {:>14}  ({share:.1} % went to another core)", self.crossed)?;
        let loss = self.nic_loss;
        let imissed = loss.imissed.map_or("unknown".to_owned(), |count| count.to_string());
        write!(f, "  lost before the engine: {imissed} imissed, {} rx_nombuf", loss.rx_nombuf)?;
        let rare = [(loss.rx_unclaimed, "rx_unclaimed"), (loss.rx_malformed, "rx_malformed")];
        for (count, name) in rare.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {name}")?;
        }
        writeln!(f)?;
        if self.devices.tx_failed > 0 {
            writeln!(
                f,
                "  of those sent, lost by the device: {} tx_failed",
                self.devices.tx_failed
            )?;
        }
        writeln!(f, "  {:<22} {:>14} {:>14} {:>14}", "stage", "received", "emitted", "dropped")?;
        for stage in &self.stages {
            let dropped: u64 = stage.dropped.values().sum();
            let (name, received, emitted) = (&stage.name, stage.received, stage.emitted);
            writeln!(f, "  {name:<22} {received:>14} {emitted:>14} {dropped:>14}")?;
            for (gauge, value) in &stage.gauges {
                writeln!(f, "    {gauge:<20} {value:>14}")?;
            }
        }
        let at = |number: Option<usize>| number.map_or("-".to_owned(), |number| number.to_string());
        writeln!(
            f,
            "  {:<22} {:>6} {:>7} {:>14} {:>14} {:>14}",
            "core", "cpu", "lcore", "received", "crossed", "sent"
        )?;
        for core in &self.cores {
            let (name, received, crossed, sent) =
                (&core.name, core.received, core.crossed, core.sent);
            let (cpu, lcore) = (at(core.cpu), at(core.lcore.map(|lcore| lcore as usize)));
            writeln!(
                f,
                "  {name:<22} {cpu:>6} {lcore:>7} {received:>14} {crossed:>14} {sent:>14}"
            )?;
        }
        for core in &self.cores {
            let slept = core.time.filter(|time| time.sleep_count > 0);
            slept.map_or(Ok(()), |time| writeln!(f, "  {:<22} {time}", core.name))?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  NOT WHOLE: {finding}")?;
        }
        let balance = if self.balanced { "balanced" } else { "NOT balanced" };
        let pools = if self.pools_whole { "pools whole" } else { "pools NOT whole" };
        write!(f, "  {balance}, {pools}, {} in flight", self.in_flight)
    }
}

impl fmt::Display for CoreTime {
    #[allow(clippy::cast_precision_loss, reason = "times for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wall_ns, cpu_ns, sleep_count, slept_ns, slept_ns_max } = *self;
        let (share, seconds) = (percent(cpu_ns, wall_ns), wall_ns as f64 / 1e9);
        write!(f, "{share:.1} % of {seconds:.1} s on its CPU")?;
        if sleep_count == 0 {
            return Ok(());
        }
        let (mean, max) = (slept_ns as f64 / sleep_count as f64 / 1e3, slept_ns_max as f64 / 1e3);
        let times = if sleep_count == 1 { "time" } else { "times" };
        write!(f, ", slept {sleep_count} {times}: {mean:.0} µs on average, {max:.0} at most")
    }
}

/// `part` of `whole` in percent; 0 if `whole` is 0.
#[allow(clippy::cast_precision_loss, reason = "a share for people")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
