//! Real frames from a capture that net_pcap plays over and over, compared with `dpdk-testpmd` on
//! the same capture. Each side is a process of its own, as EAL starts once per process.

use crate::Bench;
use hotloop::dpdk::{Eal, HEADROOM_BYTES, Port, PortConfig};
use hotloop::engine::{Chain, outlets, source};
use hotloop::packet::PacketBuf;
use hotloop::stage::Error;
use hotloop_balancer::balance::Route;
use hotloop_benches::buffer::Buffer;
use hotloop_benches::configuration::{BACKEND_COUNT, ONE_CORE, configuration, egresses};
use hotloop_benches::datagrams::playing;
use hotloop_benches::forwarder::{Forwarder, serve};
use hotloop_benches::testpmd::{Settings, Testpmd};
use hotloop_benches::traffic::{ACK, Writer};
use hotloop_capture::write_frames;
use hotloop_measure::alternate::{Forwarding, Rates};
use hotloop_measure::instrument::Instrument;
use hotloop_measure::random::Random;
use hotloop_measure::row::Row;
use ipip_lb::network_function::NetworkFunction;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A size, and the target rate relative to testpmd's.
const SIZES: [(&str, u32, f64); 2] = [("1K", 1_000, 0.65), ("1M", 1_000_000, 0.65)];

/// Duration of a measurement of hello-forward alone.
const HELLO_TIME: Duration = Duration::from_millis(800);

const SERVICE_COUNT: u32 = 10;

/// The peer swaps addresses and ports: it reads and writes every header, as a balancer does.
const PEER: &str = "5tswap";

/// The data room of each mbuf in bytes, on both sides: the device needs an mbuf for each frame of
/// the capture, and frames are 64 bytes long.
const DATA_ROOM_BYTES: u16 = HEADROOM_BYTES + 128;

/// Number of mbufs beyond those for the capture.
const MBUFS_MORE: u32 = 16_384;

/// Settings of one measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Case {
    function: Function,
    capture: PathBuf,
    flow_count: u32,
    hugepages: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
enum Function {
    Balancer,
    HelloForward,
}

impl Case {
    fn device(&self) -> String {
        playing(&self.capture)
    }

    const fn mbuf_count(&self) -> u32 {
        self.flow_count + MBUFS_MORE
    }

    /// EAL's memory in MiB: an mbuf and its room, including DPDK's own, and the device's ring.
    const fn memory_mib(&self) -> u32 {
        128 + self.mbuf_count() / 2048
    }
}

/// Both sizes; only the smaller one in a quick run.
pub fn bench(bench: &mut Bench, hugepages: bool) {
    let size_count = if bench.quick { 1 } else { SIZES.len() };
    for (name, flow_count, aim) in &SIZES[..size_count] {
        eprintln!("real frames, {name} flows");
        let row = format!("frames of net_pcap, {name} flows");
        match compare(&row, *flow_count, hugepages, &bench.instrument) {
            Ok(Some((rates, note))) => {
                let (ours, theirs) = rates.figures();
                bench.table.rows.push(Row::rate(&row, PEER, "Mpps", (&ours, &theirs), *aim));
                bench.table.notes.push(format!("{row}: {note}"));
            }
            Ok(None) => (),
            Err(reason) => bench.table.unshown.push(format!("{row}: {reason}")),
        }
    }
}

/// Compares the rates of both sides, and measures hello-forward on the same capture. Returns nothing
/// in a process that plays a part of another one's run.
fn compare(
    row: &str,
    flow_count: u32,
    hugepages: bool,
    instrument: &Instrument,
) -> Result<Option<(Rates, String)>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("frames.pcap");
    let written = write_frames(&path, frames(flow_count));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    let case = Case { function: Function::Balancer, capture: path, flow_count, hugepages };
    let hello = Case { function: Function::HelloForward, ..case.clone() };
    let rates = Rates::of(row, instrument, || {
        let theirs = Testpmd::start(&settings(&case))?;
        Ok((Forwarder::start(&case)?, theirs))
    })?;
    let Some(rates) = rates else { return Ok(None) };
    let mut forwarder = Forwarder::start(&hello)?;
    forwarder.begin()?;
    std::thread::sleep(HELLO_TIME);
    let hello = forwarder.end()?.mpps();
    Ok(Some((rates, format!("hello-forward {hello:.1} Mpps"))))
}

fn settings(case: &Case) -> Settings {
    Settings {
        mode: PEER,
        devices: vec![case.device()],
        memory_mib: case.memory_mib(),
        hugepages: case.hugepages,
        mbuf_count: case.mbuf_count(),
        others: vec![
            "--burst=64".to_owned(),
            "--port-topology=loop".to_owned(),
            format!("--mbuf-size={DATA_ROOM_BYTES}"),
        ],
    }
}

/// The frames of the capture: one of each flow, in random order.
fn frames(flow_count: u32) -> impl Iterator<Item = Vec<u8>> {
    let (writer, mut buffer) = (Writer::new(SERVICE_COUNT), Buffer::new());
    Random::seeded(3).shuffled(flow_count).into_iter().map(move |flow| {
        writer.write(&mut buffer, flow, ACK);
        buffer.data().to_vec()
    })
}

/// The other process of our measurements: forwards, and prints its results.
///
/// # Errors
/// If EAL or the port does not start, or if the ledger is not whole.
pub fn forward(settings: &str) -> hotloop::Result<()> {
    let case: Case = serde_json::from_str(settings)?;
    let port = open(&case)?;
    if case.function == Function::HelloForward {
        return serve(source(|core| port.rx_queue(core)).sink(|core| port.tx_queue(core)));
    }
    let connections_max = case.flow_count + case.flow_count / 16;
    let config = configuration((SERVICE_COUNT, BACKEND_COUNT), connections_max, ONE_CORE);
    let (function, _) = NetworkFunction::new(&config, egresses())?;
    serve(function.graph(
        |core| Ok(port.rx_queue(core)?),
        |core| Ok::<_, Error>(outlets([(Route(0), port.tx_queue(core)?)])),
    ))
}

fn open(case: &Case) -> hotloop::Result<Port> {
    let memory = case.memory_mib().to_string();
    let pages = if case.hugepages { "--in-memory" } else { "--no-huge" };
    let arguments = [pages, "-m", &memory, "--no-pci", "--no-telemetry", "-l", "0"];
    let eal = Eal::with_args(&arguments)?;
    let config = PortConfig {
        rx_descriptor_count: 64,
        tx_descriptor_count: 64,
        mbuf_count_min: case.mbuf_count(),
        data_room_bytes: DATA_ROOM_BYTES,
        ..PortConfig::default()
    };
    Ok(Port::open_with(eal, &case.device(), config)?)
}
