//! The number of files that this process may have open (RLIMIT_NOFILE).
//!
//! A limit has two values: the soft one is in effect, and a process may raise it up to the hard one. Many systems set
//! the soft one to 1,024 for programs that use `select`, and the hard one far above it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as far as the system allows; returns the number of files that may now be
/// open.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files cannot be raised to the hard one");
        }
    }
    open_files()
}

/// The number of files that may be open.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
