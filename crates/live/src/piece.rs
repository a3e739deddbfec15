//! Pieces of a capture's file on its stream.

use std::io;

/// The longest piece that is sent, in bytes, unless a single block is longer.
pub const PIECE_BYTES: usize = 64 << 10;

/// The longest piece that a client takes, in bytes.
const PIECE_BYTES_MAX: u32 = 16 << 20;

/// The length of a piece as it is sent before the piece; 0 ends the file.
pub const fn length(piece: &[u8]) -> [u8; 4] {
    (piece.len() as u32).to_le_bytes()
}

/// Reads the next piece of the file with `read_exact`. Returns `None` at the end of the file.
///
/// # Errors
/// Those of `read_exact`, and [`InvalidData`](io::ErrorKind::InvalidData) if the piece is too long.
pub fn read_piece(
    read_exact: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > PIECE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece is too long"));
    }
    let mut piece = vec![0; length as usize];
    read_exact(&mut piece)?;
    Ok((length > 0).then_some(piece))
}
