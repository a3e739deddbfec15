//! Ranges of TCP and UDP ports.

use crate::excerpt::excerpt;
use std::fmt;
use std::str::FromStr;

/// TCP or UDP ports from a first to a last one, both included. Port 0, which stands for "no ports" in
/// a [`FlowKey`](crate::flow_key::FlowKey), is in no range.
///
/// ```
/// use hotloop_packet::port_range::PortRange;
///
/// let high: PortRange = "1024-65535".parse()?;
/// assert!(high.contains(1024) && !high.contains(80));
/// assert_eq!("80".parse::<PortRange>()?.to_string(), "80");
/// let error = "90-80".parse::<PortRange>().unwrap_err();
/// assert_eq!(error.to_string(), "\"90-80\" is not a port or range; write 80 or 8000-8999, with ports from 1 to 65535, the lower first");
/// # Ok::<(), hotloop_packet::port_range::PortRangeError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortRange {
    /// Invariant: not 0.
    first: u16,
    /// Invariant: at least `first`.
    last: u16,
}

/// A text that isn't a range of ports.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "\"{text}\" is not a port or range; write 80 or 8000-8999, with ports from 1 to 65535, the lower first"
)]
pub struct PortRangeError {
    /// The text, or its beginning.
    pub text: String,
}

impl PortRange {
    /// Returns the range of these ports, or `None` if `first` is 0 or above `last`.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last { None } else { Some(Self { first, last }) }
    }

    /// The lowest port.
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether `port` is in the range.
    ///
    /// Compare the protocol before a port of a [`FlowKey`](crate::flow_key::FlowKey): both ports of
    /// an echo's key are its identifier, which a range for TCP or UDP would take for a port.
    #[inline]
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| {
            let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = port(first).zip(port(last)).and_then(|(first, last)| Self::new(first, last));
        range.ok_or_else(|| PortRangeError { text: excerpt(text) })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends() {
        for (text, first, last) in [("1", 1, 1), ("80", 80, 80), ("8000-8999", 8000, 8999)] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!((range.first(), range.last()), (first, last));
            assert_eq!(range.to_string(), text);
            assert!(range.contains(first) && range.contains(last));
            assert!(!range.contains(first - 1) && !range.contains(last + 1) && !range.contains(0));
        }
        assert_eq!("80-80".parse::<PortRange>(), "80".parse());
        assert!("1-65535".parse::<PortRange>().unwrap().contains(u16::MAX));
        assert_eq!((PortRange::new(0, 1), PortRange::new(2, 1)), (None, None));
    }

    #[test]
    fn text_that_is_not_a_range_is_refused_with_an_example() {
        for text in
            ["", "0", "0-1", "65536", "000080", "8-7", "-8", "8-", "+8", "8 - 9", "any", "1-2-3"]
        {
            let message = text.parse::<PortRange>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("\"{text}\" is not")), "{message}");
            assert!(message.contains("write 80 or 8000-8999"), "{message}");
        }
    }
}
