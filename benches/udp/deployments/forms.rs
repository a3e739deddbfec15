//! The same network function in all its forms, on the same wire and without a kernel in between.

use super::reflector::{NAME, PIPELINE_2, PIPELINE_3, RAW, RAW_WHOLE, WHOLE};
use crate::UdpBed;
use crate::programs::{Program, SOURCE};
use crate::wire::{RECEIVER, RECEIVER_CPU, SENDER, SENDER_CPU, Wire, poll_sender};
use hotloop_benches::datagrams::Frames;
use hotloop_measure::figure::{Figure, QUARTER_COUNT};
use hotloop_measure::row::Row;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

const ROUND_COUNT: usize = 2 * QUARTER_COUNT;

/// Durations of the warm-up and of the measurement.
const WARM_UP: Duration = Duration::from_millis(1_000);
const MEASURED: Duration = Duration::from_millis(1_000);

/// Relative to RAW sockets: on the wire, and without a kernel in between.
const WIRE_AIM: f64 = 1.0;
const MEMORY_AIM: f64 = 10.0;

/// Numbers of cores for forms in which each does everything, as far as the machine has them.
const CORE_COUNTS: [usize; 4] = [1, 2, 4, 8];

/// The CPUs of the three that receive, look up and send, on a machine with two.
const THREE_CPUS: [usize; 3] = [RECEIVER_CPU, SENDER_CPU, RECEIVER_CPU];

/// A form of the network function.
struct Form {
    name: String,
    way: &'static str,
    /// The receiving and the sending device.
    devices: [String; 2],
    /// The CPUs that its threads are pinned to, if any.
    cpus: Vec<usize>,
    is_on_wire: bool,
}

/// A comparison by indices: the form, the candidates for its best peer, the target.
struct Comparison {
    form: usize,
    peers: Vec<usize>,
    aim: f64,
}

/// Rows of each form of the engine compared with one over RAW sockets.
///
/// # Errors
/// The error message of a program that fails.
pub fn rows(bed: &UdpBed) -> Result<Vec<Row>, String> {
    let frames = Frames::new()?;
    let (forms, comparisons) = forms(&frames);
    let mut rates = vec![Vec::new(); forms.len()];
    for round in 0..ROUND_COUNT {
        for (form, rates) in forms.iter().zip(&mut rates) {
            eprintln!("{}, round {} of {ROUND_COUNT}", form.name, round + 1);
            rates.push(measure(bed, form)? / 1e6);
        }
    }
    let figures: Vec<_> = rates.iter().map(Figure::of_rounds).collect();
    let row = |comparison: &Comparison| {
        let value = |peer: &&usize| figures[**peer].value;
        let best = comparison.peers.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
        let best = *best.expect("each has a peer");
        let names = (&forms[comparison.form].name, &forms[best].name);
        Row::rate(
            names.0,
            names.1,
            "Mpps",
            (&figures[comparison.form], &figures[best]),
            comparison.aim,
        )
    };
    Ok(comparisons.iter().map(row).collect())
}

fn forms(frames: &Frames) -> (Vec<Form>, Vec<Comparison>) {
    let xdp = format!("net_af_xdp0,iface={RECEIVER},force_copy=1");
    let on_wire = |name: &str, way, device: &str, cpus: &[usize]| Form {
        name: name.to_owned(),
        way,
        devices: [device, device].map(str::to_owned),
        cpus: cpus.to_vec(),
        is_on_wire: true,
    };
    let in_memory = |name: &str, way, cpus: &[usize]| Form {
        name: format!("{name}, no kernel"),
        way,
        devices: [frames.device(), "net_null0".to_owned()],
        cpus: cpus.to_vec(),
        is_on_wire: false,
    };
    let engine = [
        ("pipeline 1 + 1 + 1", PIPELINE_3, &THREE_CPUS[..]),
        ("pipeline 1 + 1", PIPELINE_2, &THREE_CPUS[..2]),
        ("run-to-completion", WHOLE, &THREE_CPUS[..1]),
    ];
    let mut forms = vec![
        on_wire("three threads, RAW sockets, unpinned", RAW, "", &[]),
        on_wire("three threads, RAW sockets, pinned", RAW, "", &THREE_CPUS),
    ];
    let mut comparisons = Vec::new();
    let mut compare = |forms: &mut Vec<Form>, form, peers: &[usize], aim| {
        comparisons.push(Comparison { form: forms.len(), peers: peers.to_vec(), aim });
        forms.push(form);
    };
    for (name, way, cpus) in engine {
        compare(&mut forms, on_wire(name, way, &xdp, cpus), &[0, 1], WIRE_AIM);
    }
    for (name, way, cpus) in engine {
        compare(&mut forms, in_memory(name, way, cpus), &[0, 1], MEMORY_AIM);
    }
    let cpu_count = available_parallelism().map_or(1, usize::from);
    for count in CORE_COUNTS.into_iter().filter(|count| *count <= cpu_count) {
        // The sender's CPU is the last to be shared.
        let cpus: Vec<_> = (0..count).map(|index| (RECEIVER_CPU + index) % cpu_count).collect();
        let raw = format!("threads over a RAW socket: {count}, each does all");
        forms.push(on_wire(&raw, RAW_WHOLE, "", &cpus));
        let peer = forms.len() - 1;
        let (name, device) = (
            format!("run-to-completion over af_packet, cores: {count}"),
            format!("net_af_packet0,iface={RECEIVER},qpairs={count}"),
        );
        compare(&mut forms, on_wire(&name, WHOLE, &device, &cpus), &[peer], WIRE_AIM);
    }
    (forms, comparisons)
}

/// Datagrams a second that the form sends back.
fn measure(bed: &UdpBed, form: &Form) -> Result<f64, String> {
    let program = bed.folder().join(NAME);
    let program = program.to_str().ok_or("the temporary folder has a name that is no text")?;
    let mut command = match form.is_on_wire {
        true => bed.wire.receiver.command(program),
        false => Command::new(program),
    };
    command.arg(form.way).args(&form.devices).args(form.cpus.iter().map(ToString::to_string));
    let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut process = process.map_err(|error| error.to_string())?;
    let measured = match form.is_on_wire {
        true => on_wire(bed),
        false => in_memory(&mut process),
    };
    drop(process.stdin.take());
    process.wait().map_err(|error| error.to_string())?;
    match measured {
        Ok(0.0) => Err(format!("{}: nothing comes back", form.name)),
        measured => measured,
    }
}

/// The rate of datagrams that return to the sender's end of the wire.
fn on_wire(bed: &UdpBed) -> Result<f64, String> {
    bed.wire.steer(None)?;
    let sender = Some(&bed.wire.sender);
    let _source = Program::start(sender, SOURCE, bed.folder(), &poll_sender())?;
    rate(|| returned(&bed.wire))
}

/// The rate of datagrams that the process reports as sent.
fn in_memory(process: &mut Child) -> Result<f64, String> {
    let (stdin, stdout) = (process.stdin.as_mut(), process.stdout.as_mut());
    let (stdin, stdout) = stdin.zip(stdout).ok_or("it has no pipes")?;
    let mut answers = BufReader::new(stdout).lines();
    rate(|| {
        writeln!(stdin).map_err(|error| error.to_string())?;
        let answer = answers.next().and_then(Result::ok).ok_or("it has ended")?;
        answer.parse().map_err(|_| format!("{answer}: not a number"))
    })
}

/// The count during a second, after the warm-up.
fn rate(mut count: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    sleep(WARM_UP);
    let (start, before) = (Instant::now(), count()?);
    sleep(MEASURED);
    Ok((count()? - before) / start.elapsed().as_secs_f64())
}

fn returned(wire: &Wire) -> Result<f64, String> {
    let text = wire.sender.shell(&format!("cat /sys/class/net/{SENDER}/statistics/rx_packets"))?;
    text.trim().parse().map_err(|error| format!("{SENDER}'s counter: {error}"))
}
