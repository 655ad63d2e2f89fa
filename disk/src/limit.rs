//! How many files this process may have open (RLIMIT_NOFILE).
//!
//! A limit has two values: the soft one holds, and a process may raise it as far as the hard one. Many systems set the
//! soft one to 1,024 for the sake of programs that use `select`, and the hard one far above it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as far as the system allows; the number of files that may be open now.
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

/// How many files may be open.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
