//! Reading a configuration's text from its file.

use super::document::{Origin, Section};
use super::{Config, ConfigError, parse};
use crate::failure::BadInput;
use hotloop_files::file;
use std::path::Path;

/// Maximum size of a configuration, in bytes. A larger file means that the name is wrong.
const CONFIG_BYTES_MAX: u64 = 256 << 20;

impl Config {
    /// Reads the configuration in the file at `path`.
    ///
    /// # Errors
    /// If the file can't be read, or [`Config::parse`] fails.
    pub fn load(path: &Path) -> Result<Self, BadInput> {
        Ok(Self::parse(&path.display().to_string(), &Self::text(path)?)?)
    }

    /// The text of the configuration in the file at `path`.
    ///
    /// # Errors
    /// If the file can't be read, or is not text.
    pub fn text(path: &Path) -> Result<String, BadInput> {
        let unreadable = |error: std::io::Error| {
            BadInput::file(path, "--config", &error, "name a readable file")
        };
        let bytes = file::read(path, CONFIG_BYTES_MAX + 1).map_err(unreadable)?;
        let file = path.display().to_string();
        if bytes.len() as u64 > CONFIG_BYTES_MAX {
            let problem = format!("larger than {CONFIG_BYTES_MAX} bytes; name a configuration");
            return Err(BadInput::new(format!("{file}: --config: {problem}")));
        }
        String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
            let problem = "not UTF-8; save the file as UTF-8 text".to_owned();
            ConfigError { file, line, key: "(text)".to_owned(), problem }.into()
        })
    }

    /// Parses a configuration. Messages call it `file`, and other files that it names are relative
    /// to the folder of `file`.
    ///
    /// # Errors
    /// The first error in the text, or in a file that it names.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let origin = Origin { file, text };
        let table = origin.parse()?;
        let root = Section::root(origin, &table);
        let config = parse::config(file, &root)?;
        if config.quorum.is_some()
            && config.store.is_none()
            && let Some(health) = root.section("health")?
        {
            let problem = "nodes say what they find down through a store, and there is none; leave it out, \
                           or write cluster.store";
            return Err(health.error_at("quorum", problem));
        }
        Ok(config)
    }
}
