//! Every argument of every driver, with absurd values: each device is refused properly, or works.
//! Each runs in a process and a network namespace of its own: a driver that crashes ends the
//! process.

mod common;

use common::{core, eal, write_pcap};
use hotloop_dpdk::{Error, Port, PortConfig};
use hotloop_stage::{Burst, Limits, Sink, Source};
use hotloop_test_tools::tool;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// A file of device strings, a line each, for a child of this process.
const DEVICES: &str = "HOTLOOP_TEST_DEVICES";

/// Lengths of values: around those of the drivers' arrays and of names and paths.
const LONG_BYTES: [usize; 5] = [16, 64, 256, 4096, 100_000];

/// Drivers, the arguments each needs to come up, and each argument with a valid value. CAPTURE is a
/// file, NEW one that does not exist, FOLDER a folder. Some belong to DPDK versions after 22.11,
/// whose drivers refuse them.
const DRIVERS: [(&str, &str, &str); 7] = [
    ("net_null", "", "size=64,copy=0,no-rx=1"),
    ("net_ring", "", "nodeaction=R0:0:CREATE,internal=0"),
    (
        "net_pcap",
        "rx_pcap=CAPTURE,tx_pcap=NEW",
        "rx_pcap=CAPTURE,tx_pcap=NEW,rx_iface=lo,rx_iface_in=lo,tx_iface=lo,iface=lo,phy_mac=1,\
         infinite_rx=1",
    ),
    (
        "net_af_packet",
        "iface=lo",
        "iface=lo,qpairs=1,blocksz=4096,framesz=2048,framecnt=512,qdisc_bypass=1,fanout_mode=hash",
    ),
    (
        "net_af_xdp",
        "iface=lo",
        "iface=lo,start_queue=0,queue_count=1,shared_umem=0,xdp_prog=NEW,busy_budget=0,force_copy=1,\
         use_cni=1,use_pinned_map=1,dp_path=NEW,mode=skb",
    ),
    ("net_tap", "iface=dtap0", "iface=dtap0,mac=fixed,remote=lo"),
    (
        "net_memif",
        "socket=FOLDER/sock,socket-abstract=no",
        "id=0,role=server,bsize=2048,rsize=10,socket=FOLDER/sock,socket-abstract=no,\
         mac=02:00:00:00:00:01,zero-copy=no,secret=abc,owner-uid=0,owner-gid=0",
    ),
];

/// The strings to try with one driver: each argument without a value, with an empty one, twice, and
/// with long ones, each with the needed arguments and without them.
fn strings(driver: &str, needed: &str, arguments: &str) -> Vec<String> {
    let mut strings = Vec::new();
    for argument in arguments.split(',') {
        let key = argument.split('=').next().unwrap();
        let others: Vec<_> = needed
            .split(',')
            .filter(|it| !it.is_empty() && !it.starts_with(&format!("{key}=")))
            .collect();
        let mut forms = vec![
            key.to_owned(),
            format!("{key}="),
            argument.to_owned(),
            format!("{argument},{argument}"),
        ];
        for len in LONG_BYTES {
            forms.extend(["x", "9"].map(|one| format!("{key}={}", one.repeat(len))));
        }
        for form in forms {
            strings.push(format!("{driver}0,{form}"));
            let mut string = format!("{driver}0");
            others.iter().for_each(|other| write!(string, ",{other}").unwrap());
            strings.push(string + "," + &form);
        }
    }
    strings
}

/// Runs in a child: opens each device, and polls and sends on those that come up.
#[test]
fn child() {
    let Ok(file) = env::var(DEVICES) else { return };
    for device in fs::read_to_string(file).unwrap().lines() {
        println!("trying {device}");
        match try_out(device) {
            Ok(None) => println!("works"),
            Ok(Some(why)) => println!("does not start: {why}"),
            Err(error) => {
                assert!(error.to_string().contains(device), "{error}");
                println!("refused: {error}");
            }
        }
    }
    println!("done");
}

/// Opens the device, and receives and sends if it starts. Returns the reason if it does not.
fn try_out(device: &str) -> Result<Option<String>, Error> {
    // SAFETY: 1 and 2. A net_memif device has no other end here.
    let port = unsafe { Port::open_trusting_peer(eal(), device, PortConfig::default()) }?;
    let limits = Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false };
    let mut burst = Burst::new();
    let mut rx = port.rx_queue(&core()).ok();
    let mut tx = port.tx_queue(&core()).ok();
    let started = rx.as_mut().map_or(Ok(()), |rx| rx.start(&limits));
    let started = started.and_then(|()| tx.as_mut().map_or(Ok(()), |tx| tx.start(&limits)));
    if started.is_ok() {
        for _ in 0..4 {
            if let Some(rx) = &mut rx {
                rx.poll(&mut burst);
            }
            if let Some(tx) = &mut tx {
                tx.send(&mut burst);
            }
            burst.clear();
        }
    }
    drop((rx, tx));
    let stopped = port.stop();
    // One with AF_XDP keeps mbufs after it was closed.
    let keeps = device.starts_with("net_af_xdp");
    let whole = keeps || port.mempool().is_none_or(|pool| pool.report().is_whole());
    assert!(whole, "{device}: {:?}", port.mempool().map(|pool| pool.report()));
    stopped.map(|()| started.err().map(|error| error.to_string()))
}

/// Runs a child with these devices, in a network namespace of its own if possible. Returns its
/// output, and the device that crashed it.
fn run(devices: &[String], folder: &Path) -> (String, Option<String>) {
    let file = folder.join("devices");
    fs::write(&file, devices.join("\n")).unwrap();
    let mut command = tool("unshare").unwrap();
    // Drivers create files with some of the names.
    command.arg("--net").arg(env::current_exe().unwrap()).current_dir(folder);
    let output = command.args(["child", "--exact", "--nocapture"]).env(DEVICES, &file).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && said.contains("done") {
        return (said, None);
    }
    let last = said.lines().filter_map(|line| line.strip_prefix("trying ")).next_back();
    let device: String = last.unwrap_or_default().chars().take(200).collect();
    let why = String::from_utf8_lossy(&output.stderr);
    let why: String = why.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
    let crash = format!("{device}: {} {why}", output.status);
    (said, Some(crash))
}

/// The arguments documented in a driver's file, if the driver is loaded.
fn documented(driver: &str) -> io::Result<Option<BTreeSet<String>>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let library = format!("/librte_{driver}.so");
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let Some(path) = path.into_iter().find(|path| path.contains(&library)) else { return Ok(None) };
    let file = fs::read(path)?;
    let start = format!("PMD_INFO_STRING= {{\"name\": \"{driver}\", \"params\": \"");
    let text = String::from_utf8_lossy(&file);
    let Some((_, rest)) = text.split_once(&start) else { return Ok(None) };
    let parameters = rest.split('"').next().unwrap_or_default();
    let is_word = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_');
    let keys = parameters.split('=').filter_map(|part| part.rsplit(|it| !is_word(it)).next());
    let ends = parameters.rsplit('=').next().and_then(|last| last.rsplit(|it| !is_word(it)).next());
    Ok(Some(keys.filter(|key| !key.is_empty() && Some(*key) != ends).map(str::to_owned).collect()))
}

#[test]
fn no_value_of_any_argument_is_more_than_refused() {
    let unshared = tool("unshare").map(|mut it| it.args(["--net", "true"]).status());
    if !unshared.is_ok_and(|status| status.unwrap().success()) {
        return println!("skipped: no right to make a network namespace");
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("a.pcap");
    write_pcap(&capture, 0, &[vec![1; 60]]);
    let new = folder.path().join("new");
    let mut crashes = Vec::new();
    for (driver, needed, arguments) in DRIVERS {
        let place = |text: &str| {
            let text = text.replace("CAPTURE", capture.to_str().unwrap());
            let text = text.replace("NEW", new.to_str().unwrap());
            text.replace("FOLDER", folder.path().to_str().unwrap())
        };
        let devices = strings(driver, &place(needed), &place(arguments));
        let mut rest = &devices[..];
        while let (said, Some(crash)) = run(rest, folder.path()) {
            crashes.push(crash);
            let tried = said.lines().filter(|line| line.starts_with("trying ")).count();
            rest = &rest[tried.max(1)..];
        }
    }
    assert!(crashes.is_empty(), "{} crashes:\n{}", crashes.len(), crashes.join("\n"));
}

/// A capture without a packet can't be repeated: the driver would take mbufs and keep them.
#[test]
fn a_capture_to_repeat_has_a_packet() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, frames: &[Vec<u8>], len: usize| {
        let path = folder.path().join(name);
        write_pcap(&path, 0, frames);
        fs::File::options().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
        path
    };
    let frames = [vec![1; 60], vec![2; 60]];
    let (header, record) = (24, 16 + 60);
    for (name, len, is_whole) in [
        ("empty", header, false),
        ("header", header + 16, false),
        ("cut", header + record - 1, false),
        ("one", header + record, true),
        ("cut_later", header + 2 * record - 1, true),
        ("two", header + 2 * record, true),
    ] {
        let path = write(name, &frames, len);
        let device = format!("net_pcap_{name},rx_pcap={},infinite_rx=1", path.display());
        match try_out(&device) {
            Ok(started) => assert!(is_whole && started.is_none(), "{name}: {started:?}"),
            Err(error) => {
                assert!(!is_whole && error.to_string().contains("nothing to repeat"), "{error}");
            }
        }
    }
    let pipe = format!("net_pcap_pipe,rx_pcap={},infinite_rx=1", folder.path().display());
    assert!(try_out(&pipe).unwrap_err().to_string().contains("nothing to repeat"));
}

#[test]
fn no_argument_of_a_driver_is_missing_here() {
    let _ = eal();
    for (driver, _, arguments) in DRIVERS {
        let Some(named) = documented(driver).unwrap() else {
            println!("skipped: {driver} names no arguments here");
            continue;
        };
        for key in named {
            // Some descriptions lack a space between arguments.
            let known = arguments.split(',').filter_map(|it| it.split('=').next());
            assert!(known.into_iter().any(|it| key.ends_with(it)), "{driver}: {key}");
        }
    }
}
