//! A set of UDP ports.

use hotloop::packet::port_range::PortRange;
use std::fmt;
use std::str::FromStr;

/// A set of UDP ports: 1 to 65535.
#[derive(Clone)]
pub struct Ports {
    /// A bit for each of the 65,536 ports.
    words: Box<[u64; 1024]>,
    text: String,
}

/// A text that names no ports.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{part}\" is no port: write numbers from 1 to 65535 and ranges, such as 53,8000-8099")]
pub struct BadPorts {
    /// The malformed part.
    pub part: String,
}

impl Ports {
    /// Whether the port is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.words[usize::from(port >> 6)] & 1 << (port & 63) != 0
    }

    /// The lowest port of the set.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.all()[0]
    }

    /// All ports of the set, in ascending order.
    #[must_use]
    pub fn all(&self) -> Vec<u16> {
        (1..=u16::MAX).filter(|port| self.contains(*port)).collect()
    }
}

impl FromStr for Ports {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        let mut words = Box::new([0_u64; 1024]);
        for part in text.split(',') {
            let range: Result<PortRange, _> = part.trim().parse();
            let range = range.map_err(|_| BadPorts { part: part.to_owned() })?;
            for port in range.first()..=range.last() {
                words[usize::from(port >> 6)] |= 1 << (port & 63);
            }
        }
        Ok(Self { words, text: text.to_owned() })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ports").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges() {
        let ports: Ports = "53, 8000-8099,65535".parse().unwrap();
        let expected: Vec<_> = [53].into_iter().chain(8000..8100).chain([65535]).collect();
        assert_eq!(ports.all(), expected);
        assert_eq!(ports.to_string(), "53, 8000-8099,65535");
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for text in ["", "0", "65536", "8-7", "-8", "8-", "a", "53,,54", "1-2-3"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
