//! Reading the files that a configuration is, or names.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a regular file, up to `bytes_max` bytes of it. Opening it never waits for anybody, as opening
/// a FIFO does.
///
/// # Errors
/// The system's, and where it is no regular file.
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

/// How large a file of certificates may be, in bytes: more is a mistake in its name.
const CA_FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file of certificates.
///
/// # Errors
/// As of [`read`].
pub fn read_certificates(path: &Path) -> io::Result<Vec<u8>> {
    read(path, CA_FILE_BYTES_MAX)
}
