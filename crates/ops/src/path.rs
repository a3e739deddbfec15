//! The default path of a program's control socket.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder of all control sockets, below the folder for files that live while their user is
/// logged in.
const FOLDER: &str = "hotloop";

/// The default path of the control socket of the program `name`:
/// `$XDG_RUNTIME_DIR/hotloop/NAME.sock`, or `/run/hotloop/NAME.sock` if that variable is not set or
/// is no absolute path, which the XDG Base Directory Specification ignores.
///
/// ```
/// let path = hotloop_ops::socket_path("my-balancer");
/// assert!(path.ends_with("hotloop/my-balancer.sock"));
/// ```
#[must_use]
pub fn socket_path(name: &str) -> PathBuf {
    path_in(std::env::var_os("XDG_RUNTIME_DIR"), name)
}

/// The path of the socket for queries beside the control socket at `control`: the same with the
/// ending `query`.
///
/// ```
/// use hotloop_ops::query_path;
/// use std::path::Path;
///
/// assert_eq!(query_path(Path::new("/run/nf/a.sock")), Path::new("/run/nf/a.query"));
/// ```
#[must_use]
pub fn query_path(control: &Path) -> PathBuf {
    control.with_extension("query")
}

/// The default folders of control sockets: that of this user, and that of the system.
#[must_use]
pub fn socket_folders() -> [PathBuf; 2] {
    let folder = |variable| path_in(variable, "").parent().map_or_else(PathBuf::new, PathBuf::from);
    [folder(std::env::var_os("XDG_RUNTIME_DIR")), folder(None)]
}

fn path_in(runtime_folder: Option<OsString>, name: &str) -> PathBuf {
    let folder = runtime_folder.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder.unwrap_or_else(|| Path::new("/run").to_path_buf());
    folder.join(FOLDER).join(format!("{name}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_folder_is_taken_where_it_is_an_absolute_path() {
        let path = |value: Option<&str>| path_in(value.map(OsString::from), "nf");
        assert_eq!(path(Some("/run/user/7")), Path::new("/run/user/7/hotloop/nf.sock"));
        for ignored in [None, Some(""), Some("run/user/7")] {
            assert_eq!(path(ignored), Path::new("/run/hotloop/nf.sock"), "{ignored:?}");
        }
    }
}
