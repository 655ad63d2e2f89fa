//! The owner of a medium: does its mark belong to this data directory?

use crate::run::RunId;
use alloc::collections::BTreeSet;

/// The runs of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnRuns {
    /// Its recorded runs.
    pub known: BTreeSet<RunId>,
    /// The last of those.
    pub previous: Option<RunId>,
    /// The run of this process, if it writes.
    pub current: Option<RunId>,
    /// The operator's consent (`larder take-over`): marks up to this time count as the directory's own, in milliseconds
    /// of the Unix epoch; 0 without consent.
    pub accepted_ms: u64,
}

impl OwnRuns {
    /// True if a medium that `run` marked at `marked_ms` belongs to this directory. A mark of an unknown run is another
    /// server's: the directory is a copy, or was restored from a backup.
    pub fn owns(&self, run: RunId, marked_ms: u64) -> bool {
        self.known.contains(&run) || self.current == Some(run) || marked_ms <= self.accepted_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_an_unknown_run_is_anothers_until_the_operator_consents() {
        let known: BTreeSet<RunId> = [RunId(1), RunId(2)].into();
        let own = OwnRuns { known, previous: Some(RunId(2)), current: Some(RunId(3)), accepted_ms: 0 };
        for (run, is_own) in [(1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(own.owns(RunId(run), 10), is_own, "run {run}");
        }
        let consented = OwnRuns { accepted_ms: 10, ..own };
        assert!(consented.owns(RunId(4), 10) && !consented.owns(RunId(4), 11));
    }
}
