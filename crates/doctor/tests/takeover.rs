//! Checks that a TAP interface restores what it took over: at the end, and after a SIGKILL by the
//! next program, or by the doctor.

#![cfg(feature = "kernel")]
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_kernel::{Takeover, TakeoverError, Tap, TapConfig};
use hotloop_test_tools::tool;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long to wait for changes that take milliseconds, or a second if IPv6 searches for
/// duplicates.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells a process that a test starts which part of the test to run.
const PART: &str = "HOTLOOP_TEST_TAKEOVER";

/// The folder of the state files.
const FOLDER: &str = "XDG_RUNTIME_DIR";

#[test]
fn addresses_and_routes_are_equal_to_before() {
    match std::env::var(PART).as_deref() {
        Ok("owner") => own(),
        Ok(_) => check_all(),
        Err(_) => {
            if let Err(why) = tool("ip") {
                return println!("skipped: {why}");
            }
            if !tool("unshare")
                .unwrap()
                .args(["--net", "true"])
                .status()
                .is_ok_and(|status| status.success())
            {
                return println!("skipped: no right to make a network namespace");
            }
            let folder = tempfile::tempdir().unwrap();
            let mut inside = tool("unshare").unwrap();
            inside.args(["--net", "--"]).arg(std::env::current_exe().unwrap());
            let status = part(&mut inside, "inside").env(FOLDER, folder.path()).status().unwrap();
            assert!(status.success(), "{status}");
        }
    }
}

/// A command that runs this test as one of its parts.
fn part<'a>(command: &'a mut Command, part: &str) -> &'a mut Command {
    let test = "addresses_and_routes_are_equal_to_before";
    command.args([test, "--exact", "--nocapture"]).env(PART, part)
}

/// Takes over, until it is killed.
fn own() {
    let _tap = Tap::open(&TapConfig::named("k0")).unwrap();
    let _takeover = begin().unwrap();
    println!("\nready");
    std::thread::sleep(10 * PATIENCE);
}

fn begin() -> Result<Takeover, TakeoverError> {
    let folder = std::env::var(FOLDER).unwrap();
    Takeover::begin("a0", "k0", &Path::new(&folder).join("hotloop"))
}

/// An interface with addresses and routes of many kinds.
const NETWORK: &str = "
    link set lo up
    link add a0 type veth peer name b0
    link add c0 type veth peer name d0
    link set a0 up
    link set b0 up
    link set c0 up
    link set d0 up
    address add 198.18.0.1/24 dev c0
    address add 2001:db8:c::1/64 dev c0 nodad
    address add 192.0.2.1/24 brd + dev a0 label a0
    address add 192.0.2.7/24 dev a0
    address add 192.0.2.8/24 dev a0 label a0:more
    address add 198.51.100.1/32 dev a0
    address add 198.51.100.2 peer 198.51.100.3 dev a0
    address add 203.0.113.1/24 dev a0 valid_lft 5000 preferred_lft 4000 metric 300
    address add 2001:db8::1/64 dev a0 nodad
    address add 2001:db8::7/64 dev a0
    address add 2001:db8:7::7/64 dev a0 noprefixroute
    route add default via 192.0.2.254 metric 100
    route add 10.0.0.0/8 via 192.0.2.254 table 77
    route add 10.1.0.0/16 dev a0 proto static src 192.0.2.7 mtu 1400
    route add 10.2.0.0/16 nexthop via 192.0.2.254 dev a0 weight 1 nexthop via 198.18.0.254 dev c0 weight 2
    route add 10.3.0.0/16 via 10.9.9.9 dev a0 onlink
    route add 10.4.0.0/16 dev c0
    -6 route add default via 2001:db8::fe metric 50
    -6 route add 2001:db8:9::/48 via fe80::1 dev a0
    -6 route add 2001:db8:8::/48 nexthop via 2001:db8::fe dev a0 nexthop via 2001:db8:c::fe dev c0
";

/// Runs all checks, in a network of its own.
fn check_all() {
    for line in NETWORK.lines().map(str::trim).filter(|line| !line.is_empty()) {
        ip(line);
    }
    let before = settled();
    check_end(&before);
    check_next_start(&before);
    check_doctor(&before);
}

fn check_end(before: &[String]) {
    let tap = Tap::open(&TapConfig::named("k0")).unwrap();
    let takeover = begin().unwrap();
    check_taken(before);
    // No other process can take over, and a failed attempt changes nothing.
    let error = begin().unwrap_err();
    assert!(matches!(error, TakeoverError::Taken(_)), "{error:?}");
    check_taken(before);
    println!("{takeover:?}");
    drop(takeover);
    // The addresses are back before the interface that had them goes away.
    assert_eq!(addresses("k0"), Vec::<String>::new());
    drop(tap);
    check_equal(before);
    // The error names what can't be taken over.
    let error = begin().unwrap_err().to_string();
    assert!(error.contains("no interface k0"), "{error}");
}

fn check_next_start(before: &[String]) {
    kill(start_owner(before));
    assert_eq!(addresses("a0"), Vec::<String>::new());
    let _tap = Tap::open(&TapConfig::named("k0")).unwrap();
    let takeover = begin().unwrap();
    check_taken(before);
    drop(takeover);
    drop(_tap);
    check_equal(before);
}

fn check_doctor(before: &[String]) {
    let owner = start_owner(before);
    // A running program keeps what it took over.
    assert_eq!(restore(), "nothing to restore\n");
    check_taken(before);
    kill(owner);
    assert_eq!(restore(), "a0 has its addresses and routes again\n");
    check_equal(before);
    assert_eq!(restore(), "nothing to restore\n");
    // If another interface has the name by now, it is left alone.
    kill(start_owner(before));
    ip("link del a0");
    ip("link add a0 type veth peer name b0");
    assert_eq!(restore(), "nothing to restore\n");
    assert_eq!(addresses("a0"), Vec::<String>::new());
}

fn restore() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_hotloop-doctor")).arg("--restore").output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn start_owner(before: &[String]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut owner = part(&mut command, "owner").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    check_taken(before);
    owner
}

/// Kills the owner, and waits until its interface is gone.
fn kill(mut owner: Child) {
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("k0 is gone", || !Path::new("/proc/sys/net/ipv4/conf/k0").exists());
}

/// Checks that `a0`'s addresses and routes have moved to the other interface, addresses in the same
/// order.
fn check_taken(before: &[String]) {
    assert_eq!(addresses("a0"), Vec::<String>::new());
    let as_before = |lines: Vec<String>| -> Vec<String> {
        let mine = lines.into_iter().filter(|line| !line.contains("\"local\":\"fe80"));
        mine.map(|line| line.replace("k0", "a0").replace(",\"nodad\":true", "")).collect()
    };
    let before = as_before(before.to_vec());
    let mut now = addresses("k0");
    now.extend(routes("k0"));
    let now = as_before(now);
    assert_eq!(now, before, "\n{now:#?}\n{before:#?}");
}

/// Checks that everything is as it was.
fn check_equal(before: &[String]) {
    let now = settled();
    assert_eq!(now, before, "\n{now:#?}\n{before:#?}");
}

/// The output of `ip` for `a0`, once IPv6 has found no duplicates.
fn settled() -> Vec<String> {
    wait_until("no address is tentative", || {
        !json("address show").iter().any(|address| address.to_string().contains("tentative"))
    });
    let mut all = addresses("a0");
    all.extend(routes("a0"));
    all
}

/// The addresses of an interface except the link-local ones, in order and without remaining
/// lifetimes.
fn addresses(interface: &str) -> Vec<String> {
    let mut links = json(&format!("address show dev {interface}"));
    let addresses = links[0]["addr_info"].as_array_mut().unwrap();
    addresses.retain(|address| address["scope"] != "link");
    let line = |address: &mut Value| {
        for time in ["valid_life_time", "preferred_life_time"] {
            if address[time] != u32::MAX {
                let left_s = address[time].take().as_u64().unwrap();
                assert!((3_900..=5_000).contains(&left_s), "{address}");
            }
        }
        address.to_string()
    };
    addresses.iter_mut().map(line).collect()
}

/// The routes of all tables except the link-local ones, and those that every interface has.
fn routes(interface: &str) -> Vec<String> {
    let of = |version| json(&format!("{version} route show table all"));
    let routes = [of("-4"), of("-6")].concat();
    let routes = routes.iter().filter(|route| route.to_string().contains(interface));
    let is_own = |it: &Value| {
        let to = it["dst"].as_str().unwrap();
        to.starts_with("fe80") || to == "ff00::/8"
    };
    let mut lines: Vec<_> = routes.filter(|route| !is_own(route)).map(Value::to_string).collect();
    lines.sort();
    lines
}

fn json(arguments: &str) -> Vec<Value> {
    let output = tool("ip").unwrap().arg("-j").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ip(arguments: &str) {
    let output = tool("ip").unwrap().args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
