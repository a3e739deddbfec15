//! The file in which a balancer keeps operators' changes for its next start.
//!
//! A node of a cluster that starts without the changes that its peers have would choose other
//! backends than they do. Uses nothing of control.

use crate::config::Config;
use crate::failure::BadInput;
use crate::replace::saved_overrides::SavedOverrides;
use hotloop::packet::prefix::Prefix;
use hotloop_files::file::read as read_file;
use hotloop_files::kept_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The version of the file's format.
const VERSION: u64 = 1;

/// Maximum size of the file: 200 bytes for each of more backends than there can be.
const BYTES_MAX: u64 = 256 << 20;

/// The content of the file.
#[derive(Debug)]
pub struct Kept {
    /// Operators' changes, and nothing else.
    pub saved: SavedOverrides,
    /// The time at which the remaining times were recorded.
    pub at: SystemTime,
}

impl Kept {
    /// Writes the file at `path`, or deletes it if operators have changed nothing.
    ///
    /// # Errors
    /// The system's error, with the file's name and a remedy.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let Self { saved, at } = self;
        let result = if *saved == SavedOverrides::default() {
            kept_file::delete(path)
        } else {
            let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let file = SavedFile {
                version: VERSION,
                at_ms: since_epoch.as_millis() as u64,
                standings: saved.clone(),
            };
            kept_file::replace(path, &format!("{}\n", json!(file)))
        };
        result.map_err(|error| {
            let path = path.display();
            format!(
                "{path}: balancer.operator_file: {error}; make room for a file in a folder to write to, which is tried \
                 again every 10 s"
            )
        })
    }
}

/// Loads the changes to `config`. Remaining times are as of `now`.
///
/// # Errors
/// If the file can't be read, or is invalid.
pub fn load(config: &Config, now: SystemTime) -> Result<SavedOverrides, BadInput> {
    let Some(path) = &config.operator_file else { return Ok(SavedOverrides::default()) };
    let path_shown = path.display();
    let refused = |why: String| {
        BadInput::new(format!(
            "{path_shown}: balancer.operator_file: {why}; mend it, or delete it to start by the configuration alone, \
             which breaks connections where other nodes go by what operators have changed"
        ))
    };
    let bytes = match read_file(path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(SavedOverrides::default());
        }
        read => read.map_err(|error| refused(error.to_string()))?,
    };
    let file = SavedFile::of(&bytes).map_err(refused)?;
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(file.at_ms);
    let passed = now.duration_since(at).unwrap_or_default();
    let mut saved = file.standings;
    age(&mut saved, passed).map_err(refused)?;
    let unknown = saved.take_unknown(config);
    for name in unknown.names().collect::<BTreeSet<_>>() {
        tracing::warn!(
            "{path_shown}: the configuration has no backend {} of {}: what is said of it is dropped",
            name.address,
            name.service
        );
    }
    if saved != SavedOverrides::default() {
        tracing::info!("{path_shown}: as operators have changed it: {}", saved.counts());
    }
    Ok(saved)
}

/// The file's form.
#[derive(Deserialize, Serialize)]
struct SavedFile {
    version: u64,
    at_ms: u64,
    standings: SavedOverrides,
}

impl SavedFile {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if json["version"] != VERSION {
            return Err(format!(
                "it is of version {}, and this program's is {VERSION}",
                json["version"]
            ));
        }
        if ["at_ms", "standings"].iter().any(|key| json.get(key).is_none()) {
            return Err("it lacks at_ms or standings".to_owned());
        }
        let mut file: Self = serde_json::from_value(json).map_err(|error| error.to_string())?;
        let saved = &mut file.standings;
        if let Some(wrong) =
            saved.blocks.iter().find(|block| block.prefix.parse::<Prefix>().is_err())
        {
            return Err(format!("{} blocks no prefix", json!(wrong)));
        }
        // Probes determine health again.
        saved.down.clear();
        Ok(file)
    }
}

/// Subtracts the passed time from remaining times. Blocks may have ended; a drain that has ended
/// does so after the start.
fn age(saved: &mut SavedOverrides, passed: Duration) -> Result<(), String> {
    let left_s =
        |for_s: u64| Duration::from_secs(for_s).saturating_sub(passed).as_secs_f64().ceil() as u64;
    for (_, end) in &mut saved.drains {
        if end.until(Instant::now()).is_none() {
            return Err(format!("{} is no end of a drain", json!(end)));
        }
        end.for_s = end.for_s.map(|seconds| left_s(seconds).max(1));
    }
    for block in &mut saved.blocks {
        block.for_s = block.for_s.map(left_s);
    }
    saved.blocks.retain(|block| block.for_s != Some(0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::DrainEnd;
    use hotloop_balancer::services::TargetName;

    #[test]
    fn health_is_not_restored_and_a_clock_may_be_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let text = include_str!("../../../../packaging/example.toml");
        let mut config = Config::parse("lb.toml", text).unwrap();
        config.operator_file = Some(path.clone());
        let service = &config.services[0];
        let name = TargetName::new(&service.name, service.backends[0].address);
        let saved = SavedOverrides {
            weights: vec![(name.clone(), 7)],
            drains: vec![(name.clone(), DrainEnd { for_s: Some(60), until_empty: false })],
            is_withdrawn: true,
            ..SavedOverrides::default()
        };
        let all = SavedOverrides { down: vec![(name, 0)], ..saved.clone() };
        let now = SystemTime::now();
        Kept { saved: all, at: now }.save(&path).unwrap();
        assert_eq!(load(&config, now - Duration::from_secs(3600)).unwrap(), saved);
    }
}
