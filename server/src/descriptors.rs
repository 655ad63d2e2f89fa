//! The shares of the limit of open files.
//!
//! A process may have only a limited number of open files (RLIMIT_NOFILE), and an operation that needs more fails in
//! the middle. So the limit is apportioned at start, and each part keeps to its share: files on drives, files in the
//! workshop, connections. The rest (the catalog, sockets, the needs of the runtime) is small and fixed.
//!
//! If the limit is too low for all wishes, each part gets its minimum and a fixed share of the remainder, and the log
//! reports it. If it is too low for the minimums, the server does not start.

use disk::{DESCRIPTORS_PER_FILE, limit};

/// Descriptors for everything that is not apportioned: standard streams, listeners, the runtime, the catalog with its
/// readers, locks, the trace, and connections of the admin socket.
const FIXED: u64 = 128;

/// Files open on all drives of the rack together: the minimum, and the number if there is room. In one class at a time
/// k + r files are read or written; calls that find no free file wait for another call to end.
const RACK_FILES: (u64, u64) = (16, 256);
/// Files open in each of the two directories of the workshop.
const WORKSHOP_FILES: (u64, u64) = (4, 64);
/// The workshop's directories: staged files and recalls.
const WORKSHOP_DIRECTORIES: u64 = 2;
/// Maximum number of locks of owner marks of mounted media; more drives are rarely awake at once.
const LOCKS: u64 = 192;
/// Minimum number of connections.
const CONNECTIONS_MIN: u64 = 16;

/// The shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Files open on all drives of the rack together.
    pub rack_files: usize,
    /// Files open in each directory of the workshop.
    pub workshop_files: usize,
    /// Locks of owner marks.
    pub locks: usize,
    /// Connections of clients.
    pub connections: usize,
}

/// The process may have too few open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may open only {limit} files (RLIMIT_NOFILE), and needs {needed}, or {wanted} for everything that is \
     configured; raise the limit with `ulimit -n {wanted}`, or with LimitNOFILE={wanted} in the service's unit"
)]
pub struct TooFewDescriptors {
    /// The limit.
    pub limit: u64,
    /// The minimum to start.
    pub needed: u64,
    /// The number that it would use.
    pub wanted: u64,
}

/// Descriptors for this number of files and connections.
fn sum(rack_files: u64, workshop_files: u64, connections: u64) -> u64 {
    let files = rack_files + WORKSHOP_DIRECTORIES * workshop_files;
    FIXED + files * DESCRIPTORS_PER_FILE + connections
}

impl Descriptors {
    /// Raises the process's limit as far as possible, and apportions it.
    ///
    /// # Errors
    /// [`TooFewDescriptors`].
    pub fn of_this_process(connection_limit: u32) -> Result<Self, TooFewDescriptors> {
        let limit = limit::raise_open_files();
        let shares = Self::of(limit, connection_limit)?;
        let wanted = Self::wanted(connection_limit);
        if limit < wanted {
            tracing::warn!(
                "this process may open {limit} files, and would use {wanted}: it accepts {} connections at once \
                 instead of {connection_limit}; raise the limit with `ulimit -n {wanted}` or LimitNOFILE={wanted}",
                shares.connections
            );
        }
        Ok(shares)
    }

    fn wanted(connection_limit: u32) -> u64 {
        sum(RACK_FILES.1, WORKSHOP_FILES.1, connection_limit.into()) + LOCKS
    }

    /// The shares of `limit` descriptors.
    ///
    /// # Errors
    /// [`TooFewDescriptors`].
    pub fn of(limit: u64, connection_limit: u32) -> Result<Self, TooFewDescriptors> {
        let wanted_connections = u64::from(connection_limit);
        let connections_min = CONNECTIONS_MIN.min(wanted_connections);
        let needed = sum(RACK_FILES.0, WORKSHOP_FILES.0, connections_min);
        let Some(left) = limit.checked_sub(needed) else {
            return Err(TooFewDescriptors { limit, needed, wanted: Self::wanted(connection_limit) });
        };
        // Half of the remainder is for files: three quarters of that half for the rack's.
        let rack_files = RACK_FILES.1.min(RACK_FILES.0 + left / 8 * 3 / DESCRIPTORS_PER_FILE);
        let of_each = left / 8 / DESCRIPTORS_PER_FILE / WORKSHOP_DIRECTORIES;
        let workshop_files = WORKSHOP_FILES.1.min(WORKSHOP_FILES.0 + of_each);
        let locks = LOCKS.min(left / 8);
        let connections = wanted_connections.min(limit - locks - sum(rack_files, workshop_files, 0));
        assert!(sum(rack_files, workshop_files, connections) + locks <= limit, "nobody gets what is not there");
        Ok(Self {
            rack_files: rack_files as usize,
            workshop_files: workshop_files as usize,
            locks: locks as usize,
            connections: connections as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Config;

    #[test]
    fn with_room_enough_everybody_gets_what_he_wants() {
        let all = Descriptors { rack_files: 256, workshop_files: 64, locks: 192, connections: 5120 };
        let usual = Config::default().connection_limit;
        assert_eq!(Descriptors::of(6_592, usual), Ok(all), "what docs/reference/limits.md says");
        assert_eq!(Descriptors::of(u64::MAX, usual), Ok(all));
        assert!(Descriptors::of(6_591, usual).unwrap().connections < all.connections);
    }

    #[test]
    fn shares_never_come_to_more_than_there_is() {
        for limit in 0..4096 {
            for connections in [1, 64, 1024, u32::MAX] {
                match Descriptors::of(limit, connections) {
                    Ok(shares) => {
                        let Descriptors { rack_files, workshop_files, locks, connections } = shares;
                        let files = sum(rack_files as u64, workshop_files as u64, connections as u64);
                        assert!(files + locks as u64 <= limit);
                        assert!(rack_files >= 16 && workshop_files >= 4 && connections >= 1);
                    }
                    Err(too_few) => assert!(limit < too_few.needed && too_few.needed <= 256),
                }
            }
        }
    }

    #[test]
    fn the_usual_limit_is_enough_for_all_classes_and_many_connections() {
        let usual = Descriptors::of(1024, Config::default().connection_limit).unwrap();
        assert!(usual.rack_files >= 4 * 18, "{usual:?}");
        assert!(usual.locks >= 96, "for the drives of pelican that are awake: {usual:?}");
        assert!(usual.connections >= 256, "as many as there may be requests: {usual:?}");
    }

    #[test]
    fn a_limit_that_is_too_low_is_named_with_its_fix() {
        let said = Descriptors::of(100, 1024).unwrap_err().to_string();
        for word in ["100 files", "RLIMIT_NOFILE", "ulimit -n", "LimitNOFILE="] {
            assert!(said.contains(word), "{said}");
        }
    }
}
