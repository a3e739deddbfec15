//! A TOML document with the line and the key path of each value.

use super::ConfigError;
use hotloop::packet::excerpt::{escaped, excerpt};
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use toml::de::{DeTable, DeValue};

/// The origin of a document, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl<'a> Origin<'a> {
    /// Parses the text.
    pub fn parse(&self) -> Result<DeTable<'a>, ConfigError> {
        let table = DeTable::parse(self.text).map_err(|error| self.syntax_error(&error))?;
        Ok(table.into_inner())
    }

    /// The line, from 1, of the byte at `offset`.
    fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// The parser's error for a document that is not TOML.
    fn syntax_error(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let key = key_of_line(self.text, span.start);
        let message = excerpt(&error.message().replace('\n', ", "));
        let problem = format!("not TOML: {message}; mend this line");
        self.error(key, &span, problem)
    }

    fn error(&self, key: String, span: &Range<usize>, problem: String) -> ConfigError {
        // Keys and parts of the problem appear as in the file.
        let (file, line) = (self.file.to_owned(), self.line(span.start));
        ConfigError { file, line, key: excerpt(&key), problem: escaped(&problem) }
    }
}

/// The text before the `=` on the line of `offset`: the key, as far as a document that is not TOML
/// has one.
fn key_of_line(text: &str, offset: usize) -> String {
    let bytes = text.as_bytes();
    let offset = offset.min(bytes.len());
    let start = bytes[..offset].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    line.split('=').next().unwrap_or_default().trim().to_owned()
}

/// A table of the document.
#[derive(Debug)]
pub struct Section<'a> {
    origin: Origin<'a>,
    /// The path of the table's key; empty for the document itself.
    path: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
    /// Another document's table for this section, if it has one.
    other: Option<(Origin<'a>, &'a DeTable<'a>)>,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub const fn root(origin: Origin<'a>, table: &'a DeTable<'a>) -> Self {
        Self { origin, path: String::new(), span: 0..0, table, other: None }
    }

    /// Combines two documents that have no table's key in common. Errors about the section itself
    /// name this document.
    #[must_use]
    pub fn with(self, other: Origin<'a>, table: &'a DeTable<'a>) -> Self {
        Self { other: Some((other, table)), ..self }
    }

    /// Renames the section in messages.
    pub fn set_path(&mut self, path: String) {
        self.path = path;
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Checks that the section has no keys except `known`.
    pub fn allow_only(&self, known: &[&str]) -> Result<(), ConfigError> {
        for (origin, table) in self.tables() {
            let unknown = table.iter().map(|(key, _)| key);
            let unknown = unknown.filter(|key| !known.contains(&key.get_ref().as_ref()));
            let Some(key) = unknown.min_by_key(|key| key.span().start) else { continue };
            let problem = format!("unknown key; the keys known here are {}", known.join(", "));
            return Err(origin.error(self.path_of(key.get_ref()), &key.span(), problem));
        }
        Ok(())
    }

    fn tables(&self) -> impl Iterator<Item = (Origin<'a>, &'a DeTable<'a>)> {
        [(self.origin, self.table)].into_iter().chain(self.other)
    }

    /// All keys, in the order of the document.
    pub fn keys(&self) -> Vec<&'a str> {
        let mut keys: Vec<_> = self.table.iter().map(|(key, _)| key).collect();
        keys.sort_by_key(|key| key.span().start);
        keys.into_iter().map(|key| key.get_ref().as_ref()).collect()
    }

    /// The value at `key`, if there is one.
    pub fn optional(&self, key: &str) -> Option<Value<'a>> {
        let found = self.tables().find_map(|(origin, table)| Some((origin, entry(table, key)?)));
        let (origin, value) = found?;
        let path = self.path_of(key);
        Some(Value { origin, path, span: value.span(), value: value.get_ref() })
    }

    /// The value at `key`. If it is missing, the error suggests the value `example`.
    pub fn required(&self, key: &str, example: &str) -> Result<Value<'a>, ConfigError> {
        self.present(key, &format!("{key} = {example}"))
    }

    /// The value at `key`. If it is missing, the error suggests `remedy`.
    pub fn present(&self, key: &str, remedy: &str) -> Result<Value<'a>, ConfigError> {
        self.optional(key).ok_or_else(|| self.missing(key, remedy))
    }

    /// The error for a section without `key`, which suggests `remedy`.
    pub fn missing(&self, key: &str, remedy: &str) -> ConfigError {
        self.error(key, format!("missing; write {remedy}"))
    }

    /// The table at `key`, if there is one.
    pub fn section(&self, key: &str) -> Result<Option<Self>, ConfigError> {
        let Some(section) = self.optional(key).map(|value| value.section()).transpose()? else {
            return Ok(None);
        };
        let other = self.other.filter(|_| entry(self.table, key).is_some());
        let other = other.and_then(|(origin, table)| Some((origin, entry(table, key)?)));
        let other = other.and_then(|(origin, value)| Some((origin, value.get_ref().as_table()?)));
        Ok(Some(Self { other, ..section }))
    }

    /// The tables of the array of tables at `key`; empty if there is no such key.
    pub fn sections(&self, key: &str) -> Result<Vec<Self>, ConfigError> {
        let Some(value) = self.optional(key) else { return Ok(Vec::new()) };
        let wrong = || value.error(format!("not a list of tables; write [[{}]]", value.header()));
        let DeValue::Array(items) = value.value else { return Err(wrong()) };
        if items.iter().any(|item| !item.get_ref().is_table()) {
            return Err(wrong());
        }
        value.items()?.into_iter().map(|item| item.section()).collect()
    }

    /// The value at `key`, read by `read`, if there is one.
    pub fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.optional(key).map(|value| read(&value)).transpose()
    }

    /// The values of the array at `key`, each read by `read`; empty if there is no such key.
    pub fn list<T>(
        &self,
        key: &str,
        read: fn(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let items = self.read(key, Value::items)?.unwrap_or_default();
        items.iter().map(read).collect()
    }

    /// The word at `key`, or `default`; see [`Value::choice`].
    pub fn choice_or<T: Copy>(
        &self,
        key: &str,
        what: &str,
        words: &[(&str, T)],
        default: T,
    ) -> Result<T, ConfigError> {
        Ok(self.read(key, |value| value.choice(what, words))?.unwrap_or(default))
    }

    /// The integer at `key`, if there is one.
    pub fn integer<T: Integer>(
        &self,
        key: &str,
        allowed: RangeInclusive<T>,
    ) -> Result<Option<T>, ConfigError> {
        self.read(key, |value| value.integer(allowed))
    }

    /// The integer at `key`, or `default`.
    pub fn integer_or<T: Integer>(
        &self,
        key: &str,
        allowed: RangeInclusive<T>,
        default: T,
    ) -> Result<T, ConfigError> {
        Ok(self.integer(key, allowed)?.unwrap_or(default))
    }

    /// The boolean at `key`, or `default`.
    pub fn boolean_or(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.read(key, Value::boolean)?.unwrap_or(default))
    }

    /// An error about the section itself.
    pub fn wrong(&self, problem: impl Into<String>) -> ConfigError {
        self.origin.error(self.path.clone(), &self.span, problem.into())
    }

    /// An error about `key` of this section, on the line of its header.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        self.origin.error(self.path_of(key), &self.span, problem.into())
    }

    /// An error about the value at `key`, on its line if there is one.
    pub fn error_at(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        match self.optional(key) {
            Some(value) => value.error(problem),
            None => self.error(key, problem),
        }
    }
}

fn entry<'a>(table: &'a DeTable<'a>, key: &str) -> Option<&'a toml::Spanned<DeValue<'a>>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

/// An integer of the configuration.
pub trait Integer: Copy + Display + PartialOrd + TryFrom<u32> {}

impl<T: Copy + Display + PartialOrd + TryFrom<u32>> Integer for T {}

/// A value of the document.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    origin: Origin<'a>,
    path: String,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// An error about this value.
    pub fn error(&self, problem: impl Into<String>) -> ConfigError {
        self.origin.error(self.path.clone(), &self.span, problem.into())
    }

    /// The line on which the value begins.
    pub fn line(&self) -> usize {
        self.origin.line(self.span.start)
    }

    /// The value as written in the document, or its beginning.
    fn written(&self) -> String {
        let text = self.origin.text.get(self.span.clone()).unwrap_or_default();
        match text.lines().next() {
            Some(line) if line.len() < text.len() => format!("{} …", excerpt(line)),
            _ => excerpt(text),
        }
    }

    /// The header of a table at this key, without names and numbers.
    fn header(&self) -> String {
        let word = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
        match (self.path.split_once('.'), self.path.rsplit_once('.')) {
            (Some((outer, _)), Some((_, key))) => format!("{}.{}", word(outer), word(key)),
            _ => word(&self.path),
        }
    }

    fn section(self) -> Result<Section<'a>, ConfigError> {
        let DeValue::Table(table) = self.value else {
            let problem = format!("{} is not a table; write [{}]", self.written(), self.header());
            return Err(self.error(problem));
        };
        let Self { origin, path, span, .. } = self;
        Ok(Section { origin, path, span, table, other: None })
    }

    /// The string, parsed. The error describes the expected value as `what`, and suggests
    /// `example`.
    pub fn parsed<T>(
        &self,
        what: &str,
        example: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        self.value
            .as_str()
            .and_then(parse)
            .ok_or_else(|| self.error(format!("{} is not {what}; write {example}", self.written())))
    }

    /// The string, parsed by `parse`, whose error is the whole problem.
    pub fn parsed_by<T, E: Display>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        let Some(text) = self.value.as_str() else {
            return Err(self.error(format!("{} is not a string; write \"…\"", self.written())));
        };
        parse(text).map_err(|error| self.error(error.to_string()))
    }

    /// The string, which is secret: an error doesn't show it.
    pub fn secret<T: FromStr<Err: Display>>(&self) -> Result<T, ConfigError> {
        let text = self.value.as_str().unwrap_or_default();
        text.parse().map_err(|error: T::Err| self.error(error.to_string()))
    }

    /// The value of the string among the `words`. The error describes the expected value as `what`.
    pub fn choice<T: Copy>(&self, what: &str, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let quoted: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let example = match quoted.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => quoted.concat(),
        };
        let choice = |text: &str| words.iter().find(|(word, _)| *word == text).map(|entry| entry.1);
        self.parsed(what, &example, choice)
    }

    /// The boolean.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        self.value.as_bool().ok_or_else(|| {
            self.error(format!("{} is neither true nor false; write one of them", self.written()))
        })
    }

    /// The integer, which must be in `allowed`.
    pub fn integer<T: Integer>(&self, allowed: RangeInclusive<T>) -> Result<T, ConfigError> {
        let number = self.value.as_integer();
        let number =
            number.and_then(|digits| u32::from_str_radix(digits.as_str(), digits.radix()).ok());
        let number = number.and_then(|number| T::try_from(number).ok());
        number.filter(|number| allowed.contains(number)).ok_or_else(|| {
            let (from, to) = (allowed.start(), allowed.end());
            let written = self.written();
            self.error(format!(
                "{written} is out of range; write a whole number from {from} to {to}"
            ))
        })
    }

    /// The values of the array.
    pub fn items(&self) -> Result<Vec<Self>, ConfigError> {
        let DeValue::Array(items) = self.value else {
            let written = self.written();
            return Err(self.error(format!("{written} is not a list; write [{written}]")));
        };
        let item = |(index, item): (usize, &'a toml::Spanned<DeValue<'a>>)| Self {
            origin: self.origin,
            path: format!("{}[{index}]", self.path),
            span: item.span(),
            value: item.get_ref(),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }
}
