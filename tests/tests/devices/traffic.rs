//! Frames of many flows, in files.

use hotloop::packet::build::{arp_request, echo_request, tcp, udp};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::{
    classify::{Depth, classify_packet},
    seed::Seed,
};
use hotloop::stage::Tagged;
use hotloop::testing::{Frame, Rng};
use hotloop_capture::{read_frames, write_frames};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The network function's seed for classification.
pub const SEED: u64 = 7;

const FLOW_COUNT: usize = 200;

/// Frames of 200 flows in a random order, numbered within their flow, of 60 to 3,000 bytes: some in
/// one mbuf, some in two. Some are dropped, at least one for each reason.
pub fn frames(count: usize) -> Vec<Frame> {
    let mut rng = Rng::seeded(SEED);
    let mut numbers = [0_u32; FLOW_COUNT];
    let mut frame = |index: usize| match index % 50 {
        20 => arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        21 => vec![0xff; 60],
        22 => udp().ttl(1).payload((index as u64).to_be_bytes()).build(),
        _ => {
            let flow = rng.index(FLOW_COUNT);
            numbers[flow] += 1;
            let mut payload = numbers[flow].to_be_bytes().to_vec();
            payload.resize(4 + rng.index(2900), flow as u8);
            let host = flow % 100 + 1;
            match flow % 4 {
                0 => udp().from(format!("198.51.100.{host}:{}", 1000 + flow)),
                1 => tcp().from(format!("198.51.100.{host}:{}", 1000 + flow)),
                2 => udp().from(format!("[2001:db8:c::{host}]:{}", 1000 + flow)),
                _ => echo_request(flow as u16, 1).from(format!("198.51.100.{host}")),
            }
            .payload(payload)
            .build()
        }
    };
    (0..count).map(|index| Frame::new(frame(index)).captured_at(1_000_000 * index as u64)).collect()
}

/// The shard of a frame: only its upper half matters.
fn shard(frame: &Frame) -> u32 {
    let packet = MemPacket::new(&frame.bytes);
    let layout = classify_packet(&packet, Depth::Innermost, &Seed::new(SEED));
    Tagged::new(packet, layout).shard()
}

/// IP frames by their two addresses, in order: flows, which are finer than that, are then in order,
/// too.
pub fn by_addresses(frames: impl IntoIterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut pairs = BTreeMap::<_, Vec<_>>::new();
    for frame in frames {
        let key = if frame[12..14] == [0x86, 0xdd] { &frame[22..54] } else { &frame[26..34] };
        pairs.entry(key.to_vec()).or_default().push(frame);
    }
    pairs
}

/// Writes the frames to `file_count` files in a folder: frames of one shard go into the same file,
/// as with RSS, but not by the rule that assigns shards to owners.
pub fn split(folder: &Path, frames: &[Frame], file_count: usize) -> Vec<PathBuf> {
    let write = |index: usize| {
        let path = folder.join(format!("in{index}.pcap"));
        let own = frames.iter().filter(|frame| (shard(frame) >> 16) as usize % file_count == index);
        write_frames(&path, own.map(|frame| &frame.bytes)).expect("the folder can be written to");
        path
    };
    (0..file_count).map(write).collect()
}

/// The frames of a file that a device wrote.
pub fn read(path: &Path) -> Vec<Vec<u8>> {
    read_frames(path).unwrap_or_else(|error| panic!("{error}"))
}
