//! A frame outside the engine: bytes on a wire.

/// The bytes of a frame and when they were captured.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Frame {
    /// The bytes, from the Ethernet header on, without the frame check sequence.
    pub bytes: Vec<u8>,
    /// When the frame was captured, in nanoseconds since the epoch, if known.
    pub timestamp_ns: Option<u64>,
}

impl Frame {
    /// A frame of these bytes without a time.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), timestamp_ns: None }
    }

    /// The frame, captured at this time: nanoseconds since the epoch.
    #[must_use]
    pub fn captured_at(mut self, timestamp_ns: u64) -> Self {
        self.timestamp_ns = Some(timestamp_ns);
        self
    }
}

impl<B: Into<Vec<u8>>> From<B> for Frame {
    fn from(bytes: B) -> Self {
        Self::new(bytes)
    }
}
