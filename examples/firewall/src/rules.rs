//! Rules: which packets may open a connection.

use crate::side::Side;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::port_range::PortRange;
use hotloop::packet::prefix::Prefix;
use hotloop::stage::Counter;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::collections::HashSet;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// What happens to a packet that a rule matches.
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
    Ipv4 = 4,
    Tcp = 6,
    Udp = 17,
    Ipv6 = 41,
    Gre = 47,
    Esp = 50,
    Icmpv6 = 58,
    Sctp = 132,
}

/// A rule of the file. What it leaves out may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// Its name in metrics and listings, which no other rule has.
    pub name: String,
    /// The side that its packets come from.
    pub from: Side,
    /// What happens to them.
    pub action: Action,
    #[serde(default, deserialize_with = "parsed")]
    source: Vec<Prefix>,
    #[serde(default, deserialize_with = "parsed")]
    destination: Vec<Prefix>,
    protocol: Option<Protocol>,
    #[serde(default, deserialize_with = "parsed")]
    source_ports: Vec<PortRange>,
    #[serde(default, deserialize_with = "parsed")]
    destination_ports: Vec<PortRange>,
    /// The packets that it decided about, for each core: those of connections that are open already are
    /// none of them.
    #[serde(skip)]
    counts: Arc<[Counter]>,
}

/// The rules of a file, the first first. Without a match, a packet is dropped.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// In the order of the file.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

impl Rules {
    /// Reads the text of a file, for this number of cores.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, core_count: usize) -> Result<Self, String> {
        let mut rules: Self = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        let mut names = HashSet::new();
        for rule in &mut rules.rules {
            rule.check()?;
            if !names.insert(rule.name.clone()) {
                return Err(format!(
                    "two rules are named {:?}: give each a name of its own",
                    rule.name
                ));
            }
            rule.counts = (0..core_count).map(|_| Counter::default()).collect();
        }
        Ok(rules)
    }

    /// Goes on with the counts of the rules before a reload that have the same names.
    pub fn keep_counts_of(&mut self, before: &Self) {
        for rule in &mut self.rules {
            if let Some(same) = before.rules.iter().find(|it| it.name == rule.name) {
                rule.counts = Arc::clone(&same.counts);
            }
        }
    }

    /// The first rule for a packet from `side` with this key.
    pub fn first_match(&self, side: Side, key: &FlowKey) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(side, key))
    }
}

impl Rule {
    /// Refuses ports without a protocol that has ports: the identifier of an echo is no port.
    fn check(&self) -> Result<(), String> {
        let has_ports = !(self.source_ports.is_empty() && self.destination_ports.is_empty());
        if has_ports && !matches!(self.protocol, Some(Protocol::Tcp | Protocol::Udp)) {
            return Err(format!(
                "rule {:?} has ports: set protocol to \"tcp\" or \"udp\"",
                self.name
            ));
        }
        Ok(())
    }

    fn matches(&self, side: Side, key: &FlowKey) -> bool {
        self.from == side
            && self.protocol.is_none_or(|protocol| protocol as u8 == key.protocol())
            && has(&self.source, |prefix| prefix.contains(key.source()))
            && has(&self.destination, |prefix| prefix.contains(key.destination()))
            && has(&self.source_ports, |ports| ports.contains(key.source_port()))
            && has(&self.destination_ports, |ports| ports.contains(key.destination_port()))
    }

    /// Counts a packet that the rule decided about, on the core with this number.
    pub fn count_on(&self, core: usize) {
        if let Some(count) = self.counts.get(core) {
            count.add(1);
        }
    }

    /// The packets that the rule decided about, on all cores.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(Counter::count).sum()
    }
}

/// The error on one line, as messages have it.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: {}", before.matches('\n').count() + 1, error.message())
}

/// Whether a list has something of which `is_it` is true, or is empty, which stands for all.
fn has<T: Copy>(list: &[T], is_it: impl Fn(T) -> bool) -> bool {
    list.is_empty() || list.iter().any(|one| is_it(*one))
}

/// Reads a list of texts that each parse.
fn parsed<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}
