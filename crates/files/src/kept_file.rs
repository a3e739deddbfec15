//! Files that a program keeps for its next start.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The kind of object at `path` that must never be replaced: anything but a regular file. A
/// symbolic link counts as an obstacle, wherever it leads, because the file would replace the link.
/// `None` if there is a regular file, no file, or no way to look.
#[must_use]
pub fn obstacle(path: &Path) -> Option<&'static str> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_symlink() => Some("a symbolic link"),
        _ if kind.is_dir() => Some("a folder"),
        _ => Some("a device, a pipe or a socket"),
    }
}

fn way_is_clear(path: &Path) -> io::Result<()> {
    match obstacle(path) {
        None => Ok(()),
        Some(what) => {
            Err(io::Error::other(format!("it is {what}, and only a regular file is replaced")))
        }
    }
}

/// Writes a file in place of the previous one, which stays whole until then. The new file survives
/// a loss of power from then on. Only the owner may read it.
///
/// # Errors
/// The system's error, or an error if there is an [`obstacle`].
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    way_is_clear(path)?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Deletes a file, if there is one.
///
/// # Errors
/// The system's error, or an error if it isn't a regular file.
pub fn delete(path: &Path) -> io::Result<()> {
    way_is_clear(path)?;
    match fs::remove_file(path) {
        Ok(()) => File::open(folder(path))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_replaced_or_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "before").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("/dev/null", path("null")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let links = ["link", "null", "dangling"].map(|name| (name, "it is a symbolic link"));
        for (name, why) in links.into_iter().chain([("folder", "a folder"), ("socket", "a socket")])
        {
            for done in [replace(&path(name), "after"), delete(&path(name))] {
                let error = done.unwrap_err().to_string();
                assert!(error.contains(why), "{name}: {error}");
            }
            assert!(!path(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "before");
        replace(&path("file"), "after").unwrap();
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "after");
        delete(&path("file")).unwrap();
        delete(&path("file")).unwrap();
        // Files written for a place that they could not have are gone.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }
}
