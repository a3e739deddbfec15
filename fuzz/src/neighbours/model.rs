//! The tables, written as plainly as possible.

use super::Mac;
use super::said::{How, Said};
use hotloop::stage::neighbours::Lesson;
use std::collections::BTreeMap;
use std::net::IpAddr;

const MS: u64 = 1_000_000;

/// A neighbour: the port that leads to it, and its address.
type Key = (u16, IpAddr);

#[derive(Default)]
pub struct Model(BTreeMap<Key, Row>);

/// The knowledge about an address that was asked for.
#[derive(Default)]
struct Row {
    /// The last known station, and when it answered.
    at: Option<(Mac, u64)>,
    is_doubted: bool,
    /// When the next question may be asked.
    due_ns: u64,
    /// Questions since the last answer: the number of those to only the station, and whether any
    /// went to all.
    to_one: u32,
    to_all: bool,
}

impl Row {
    /// The station, for a minute after it answered.
    fn known(&self, now_ns: u64) -> Option<Mac> {
        self.at.filter(|(_, since_ns)| now_ns < since_ns + 60_000 * MS).map(|(mac, _)| mac)
    }

    /// Whether an answer is expected.
    const fn is_open(&self, now_ns: u64) -> bool {
        (self.to_one > 0 || self.to_all) && now_ns < self.due_ns + 3_000 * MS
    }

    fn settle(&mut self, mac: Mac, is_doubted: bool, now_ns: u64) {
        let due_ns = self.due_ns.min(now_ns + 400 * MS);
        *self = Self { at: Some((mac, now_ns)), is_doubted, due_ns, ..Self::default() };
    }
}

impl Model {
    /// Records a claim from a trusted source.
    pub fn learn(&mut self, key: Key, mac: Mac, now_ns: u64) {
        self.0.entry(key).or_default().settle(mac, false, now_ns);
    }

    /// The due question: to all, or to one station.
    pub fn ask(&mut self, key: Key, now_ns: u64) -> Option<Option<Mac>> {
        let row = self.0.entry(key).or_default();
        if now_ns < row.due_ns {
            return None;
        }
        let is_late = row.to_one == 1 && now_ns - row.due_ns >= 400 * MS;
        match row.known(now_ns) {
            Some(mac) if row.to_one < 2 && !is_late && !row.to_all => {
                row.to_one += 1;
                row.due_ns = now_ns + 400 * MS;
                Some(Some(mac))
            }
            _ => {
                row.to_all = true;
                row.due_ns = now_ns + 1_000 * MS;
                Some(None)
            }
        }
    }

    pub fn hear(&mut self, port: u16, said: &Said, now_ns: u64) -> Lesson {
        let Some(row) = self.0.get_mut(&(port, said.address)) else { return Lesson::Nothing };
        let is_answer = said.how == How::Answers && row.is_open(now_ns);
        let Some(known) = row.known(now_ns) else {
            let is_request = said.how == How::AsksForUs && row.is_open(now_ns);
            let Some(mac) = said.mac.filter(|_| is_answer || is_request) else {
                return Lesson::Refused;
            };
            let is_other = row.at.is_some_and(|(before, _)| before != mac);
            row.settle(mac, is_request, now_ns);
            return if is_other { Lesson::Changed } else { Lesson::Learned };
        };
        match said.mac {
            Some(mac) if mac != known => {
                if said.how == How::Wrong {
                    return Lesson::Refused;
                }
                if is_answer && row.to_all {
                    row.settle(mac, false, now_ns);
                    return Lesson::Changed;
                }
                let was_doubted = std::mem::replace(&mut row.is_doubted, true);
                if was_doubted { Lesson::Refused } else { Lesson::Doubted }
            }
            _ if is_answer => {
                row.settle(known, false, now_ns);
                Lesson::Confirmed
            }
            _ => Lesson::Nothing,
        }
    }

    /// All known neighbours, in order.
    pub fn known(&self, now_ns: u64) -> Vec<(Key, Mac, u64)> {
        let known = self.0.iter().filter(|(_, row)| row.known(now_ns).is_some());
        known.filter_map(|(key, row)| row.at.map(|(mac, since_ns)| (*key, mac, since_ns))).collect()
    }
}
