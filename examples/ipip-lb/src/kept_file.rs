//! Files that a node keeps for its next start.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file in place of the one before, which stays whole until then, and outlasts a loss of power from then on. It is
/// for the owner's eyes alone.
///
/// # Errors
/// The system's.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Deletes a file, if there is one.
///
/// # Errors
/// The system's.
pub fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => File::open(folder(path))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}
