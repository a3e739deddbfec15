//! Mbufs as packets: single, in chains and shared.

use crate::common::{bytes, frame, open, packet, receive_all, start, write_pcap};
use hotloop_dpdk::{Error, Mbuf, Mempool, MempoolConfig, SharedMbuf};
use hotloop_packet::answer::{self, IcmpError};
use hotloop_packet::build::udp;
use hotloop_packet::fragment;
use hotloop_packet::memory::MemPacket;
use hotloop_packet::{NoRoom, PacketBuf, Room};
use hotloop_stage::{Burst, Source};
use std::thread;

fn pool() -> Mempool {
    Mempool::new(crate::common::eal(), &MempoolConfig { mbuf_count: 1023, ..Default::default() })
        .unwrap()
}

/// A chain that net_pcap makes of a long frame.
fn chain(len: usize) -> Mbuf {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_pcap(&path, 0, &[frame(7, len)]);
    let port = open("net_pcap", &format!(",rx_pcap={}", path.display()));
    let (mut rx, _tx) = start(&port);
    receive_all(&mut rx).remove(0)
}

/// A chain made by hand, of these parts.
fn chain_of(pool: &Mempool, parts: &[&[u8]]) -> Mbuf {
    let mut segments = parts.iter().map(|part| packet(pool, part).into_raw()).collect::<Vec<_>>();
    let len_bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    for index in 1..segments.len() {
        let next = segments[index];
        // SAFETY: a fresh mbuf with no other owner.
        unsafe { segments[index - 1].as_mut() }.next = next.as_ptr();
    }
    let mut head = segments[0];
    // SAFETY: as above.
    let fields = unsafe { head.as_mut() };
    (fields.nb_segs, fields.pkt_len) = (segments.len() as u16, len_bytes as u32);
    // SAFETY: the chain is valid, exclusive, and given away.
    unsafe { Mbuf::from_raw(head) }
}

/// A small generator, so that a failing round can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn an_mbuf_does_what_a_vector_does() {
    let pool = pool();
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut mbuf = pool.alloc().unwrap();
        let mut model = Vec::new();
        let (mut headroom, mut tailroom) = (128, 2048);
        for step in 0..100 {
            let count = random.below(300);
            let fill = frame(step, count);
            match random.below(4) {
                0 => match mbuf.prepend(count) {
                    Ok(data) => {
                        data[..count].copy_from_slice(&fill);
                        model.splice(..0, fill);
                        headroom -= count;
                    }
                    Err(error) => assert!(no_room(error, count, headroom, Room::Headroom)),
                },
                1 => match mbuf.append(count) {
                    Ok(data) => {
                        data.copy_from_slice(&fill);
                        model.extend(fill);
                        tailroom -= count;
                    }
                    Err(error) => assert!(no_room(error, count, tailroom, Room::Tailroom)),
                },
                2 => match mbuf.trim_front(count) {
                    Ok(()) => {
                        model.drain(..count);
                        headroom += count;
                    }
                    Err(error) => assert!(no_room(error, count, model.len(), Room::Data)),
                },
                _ => {
                    let len = random.below(2300);
                    mbuf.truncate(len);
                    tailroom += model.len().saturating_sub(len);
                    model.truncate(len);
                }
            }
            assert_eq!(mbuf.data(), model, "seed {seed}, step {step}");
            assert_eq!(mbuf.len_bytes(), model.len());
            assert_eq!(mbuf.headroom_bytes(), headroom);
        }
    }
    assert!(pool.report().is_whole());
}

#[test]
fn the_first_places_of_a_fresh_mbuf_are_its_header_and_its_data() {
    let mbuf = packet(&pool(), &frame(7, 60));
    let (data, places) = (mbuf.data().as_ptr(), mbuf.first_places().collect::<Vec<_>>());
    let raw = mbuf.into_raw();
    assert_eq!(places, [raw.as_ptr().cast_const().cast(), data]);
    // SAFETY: 1 to 3. It was an `Mbuf` until now.
    drop(unsafe { Mbuf::from_raw(raw) });
}

#[test]
fn the_later_place_of_an_mbuf_is_where_the_next_one_is_linked() {
    let mbuf = packet(&pool(), &frame(7, 60));
    let place = mbuf.later_place();
    let raw = mbuf.into_raw();
    // SAFETY: 1. The header is initialised, and only this test's.
    let next = unsafe { &raw const (*raw.as_ptr()).next };
    assert_eq!(place, Some(next.cast()));
    // SAFETY: 1 to 3. It was an `Mbuf` until now.
    drop(unsafe { Mbuf::from_raw(raw) });
}

fn no_room(error: NoRoom, wanted_bytes: usize, available_bytes: usize, side: Room) -> bool {
    error == NoRoom { wanted_bytes, available_bytes, side } && wanted_bytes > available_bytes
}

#[test]
fn a_chain_is_cut_anywhere_and_gives_its_segments_back() {
    let whole = frame(7, 5000);
    for len in [5000, 4999, 4225, 4224, 4223, 2049, 2048, 2047, 1, 0] {
        let mut mbuf = chain(5000);
        assert_eq!((mbuf.segment_count(), bytes(&mbuf)), (3, whole.clone()));
        mbuf.truncate(6000);
        mbuf.truncate(len);
        assert_eq!((mbuf.len_bytes(), bytes(&mbuf)), (len, whole[..len].to_vec()));
        // net_pcap needs no headroom in the segments after the first.
        let rest = len.saturating_sub(2048);
        assert_eq!(mbuf.segment_count(), 1 + rest.div_ceil(2176));
        // Whatever it was cut to, it can still grow at its end.
        mbuf.append(3).map(|data| data.copy_from_slice(b"end")).ok();
        assert!(mbuf.len_bytes() >= len);
    }
}

#[test]
fn cutting_never_makes_a_segment_longer() {
    // Queues never pass on such packets: their heads claim more than there is.
    let pool = pool();
    for parts in [&[&[7_u8; 100][..]][..], &[&[7; 100], &[7; 50]]] {
        for len_bytes in [150, 151, 2048, 60_000, 65_535, 65_536, 65_636] {
            let mut raw = chain_of(&pool, parts).into_raw();
            // SAFETY: a chain with no other owner.
            unsafe { raw.as_mut() }.pkt_len = 67_584;
            // SAFETY: none for the length; everything else is unchanged.
            let mut mbuf = unsafe { Mbuf::from_raw(raw) };
            mbuf.truncate(len_bytes);
            let found: Vec<_> = mbuf.segments().map(<[u8]>::len).collect();
            let before: Vec<_> = parts.iter().map(|part| part.len()).collect();
            assert_eq!(found, before, "cut to {len_bytes}");
        }
    }
    assert!(pool.report().is_whole());
}

#[test]
fn a_chain_grows_at_both_ends_and_shrinks_at_its_front() {
    let mut mbuf = chain(4000);
    mbuf.append(5).unwrap().copy_from_slice(b"after");
    mbuf.prepend(6).unwrap()[..6].copy_from_slice(b"before");
    assert_eq!(bytes(&mbuf), [b"before", &frame(7, 4000)[..], b"after"].concat());
    mbuf.trim_front(2000).unwrap();
    assert_eq!(mbuf.len_bytes(), 2011);
    let first = mbuf.data().len();
    let error = mbuf.trim_front(first + 1).unwrap_err();
    assert!(no_room(error, first + 1, first, Room::Data));
    // The rest would fit after the remaining data of the first segment, if that began further in
    // front.
    let error = mbuf.linearize().unwrap_err();
    assert_eq!((error.wanted_bytes, error.available_bytes), (2011 - first, 0));
}

#[test]
fn a_chain_that_fits_becomes_one_segment() {
    let pool = pool();
    let mut mbuf = chain_of(&pool, &[b"one, ", b"two, ", b"", b"three"]);
    assert_eq!((mbuf.segment_count(), mbuf.len_bytes()), (4, 15));
    mbuf.linearize().unwrap();
    assert_eq!((mbuf.segment_count(), mbuf.data()), (1, &b"one, two, three"[..]));
    mbuf.linearize().unwrap();
    mbuf.append(1).unwrap()[0] = b'!';
    assert_eq!(bytes(&mbuf), b"one, two, three!");
    drop(mbuf);
    assert!(pool.report().is_whole());
}

#[test]
fn eight_bytes_travel_with_a_packet() {
    let pool = pool();
    let mut mbuf = packet(&pool, b"data");
    mbuf.set_metadata(*b"metadata");
    assert_eq!((&mbuf.metadata(), mbuf.data()), (b"metadata", &b"data"[..]));
    assert_eq!((mbuf.timestamp_ns(), mbuf.ingress()), (None, None));
    let moved = thread::spawn(move || mbuf.metadata()).join().unwrap();
    assert_eq!(&moved, b"metadata");
    assert!(pool.report().is_whole());
}

#[test]
fn shared_packets_are_read_by_many_and_written_by_the_last() {
    let pool = pool();
    let mut shared = packet(&pool, b"shared").into_shared();
    let clone = shared.clone();
    assert_eq!((shared.owner_count(), clone.data().as_ptr()), (2, shared.data().as_ptr()));
    let shared_again = shared.clone().into_exclusive().unwrap_err();
    drop(shared_again);

    let copy = shared.to_mut().unwrap();
    copy.data_mut()[0] = b'S';
    assert_eq!((shared.data(), clone.data()), (&b"Shared"[..], &b"shared"[..]));
    let own = clone.data().as_ptr();
    let exclusive = clone.into_exclusive().unwrap();
    assert_eq!(exclusive.data().as_ptr(), own);
    drop((exclusive, shared));
    assert!(pool.report().is_whole());
}

#[test]
fn a_shared_chain_is_copied_and_freed_whole() {
    let first = chain(5000).into_shared();
    let mut second = first.clone();
    assert_eq!(second.len_bytes(), 5000);
    second.to_mut().unwrap().truncate(3000);
    assert_eq!((first.len_bytes(), second.len_bytes()), (5000, 3000));
    let mut exclusive = first.into_exclusive().unwrap();
    exclusive.truncate(2000);
    assert_eq!(bytes(&exclusive), frame(7, 2000));
}

#[test]
fn a_copy_is_a_packet_of_its_own_from_the_same_pool() {
    let pool = pool();
    let mut mbuf = packet(&pool, b"some data");
    mbuf.set_metadata(*b"metadata");
    mbuf.prepend(100).unwrap()[..100].fill(b'-');
    let mut copy = mbuf.copied(100, 4).unwrap();
    assert_eq!((copy.data(), &copy.metadata()), (&b"some"[..], b"metadata"));
    assert_eq!((copy.headroom_bytes(), copy.segment_count()), (128, 1));
    copy.data_mut().fill(b'x');
    assert_eq!(mbuf.data()[100..], *b"some data");
    assert_eq!(bytes(&mbuf.copied(0, 109).unwrap()), bytes(&mbuf));
    for (offset_bytes, len_bytes) in
        [(0, 110), (109, 1), (110, 0), (0, 0), (usize::MAX, 2), (1 << 32, 1), (0, 1 << 32)]
    {
        assert!(mbuf.copied(offset_bytes, len_bytes).is_none(), "{offset_bytes} {len_bytes}");
    }
    // The copy has one owner.
    let shared = copy.into_shared();
    assert_eq!(shared.owner_count(), 1);
    drop((mbuf, shared));
    assert!(pool.report().is_whole());
}

#[test]
fn copies_are_made_over_segments() {
    let (mbuf, whole) = (chain(5000), frame(7, 5000));
    for (offset_bytes, len_bytes, segment_count) in
        [(0, 5000, 3), (2000, 100, 1), (2047, 2, 1), (2048, 2952, 2), (4999, 1, 1), (1, 2047, 1)]
    {
        let mut copy = mbuf.copied(offset_bytes, len_bytes).unwrap();
        assert_eq!(bytes(&copy), whole[offset_bytes..offset_bytes + len_bytes]);
        assert_eq!((copy.segment_count(), copy.len_bytes()), (segment_count, len_bytes));
        assert_eq!(copy.timestamp_ns(), mbuf.timestamp_ns());
        copy.append(1).unwrap()[0] = 1;
        copy.prepend(128).unwrap();
        copy.truncate(10);
    }
    assert!(mbuf.timestamp_ns().is_some());
    assert_eq!(bytes(&mbuf), whole);
}

#[test]
fn a_chain_is_split_into_fragments() {
    let pool = pool();
    let whole = udp().payload(frame(7, 3000)).build();
    let parts = [&whole[..100], &whole[100..1000], &whole[1000..]];
    let mut pieces = Vec::new();
    fragment::split(chain_of(&pool, &parts), 1460, |piece| pieces.push(piece)).unwrap();
    let mut expected = Vec::new();
    let plain = MemPacket::new(&whole);
    fragment::split(plain, 1460, |piece| expected.push(piece.data().to_vec())).unwrap();
    assert_eq!(pieces.iter().map(bytes).collect::<Vec<_>>(), expected);
    drop(pieces);
    assert!(pool.report().is_whole());
}

#[test]
fn a_chain_is_answered() {
    let pool = pool();
    let whole = udp().ttl(1).payload(frame(7, 900)).build();
    let mut mbuf = chain_of(&pool, &[&whole[..700], &whole[700..]]);
    let from = std::net::Ipv4Addr::new(192, 0, 2, 1);
    answer::icmp_error(&mut mbuf, from, IcmpError::TimeExceeded).unwrap();
    let mut expected = MemPacket::new(&whole);
    answer::icmp_error(&mut expected, from, IcmpError::TimeExceeded).unwrap();
    assert_eq!((mbuf.segment_count(), bytes(&mbuf)), (1, expected.data().to_vec()));
    drop(mbuf);
    assert!(pool.report().is_whole());
}

#[test]
fn many_threads_clone_and_drop_one_packet() {
    let pool = pool();
    for _ in 0..200 {
        let shared = packet(&pool, &[42; 1000]).into_shared();
        let threads = [(); 4].map(|()| {
            let mine = shared.clone();
            thread::spawn(move || {
                let clones = vec![mine; 50];
                assert!(clones.iter().all(|clone| clone.data() == [42; 1000]));
            })
        });
        // A packet shared by reference can be cloned by many at once, too.
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| drop(vec![shared.clone(); 50]));
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let mut exclusive = shared.into_exclusive().expect("the others are gone");
        exclusive.data_mut().fill(0);
    }
    assert!(pool.report().is_whole());
}

#[test]
fn an_empty_pool_says_so() {
    let config = MempoolConfig { mbuf_count: 63, cache_count: 0, ..Default::default() };
    let pool = Mempool::new(crate::common::eal(), &config).unwrap();
    let mut held = std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>();
    assert_eq!(held.len(), 63);
    let mut burst = Burst::new();
    assert!(!pool.alloc_burst(&mut burst, 1) && pool.alloc_burst(&mut burst, 0));
    held[0].append(1).unwrap();
    assert!(held[0].copied(0, 1).is_none());
    let mut shared = held.pop().unwrap().into_shared();
    let clone = shared.clone();
    assert_eq!(shared.to_mut().unwrap_err(), Error::MempoolEmpty);
    drop((shared, clone));
    held.truncate(30);
    assert!(!pool.alloc_burst(&mut burst, 34));
    assert!(pool.alloc_burst(&mut burst, 33));
    assert_eq!(burst.len(), 33);
    assert!(!pool.alloc_burst(&mut burst, 32), "the burst has room for 31");
    drop((held, burst));
    assert!(pool.report().is_whole());
}

#[test]
fn a_packet_may_have_32768_owners() {
    let pool = pool();
    let shared = packet(&pool, b"popular").into_shared();
    let clones = vec![shared.clone(); 32_767];
    assert_eq!(shared.owner_count(), 32_768);
    let too_many = std::panic::catch_unwind(|| shared.clone());
    assert!(too_many.is_err());
    assert_eq!(shared.owner_count(), 32_768);
    drop(clones);
    assert!(shared.into_exclusive().is_ok());
}

#[test]
fn packets_outlive_their_port_and_its_pool() {
    let port = open("net_null", "");
    let (mut rx, tx) = start(&port);
    let mut burst = Burst::new();
    assert_eq!(rx.poll(&mut burst), 64);
    let kept = burst.pop().unwrap().into_shared();
    let pool = port.mempool().unwrap();
    drop((port, rx, tx));
    for mbuf in burst.as_mut_slice() {
        mbuf.data_mut().fill(1);
    }
    let other: SharedMbuf = kept.clone();
    thread::spawn(move || drop((other, burst))).join().unwrap();
    assert_eq!(pool.report().seen_count + 1, pool.config().mbuf_count);
    drop(kept);
    assert!(pool.report().is_whole());
}
