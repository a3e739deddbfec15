//! The zone: the names that exist, and their records in the form of messages (RFC 1035).

use std::collections::HashMap;
use std::net::IpAddr;

/// The response codes for names that do not exist, and for those of other zones.
pub const NO_SUCH_NAME: u8 = 3;
const REFUSED: u8 = 5;

/// The names of a zone in the form of messages (section 3.1), in lower case. Each is a key without
/// records; together with a type and a class, as in a question, it is the key of its records: their
/// number, and their bytes in an answer.
#[derive(Debug, Default)]
pub struct Zone(HashMap<Vec<u8>, (u16, Vec<u8>)>);

impl Zone {
    /// Reads lines of a name, a TTL in seconds, and an IPv4 or IPv6 address. The first name is that of
    /// the zone, and the others are below it. A comment begins with `;`.
    ///
    /// # Errors
    /// The number of the line that can't be read, with a remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut zone, mut apex_bytes) = (Self::default(), None);
        let lines = text.lines().map(|line| line.split(';').next().unwrap_or_default());
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = || format!("line {}: write NAME TTL ADDRESS, not {line:?}", index + 1);
            let (name, ttl_s, address) = read(line).ok_or_else(wrong)?;
            let apex_bytes = *apex_bytes.get_or_insert(name.len());
            // The parents of a name exist without records of their own (RFC 8020).
            for parent in parents(&name).take_while(|parent| parent.len() >= apex_bytes) {
                zone.0.entry(parent.to_vec()).or_default();
            }
            let (kind, record) = record(ttl_s, address);
            let (count, records) = zone.0.entry([&name[..], &kind].concat()).or_default();
            *count += 1;
            records.extend(record);
        }
        Ok(zone)
    }

    /// The number of records for a question in lower case, a name with its type and class, and their
    /// bytes in an answer.
    ///
    /// # Errors
    /// The response code, if there is no such name.
    pub fn find(&self, question: &[u8]) -> Result<(u16, &[u8]), u8> {
        let (name, _) = question.split_last_chunk::<4>().ok_or(REFUSED)?;
        match self.0.get(question).or_else(|| self.0.get(name)) {
            Some((count, records)) => Ok((*count, records)),
            None if parents(name).any(|parent| self.0.contains_key(parent)) => Err(NO_SUCH_NAME),
            None => Err(REFUSED),
        }
    }
}

/// The fields of a line.
fn read(line: &str) -> Option<(Vec<u8>, u32, IpAddr)> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [name, ttl_s, address] = fields[..] else { return None };
    Some((wire(name)?, ttl_s.parse().ok()?, address.parse().ok()?))
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
fn record(ttl_s: u32, address: IpAddr) -> ([u8; 4], Vec<u8>) {
    let (kind, data) = match address {
        IpAddr::V4(address) => ([0, 1, 0, 1], address.octets().to_vec()),
        IpAddr::V6(address) => ([0, 28, 0, 1], address.octets().to_vec()),
    };
    let length = [0, data.len() as u8];
    (kind, [&[0xc0, 12], &kind[..], &ttl_s.to_be_bytes(), &length, &data].concat())
}
