//! Bytes as a script of steps.

/// The remaining bytes.
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A frame: its length in two bytes, then up to that many bytes.
    pub fn frame(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (frame, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        self.0 = rest;
        Some(frame.to_vec())
    }
}
