//! Ports, pools, queues and packets, dropped in every order and on other threads; planted errors
//! are detected.

use crate::common::{
    LIMITS, bytes, core, eal, frame, open, open_with, packet, send_all, start, unique,
};
use hotloop_dpdk::{
    Error, Mbuf, Mempool, MempoolConfig, Port, PortConfig, RxQueue, SharedMbuf, TxQueue, lcore,
};
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Source};
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// A pool of a shape that no other test uses.
fn own_pool(mbuf_count: u32) -> Mempool {
    Mempool::new(eal(), &MempoolConfig { mbuf_count, ..Default::default() }).unwrap()
}

#[test]
fn every_order_of_drops_on_any_thread_leaves_the_pool_whole() {
    let orders = permutations(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(orders.len(), 720);
    for (round, order) in orders.iter().enumerate() {
        let driver = ["net_null", "net_ring"][round % 2];
        let port = open(driver, "");
        let (mut rx, mut tx) = start(&port);
        let pool = port.mempool().unwrap();
        send_all(&mut tx, (0..8).map(|n| packet(&pool, &[n; 60])));
        let mut burst = Burst::new();
        assert!(rx.poll(&mut burst) >= 4);
        let shared = burst.pop().unwrap().into_shared();
        let mut parts: [Option<Box<dyn Any + Send>>; 6] = [
            Some(Box::new(port)),
            Some(Box::new(rx)),
            Some(Box::new(tx)),
            Some(Box::new(pool.clone())),
            Some(Box::new((burst, shared.clone()))),
            Some(Box::new(shared)),
        ];
        if round % 8 == 0 {
            for index in order {
                let part = parts[*index].take();
                thread::spawn(move || drop(part)).join().unwrap();
            }
        } else {
            for index in order {
                parts[*index] = None;
            }
        }
        assert!(pool.report().is_whole(), "{driver}, {order:?}: {}", pool.report());
    }
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |index: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(index);
        permutations(&rest).into_iter().map(move |tail| [vec![first], tail].concat())
    };
    (0..items.len()).flat_map(with_first).collect()
}

#[test]
fn queues_move_between_threads_while_they_run() {
    let port = open("net_ring", "");
    let (mut rx, mut tx) = start(&port);
    let pool = port.mempool().unwrap();
    for round in 0..50_u8 {
        let sender = pool.clone();
        tx = thread::spawn(move || {
            lcore::register(eal()).unwrap();
            send_all(&mut tx, (0..100).map(|_| packet(&sender, &[round; 60])));
            tx
        })
        .join()
        .unwrap();
        rx = thread::spawn(move || {
            let (mut burst, mut received) = (Burst::new(), 0);
            while rx.poll(&mut burst) > 0 {
                received += burst.len();
                assert!(burst.as_slice().iter().all(|mbuf| mbuf.data() == [round; 60]));
                burst.clear();
            }
            assert_eq!(received, 100);
            rx
        })
        .join()
        .unwrap();
    }
    drop((rx, tx));
    port.stop().unwrap();
    assert!(pool.report().is_whole());
}

#[test]
fn a_port_does_not_stop_under_a_queue() {
    let port = open("net_null", "");
    let (rx, tx) = start(&port);
    let device = rx.devices().remove(0);
    assert!(device.stop().unwrap_err().to_string().contains("1 RX and 1 TX queues"));
    drop(tx);
    assert!(matches!(port.stop(), Err(Error::QueuesHeld { rx_count: 1, tx_count: 0, .. })));
    drop(rx);
    device.stop().unwrap();
    device.check_pools().unwrap();
    port.stop().unwrap();
    assert!(port.link().unwrap_err().to_string().contains("stopped"));
    assert_eq!(device.name(), port.name());
}

#[test]
fn a_stopped_port_starts_again_with_the_queues_of_then() {
    let port = open("net_null", "");
    for count in 1..4_usize {
        let mut queues = (0..count).map(|_| port.rx_queue(&core()).unwrap()).collect::<Vec<_>>();
        let mut burst = Burst::new();
        for rx in &mut queues {
            rx.start(&LIMITS).unwrap();
            assert_eq!(rx.poll(&mut burst), 64);
            burst.clear();
        }
        let error = port.tx_queue(&core()).unwrap_err();
        assert!(matches!(error, Error::ClaimedAfterStart { .. }), "{error}");
        assert_eq!(port.stats().unwrap().received, 64 * count as u64);
        drop(queues);
        // The second time, the next claim stops it.
        if count != 2 {
            port.stop().unwrap();
            assert_eq!(port.stats().unwrap().received, 64 * count as u64);
        }
    }
}

#[test]
fn a_queue_dropped_before_the_start_is_claimed_again() {
    let port = open("net_null", "");
    let (first, second) = (port.rx_queue(&core()).unwrap(), port.rx_queue(&core()).unwrap());
    drop(first);
    let mut second = second;
    let error = second.start(&LIMITS).unwrap_err().to_string();
    assert!(error.contains("RX queue 0 was claimed and dropped"), "{error}");
    let mut first = port.rx_queue(&core()).unwrap();
    assert_eq!(first.index(), 0);
    first.start(&LIMITS).unwrap();
    second.start(&LIMITS).unwrap();
}

#[test]
fn a_forgotten_packet_is_missed() {
    let config = MempoolConfig { mbuf_count: 32_749, ..Default::default() };
    let pool = Mempool::new(eal(), &config).unwrap();
    let config = PortConfig { mempool: Some(pool.clone()), rx_descriptor_count: 64, ..small() };
    let port = open_with("net_null", "", config);
    let (mut rx, tx) = start(&port);
    let device = rx.devices().remove(0);
    let mut burst = Burst::new();
    rx.poll(&mut burst);
    let forgotten = burst.pop().unwrap().into_raw();
    drop((burst, rx, tx));
    device.stop().unwrap();
    let error = device.check_pools().unwrap_err().to_string();
    assert!(error.contains("32748 of its 32749 mbufs are home, 0 of them twice"), "{error}");
    // SAFETY: it was returned by `into_raw` above, and is taken back once.
    drop(unsafe { Mbuf::from_raw(forgotten) });
    device.check_pools().unwrap();
}

/// A configuration with few descriptors and small caches, to need few mbufs.
fn small() -> PortConfig {
    PortConfig { rx_descriptor_count: 64, tx_descriptor_count: 64, ..PortConfig::default() }
}

#[test]
fn a_packet_freed_twice_is_seen_twice() {
    let pool = own_pool(1019);
    let raw = pool.alloc().unwrap().into_raw();
    // SAFETY: one of the two is wrong: that is the planted error.
    drop(unsafe { Mbuf::from_raw(raw) });
    // SAFETY: as above.
    drop(unsafe { Mbuf::from_raw(raw) });
    let report = pool.report();
    assert_eq!((report.seen_count, report.duplicate_count), (1019, 1));
    assert!(!report.is_whole());
    // A duplicate and a loss: the count by itself would be right.
    let lost = pool.alloc().unwrap().into_raw();
    let twice = pool.alloc().unwrap().into_raw();
    // SAFETY: as above.
    drop(unsafe { Mbuf::from_raw(twice) });
    // SAFETY: as above.
    drop(unsafe { Mbuf::from_raw(twice) });
    let report = pool.report();
    assert_eq!((report.seen_count, report.duplicate_count), (1018, 1));
    assert!(!report.is_whole());
    // SAFETY: taken above, and given back once.
    drop(unsafe { Mbuf::from_raw(lost) });
    assert!(pool.report().is_whole(), "the report has put the doubles back once");
}

#[test]
fn a_parked_pool_serves_again_once_it_is_whole() {
    let shape = 1013;
    let pool = own_pool(shape);
    let address = pool.as_ptr() as usize;
    let held = pool.alloc().unwrap();
    drop(pool);
    // Not while one of its packets is out.
    let other = own_pool(shape);
    assert_ne!(other.as_ptr() as usize, address);
    drop(held);
    let again = own_pool(shape);
    assert_eq!(again.as_ptr() as usize, address);
    assert!(again.report().is_whole());
    // Several handles of a pool park it once, with the last.
    let clone = again.clone();
    drop(again);
    assert_ne!(own_pool(shape).as_ptr() as usize, address);
    drop(clone);
    let third = [own_pool(shape), own_pool(shape)];
    assert_ne!(third[0].as_ptr(), third[1].as_ptr());
}

#[test]
fn what_ended_threads_leave_in_their_caches_is_found() {
    let pool = own_pool(2047);
    for _ in 0..8 {
        let pool = pool.clone();
        let worker = thread::spawn(move || {
            lcore::register(eal()).unwrap();
            let mut burst = Burst::new();
            assert!(pool.alloc_burst(&mut burst, 64));
        });
        worker.join().unwrap();
    }
    assert_eq!(pool.report().seen_count, 2047);
}

/// An mbuf that refers to the buffer of another, made as `rte_pktmbuf_attach` does.
fn indirect(pool: &Mempool, direct: NonNull<RawMbuf>) -> NonNull<RawMbuf> {
    let mut raw = pool.alloc().unwrap().into_raw();
    // SAFETY: valid while the test holds a reference to it.
    let direct = unsafe { direct.as_ref() };
    direct.refcnt.fetch_add(1, Relaxed);
    // SAFETY: a fresh mbuf that nobody else has.
    let fields = unsafe { raw.as_mut() };
    (fields.buf_addr, fields.buf_iova) = (direct.buf_addr, direct.buf_iova);
    (fields.buf_len, fields.data_off) = (direct.buf_len, direct.data_off);
    (fields.data_len, fields.pkt_len) = (direct.data_len, direct.pkt_len);
    fields.ol_flags = direct.ol_flags | sys::SH_MBUF_INDIRECT;
    fields.priv_size = direct.priv_size;
    raw
}

/// DPDK's number of a port.
fn number_of(port: &Port) -> u16 {
    let name = std::ffi::CString::new(port.name()).unwrap();
    let mut number = 0;
    // SAFETY: a C string, and a number to write to; no port with a similar name comes or goes in
    // this test meanwhile.
    assert_eq!(unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &mut number) }, 0);
    number
}

#[test]
fn shared_and_indirect_packets_arrive_as_copies() {
    let port = open("net_ring", "");
    let (mut rx, _tx): (RxQueue, TxQueue) = start(&port);
    let (pool, number) = (port.mempool().unwrap(), number_of(&port));
    let payload = frame(3, 100);
    let held = packet(&pool, &payload).into_shared();
    let owner = packet(&pool, &payload);
    // The head of `held`'s clone is sent without the type's knowledge, as a C stage would.
    let clone = held.clone();
    let raw_clone = clone.data().as_ptr();
    // SAFETY: a `SharedMbuf` is the pointer, and this one is given away.
    let shared = unsafe { std::mem::transmute::<SharedMbuf, NonNull<RawMbuf>>(clone) };
    let owner = owner.into_raw();
    let mut sent = [shared.as_ptr(), indirect(&pool, owner).as_ptr(), owner.as_ptr()];
    // SAFETY: three mbufs, given away; nobody else uses the TX queue.
    assert_eq!(unsafe { sys::sh_tx_burst(number, 0, sent.as_mut_ptr(), 3) }, 3);

    let mut burst = Burst::new();
    assert_eq!(rx.poll(&mut burst), 3);
    for mbuf in burst.as_mut_slice() {
        assert_eq!(bytes(mbuf), payload);
        assert_ne!(mbuf.data().as_ptr(), raw_clone);
        mbuf.data_mut().fill(0);
    }
    assert_eq!((held.data(), held.owner_count()), (&payload[..], 1));
    drop((burst, held));
    drop((rx, _tx));
    port.stop().unwrap();
    assert!(pool.report().is_whole(), "{}", pool.report());
}

#[test]
fn a_shared_packet_that_cannot_be_copied_is_counted() {
    let config = MempoolConfig { mbuf_count: 32_719, cache_count: 0, ..Default::default() };
    let pool = Mempool::new(eal(), &config).unwrap();
    let port = open_with("net_ring", "", PortConfig { mempool: Some(pool.clone()), ..small() });
    let (mut rx, tx) = start(&port);
    let number = number_of(&port);
    let held = packet(&pool, b"held").into_shared();
    // SAFETY: a `SharedMbuf` is the pointer, and this one is given away.
    let shared = unsafe { std::mem::transmute::<SharedMbuf, NonNull<RawMbuf>>(held.clone()) };
    let rest = std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>();
    // SAFETY: one mbuf, given away; nobody else uses the TX queue.
    assert_eq!(unsafe { sys::sh_tx_burst(number, 0, &mut shared.as_ptr(), 1) }, 1);
    let mut burst = Burst::new();
    assert_eq!(rx.poll(&mut burst), 0);
    let stats = port.stats().unwrap();
    assert_eq!((stats.received, stats.rx_nombuf), (0, 1));
    drop((rx, tx, rest, burst));
    port.stop().unwrap();
    assert_eq!(port.stats().unwrap().rx_nombuf, 1);
    assert_eq!(held.data(), b"held");
    drop(held);
    assert!(pool.report().is_whole());
}

#[test]
fn handles_have_the_traits_that_keep_them_sound() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Mbuf>();
    send::<(RxQueue, TxQueue, Port, Mempool)>();
    sync::<(Port, Mempool, SharedMbuf)>();
    assert!(ptr::eq(eal().arguments(), eal().arguments()));
    assert_ne!(unique("a"), unique("a"));
}
