//! The whole balancer: frames, time that passes, and backends that come and go, driven by arbitrary
//! bytes.

#[path = "../../examples/ipip-lb/tests/bench/mod.rs"]
pub mod bench;

use crate::script::Script;
use bench::{CLIENT_MAC, Lb, NEXT_HOP_MAC, Sent};
use hotloop::packet::{PacketBuf, ethernet, ipip};
use hotloop_balancer::services::{Removal, Standing, TargetName};
use std::cell::RefCell;
use std::time::Duration;

const CONFIG: &str = include_str!("balancer.toml");

/// Maximum number of frames in a burst.
const BURST_LEN_MAX: usize = 8;

/// Number of ticks in which every place of its tables is visited.
const AGING_TICKS_MAX: u32 = 1000;

/// Number of scripts that one balancer plays: mapping its tables takes longer than playing many.
const SCRIPTS_MAX: u32 = 1000;

/// Longer than anything is remembered.
const LONG: Duration = Duration::from_secs(4 * 3600);

thread_local! {
    /// The balancer, and the number of scripts it has played.
    static LB: RefCell<Option<(Lb, u32)>> = const { RefCell::new(None) };
}

/// Plays the bytes as a script, to a balancer with empty tables.
///
/// After every burst the bench checks that all packets left or were dropped for a reason, and
/// [`check`] checks those that left. At the end every connection must age away.
pub fn run(bytes: &[u8]) {
    LB.with_borrow_mut(|kept| {
        // A balancer that panics is not kept.
        let (mut lb, count) = kept.take().unwrap_or_else(|| (Lb::of(CONFIG), 0));
        play(&mut lb, bytes);
        forget(&mut lb);
        *kept = (count < SCRIPTS_MAX).then_some((lb, count + 1));
    });
}

fn play(lb: &mut Lb, bytes: &[u8]) {
    let mut script = Script::new(bytes);
    while let Some(step) = script.byte() {
        let sent = match step % 16 {
            0..=10 => {
                let count = 1 + usize::from(step >> 4) % BURST_LEN_MAX;
                let frames: Vec<_> = (0..count).map_while(|_| script.frame()).collect();
                lb.feed(&frames)
            }
            11 => {
                lb.advance(Duration::from_millis(1 << (step >> 4)));
                lb.tick()
            }
            12 => {
                let seconds = 4 * u64::from(script.byte().unwrap_or_default());
                lb.advance(Duration::from_secs(seconds));
                lb.tick()
            }
            _ => {
                change(lb, step);
                lb.tick()
            }
        };
        check(&sent);
    }
}

/// Brings back every backend, and lets every connection and fragment age away.
fn forget(lb: &mut Lb) {
    if !(lb.standing.weights.is_empty() && lb.standing.removed.is_empty()) {
        lb.standing = Standing::default();
        lb.reload();
    }
    lb.advance(LONG);
    for _ in 0..AGING_TICKS_MAX {
        if lb.connections() == 0 {
            return;
        }
        check(&lb.tick());
    }
    panic!("{} connections are older than {LONG:?}", lb.connections());
}

/// Drains, removes or brings back one backend.
fn change(lb: &mut Lb, step: u8) {
    let index = usize::from(step >> 6);
    let service = &lb.config.services[index];
    let backend = &service.backends[usize::from(step >> 5) % 2];
    let target = TargetName { service: service.name.clone(), address: backend.address };
    match step % 16 {
        13 => _ = lb.standing.weights.insert(target, u32::from(step >> 4) % 2),
        14 => {
            let how = if step & 16 == 0 { Removal::Flush } else { Removal::Rebalance };
            lb.standing.removed.insert(target, how);
        }
        _ => lb.standing.removed.clear(),
    }
    lb.reload();
}

/// Checks that packets leave bare to a client, or to a backend in a valid tunnel that fits.
fn check(sent: &Sent) {
    for routed in sent.packets() {
        let mut packet = routed.packet.clone();
        if packet.data()[..6] == CLIENT_MAC {
            continue;
        }
        assert_eq!(packet.data()[..6], NEXT_HOP_MAC);
        let l3_offset = ethernet::l3_offset(packet.data()).expect("a frame of the balancer's");
        assert!(packet.len_bytes() - l3_offset <= 1500, "{} bytes", packet.len_bytes());
        ipip::decapsulate(&mut packet).expect("a tunnel of the balancer's");
    }
}
