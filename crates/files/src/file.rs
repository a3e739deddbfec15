//! Files that an operator names: a configuration, or those it refers to.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a regular file, up to `bytes_max` bytes of it. Opening it never waits for another program, as
/// opening a FIFO does.
///
/// # Errors
/// The system's error, or an error if it isn't a regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::take(file, bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Maximum length of a file of certificates, in bytes: a longer one is a mistake in its name.
const CA_FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file of certificates, up to 16 MiB of it.
///
/// # Errors
/// Like [`read`].
pub fn read_certificates(path: &Path) -> io::Result<Vec<u8>> {
    read(path, CA_FILE_BYTES_MAX)
}
