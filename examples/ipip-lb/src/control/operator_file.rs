//! The file in which a node of a cluster keeps operators' changes for its next start.
//!
//! A node that starts without the changes that its peers have would choose other backends than they
//! do. The file belongs to one configuration and, with a store, to one revision. Any other
//! configuration has ended the changes: on this node or, in its absence, on its peers. Only blocks
//! outlast configurations. Uses nothing of control.

use crate::config::Config;
use crate::failure::BadInput;
use crate::replace::digest;
use crate::replace::saved_overrides::SavedOverrides;
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::services::TargetName;
use hotloop_cluster::store::layout::Stored;
use hotloop_files::file::read as read_file;
use hotloop_files::kept_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
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
    /// The configuration that was changed.
    pub config: Arc<Config>,
    /// The configuration's revision, if it comes from a store.
    pub revision: Option<i64>,
    /// The time at which the remaining times were recorded.
    pub at: SystemTime,
}

impl Kept {
    /// Writes the file at `path`, or deletes it if operators have changed nothing.
    ///
    /// # Errors
    /// The system's error, with the file's name and a remedy.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let Self { saved, config, revision, at } = self;
        let result = if *saved == SavedOverrides::default() {
            kept_file::delete(path)
        } else {
            let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let file = SavedFile {
                version: VERSION,
                revision: *revision,
                digest: digest(config),
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

/// Loads the changes to `config`, whose store's part is `stored` if there is a store. Remaining
/// times are as of `now`.
///
/// # Errors
/// If the file can't be read, or is invalid.
pub fn load(
    config: &Config,
    stored: Option<&Stored>,
    now: SystemTime,
) -> Result<SavedOverrides, BadInput> {
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
    if (file.revision, file.digest) != (stored.map(|stored| stored.revision), digest(config)) {
        let ended = SavedOverrides { blocks: Vec::new(), ..saved.clone() };
        if ended != SavedOverrides::default() {
            tracing::warn!(
                "{path_shown}: {} are dropped: another configuration was in force when operators changed that",
                counted(&ended)
            );
        }
        saved = SavedOverrides { blocks: saved.blocks, ..SavedOverrides::default() };
    }
    age(&mut saved, passed).map_err(refused)?;
    for name in drop_unknown(&mut saved, config) {
        tracing::warn!(
            "{path_shown}: the configuration has no backend {} of {}: what is said of it is dropped",
            name.address,
            name.service
        );
    }
    if saved != SavedOverrides::default() {
        tracing::info!("{path_shown}: as operators have changed it: {}", counted(&saved));
    }
    Ok(saved)
}

/// The file's form.
#[derive(Deserialize, Serialize)]
struct SavedFile {
    version: u64,
    revision: Option<i64>,
    digest: String,
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
        if ["digest", "at_ms", "standings"].iter().any(|key| json.get(key).is_none()) {
            return Err("it lacks digest, at_ms or standings".to_owned());
        }
        let mut file: Self = serde_json::from_value(json).map_err(|error| error.to_string())?;
        let saved = &mut file.standings;
        if let Some(wrong) =
            saved.blocks.iter().find(|block| block.prefix.parse::<Prefix>().is_err())
        {
            return Err(format!("{} blocks no prefix", json!(wrong)));
        }
        // Probes determine health again, and a started node must be announced.
        saved.down.clear();
        saved.is_withdrawn = false;
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

/// Removes backends that are not in the configuration, and returns them.
fn drop_unknown(saved: &mut SavedOverrides, config: &Config) -> HashSet<TargetName> {
    let names = config.services.iter().flat_map(|service| {
        service.backends.iter().map(|backend| (service.name.as_str(), backend.address))
    });
    let (known, mut unknown) = (names.collect::<HashSet<_>>(), HashSet::new());
    let mut is_known = |name: &TargetName| {
        let is_known = known.contains(&(name.service.as_str(), name.address));
        if !is_known {
            unknown.insert(name.clone());
        }
        is_known
    };
    saved.weights.retain(|(name, _)| is_known(name));
    saved.removed.retain(|(name, _)| is_known(name));
    saved.drains.retain(|(name, _)| is_known(name));
    unknown
}

/// The numbers of changes, for a message.
fn counted(saved: &SavedOverrides) -> String {
    let SavedOverrides { weights, removed, drains, blocks, .. } = saved;
    let counts = [
        (weights.len(), "weights"),
        (removed.len(), "removed backends"),
        (drains.len(), "drains that end"),
        (blocks.len(), "blocks"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{what}: {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::DrainEnd;

    #[test]
    fn health_and_a_withdrawal_are_not_restored_and_a_clock_may_be_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let text = include_str!("../../../../packaging/example.toml");
        let mut config = Config::parse("lb.toml", text).unwrap();
        config.operator_file = Some(path.clone());
        let config = Arc::new(config);
        let service = &config.services[0];
        let name = TargetName::new(&service.name, service.backends[0].address);
        let saved = SavedOverrides {
            weights: vec![(name.clone(), 7)],
            drains: vec![(name.clone(), DrainEnd { for_s: Some(60), until_empty: false })],
            ..SavedOverrides::default()
        };
        let all = SavedOverrides { down: vec![(name, 0)], is_withdrawn: true, ..saved.clone() };
        let now = SystemTime::now();
        let of = Arc::clone(&config);
        Kept { saved: all, config: of, revision: Some(3), at: now }.save(&path).unwrap();
        let before = now - Duration::from_secs(3600);
        let stored = |revision| Stored { name: "a".into(), revision, text: String::new() };
        let load = |stored: Option<Stored>| load(&config, stored.as_ref(), before).unwrap();
        assert_eq!(load(Some(stored(3))), saved);
        assert_eq!(load(Some(stored(4))), SavedOverrides::default());
        assert_eq!(load(None), SavedOverrides::default());
    }
}
