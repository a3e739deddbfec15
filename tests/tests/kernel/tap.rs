//! TAP interfaces: their properties, and that they leave nothing behind.

use super::said::json;
use super::{WITHIN, network, run};
use hotloop_kernel::{KernelFollower, Tap, TapConfig, TapError, VIP_METRIC, VipRoutes};
use hotloop_tests::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Set for a child of a test, which owns an interface until it is killed.
const OWNER: &str = "HOTLOOP_TEST_OWNS_TAP";

#[test]
fn a_tap_is_as_wanted_and_goes_with_its_owner() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let mac = "02:00:00:00:00:aa".parse().unwrap();
    let config = TapConfig { mac: Some(mac), mtu_bytes: 9_000, ..TapConfig::named("k0") };
    let tap = Tap::open(&config).unwrap();
    assert_eq!((tap.name(), tap.mac(), tap.mtu_bytes()), ("k0", mac, 9_000));
    let shown = &json("link show dev k0")[0];
    assert_eq!(shown["ifindex"], tap.index());
    assert_eq!((&shown["address"], &shown["mtu"]), (&mac.to_string().into(), &9_000.into()));
    let has = |shown: &serde_json::Value, flag: &str| {
        shown["flags"].as_array().unwrap().iter().any(|it| it == flag)
    };
    assert!(has(shown, "UP") && has(shown, "LOWER_UP") && !has(shown, "NOARP"), "{shown}");
    assert_eq!(shown["linkinfo"]["info_data"]["persist"], false, "{shown}");

    let config = TapConfig { resolves_neighbours: false, ..TapConfig::named("k1") };
    let other = Tap::open(&config).unwrap();
    let shown = &json("link show dev k1")[0];
    assert_eq!(shown["address"], other.mac().to_string());
    assert!(has(shown, "UP") && has(shown, "NOARP"), "{shown}");

    drop(tap);
    let kernel = KernelFollower::start().unwrap();
    // A program that another test is just starting has the file until it is executed.
    wait_until("it is gone", || kernel.read(|tables| tables.link_named("k0").is_none()));
    assert!(kernel.read(|tables| tables.link_named("k1").is_some()));
}

#[test]
fn what_can_not_be_is_said() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let open = |name: &str| Tap::open(&TapConfig::named(name));
    for name in ["", "sixteen-bytes-ab", "a b", "a/b", "tap%d", "..", "ü"] {
        assert!(matches!(open(name), Err(TapError::Name(_))), "{name}");
    }
    // An interface of another kind, and a TAP of somebody else, also one that nobody has open.
    run("tuntap add dev left mode tap");
    let _tap = open("k0").unwrap();
    for name in ["a0", "k0", "left"] {
        let error = open(name).unwrap_err();
        assert!(matches!(error, TapError::Exists(_)), "{error:?}");
        assert!(error.to_string().contains("choose another name"), "{error}");
    }
    let config = TapConfig { mtu_bytes: 1, ..TapConfig::named("k2") };
    let error = Tap::open(&config).unwrap_err().to_string();
    assert!(error.starts_with("interface k2, setting an MTU of 1: "), "{error}");
    let group = Some("ff:00:00:00:00:01".parse().unwrap());
    let error = Tap::open(&TapConfig { mac: group, ..TapConfig::named("k2") }).unwrap_err();
    assert!(error.to_string().contains("setting the address ff:00:00:00:00:01"), "{error}");
}

#[test]
fn without_the_right_to_make_one_it_says_so() {
    let denied = std::thread::spawn(|| {
        hotloop_privileges::keep(hotloop_privileges::Capabilities::empty());
        Tap::open(&TapConfig::named("hltap-denied"))
    });
    match denied.join().unwrap().unwrap_err() {
        TapError::NoTun { source, .. } => println!("skipped: no /dev/net/tun: {source}"),
        error => assert!(matches!(error, TapError::Denied(_)), "{error:?}"),
    }
}

#[test]
fn a_killed_owner_takes_its_interface_and_routes_along() {
    let vips = BTreeSet::from([[203, 0, 113, 10].into(), "2001:db8::10".parse().unwrap()]);
    if std::env::var_os(OWNER).is_some() {
        let tap = Tap::open(&TapConfig::named("k0")).unwrap();
        let mut routes = VipRoutes::begin(tap.index(), VIP_METRIC).unwrap();
        routes.set(&vips).unwrap();
        println!("\nready");
        std::thread::sleep(10 * WITHIN);
        return;
    }
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let kernel = KernelFollower::start().unwrap();
    let test = "kernel::tap::a_killed_owner_takes_its_interface_and_routes_along";
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let route_count = |name| {
        kernel.read(|tables| {
            let index = tables.link_named(name).map(|link| link.index);
            let routes = tables.routes().filter(|route| vips.contains(&route.prefix.network()));
            let ours = routes.filter(|it| Some(it.hops[0].interface_index) == index);
            (index.is_some(), ours.count())
        })
    };
    wait_until("both routes are there", || route_count("k0") == (true, 2));
    kill_process(Pid::from_child(&owner), Signal::KILL).unwrap();
    let waited = wait_until("nothing is left", || {
        kernel.read(|tables| {
            tables.link_named("k0").is_none()
                && !tables.routes().any(|route| vips.contains(&route.prefix.network()))
        })
    });
    println!("interface and routes were gone after {waited:?}");
    owner.wait().unwrap();
}
