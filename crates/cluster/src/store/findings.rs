//! The backends that each node's probes find down, in a store.
//!
//! ```text
//! health/NAME    {"down": ["10.0.0.1 tcp 80"]}, under the node's lease; null if there are too many
//! ```
//!
//! Nothing here may disturb the phases of a change, which use the same lease: if the store refuses
//! a write, that is logged once, and only this node's own findings count until the write succeeds.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::{Etcd, KeyValue, Operation};
use super::gateway::Key;
use hotloop::packet::excerpt::excerpt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first part of the keys, after the prefix of the store.
pub(super) const HEALTH: &str = "health/";

/// Maximum length of a value, in bytes. etcd accepts 1.5 MiB by default.
const VALUE_BYTES_MAX: usize = 1_000_000;

/// Interval of readings.
const READ_INTERVAL: Duration = Duration::from_millis(200);

/// The findings of other nodes, each with the revision that last changed it; `None` if it is not
/// readable, or too long.
type Known = BTreeMap<String, (i64, Option<Arc<HashSet<String>>>)>;

/// The results of another node's probes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The node's name.
    pub node: String,
    /// The names of probes that find a backend down.
    pub down: Arc<HashSet<String>>,
}

/// The findings of this node, which the store gets, and those of the other nodes, from the store.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Nothing until the probes have begun.
    own: Option<Arc<HashSet<String>>>,
    is_written: bool,
    has_too_many: bool,
    /// Whether the store has refused the last write, and whether that was logged.
    is_refused: bool,
    is_said: bool,
    is_unread: bool,
    read: Option<Instant>,
    known: Known,
    others: Arc<Vec<Finding>>,
}

impl Findings {
    /// Sets the probes of this node that find a backend down.
    pub fn find(&mut self, own: Arc<HashSet<String>>) {
        self.own = Some(own);
        (self.is_written, self.is_refused) = (false, false);
    }

    /// Notes that the store may have changed.
    pub const fn look(&mut self) {
        self.is_unread = true;
    }

    /// Makes the next exchange try the store again, and read it.
    pub const fn try_again(&mut self) {
        (self.is_refused, self.is_unread) = (false, true);
    }

    /// Notes that the lease has ended, and with it the store's entries of this node.
    pub const fn has_lost_lease(&mut self) {
        self.is_written = false;
    }

    /// When the next work is due, if any.
    pub fn due(&self) -> Option<Instant> {
        self.is_unread.then(|| self.read.map_or_else(Instant::now, |read| read + READ_INTERVAL))
    }

    /// Does the due writes and reads, for the node with this name. Returns the findings of the
    /// others, or `None` if only this node's own findings count, as the others do not know them.
    ///
    /// # Errors
    /// The store's error, if it can't be reached.
    pub fn exchange(
        &mut self,
        etcd: &Etcd,
        node: &str,
        lease: i64,
    ) -> Result<Option<Arc<Vec<Finding>>>, StoreError> {
        if !self.is_written && !self.is_refused {
            self.write(etcd, node, lease)?;
        }
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.read(etcd, node)?;
        }
        let counts = self.is_written && !self.has_too_many && self.read.is_some();
        Ok(counts.then(|| Arc::clone(&self.others)))
    }

    fn write(&mut self, etcd: &Etcd, node: &str, lease: i64) -> Result<(), StoreError> {
        let Some(own) = &self.own else { return Ok(()) };
        let address = etcd.address();
        let text = text(own);
        if text.is_none() && !self.has_too_many {
            tracing::warn!(
                "{address}: health: {} probes find backends down, which is more than the store takes; this node's \
                 own findings count here, and not for the others",
                own.len()
            );
        }
        self.has_too_many = text.is_none();
        let text = text.unwrap_or_else(|| json!({ "down": null }).to_string());
        let key = format!("{}{HEALTH}{node}", address.prefix());
        match etcd.transact(&[], &[Operation::PutLeased(&key, &text, lease)]) {
            Ok(_) => (self.is_written, self.is_said) = (true, false),
            Err(error) if error.kind() == StoreErrorKind::Refused => {
                if !self.is_said {
                    tracing::warn!(
                        "{error}; meanwhile, what this node's own probes find counts here"
                    );
                }
                (self.is_refused, self.is_said) = (true, true);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read(&mut self, etcd: &Etcd, node: &str) -> Result<(), StoreError> {
        let prefix = etcd.address().prefix();
        let (from, end) = (format!("{prefix}{HEALTH}"), format!("{prefix}health0"));
        self.read = Some(Instant::now());
        let page = etcd.page(Key::From(&from, &end), 0, 1000)?;
        self.is_unread = false;
        let mut before = std::mem::take(&mut self.known);
        for KeyValue { key, value, changed_at } in page.values {
            let Some(name) = key.strip_prefix(&from).filter(|name| *name != node) else { continue };
            let same = before.remove(name).filter(|(at, _)| *at == changed_at);
            let finding = same.unwrap_or_else(|| {
                let down = parse(&value).unwrap_or_else(|| {
                    warn_of(&key);
                    None
                });
                (changed_at, down.map(Arc::new))
            });
            self.known.insert(name.to_owned(), finding);
        }
        let counted = self.known.iter().filter_map(|(name, (_, down))| {
            Some(Finding { node: name.clone(), down: Arc::clone(down.as_ref()?) })
        });
        let others: Vec<_> = counted.collect();
        let is_same =
            |(a, b): (&Finding, &Finding)| a.node == b.node && Arc::ptr_eq(&a.down, &b.down);
        if others.len() != self.others.len() || !others.iter().zip(&*self.others).all(is_same) {
            self.others = Arc::new(others);
        }
        Ok(())
    }
}

/// The store's value for these names; `None` if it is too long.
fn text(names: &HashSet<String>) -> Option<String> {
    let mut names: Vec<_> = names.iter().collect();
    names.sort();
    let text = json!({ "down": names }).to_string();
    (text.len() <= VALUE_BYTES_MAX).then_some(text)
}

fn warn_of(key: &str) {
    let key = excerpt(key);
    tracing::warn!(
        "{key}: not understood: what this node finds does not count until it writes that again"
    );
}

/// The names in a value; [`None`] inside if there were too many. `None` if no node has written the
/// value.
fn parse(text: &str) -> Option<Option<HashSet<String>>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let name = |name: &Value| name.as_str().map(str::to_owned);
    match value.get("down")? {
        Value::Null => Some(None),
        names => Some(Some(names.as_array()?.iter().map(name).collect::<Option<_>>()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn down(count: u32) -> HashSet<String> {
        (1..=count).map(|host| format!("{} tcp 80", Ipv4Addr::from(0x0a00_0000 + host))).collect()
    }

    #[test]
    fn what_is_written_is_read_and_is_bounded() {
        let text_of_two = text(&down(2)).unwrap();
        assert_eq!(text_of_two, r#"{"down":["10.0.0.1 tcp 80","10.0.0.2 tcp 80"]}"#);
        assert_eq!(parse(&text_of_two).unwrap().unwrap().len(), 2);
        assert_eq!(parse(&text(&HashSet::new()).unwrap()), Some(Some(HashSet::new())));
        let long = text(&down(40_000)).unwrap();
        assert!(long.len() <= VALUE_BYTES_MAX && parse(&long).unwrap().unwrap().len() == 40_000);
        assert_eq!(text(&down(60_000)), None);
        assert_eq!(parse(r#"{"down":null}"#), Some(None));
        for wrong in ["", "{}", "[]", r#"{"down":[1]}"#, r#"{"down":"x"}"#, "99999999999999999999"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
