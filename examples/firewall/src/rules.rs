//! Rules: which packets may open a connection.

use crate::packet::Side;
use hotloop::packet::port_range::PortRange;
use hotloop::packet::prefix::Prefix;
use hotloop::prelude::FlowKey;
use hotloop::stage::Counter;
use serde::Deserialize;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The fate of packets that a rule matches.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It passes, and may open a connection.
    Allow,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender gets a TCP reset or an ICMP error.
    Reject,
}

/// The protocols of rules, by their numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Icmp = 1,
    Tcp = 6,
    Udp = 17,
    Gre = 47,
    Esp = 50,
    Icmpv6 = 58,
}

/// A rule of the file. A field that it leaves out matches any packet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// Its name in metrics and listings, which no other rule has.
    pub name: String,
    /// The fate of the packets that it matches.
    pub action: Action,
    from: Side,
    #[serde(default)]
    source: Vec<Prefix>,
    #[serde(default)]
    destination: Vec<Prefix>,
    protocol: Option<Protocol>,
    #[serde(default)]
    source_ports: Vec<PortRange>,
    #[serde(default)]
    destination_ports: Vec<PortRange>,
    /// The packets that it was the first to match, for each core. Those of connections that are open
    /// match no rule.
    #[serde(skip)]
    counts: Arc<[Counter]>,
}

/// The rules of a file, the first first. Without a match, a packet is dropped.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// In the order of the file.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

impl Rules {
    /// Reads a file, as [`parse`](Self::parse) reads its text.
    ///
    /// # Errors
    /// It can't be read, or is wrong.
    pub fn read(path: &Path, core_count: usize, before: &Self) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let rules = text.and_then(|text| Self::parse(&text, core_count, before));
        rules.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the text of a file, for this number of cores. The rules go on with the counts of those
    /// with the same names `before`.
    ///
    /// # Errors
    /// The text is wrong: the message names the line or the rule.
    pub fn parse(text: &str, core_count: usize, before: &Self) -> Result<Self, String> {
        let mut rules: Self = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        let mut names = HashSet::new();
        for rule in &mut rules.rules {
            let (name, has_ports) = (&rule.name, rule.has_ports());
            if !names.insert(name.clone()) {
                return Err(format!("two rules are named {name:?}: give each a name of its own"));
            }
            // The identifier of an echo is no port, although it is in a key's ports.
            if has_ports && !matches!(rule.protocol, Some(Protocol::Tcp | Protocol::Udp)) {
                return Err(format!("rule {name:?} has ports: set protocol to \"tcp\" or \"udp\""));
            }
            let same = before.rules.iter().find(|it| it.name == *name);
            let new_counts = || (0..core_count).map(|_| Counter::default()).collect();
            rule.counts = same.map_or_else(new_counts, |same| Arc::clone(&same.counts));
        }
        Ok(rules)
    }

    /// The first rule for a packet from `side` with this key.
    pub fn first_match(&self, side: Side, key: &FlowKey) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(side, key))
    }
}

impl Rule {
    const fn has_ports(&self) -> bool {
        !(self.source_ports.is_empty() && self.destination_ports.is_empty())
    }

    fn matches(&self, side: Side, key: &FlowKey) -> bool {
        self.from == side
            && self.protocol.is_none_or(|protocol| protocol as u8 == key.protocol())
            && has(&self.source, |prefix| prefix.contains(key.source()))
            && has(&self.destination, |prefix| prefix.contains(key.destination()))
            && has(&self.source_ports, |ports| ports.contains(key.source_port()))
            && has(&self.destination_ports, |ports| ports.contains(key.destination_port()))
    }

    /// Counts a packet that the rule matches, on the core with this number.
    pub fn count_on(&self, core: usize) {
        if let Some(count) = self.counts.get(core) {
            count.add(1);
        }
    }

    /// The packets that the rule has matched, on all cores.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(Counter::count).sum()
    }
}

/// The error on one line, as messages have it.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: {}", before.matches('\n').count() + 1, error.message())
}

/// Whether `is_it` holds for something in the list. An empty list stands for everything.
fn has<T: Copy>(list: &[T], is_it: impl Fn(T) -> bool) -> bool {
    list.is_empty() || list.iter().any(|one| is_it(*one))
}
