//! The path of the socket, for a data directory whose path may have any length.
//!
//! A socket's address has room for 107 bytes of path (`sun_path`). Longer paths go through the open directory, as
//! `/proc/self/fd/N/admin.sock`, which is always short.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

const NAME: &str = "admin.sock";
/// The directory in which the socket is made, before it moves to its name.
const NEW_DIR: &str = "admin.new";
/// The longest path that every Unix accepts in a socket's address.
const ADDRESS_BYTES: usize = 103;

/// The directory of a socket, as a path that is short enough.
#[derive(Debug)]
pub(super) struct SocketPlace {
    dir: PathBuf,
    /// Keeps `/proc/self/fd/N` valid.
    _open: Option<File>,
}

impl SocketPlace {
    pub(super) fn in_dir(dir: &Path) -> io::Result<Self> {
        if dir.join(NEW_DIR).join(NAME).as_os_str().as_bytes().len() <= ADDRESS_BYTES {
            return Ok(Self { dir: dir.to_owned(), _open: None });
        }
        let open = File::open(dir)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        if !short.exists() {
            let message = format!(
                "the path {} is too long for a socket; use a data directory with a shorter path",
                dir.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, message));
        }
        Ok(Self { dir: short, _open: Some(open) })
    }

    /// Binds a socket to which only the owner can ever connect.
    pub(super) fn bind(&self) -> io::Result<UnixListener> {
        let new_dir = self.dir.join(NEW_DIR);
        if new_dir.exists() {
            fs::remove_dir_all(&new_dir)?;
        }
        DirBuilder::new().mode(0o700).create(&new_dir)?;
        let new_socket = new_dir.join(NAME);
        let listener = UnixListener::bind(&new_socket)?;
        fs::set_permissions(&new_socket, Permissions::from_mode(0o600))?;
        fs::rename(&new_socket, self.dir.join(NAME))?;
        fs::remove_dir(&new_dir)?;
        Ok(listener)
    }

    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.dir.join(NAME)).await
    }

    /// Removes the socket. If that fails, the next server replaces it.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_file(self.dir.join(NAME)) {
            tracing::debug!(%error, "the admin socket no longer exists");
        }
    }
}
