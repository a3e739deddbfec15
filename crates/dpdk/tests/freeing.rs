//! Batches of mbufs that return to their pools: for every kind of pool, and beside mbufs that can't
//! be batched.

use crate::common::{eal, open_with, packet, start, unique};
use hotloop_dpdk::{Mbuf, Mempool, MempoolConfig, PortConfig, lcore};
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_stage::{Burst, Sink, Source, Tagged};
use std::ffi::CString;
use std::ptr::NonNull;

/// A pool of a shape that no other test uses.
fn own_pool(mbuf_count: u32, contiguous: bool) -> Mempool {
    let config = MempoolConfig { mbuf_count, contiguous, cache_count: 32, ..Default::default() };
    Mempool::new(eal(), &config).unwrap()
}

/// Fills a burst with packets, drops them with `clear`, and checks after every round that all are
/// back.
fn round_trips(pool: &Mempool, fill: impl Fn(&mut Burst<Mbuf>)) {
    // With the cache of an lcore.
    lcore::register(eal()).unwrap();
    for round in 0..100 {
        let mut burst = Burst::new();
        fill(&mut burst);
        assert!(!burst.is_empty());
        burst.clear();
        assert!(burst.is_empty());
        assert!(pool.report().is_whole(), "round {round}: {}", pool.report());
    }
}

#[test]
fn bursts_of_all_lengths_return_to_packed_and_to_contiguous_pools() {
    for contiguous in [false, true] {
        let pool = own_pool(1021 + u32::from(contiguous), contiguous);
        for count in 1..=64 {
            round_trips(&pool, |burst| assert!(pool.alloc_burst(burst, count)));
        }
    }
}

/// A chain of three, with the first from another pool than the others.
fn chain(first: &Mempool, others: &Mempool) -> Mbuf {
    let mut rest = None::<NonNull<RawMbuf>>;
    for (index, pool) in [others, others, first].into_iter().enumerate() {
        let mut raw = packet(pool, &[7; 50]).into_raw();
        // SAFETY: a fresh mbuf with no other owner.
        let fields = unsafe { raw.as_mut() };
        fields.next = rest.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        (fields.nb_segs, fields.pkt_len) = (index as u16 + 1, 50 * (index as u32 + 1));
        rest = Some(raw);
    }
    // SAFETY: a chain that is valid, exclusive, and given away.
    unsafe { Mbuf::from_raw(rest.unwrap()) }
}

/// An mbuf that refers to another's buffer and is its only user, in the state that
/// `rte_pktmbuf_attach` leaves. No `Mbuf` is like that: RX copies such packets.
fn attached(pool: &Mempool) -> Mbuf {
    let mut raw = pool.alloc().unwrap().into_raw();
    let direct = packet(pool, &[9; 80]).into_raw();
    // SAFETY: valid, and owned by this test only.
    let direct = unsafe { direct.as_ref() };
    // SAFETY: as above.
    let fields = unsafe { raw.as_mut() };
    (fields.buf_addr, fields.buf_iova) = (direct.buf_addr, direct.buf_iova);
    (fields.buf_len, fields.data_off) = (direct.buf_len, direct.data_off);
    (fields.data_len, fields.pkt_len) = (direct.data_len, direct.pkt_len);
    fields.ol_flags = direct.ol_flags | sys::SH_MBUF_INDIRECT;
    fields.priv_size = direct.priv_size;
    // SAFETY: valid, and given away. The buffer's mbuf is counted once, by this one.
    unsafe { Mbuf::from_raw(raw) }
}

#[test]
fn of_a_mixed_burst_each_mbuf_returns_to_its_own_pool() {
    let (one, other) = (own_pool(509, false), own_pool(511, true));
    let mut held = Vec::new();
    round_trips(&one, |burst| {
        for _ in 0..8 {
            burst.push(packet(&one, b"one"));
            burst.push(packet(&other, b"other"));
            burst.push(chain(&one, &other));
            burst.push(attached(&one));
            burst.push(packet(&other, b"other"));
            burst.push(chain(&other, &one));
            burst.push(attached(&other));
            burst.push(packet(&one, b"one"));
        }
    });
    assert!(other.report().is_whole(), "{}", other.report());

    // Packets with other owners stay with them.
    let mut shared = Burst::new();
    for number in 0..32 {
        let packet = packet(&one, &[number; 60]).into_shared();
        held.push(packet.clone());
        shared.push(packet);
    }
    drop(shared);
    assert_eq!(one.config().mbuf_count - one.report().seen_count, 32);
    for (number, packet) in held.iter().enumerate() {
        assert_eq!((packet.owner_count(), packet.data()), (1, &[number as u8; 60][..]));
    }
    drop(held);
    assert!(one.report().is_whole(), "{}", one.report());
}

#[test]
fn one_mbuf_that_differs_from_the_others_is_seen_wherever_it_stands() {
    let (one, other) = (own_pool(505, false), own_pool(503, true));
    let strays: [fn(&Mempool, &Mempool) -> Mbuf; 4] = [
        |_, other| packet(other, b"other"),
        |one, other| chain(one, other),
        |one, _| attached(one),
        |_, other| attached(other),
    ];
    for stray in strays {
        for place in 0..64 {
            let mut burst = Burst::new();
            burst.extend((0..64).map(|at| match at == place {
                true => stray(&one, &other),
                false => packet(&one, b"one"),
            }));
            burst.clear();
            for pool in [&one, &other] {
                assert!(pool.report().is_whole(), "at {place}: {}", pool.report());
            }
        }
    }
}

#[test]
fn tagged_packets_return_together_too() {
    let pool = own_pool(507, false);
    for _ in 0..100 {
        let mut burst = Burst::new();
        burst.extend((0..64).map(|_| Tagged::new(packet(&pool, b"tagged"), 7_u64)));
        // Packets taken before are not dropped again.
        let taken = [burst.pop(), burst.pop()];
        burst.clear();
        assert_eq!(pool.config().mbuf_count - pool.report().seen_count, 2);
        drop(taken);
        assert!(pool.report().is_whole(), "{}", pool.report());
    }
}

#[test]
fn a_pool_that_two_ports_share_is_whole_after_packets_of_both() {
    let pool = own_pool(4095, false);
    let config = || PortConfig {
        mempool: Some(pool.clone()),
        rx_descriptor_count: 256,
        tx_descriptor_count: 256,
        ..Default::default()
    };
    let mut ends = ["net_ring", "net_null"].map(|driver| {
        let port = open_with(driver, "", config());
        let (rx, tx) = start(&port);
        (port, rx, tx)
    });
    let mut burst = Burst::new();
    for _ in 0..100 {
        for (_, rx, tx) in &mut ends {
            let mut sent = Burst::new();
            assert!(pool.alloc_burst(&mut sent, 16));
            assert_eq!(tx.send(&mut sent), 16);
            burst.set_limit(burst.len() + 16);
            assert!(rx.poll(&mut burst) > 0);
        }
        assert_eq!(burst.len(), 32);
        burst.clear();
    }
    drop(burst);
    for (port, rx, tx) in ends {
        drop((rx, tx));
        port.stop().unwrap();
    }
    assert!(pool.report().is_whole(), "{}", pool.report());
}

/// Foreign pools have other operations. A driver may hand out their mbufs.
#[test]
fn mbufs_return_to_pools_of_other_operations() {
    for operations in ["stack", "lf_stack", "ring_mp_mc", "ring_mt_rts", "ring_mt_hts"] {
        let name = CString::new(unique("operations")).unwrap();
        let named = CString::new(operations).unwrap();
        eal();
        // SAFETY: EAL is initialised, and both are C strings.
        let pool = unsafe {
            let (name, named) = (name.as_ptr(), named.as_ptr());
            sys::rte_pktmbuf_pool_create_by_ops(
                name,
                511,
                32,
                0,
                2176,
                sys::SH_SOCKET_ID_ANY,
                named,
            )
        };
        assert!(!pool.is_null(), "{operations}");
        // SAFETY: the pool lives.
        let free_count = || unsafe { sys::rte_mempool_avail_count(pool) };
        assert_eq!(free_count(), 511);
        for count in 1..=64_u32 {
            let mut raws = vec![std::ptr::null_mut(); count as usize];
            // SAFETY: the pool lives, and there is room for `count` pointers.
            assert_eq!(unsafe { sys::sh_mbuf_alloc_bulk(pool, raws.as_mut_ptr(), count) }, 0);
            let mut burst = Burst::new();
            // SAFETY: fresh mbufs of a pool that is never freed and that any thread may use.
            burst.extend(
                raws.iter().map(|raw| unsafe { Mbuf::from_raw(NonNull::new(*raw).unwrap()) }),
            );
            assert_eq!(free_count(), 511 - count);
            burst.clear();
            assert_eq!(free_count(), 511, "{operations}, {count}");
        }
    }
}
