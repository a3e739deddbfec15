//! Reading a capture into memory.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// What a pcap file begins with: of microseconds and of nanoseconds, in little-endian numbers.
const MAGICS: [u32; 2] = [0xA1B2_C3D4, 0xA1B2_3C4D];

/// How long a file's header is, and a record's, in bytes.
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// Where a record's header says how many bytes were captured.
const CAPTURED_BYTES_AT: usize = 8;

/// The frames of a pcap file in little-endian numbers, in its order: such are the committed one and
/// those that the balancer writes. The reader of `hotloop-ops` takes others too, and DPDK to build.
pub fn read(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let file = fs::read(path).map_err(Failure::file("open", path))?;
    let frames = frames(&file);
    frames
        .ok_or_else(|| Failure::failed(format!("can't read {}: not a whole pcap", path.display())))
}

fn frames(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut rest = file
        .get(FILE_HEADER_BYTES..)
        .filter(|_| word(file, 0).is_some_and(|magic| MAGICS.contains(&magic)))?;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let captured_bytes = word(rest, CAPTURED_BYTES_AT)? as usize;
        let (frame, behind) = rest.get(RECORD_HEADER_BYTES..)?.split_at_checked(captured_bytes)?;
        frames.push(frame.to_vec());
        rest = behind;
    }
    Some(frames)
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
