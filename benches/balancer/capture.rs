//! A capture of packets to the services.

use hotloop::packet::PacketBuf;
use hotloop_benches::peers::buffer::Buffer;
use hotloop_benches::peers::lines::Random;
use hotloop_benches::traffic::{ACK, Sizes, Writer};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// libpcap's file header: microseconds, version 2.4, frames of up to 64 KiB, Ethernet.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1];

/// Writes one frame of each of `flow_count` flows, in random order.
///
/// # Errors
/// Any error of writing.
pub fn write(path: &Path, flow_count: u32, service_count: u32) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    put(&mut file, &HEADER)?;
    let mut writer = Writer::new(Sizes::Small, service_count);
    let mut buffer = Buffer::new();
    for (index, flow) in shuffled(flow_count).into_iter().enumerate() {
        writer.write(&mut buffer, flow, ACK);
        let len_bytes = buffer.len_bytes() as u32;
        let time_us = index as u32;
        put(&mut file, &[time_us / 1_000_000, time_us % 1_000_000, len_bytes, len_bytes])?;
        // The payload's bytes that the builder leaves are the buffer's: zeroes.
        file.write_all(buffer.data())?;
    }
    file.flush()
}

fn put(file: &mut impl Write, words: &[u32]) -> io::Result<()> {
    words.iter().try_for_each(|word| file.write_all(&word.to_ne_bytes()))
}

/// The numbers below `count`, each once.
fn shuffled(count: u32) -> Vec<u32> {
    let mut random = Random::seeded(3);
    let mut numbers: Vec<_> = (0..count).collect();
    for index in 1..count {
        numbers.swap(index as usize, random.below(index + 1) as usize);
    }
    numbers
}
