//! EAL's arguments, each in a process of its own, because EAL starts once.

mod subscriber;

use hotloop_dpdk::{Eal, Port};
use hotloop_test_tools::tool;
use std::fmt::Debug;
use std::process::{Command, Output};
use std::sync::Mutex;
use subscriber::Calls;
use tracing::Event;
use tracing::field::{Field, Visit};

const ARGUMENTS: &str = "HOTLOOP_TEST_EAL_ARGUMENTS";

/// The texts of events.
static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds the message of an event to [`EVENTS`].
struct Message;

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        EVENTS.lock().unwrap().push(format!("{value:?}"));
    }
}

/// Runs in a child of [`start`]: starts EAL with the words of the variable, opens the devices after
/// a `;`, and prints the result.
#[test]
fn child() {
    let Ok(line) = std::env::var(ARGUMENTS) else { return };
    tracing::subscriber::set_global_default(Calls(|event: &Event<'_>| event.record(&mut Message)))
        .unwrap();
    let (arguments, devices) = line.split_once(';').unwrap_or((&line, ""));
    match Eal::with_args(&arguments.split_whitespace().collect::<Vec<_>>()) {
        Ok(eal) => {
            println!("started: {}", eal.arguments());
            println!("events: {:?}", EVENTS.lock().unwrap());
            for device in devices.split_whitespace() {
                println!("opened: {:?}", Port::open(eal, device));
            }
        }
        Err(error) => {
            println!("refused: {error}");
            println!("then: {:?}", Eal::embedded().map(Eal::arguments));
        }
    }
}

fn start(line: &str, command: &[&str]) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = match command {
        [] => Command::new(&program),
        [name, arguments @ ..] => {
            let mut command = tool(name).unwrap();
            command.args(arguments).arg(&program);
            command
        }
    };
    let output = command.args(["child", "--exact", "--nocapture"]).env(ARGUMENTS, line).output();
    let Output { status, stdout, stderr } = output.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{said}");
    assert!(!said.contains("Usage") && !said.contains("EAL: FATAL"), "{said}");
    said
}

fn holds(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn wrong_values_are_refused_and_the_embedded_default_still_starts() {
    let said = start("--no-huge -m 64 --lcores 0@4000", &[]);
    holds(&said, &["refused: EAL does not start with \"--no-huge -m 64 --lcores 0@4000"]);
    holds(&said, &["check the values", "then: Ok(\"--no-pci --no-huge -m 1024"]);
    holds(&start("--no-huge -m 64 --telemetry", &[]), &["refused: EAL argument \"--telemetry\""]);
}

/// After these failures EAL can't start any more: it keeps what it has parsed.
#[test]
fn after_a_failed_start_the_error_says_that_none_can_follow() {
    for line in [
        "--no-huge -m 64 --main-lcore 5",
        "--legacy-mem --in-memory",
        "--no-huge -m 64 --match-allocations",
    ] {
        let said = start(line, &[]);
        holds(&said, &["refused: EAL does not start with", "then: Err(EalInit {"]);
        let then = said.lines().find(|said| said.starts_with("then: ")).unwrap();
        holds(then, &["failed in this process before, with", line, "start the program again"]);
        assert!(!then.contains("check the values"), "{then}");
    }
}

#[test]
fn a_hint_that_is_not_taken_is_reported() {
    let start = |addr| start(&format!("--no-huge --no-pci -m 64 --base-virtaddr {addr}"), &[]);
    // An address that a sanitizer doesn't use either.
    holds(&start("0x400000000000"), &["started: ", "events: []"]);
    // Beyond a process's address space.
    holds(&start("0x7fffffff0000"), &["started: ", "not where --base-virtaddr asks for it"]);
}

/// EAL takes those stacks from its hugepages, with nothing between one and the next.
#[test]
fn stacks_without_a_guard_page_are_refused() {
    for line in ["-m 64 --huge-worker-stack=16", "--no-huge -m 64 --huge-worker-stack"] {
        holds(&start(line, &[]), &["refused: EAL argument \"--huge-worker-stack", "guard page"]);
    }
}

#[test]
fn what_eal_ignores_without_a_word_is_refused() {
    for line in [
        "--no-huge -m 64 --huge-dir /nonexistent",
        "-m 64 --huge-dir /nonexistent",
        "-m 64 --legacy-mem --huge-dir /nonexistent",
        "--no-huge --no-pci -m 64 --huge-unlink=never",
        "--no-huge --no-pci -m 0",
        "--no-huge --no-pci -m 64 --log-level=lib.eal:99",
        "--no-huge --no-pci -m 64 --vfio-intr msix",
        "--no-huge --no-pci -m 64 --socket-limit 32",
        "--no-huge --no-pci -m 64 -m 128",
        "--no-huge --no-pci -m 64 --syslog=daemon",
    ] {
        let said = start(line, &[]);
        holds(&said, &["refused: EAL argument \"", "then: Ok("]);
    }
}

#[test]
fn hugepages_are_used_or_their_lack_is_explained() {
    let said = start("-l 0", &[]);
    if said.contains("refused") {
        holds(&said, &["\"-l 0 --no-telemetry --in-memory\"", "EAL said: EAL: "]);
        holds(&said, &["--no-huge -m 1024", "or no EAL arguments at all"]);
    } else {
        holds(&said, &["started: -l 0 --no-telemetry --in-memory"]);
    }
}

#[test]
fn a_device_announced_to_eal_is_plugged_in_when_it_is_opened() {
    let line = "--no-huge --no-pci -m 64 --vdev net_null7,size=99 --vdev=net_null8,nonsense=1; \
                net_null7 net_null9 net_null8";
    let said = start(line, &[]);
    holds(&said, &["opened: Ok(Port(\"net_null7,size=99\"))", "opened: Ok(Port(\"net_null9\"))"]);
    holds(&said, &["opened: Err(Probe { device: \"net_null8,nonsense=1\""]);
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let said = start("--no-huge --no-pci -m 100000000", &[]);
    holds(&said, &["refused: EAL does not start with", "-m 100000000", "EAL said: EAL: Cannot"]);
}

#[test]
fn any_user_may_start_the_embedded_default() {
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let command = [&["setpriv"], &nobody[..]].concat();
    // The program must be readable for that user, and only root may become that user.
    let program = std::env::current_exe().unwrap();
    let runs = tool(command[0]).unwrap().args(&command[1..]).arg(&program).arg("--list").output();
    if !runs.is_ok_and(|output| output.status.success()) {
        println!("skipped: cannot run {} as another user", program.display());
        return;
    }
    let said = start("--no-pci --no-huge -m 1024; net_null0 net_ring0", &command);
    holds(&said, &["opened: Ok(Port(\"net_null0\"))", "opened: Ok(Port(\"net_ring0\"))"]);
}

#[test]
fn a_device_allowed_to_eal_is_checked_and_plugged_in_as_an_announced_one() {
    let line = "--no-huge --no-pci -m 64 --allow net_null7,size=99 -a net_null8,nonsense=1; \
                net_null7 net_null8";
    let said = start(line, &[]);
    holds(&said, &["opened: Ok(Port(\"net_null7,size=99\"))"]);
    holds(&said, &["opened: Err(Probe { device: \"net_null8,nonsense=1\""]);
    let said = start("--no-huge --no-pci -m 64 -a net_null7,copy=1", &[]);
    holds(&said, &["refused: device \"net_null7,copy=1\"", "not allowed"]);
}

#[test]
fn a_pool_has_one_kind_of_ring_whatever_eal_prefers() {
    let line = "--no-huge --no-pci -m 64 --mbuf-pool-ops-name ring_sp_sc";
    holds(&start(line, &[]), &["refused: EAL argument \"--mbuf-pool-ops-name\"", "leave it out"]);
}

/// Every option that needs nothing from the machine, with a value: this EAL takes them all.
#[test]
fn options_that_are_passed_on_are_taken() {
    let line = "--no-huge --no-pci -m 64 --lcores 0@0 --main-lcore 0 -n 2 -r 1 --no-telemetry \
                --base-virtaddr 0x200000000 --file-prefix hotloop-test --log-level lib.eal:3 \
                --force-max-simd-bitwidth 256 --no-hpet --no-shconf --proc-type=primary; net_null0";
    holds(&start(line, &[]), &["started: --no-huge", "opened: Ok(Port(\"net_null0\"))"]);
    // An address that no machine has keeps EAL from using existing devices.
    let line = "--no-huge -m 64 -a 0000:ff:1f.7 --vfio-intr msix --create-uio-dev; net_null0";
    holds(&start(line, &[]), &["started: --no-huge", "opened: Ok(Port(\"net_null0\"))"]);
}
