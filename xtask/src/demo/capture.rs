//! Reading a capture into memory.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use pcap_file::pcap::PcapReader;

use crate::failure::Failure;

/// The frames of a capture, in its order.
pub fn read(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let file = File::open(path).map_err(Failure::file("can't open", path))?;
    let mut reader =
        PcapReader::new(BufReader::new(file)).map_err(Failure::file("can't read", path))?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(Failure::file("can't read", path))?;
        frames.push(packet.data.into_owned());
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::super::wire;
    use super::*;

    #[test]
    fn the_committed_capture_holds_the_traffic_that_the_demo_needs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/clients.pcap");
        let frames = read(&path).unwrap();
        assert!(frames.len() >= 1_000, "{} packets", frames.len());
        let mut flows: Vec<_> = frames
            .iter()
            .filter_map(|frame| wire::read(frame))
            .map(|read| read.flow)
            .filter(|flow| flow.ports.is_some())
            .collect();
        flows.sort();
        flows.dedup();
        assert!(flows.len() >= 120, "{} directions of flows", flows.len());
        assert!(frames.iter().any(|frame| frame.len() == 1_514), "no full-size packet");
    }

    #[test]
    fn what_is_no_capture_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not.pcap");
        std::fs::write(&path, "not a capture at all, just text").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("not.pcap"), "{message}");
    }
}
