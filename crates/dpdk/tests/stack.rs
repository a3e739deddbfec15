//! Drivers are called only while the thread's stack has room for them.

use crate::common::{LIMITS, core, eal, open, packet, start, unique};
use hotloop_dpdk::{Error, Mbuf, Mempool, MempoolConfig, Port, RxQueue, TxQueue, lcore};
use hotloop_stage::{Burst, Sink, Source};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread::Builder;

/// Calls `run` on a thread with a stack of `kib` KiB.
fn on_stack<T: Send>(kib: usize, run: impl FnOnce() -> T + Send) -> T {
    let thread = Builder::new().stack_size(kib << 10);
    std::thread::scope(|scope| thread.spawn_scoped(scope, run).unwrap().join().unwrap())
}

fn is_refusal(text: &str) -> bool {
    text.starts_with("this thread has ") && text.contains("give it a larger stack")
}

/// The message of a call that panics. A refusal isn't printed: that takes more stack than a test
/// may have.
fn refusal<T>(call: impl FnOnce() -> T) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !panic.payload().downcast_ref::<String>().is_some_and(|text| is_refusal(text)) {
                print(panic);
            }
        }));
    });
    let panic = catch_unwind(AssertUnwindSafe(call)).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

fn burst(pool: &Mempool) -> Burst<Mbuf> {
    let mut burst = Burst::new();
    burst.extend((0..8).map(|number| packet(pool, &[number; 60])));
    burst
}

fn pool() -> Mempool {
    Mempool::new(eal(), &MempoolConfig::default()).unwrap()
}

#[test]
fn no_driver_is_called_on_a_small_stack() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sent.pcap");
    let port = open("net_pcap", &format!(",tx_pcap={}", file.display()));
    let pool = pool();
    let mut tx = port.tx_queue(&core()).unwrap();
    tx.start(&LIMITS).unwrap();
    let mut sent = burst(&pool);
    // net_pcap has a frame of 16 KiB, and thread-local variables take some 10 KiB of each stack.
    for kib in [32, 64, 128, 256] {
        let refused = on_stack(kib, || refusal(|| tx.send(&mut sent)));
        let refused = refused.unwrap_or_else(|| panic!("it is called on a stack of {kib} KiB"));
        assert!(is_refusal(&refused), "a stack of {kib} KiB: {refused:?}");
        assert_eq!(sent.len(), 8, "what was refused is still there");
    }
    assert_eq!(port.stats().unwrap().sent, 0);
    assert_eq!(tx.send(&mut sent), 8);
    drop(tx);
    port.stop().unwrap();
    assert!(pool.report().is_whole());
    assert!(std::fs::metadata(file).unwrap().len() > 8 * 60);
}

/// Makes calls at each depth until one is refused. Returns the number of successful ones and the
/// refusal.
#[inline(never)]
fn descend(call: &mut dyn FnMut(), count: usize) -> (usize, String) {
    let mut pad = [7_u8; 1024];
    let result = match refusal(&mut *call) {
        Some(refused) => (count, refused),
        None => descend(call, black_box(count + 1)),
    };
    black_box(&mut pad);
    result
}

#[test]
fn each_call_looks_at_what_is_left_not_only_the_first() {
    let port = open("net_ring", "");
    let pool = pool();
    let (mut rx, mut tx) = start(&port);
    let (mut sent, mut received) = (burst(&pool), Burst::new());
    let calls: [(&str, &mut (dyn FnMut() + Send)); 2] = [
        ("send and poll", &mut || {
            assert_eq!((tx.send(&mut sent), rx.poll(&mut received)), (8, 8));
            std::mem::swap(&mut sent, &mut received);
        }),
        ("a port's counters", &mut || {
            if let Err(error) = port.stats() {
                panic!("{error}");
            }
        }),
    ];
    for (what, call) in calls {
        let (count, refused) = on_stack(2048, || descend(call, 0));
        assert!(count > 100, "{what}: {count} calls on a stack of 2 MiB");
        assert!(is_refusal(&refused), "{what}: {refused:?}");
    }
    // If sending succeeded and polling was refused, the packets are in the ring.
    rx.poll(&mut received);
    assert_eq!(sent.len() + received.len(), 8, "what was refused is still there");
    assert_eq!(port.stats().unwrap().sent % 8, 0);
    drop((rx, tx, sent, received));
    port.stop().unwrap();
    assert!(pool.report().is_whole());
}

fn queues(port: &Port) -> (RxQueue, TxQueue) {
    (port.rx_queue(&core()).unwrap(), port.tx_queue(&core()).unwrap())
}

#[test]
fn calls_that_can_fail_fail_on_a_small_stack_and_work_on_another() {
    fn refused<T>(result: Result<T, Error>) {
        let error = result.err().expect("a stack of 64 KiB is too small");
        assert!(matches!(error, Error::Stack { .. }) && is_refusal(&error.to_string()), "{error}");
    }
    let (port, name) = (open("net_ring", ""), unique("net_null"));
    let (mut rx, mut tx) = queues(&port);
    let mut small = || {
        refused(Port::open(eal(), &name));
        refused(Mempool::new(eal(), &MempoolConfig::default()));
        refused(lcore::register(eal()));
        refused(port.rx_queue(&core()));
        assert!(is_refusal(&rx.start(&LIMITS).unwrap_err().to_string()));
        refused(port.stats());
        refused(port.xstats());
        refused(port.link());
        refused(port.mtu());
        refused(port.stop());
    };
    on_stack(64, &mut small);
    rx.start(&LIMITS).unwrap();
    tx.start(&LIMITS).unwrap();
    let mut own = burst(&port.mempool().unwrap());
    let mut small = || {
        let refused = |refused: Option<String>| assert!(is_refusal(&refused.unwrap()));
        refused(refusal(|| tx.send(&mut own)));
        refused(refusal(|| rx.poll(&mut Burst::new())));
        refused(refusal(|| rx.rx_queue_count()));
        assert!(rx.devices()[0].reopen().is_err() && rx.devices()[0].stop().is_err());
        // Mbufs need no room.
        own.clear();
        drop(port.mempool().and_then(|pool| pool.alloc()));
    };
    on_stack(64, &mut small);
    assert_eq!(rx.rx_queue_count(), None, "net_ring does not know");
    drop((rx, tx));
    port.stop().unwrap();
    assert!(port.mempool().unwrap().report().is_whole());

    // The last owner of a port can't close it there: its name stays taken.
    let last = Port::open(eal(), &name).unwrap();
    on_stack(64, move || drop(last));
    assert!(matches!(Port::open(eal(), &name), Err(Error::DeviceInUse { .. })));
}
