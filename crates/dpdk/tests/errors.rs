//! Wrong requests are refused with an error that has the request, the finding and the remedy.

use crate::common::{LIMITS, core, eal, open, open_with, unique, write_pcap};
use hotloop_dpdk::{
    Eal, Error, Mempool, MempoolConfig, MempoolNeed, Port, PortConfig, RssConfig, RssFields,
};
use hotloop_stage::{Limits, Sink, Source};

/// The message of a call that must fail.
fn message<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("it must fail"),
        Err(error) => error.to_string(),
    }
}

fn start_message(port: &Port) -> String {
    let mut rx = port.rx_queue(&core()).unwrap();
    rx.start(&LIMITS).unwrap_err().to_string()
}

fn holds(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn eal_starts_once() {
    let eal = eal();
    let second = Eal::with_args(&["--no-huge", "-m", "64"]);
    assert!(matches!(second, Err(Error::AlreadyInitialised { .. })));
    holds(&message(second), &["--no-huge -m 64", eal.arguments(), "Eal::current()"]);
    assert!(Eal::current().is_some());
    holds(eal.arguments(), &["--no-pci --no-huge -m 4096", "--no-telemetry --no-shconf"]);
}

#[test]
fn the_calling_thread_keeps_its_cpus() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let _ = eal();
    let after = rustix::thread::sched_getaffinity(None).unwrap();
    assert_eq!(before.count(), after.count());
    assert_eq!(hotloop_dpdk::lcore::current(), None);
}

#[test]
fn a_device_is_opened_once() {
    let port = open("net_null", "");
    let again = format!("{},size=99", port.name());
    holds(&message(Port::open(eal(), &again)), &[&again, "open already", "a name of its own"]);
}

#[test]
fn a_device_string_is_checked_before_dpdk_sees_it() {
    for (device, expected) in [
        ("", "neither a PCI address"),
        ("eth0", "net_null, net_ring, net_pcap"),
        ("net_bonding0", "neither"),
        ("net_null0,size=64 ,copy=0", "space"),
        ("net_ring0,internal=0xdeadbeef", "not allowed"),
        ("net_null0,copy=1", "past the end"),
        ("net_null0,no-rx=size=60000", "without = [ ]"),
        ("net_null0,size=60/bus=vdev,name=net_null7,driver=x", "without = [ ]"),
    ] {
        let error = Port::open(eal(), device).unwrap_err();
        assert!(matches!(error, Error::DeviceString { .. }), "{error:?}");
        holds(&error.to_string(), &[&format!("device \"{device}\""), expected]);
    }
}

/// A device string of exactly DPDK's maximum length is taken, and one more character is refused,
/// with the limit in the message. Without a limit, both are taken.
#[test]
fn a_device_string_that_is_too_long_is_refused_with_the_limit() {
    const BYTES_MAX: usize = 122;
    let folder = tempfile::tempdir().unwrap();
    let with_length = |bytes: usize| {
        let start = format!("{},rx_pcap={}/", unique("net_pcap"), folder.path().display());
        let file = "p".repeat(bytes - start.len());
        write_pcap(&folder.path().join(&file), 0, &[]);
        start + &file
    };
    Port::open(eal(), &with_length(BYTES_MAX)).unwrap();
    let device = with_length(BYTES_MAX + 1);
    match Port::open(eal(), &device) {
        Ok(_) => println!("this DPDK has no limit"),
        Err(error) => {
            assert!(matches!(error, Error::DeviceString { .. }), "{error:?}");
            holds(&error.to_string(), &[&device, "123 characters", "at most 122"]);
        }
    }
}

#[test]
fn a_failed_probe_says_what_dpdk_said() {
    let name = unique("net_pcap");
    let device = format!("{name},rx_pcap=/nowhere/in.pcap");
    let error = Port::open(eal(), &device).unwrap_err();
    assert!(matches!(error, Error::Probe { .. }), "{error:?}");
    holds(
        &error.to_string(),
        &[&device, "/nowhere/in.pcap", "No such file", "check its arguments"],
    );
    // The name is free again.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_pcap(&path, 0, &[]);
    Port::open(eal(), &format!("{name},rx_pcap={}", path.display())).unwrap();

    let device = format!("{},nonsense=1", unique("net_null"));
    holds(&message(Port::open(eal(), &device)), &["nonsense"]);
    let device = format!("{},iface=no_such_interface", unique("net_af_packet"));
    holds(&message(Port::open(eal(), &device)), &["no_such_interface", "the right to use them"]);
    holds(&message(Port::open(eal(), "0000:ff:1f.7")), &["0000:ff:1f.7", "vfio-pci", "--no-pci"]);
}

#[test]
fn more_queues_than_a_device_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_pcap(&path, 0, &[]);
    let port = open("net_pcap", &format!(",rx_pcap={}", path.display()));
    let _first = port.rx_queue(&core()).unwrap();
    holds(&message(port.rx_queue(&core())), &["has 1 RX queue, 2 are wanted", "rx_pcap="]);

    let port = open("net_pcap", &format!(",tx_pcap={}", path.display()));
    let _first = port.tx_queue(&core()).unwrap();
    let way_out = &["has 1 TX queue, 2 are wanted", "tx_pcap=", ".handoff()", "pipeline([.., 1])"];
    holds(&message(port.tx_queue(&core())), way_out);

    let port = open("net_ring", "");
    let held = (0..16).map(|_| port.tx_queue(&core()).unwrap()).collect::<Vec<_>>();
    assert!(matches!(port.tx_queue(&core()), Err(Error::TooManyQueues { max: 16, .. })));
    drop(held);
    assert_eq!(port.tx_queue(&core()).unwrap().index(), 0);
}

#[test]
fn a_pool_that_would_run_empty_is_refused_with_the_sum() {
    let config = MempoolConfig { mbuf_count: 2000, ..Default::default() };
    let pool = Mempool::new(eal(), &config).unwrap();
    let port =
        open_with("net_null", "", PortConfig { mempool: Some(pool), ..PortConfig::default() });
    holds(
        &start_message(&port),
        &["2000 mbufs is too small", "1024 RX descriptors + ", "256 in rings", "2 threads x 1.5"],
    );
    let need = MempoolNeed { in_flight_count: 10, ..MempoolNeed::default() };
    assert_eq!(need.mbuf_count(), 10);
}

#[test]
fn a_pool_that_cannot_be_is_refused() {
    let pool = |config: MempoolConfig| message(Mempool::new(eal(), &config));
    let default = MempoolConfig::default();
    holds(&pool(MempoolConfig { mbuf_count: 0, ..default }), &["0 mbufs", "at least 1"]);
    // DPDK would make a ring without slots and write past it.
    for mbuf_count in [MempoolConfig::MBUF_COUNT_MAX + 1, 1 << 31, u32::MAX] {
        for contiguous in [false, true] {
            let config = MempoolConfig { mbuf_count, contiguous, data_room_bytes: 129, ..default };
            holds(&pool(config), &[&mbuf_count.to_string(), "at most 1073741823 are possible"]);
        }
    }
    holds(&pool(MempoolConfig { data_room_bytes: 128, ..default }), &["128", "2176"]);
    holds(&pool(MempoolConfig { cache_count: 513, ..default }), &["513", "512"]);
    holds(
        &pool(MempoolConfig { mbuf_count: 100_000_000, ..default }),
        &["100000000 mbufs", "more memory (-m"],
    );
    holds(&pool(MempoolConfig { node: Some(31), ..default }), &["no mempool of 8191"]);
}

#[test]
fn a_port_asks_for_no_larger_a_pool_than_there_can_be() {
    let most = "at most 1073741823 are possible";
    let config = PortConfig { mbuf_count_min: 1 << 31, ..PortConfig::default() };
    holds(&start_message(&open_with("net_null", "", config)), &["2147483648 mbufs", most]);
    let config = PortConfig { cache_count: Some(u32::MAX), ..PortConfig::default() };
    holds(&start_message(&open_with("net_null", "", config)), &["4294967295 in caches", most]);
    let port = open("net_null", "");
    let limits = Limits { in_flight_max: usize::MAX, thread_count: usize::MAX, is_pipeline: false };
    let error = port.rx_queue(&core()).unwrap().start(&limits).unwrap_err().to_string();
    holds(&error, &["18446744073709551615 in rings", most]);
}

#[test]
fn what_a_device_cannot_do_is_refused_at_the_start() {
    let start = |driver: &str, arguments: &str, config: PortConfig| {
        start_message(&open_with(driver, arguments, config))
    };
    let default = PortConfig::default;
    holds(
        &start("net_null", "", PortConfig { mtu: Some(20), ..default() }),
        &["an MTU of 20 failed", "capabilities()"],
    );
    for size in ["3000", "0x10000"] {
        holds(
            &start("net_null", &format!(",size={size}"), default()),
            &[&format!("size={size}"), "2048 bytes"],
        );
    }
    let larger = PortConfig { data_room_bytes: 4000, ..default() };
    let port = open_with("net_null", ",size=3000", larger);
    port.rx_queue(&core()).unwrap().start(&LIMITS).unwrap();
}

#[test]
fn an_rss_key_of_another_length_is_refused() {
    let rss = RssConfig { key: Some(vec![1; 52]), fields: RssFields::IP };
    let port = open_with("net_null", "", PortConfig { rss, ..PortConfig::default() });
    let mut queues = [port.rx_queue(&core()).unwrap(), port.rx_queue(&core()).unwrap()];
    let error = queues[1].start(&LIMITS).unwrap_err().to_string();
    holds(&error, &["an RSS key of 52 bytes", "one of 40 bytes"]);
    let mut tx = port.tx_queue(&core()).unwrap();
    assert_eq!(tx.start(&LIMITS).unwrap_err().to_string(), error, "the same for every queue");
}
