//! The copy of a store's configuration that a node keeps for starting without the store.

use super::layout::Stored;
use hotloop_files::kept_file;
use std::path::Path;

/// The text before the revision, on the last line.
const MARK: &str = "# ipip-lb: revision ";

/// Writes the copy, in place of the previous one. Only the owner may read it, as it may contain a
/// hash key.
///
/// # Errors
/// The system's error, with the file's name and a remedy.
pub fn save(path: &Path, stored: &Stored) -> Result<(), String> {
    let Stored { name, revision, text } = stored;
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}{MARK}{revision} of {name}\n");
    kept_file::replace(path, &text).map_err(|error| {
        let path = path.display();
        format!("{path}: cluster.store_copy: {error}; name a file in a folder to write to")
    })
}

/// Reads the copy by `read`; `None` if there is none.
///
/// # Errors
/// If it can't be read.
pub fn load<E>(
    path: &Path,
    read: impl FnOnce(&Path) -> Result<String, E>,
) -> Result<Option<Stored>, E> {
    if !path.try_exists().unwrap_or(true) {
        return Ok(None);
    }
    let mut text = read(path)?;
    let last = text.lines().next_back().unwrap_or_default();
    let revision =
        last.strip_prefix(MARK).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    if revision.is_some() {
        text.truncate(text.trim_end().len() - last.trim_end().len());
    }
    // Without the line, the file was written by hand, and any revision is newer.
    let revision = revision.unwrap_or(0);
    Ok(Some(Stored { name: path.display().to_string(), revision, text }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.toml");
        let load = || load(&path, |path| fs::read_to_string(path)).unwrap();
        assert_eq!(load(), None);
        for (revision, text) in [(7, "[balancer]\n"), (9, "# nothing")] {
            let stored = Stored { name: "etcd://a:1".into(), revision, text: text.into() };
            save(&path, &stored).unwrap();
            let loaded = load().unwrap();
            assert_eq!((loaded.revision, loaded.name), (revision, path.display().to_string()));
            assert_eq!(loaded.text.trim_end(), text.trim_end());
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
        fs::write(&path, "[balancer]\n").unwrap();
        assert_eq!(load().unwrap().revision, 0);
        let error = save(Path::new("/proc/none/a.toml"), &load().unwrap());
        assert!(error.unwrap_err().contains("name a file in a folder to write to"));
    }
}
