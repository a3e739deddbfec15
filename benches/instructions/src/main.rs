//! The hot functions, each called a given number of times: `cargo xtask bench instructions` runs
//! this program under callgrind and counts.
//!
//! `instructions CASE CALLS` prepares the same whatever the number of calls (at most
//! [`CALLS_MAX`]), so that doubling the calls only adds the instructions of the calls. Seeds are
//! fixed, nothing is random, nothing reads the clock, and no case depends on the processor's
//! features.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

#[allow(dead_code, reason = "the graphs need a part of it")]
#[path = "../../src/buffer.rs"]
mod buffer;
mod chains;
#[allow(dead_code, reason = "as its program uses it")]
#[path = "../../../examples/nat44/src/connections.rs"]
mod connections;
#[path = "../../../examples/nat44/src/drops.rs"]
mod drops;
#[path = "../../../examples/nat44/src/fragments.rs"]
mod fragments;
#[allow(dead_code, reason = "as its program uses it")]
#[path = "../../../examples/nat44/src/nat.rs"]
mod nat;
#[allow(dead_code, reason = "as its program uses it")]
#[path = "../../../examples/nat44/src/ports.rs"]
mod ports;
#[path = "../../../examples/nat44/src/seen.rs"]
mod seen;
#[path = "../../../examples/nat44/src/settings.rs"]
mod settings;
mod translation;

use std::hint::black_box;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;

use hotloop::arena::Arena;
use hotloop::flow::{BURST_KEYS_MAX, Backend, Class, Classes, Config, Full, Hint, Hints, Table};
use hotloop::packet::Instant;
use hotloop::packet::build::{PacketBuilder, tcp, udp};
use hotloop::packet::classify::{Depth, classify};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipip::{self, Tunnel};
use hotloop::packet::seed::Seed;
use hotloop::ring::{Consumer, Producer, ring};

/// The number of calls that every case is prepared for.
const CALLS_MAX: usize = 2000;

const RING_BURST: usize = 32;
const FLOW_COUNT: u32 = 2048;
const NOW: Instant = Instant::from_ns(1_000_000_000);
const SEED: Seed = Seed::new(42);

/// A name, and a function that prepares and then makes a number of calls.
type Case = (String, Box<dyn Fn(usize)>);

fn cases() -> Vec<Case> {
    let udp_v4 = || udp().payload([7; 18]);
    let udp_v6 = || udp().to("[2001:db8::1]:53");
    let mut cases: Vec<Case> = vec![
        ("ring push_burst, 32 items".into(), Box::new(push_bursts)),
        ("ring pop_burst, 32 items".into(), Box::new(pop_bursts)),
        ("ring push_burst and pop_burst by turns".into(), Box::new(push_and_pop_bursts)),
        ("packet flow key, UDP in IPv4".into(), Box::new(move |calls| key_of(calls, udp_v4()))),
        ("packet flow key, UDP in IPv6".into(), Box::new(move |calls| key_of(calls, udp_v6()))),
        (
            "packet classify, UDP in IPv4".into(),
            Box::new(move |calls| classify_it(calls, udp_v4())),
        ),
        ("packet classify, TCP in IPIP".into(), Box::new(|calls| classify_it(calls, in_tunnel()))),
        (
            "packet key of a layout, UDP in IPv4".into(),
            Box::new(move |calls| key_again(calls, udp_v4())),
        ),
        ("ipip encapsulate, TCP in IPv4".into(), Box::new(encapsulate)),
        ("ipip decapsulate, TCP in IPv4".into(), Box::new(decapsulate)),
        ("nat rewrite source, TCP in IPv4".into(), Box::new(rewrite_source)),
    ];
    for count in [8, 32, 64] {
        let name = format!("ring push_from and pop_into by turns, {count} items");
        cases.push((name, Box::new(move |calls| move_bursts(calls, count))));
    }
    // Not every processor of an architecture has AVX2, and the list must be the same on all.
    let is_everywhere = |backend: &Backend| backend.is_available() && *backend != Backend::Avx2;
    for backend in Backend::ALL.into_iter().filter(is_everywhere) {
        for (size, capacity) in [("in cache", 4096), ("large", 100_000)] {
            for (what, are_known) in [("hits", true), ("misses", false)] {
                for (how, is_hinted) in [("find", false), ("find_hinted", true)] {
                    let name = format!("flow hint_burst and {how}, 64 {what}, {size}, {backend:?}");
                    let are = (are_known, is_hinted);
                    let find = move |calls| find_burst(calls, backend, capacity, are);
                    cases.push((name, Box::new(find)));
                }
            }
        }
        for (what, is_full) in [("with room", false), ("into a full table", true)] {
            for (how, has_peek) in [("insert", false), ("peek and insert", true)] {
                let name = format!("flow {how} with ranks, {what}, {backend:?}");
                let insert = move |calls| insert_ranked(calls, backend, is_full, has_peek);
                cases.push((name, Box::new(insert)));
            }
        }
    }
    cases.extend(chains::cases());
    cases.extend(translation::cases());
    cases
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            cases().iter().for_each(|(name, _)| println!("{name}"));
            ExitCode::SUCCESS
        }
        [name, calls] => {
            let case = cases().into_iter().find(|case| case.0 == name);
            let (Some((_, run)), Ok(calls @ ..=CALLS_MAX)) = (case, calls.parse()) else {
                eprintln!("no such case, or not a number up to {CALLS_MAX}");
                return ExitCode::FAILURE;
            };
            run(calls);
            ExitCode::SUCCESS
        }
        _ => {
            println!("counted by `cargo xtask bench instructions`");
            ExitCode::SUCCESS
        }
    }
}

/// Into a ring with room for everything: the consumer does nothing.
fn push_bursts(calls: usize) {
    let (mut producer, consumer) = ring(CALLS_MAX * RING_BURST);
    for _ in 0..calls {
        push(&mut producer);
    }
    forget(producer, consumer);
}

/// Out of a ring that holds everything: the producer does nothing.
fn pop_bursts(calls: usize) {
    let (mut producer, mut consumer) = ring(CALLS_MAX * RING_BURST);
    for _ in 0..CALLS_MAX {
        push(&mut producer);
    }
    for _ in 0..calls {
        pop(&mut consumer);
    }
    forget(producer, consumer);
}

/// Skips the ring's drop, which drops remaining items: that depends on the number of calls.
fn forget(producer: Producer<u64>, consumer: Consumer<u64>) {
    mem::forget((producer, consumer));
}

/// Through a ring of a typical length, round and round.
fn push_and_pop_bursts(calls: usize) {
    let (mut producer, mut consumer) = ring(1024);
    for _ in 0..calls {
        push(&mut producer);
        pop(&mut consumer);
    }
}

/// As above, out of one burst and into another. libc uses another way of copying if the addresses
/// of source and destination are close in their low 12 bits. The environment and the path of this
/// program move the stack and small allocations, so the items start a page, and the ring and the
/// burst are so large that each has pages of its own.
fn move_bursts(calls: usize, count: usize) {
    #[repr(align(4096))]
    struct Page([u64; 64]);
    const OWN_PAGES_ITEMS: usize = 1 << 15;

    let (mut producer, mut consumer) = ring(OWN_PAGES_ITEMS);
    let items = Page([7; 64]);
    let mut burst = Vec::with_capacity(OWN_PAGES_ITEMS);
    for _ in 0..calls {
        assert_eq!(push_from(&mut producer, black_box(&items.0[..count])), count);
        burst.clear();
        assert_eq!(pop_into(&mut consumer, black_box(&mut burst)), count);
    }
}

#[inline(never)]
fn push_from(producer: &mut Producer<u64>, mut items: &[u64]) -> usize {
    producer.push_from(&mut items)
}

#[inline(never)]
fn pop_into(consumer: &mut Consumer<u64>, burst: &mut Vec<u64>) -> usize {
    consumer.pop_into(64, burst)
}

#[inline(never)]
fn push(producer: &mut Producer<u64>) {
    let mut item = black_box(0);
    let pushed_count = producer.push_burst(RING_BURST, || {
        item += 1;
        item
    });
    assert_eq!(pushed_count, RING_BURST);
}

#[inline(never)]
fn pop(consumer: &mut Consumer<u64>) {
    let mut sum = 0;
    assert_eq!(consumer.pop_burst(RING_BURST, |item| sum += item), RING_BURST);
    black_box(sum);
}

/// In a table with this capacity, filled with a few thousand flows. Hints are not used if the table
/// fits the cache. Reads the values of known flows.
fn find_burst(
    calls: usize,
    backend: Backend,
    capacity: usize,
    (are_known, is_hinted): (bool, bool),
) {
    let mut table = table(Config::new(capacity, u64::MAX), backend, FLOW_COUNT);
    let first = if are_known { 0 } else { FLOW_COUNT };
    let keys: Vec<_> = (first..first + FLOW_COUNT).map(flow).collect();
    let mut hints = Hints::new();
    let bursts = keys.chunks_exact(BURST_KEYS_MAX).cycle().take(calls);
    let sum: u64 = bursts
        .map(|burst| match is_hinted {
            false => find(&mut table, black_box(burst), &mut hints),
            true => find_hinted(&mut table, black_box(burst), &mut hints),
        })
        .sum();
    assert_eq!(calls > 0 && are_known, black_box(sum) > 0);
}

/// The compiler inlines `hint_burst` into its only caller: with a caller for each of the functions
/// below, their counts would depend on each other.
#[inline(never)]
fn hint(table: &Table<FlowKeyV4, u32>, burst: &[FlowKeyV4], hints: &mut Hints) {
    table.hint_burst(burst.iter().copied(), hints);
}

#[inline(never)]
fn find(table: &mut Table<FlowKeyV4, u32>, burst: &[FlowKeyV4], hints: &mut Hints) -> u64 {
    let mut sum = 0;
    hint(table, burst, hints);
    for (index, key) in burst.iter().enumerate() {
        if let Some((_, value)) = table.find(key, hints.at(index), NOW) {
            sum += u64::from(*value);
        }
    }
    sum
}

#[inline(never)]
fn find_hinted(table: &mut Table<FlowKeyV4, u32>, burst: &[FlowKeyV4], hints: &mut Hints) -> u64 {
    let mut sum = 0;
    hint(table, burst, hints);
    let seen_at = table.seen_at(NOW);
    for (index, key) in burst.iter().enumerate() {
        if let Some((_, value)) = table.find_hinted(key, hints.at(index), seen_at) {
            sum += u64::from(*value);
        }
    }
    sum
}

/// New flows in a table, each replacing another or finding room.
fn insert_ranked(calls: usize, backend: Backend, is_full: bool, has_peek: bool) {
    let capacity = if is_full { FLOW_COUNT } else { FLOW_COUNT + CALLS_MAX as u32 };
    let full = Full::Evict(Classes::ALL);
    let config = Config { full, ..Config::new(capacity as usize, u64::MAX) };
    let mut table = table(config, backend, FLOW_COUNT);
    let mut evicted_count = 0;
    for number in (FLOW_COUNT..).take(calls) {
        let rank = |value: &u32, _: Class, _: u64| Some((*value & 1) as u8);
        let leaves = |_, _| evicted_count += 1;
        let now = Instant::from_ns(NOW.as_ns() + u64::from(number));
        let key = flow(number);
        let placed = if has_peek {
            let vacancy = table.peek(&key, Hint::NONE, now).expect_err("a new flow");
            table.insert(vacancy, number, now, &mut (rank, leaves))
        } else {
            table.insert(key, number, now, &mut (rank, leaves))
        };
        placed.expect("room for the flow");
    }
    assert_eq!(evicted_count, if is_full { calls } else { 0 });
}

/// A table with this many flows.
fn table(config: Config, backend: Backend, flow_count: u32) -> Table<FlowKeyV4, u32> {
    let arena = Arena::on(None).expect("addresses");
    let mut table = Table::with_backend(arena, config, 42, backend).expect("memory for the table");
    for number in 0..flow_count {
        table.insert(flow(number), number, NOW, &mut |_, _| ()).expect("room for the flow");
    }
    table
}

fn flow(number: u32) -> FlowKeyV4 {
    let client = Ipv4Addr::from_bits(0x0a00_0000 + number);
    FlowKeyV4::new(client, Ipv4Addr::new(192, 0, 2, 1), 50_000, 443, protocol::TCP)
}

fn key_of(calls: usize, builder: PacketBuilder) {
    let frame = builder.build();
    for _ in 0..calls {
        let frame = black_box(&frame[..]);
        black_box(FlowKey::of(frame, frame.len(), Depth::Innermost));
    }
}

fn classify_it(calls: usize, builder: PacketBuilder) {
    let frame = builder.build();
    let seed = black_box(SEED);
    for _ in 0..calls {
        black_box(classify(black_box(&frame), Depth::Innermost, &seed));
    }
}

/// The key of a packet in a stage after the one that classified it.
fn key_again(calls: usize, builder: PacketBuilder) {
    let frame = builder.build();
    let layout = classify(&frame, Depth::Innermost, &SEED);
    for _ in 0..calls {
        black_box(black_box(layout).key(black_box(&frame)));
    }
}

fn encapsulate(calls: usize) {
    let addresses = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 0, 0, 7)];
    let tunnel = Tunnel::new(addresses[0], addresses[1]).expect("two addresses of one family");
    let mut packets = vec![tcp().packet_in_memory(); CALLS_MAX];
    for packet in &mut packets[..calls] {
        tunnel.wrap(black_box(packet)).expect("room for the outer header");
    }
}

fn decapsulate(calls: usize) {
    let mut packets = vec![in_tunnel().packet_in_memory(); CALLS_MAX];
    for packet in &mut packets[..calls] {
        black_box(ipip::decapsulate(black_box(packet)).expect("a packet in a tunnel"));
    }
}

fn rewrite_source(calls: usize) {
    let to = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 4096);
    let mut packet = tcp().packet_in_memory();
    for _ in 0..calls {
        hotloop::packet::nat::rewrite_source(black_box(&mut packet), black_box(to))
            .expect("a TCP segment");
    }
}

fn in_tunnel() -> PacketBuilder {
    tcp().tunnelled("192.0.2.1", "10.0.0.7")
}
