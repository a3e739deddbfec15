//! The zone: the names that exist, and their records in the form of messages (RFC 1035).

use std::collections::HashMap;
use std::net::IpAddr;

/// A record: its type and class as a question has them, and its bytes in an answer.
pub type Record = ([u8; 4], Vec<u8>);

/// The names of a zone in the form of messages (section 3.1), in lower case, with their records.
#[derive(Debug, Default)]
pub struct Zone(HashMap<Vec<u8>, Vec<Record>>);

impl Zone {
    /// Reads lines of a name, a TTL in seconds, and an IPv4 or IPv6 address. The first name is that of
    /// the zone, and the others are below it. A comment begins with `;`.
    ///
    /// # Errors
    /// The number of the line that can't be read, with a remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut zone, mut apex) = (Self::default(), None);
        for (index, line) in text.lines().enumerate() {
            let line = line.split(';').next().unwrap_or_default();
            let wrong = || format!("line {}: write NAME TTL ADDRESS, not {line:?}", index + 1);
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                [name, ttl_s, address] => {
                    let name = wire(name).ok_or_else(wrong)?;
                    let apex = apex.get_or_insert_with(|| name.clone());
                    let ttl_s = ttl_s.parse().map_err(|_| wrong())?;
                    zone.add(apex, name, record(ttl_s, address.parse().map_err(|_| wrong())?));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(zone)
    }

    /// Adds a record, and the name's parents, which exist without records of their own (RFC 8020).
    fn add(&mut self, apex: &[u8], name: Vec<u8>, record: Record) {
        for parent in parents(&name).take_while(|parent| parent.len() >= apex.len()) {
            self.0.entry(parent.to_vec()).or_default();
        }
        self.0.entry(name).or_default().push(record);
    }

    /// The records of a name in lower case. `None` if there is no such name.
    pub fn records(&self, name: &[u8]) -> Option<&[Record]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Whether a name that doesn't exist is below one that does.
    pub fn is_above(&self, name: &[u8]) -> bool {
        parents(name).any(|parent| self.0.contains_key(parent))
    }
}

/// A name in the form of messages.
fn wire(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_valid = text.len() < 254 && text.split('.').all(|label| (1..64).contains(&label.len()));
    let label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
    is_valid.then(|| text.split('.').flat_map(label).chain([0]).collect())
}

/// A name, its parent, and so on to the last label.
fn parents(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| name.get(usize::from(*name.first()?) + 1..))
}

/// A record of type A or AAAA, class IN. In place of its name it has a pointer to the question, which
/// an answer holds at offset 12 (section 4.1.4).
fn record(ttl_s: u32, address: IpAddr) -> Record {
    let (kind, data) = match address {
        IpAddr::V4(address) => ([0, 1, 0, 1], address.octets().to_vec()),
        IpAddr::V6(address) => ([0, 28, 0, 1], address.octets().to_vec()),
    };
    let length = [0, data.len() as u8];
    (kind, [&[0xc0, 12], &kind[..], &ttl_s.to_be_bytes(), &length, &data].concat())
}
