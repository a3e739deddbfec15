//! A configuration as keys and values.
//!
//! A value of etcd is limited to 1.5 MB, and so is a transaction, of at most 128 operations. So the
//! text is cut into parts, one for each service and one for the text between services, and these
//! are written first, under a new name:
//!
//! ```text
//! /ipip-lb/current                           {"generation":"5f3c…","parts":3,"bytes":812}
//! /ipip-lb/parts/5f3c…/000000-rest           [balancer] and the rest
//! /ipip-lb/parts/5f3c…/000001-service-web    [[service]] with name = "web"
//! /ipip-lb/parts/5f3c…/000002-service-dns
//! ```
//!
//! One transaction then makes `current` refer to them, as defined by [`phases`](super::phases), and
//! deletes all other parts. The revision of that transaction is the configuration's. A reader gets
//! `current` and all parts as of one revision, in order, and so exactly the text that was written.
//! Parts without a reference never change: a reader that knows the future value of `current` can
//! read them in advance.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::Etcd;
use super::gateway::Key;
use super::phases::CURRENT;
use hotloop::packet::excerpt::excerpt;
use serde_json::{Value, json};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Maximum length of a part, in bytes. etcd's own limit is for a whole request.
pub const PART_BYTES_MAX: usize = 1_400_000;

/// Maximum length of a whole configuration, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// Number of parts to read at once.
const PAGE_PARTS: usize = 256;

/// Number of attempts to read something that was compacted meanwhile.
const TRIES: usize = 3;

/// A configuration that is or was in a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// The name of the text in messages: the store's address.
    pub name: String,
    /// The store's revision that wrote it.
    pub revision: i64,
    /// The text.
    pub text: String,
}

/// The content of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reading {
    /// The store's own revision: a watch that begins with the next one misses nothing.
    pub at: i64,
    /// The configuration; `None` if the store is empty.
    pub stored: Option<Stored>,
}

/// Reads the configuration in force.
///
/// # Errors
/// The store's error, and an error if its content was not written by
/// [`Generation`](super::Generation).
pub fn read(etcd: &Etcd) -> Result<Reading, StoreError> {
    for _ in 1..TRIES {
        match read_at(etcd, 0) {
            Err(error) if error.kind() == StoreErrorKind::Compacted => {}
            read => return read,
        }
    }
    read_at(etcd, 0)
}

/// The revision in force, even if the configuration can't be read; 0 if the store has no configuration.
///
/// # Errors
/// The store's error.
pub fn revision(etcd: &Etcd) -> Result<i64, StoreError> {
    let page = etcd.page(Key::One(&current_key(etcd)), 0, 1)?;
    Ok(page.values.first().map_or(0, |current| current.changed_at))
}

/// Reads the configuration that was in force at a revision; 0 is now.
///
/// # Errors
/// Like [`read`], and [`StoreErrorKind::Compacted`] if the store no longer has the revision.
pub fn read_at(etcd: &Etcd, revision: i64) -> Result<Reading, StoreError> {
    let page = etcd.page(Key::One(&current_key(etcd)), revision, 1)?;
    let at = if revision == 0 { page.revision } else { revision };
    let Some(current) = page.values.first() else { return Ok(Reading { at, stored: None }) };
    let text = text_of(etcd, CURRENT, &current.value, at)?;
    let name = etcd.address().to_string();
    Ok(Reading { at, stored: Some(Stored { name, revision: current.changed_at, text }) })
}

/// Reads the text that the value `pointer` of `key`, a key without the prefix of the store, refers
/// to: as of the revision `at`, or now if that is 0.
///
/// # Errors
/// Like [`read_at`].
pub fn text_of(etcd: &Etcd, key: &str, pointer: &str, at: i64) -> Result<String, StoreError> {
    let prefix = etcd.address().prefix();
    let wrong = |key: &str, what: &str| {
        let problem = format!(
            "{prefix}{}: {what}, so it was not written by `ipip-lb cluster apply`; apply a configuration",
            excerpt(key)
        );
        StoreError::new(StoreErrorKind::Content, etcd.address(), problem)
    };
    let pointer = Pointer::read(pointer).ok_or_else(|| wrong(key, "not understood"))?;
    if pointer.bytes > TEXT_BYTES_MAX {
        return Err(wrong(key, "too large"));
    }
    let (from, end) = pointer.parts_range();
    let folder = from;
    let (mut from, end) = (format!("{prefix}{folder}"), format!("{prefix}{end}"));
    let (mut text, mut part_count, mut unreadable) = (String::new(), 0, None);
    loop {
        let page = etcd.page(Key::From(&from, &end), at, PAGE_PARTS)?;
        part_count += page.values.len();
        for part in &page.values {
            text.push_str(&part.value);
            if part.value.contains(char::REPLACEMENT_CHARACTER) {
                unreadable =
                    unreadable.or_else(|| part.key.strip_prefix(prefix).map(str::to_owned));
            }
        }
        // The next possible key; the same key again if the last one was not text.
        let next = page.values.last().map(|last| format!("{}\0", last.key));
        match next.filter(|next| page.has_more && text.len() <= pointer.bytes && *next != from) {
            Some(next) => from = next,
            None => break,
        }
    }
    if (part_count, text.len()) == (pointer.parts, pointer.bytes) {
        return Ok(text);
    }
    if let Some(part) = unreadable {
        return Err(wrong(&part, "not understood"));
    }
    let (parts, bytes, found) = (pointer.parts, pointer.bytes, text.len());
    let counts = format!("{part_count} of {parts}, with {found} of {bytes} bytes");
    Err(wrong(key, &format!("its parts are not all there: under {prefix}{folder} {counts}")))
}

/// The key that refers to the parts in force: it changes whenever the configuration does.
#[must_use]
pub fn current_key(etcd: &Etcd) -> String {
    format!("{}{CURRENT}", etcd.address().prefix())
}

/// The value of `current`.
#[derive(Debug)]
pub(super) struct Pointer {
    generation: String,
    parts: usize,
    bytes: usize,
}

impl Pointer {
    /// A pointer to the parts under this name, which consists of hexadecimal digits.
    pub(super) fn to(generation: &str, parts: &[Part<'_>]) -> Self {
        let bytes = parts.iter().map(|part| part.text.len()).sum();
        Self { generation: generation.to_owned(), parts: parts.len(), bytes }
    }

    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number =
            |key: &str| value[key].as_u64().and_then(|number| usize::try_from(number).ok());
        let generation = value["generation"].as_str()?.to_owned();
        // The name becomes a part of keys.
        let is_sound = generation.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sound.then_some(Self { generation, parts: number("parts")?, bytes: number("bytes")? })
    }

    /// The keys of the parts, without the prefix of the store: from the first, up to the second,
    /// exclusive. `0` comes after `/`.
    pub(super) fn parts_range(&self) -> (String, String) {
        let Self { generation, .. } = self;
        (format!("parts/{generation}/"), format!("parts/{generation}0"))
    }

    pub(super) fn to_text(&self) -> String {
        let Self { generation, parts, bytes } = self;
        json!({ "generation": generation, "parts": parts, "bytes": bytes }).to_string()
    }
}

/// A part of a configuration's text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part<'a> {
    /// The part's description, as a piece of its key.
    pub(super) label: String,
    text: &'a str,
}

impl<'a> Part<'a> {
    /// The part itself.
    #[must_use]
    pub const fn text(&self) -> &'a str {
        self.text
    }
}

/// Cuts a text into its parts, which together are the text again. The text need not be valid: text
/// that isn't TOML is one part.
///
/// # Errors
/// If a part is too long.
pub fn split(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut cuts = vec![(0, "rest".to_owned())];
    if let Ok(table) = DeTable::parse(text) {
        cuts.extend(tables(table.get_ref()).map(|(at, label)| (line_start(text, at), label)));
    }
    cuts.sort_by_key(|(at, _)| *at);
    // Text that shares a line with another part, or follows another part of the rest, belongs to
    // it.
    cuts.dedup_by(|next, last| {
        let is_same = next.0 == last.0;
        if is_same {
            last.1.clone_from(&next.1);
        }
        is_same || (next.1 == "rest" && last.1 == "rest")
    });
    let ends = cuts.iter().skip(1).map(|(at, _)| *at).chain([text.len()]);
    let parts = cuts.iter().zip(ends).map(|((at, label), end)| (label, Range { start: *at, end }));
    let parts = parts.filter(|(_, range)| !range.is_empty());
    let part = |(label, range): (&String, Range<usize>)| {
        let (line, length) = (1 + text[..range.start].matches('\n').count(), range.len());
        if length > PART_BYTES_MAX {
            return Err(format!(
                "{line}: {label}: {length} bytes, and a store takes {PART_BYTES_MAX} in one value: \
                 write it shorter, or as several [[service]]"
            ));
        }
        Ok(Part { label: label.clone(), text: &text[range] })
    };
    parts.map(part).collect()
}

/// The beginning of each table at the top level, and of each one in a list there, with its
/// description.
fn tables<'a>(root: &'a DeTable<'a>) -> impl Iterator<Item = (usize, String)> + 'a {
    root.iter().flat_map(|(key, value)| {
        let items = match value.get_ref() {
            DeValue::Array(items) => &items[..],
            _ => std::slice::from_ref(value),
        };
        let tables =
            items.iter().filter_map(|item| Some((item.span().start, item.get_ref().as_table()?)));
        let is_service = key.get_ref() == "service";
        tables.map(move |(at, table)| {
            (at, if is_service { service_label(table) } else { "rest".to_owned() })
        })
    })
}

/// The description of a service, as a part of a key: its name, if that is valid.
fn service_label(table: &DeTable<'_>) -> String {
    let name = table.get("name").and_then(|name| name.get_ref().as_str());
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    match name.filter(|name| name.len() <= 63 && name.bytes().all(sound)) {
        Some(name) => format!("service-{name}"),
        None => "service".to_owned(),
    }
}

/// The beginning of the line with the byte at `offset`.
fn line_start(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        let parts = split(text).unwrap();
        let whole: String = parts.iter().map(Part::text).collect();
        assert_eq!(whole, text);
        parts.into_iter().map(|part| part.label).collect()
    }

    #[test]
    fn parts_are_the_text_again_and_services_have_their_own() {
        let text = "# of all nodes\n[balancer]\nmtu = 1500\n[limits]\n\n[[service]] # web\nname = \"web\"\n  [service.health]\n  kind = \"tcp\"\n  [[service.backend]]\n  address = \"10.0.0.1\"\n[[service]]\nname = \"ü\"\n[health]\n[[service]]\nname='dns'";
        assert_eq!(labels(text), ["rest", "service-web", "service", "rest", "service-dns"]);
        for text in [
            "",
            "\n",
            "service = [{ name = \"a\" }, { name = \"b\" }]\n[balancer]\n",
            "not TOML = = [\n",
            "service = [\n{ name = \"a\" },\n{ name = \"b\" }]\n",
            "a = \"\"\"\n[[service]]\n\"\"\"\n",
            "[[service]]\n[[service]]",
            "service.name = 1\nbalancer.mtu = 1\r\n[a]\r\n",
            "\u{feff}[[service]]\nname = \"a\"",
        ] {
            labels(text);
        }
    }

    #[test]
    fn a_part_that_no_value_can_hold_is_named() {
        let long =
            format!("[balancer]\n[[service]]\nname = \"web\"\n#{}\n", "x".repeat(PART_BYTES_MAX));
        let error = split(&long).unwrap_err();
        assert!(error.starts_with("2: service-web: 14000"), "{error}");
    }
}
