//! Rules: which packets may open a connection.

use crate::packet::Side;
use hotloop::packet::port_range::PortRange;
use hotloop::packet::prefix::Prefix;
use hotloop::prelude::{CoreCounters, Deployment, FlowKey};
use hotloop_ops::one_line;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// The fate of packets that a rule matches.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
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
    /// The side that its packets come from.
    pub from: Side,
    #[serde(default)]
    source: Vec<Prefix>,
    #[serde(default)]
    destination: Vec<Prefix>,
    protocol: Option<Protocol>,
    #[serde(default)]
    source_ports: Vec<PortRange>,
    #[serde(default)]
    destination_ports: Vec<PortRange>,
    /// The packets that it was the first to match. Those of connections that are open match no rule.
    #[serde(skip)]
    pub packets: CoreCounters,
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
    pub fn read(path: &Path, deployment: Deployment, before: &Self) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let rules = text.and_then(|text| Self::parse(&text, deployment, before));
        rules.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the text of a file, for the cores of this deployment. The rules go on with the counts of
    /// those with the same names `before`.
    ///
    /// # Errors
    /// The text is wrong: the message names the line or the rule.
    pub fn parse(text: &str, deployment: Deployment, before: &Self) -> Result<Self, String> {
        let mut rules: Self = toml::from_str(text).map_err(|error| one_line(&error.to_string()))?;
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
            let new = || CoreCounters::new(deployment);
            rule.packets = same.map_or_else(new, |same| same.packets.clone());
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
}

/// Whether `is_it` holds for something in the list. An empty list stands for everything.
fn has<T: Copy>(list: &[T], is_it: impl Fn(T) -> bool) -> bool {
    list.is_empty() || list.iter().any(|one| is_it(*one))
}
