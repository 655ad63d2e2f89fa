//! Run marks: the last runs of the server that used the workshop, as names of files of one byte beside the staged
//! files.
//!
//! A catalog remembers its own runs. A catalog that does not know the marked run is not the one that was used last: it
//! was restored from a backup, or belongs elsewhere.

use crate::names::{run_mark_name, run_of};
use crate::staging::Staging;
use disk::DriveError;
use std::collections::BTreeSet;

impl Staging {
    /// The marked runs: one, or two if a server ended between creating a mark and removing the last one. Empty in a
    /// workshop that is new, or lost its marks.
    pub async fn marked_runs(&self) -> Result<BTreeSet<u64>, DriveError> {
        let mut runs = BTreeSet::new();
        self.drive().each_name(&mut |name| runs.extend(run_of(name))).await?;
        Ok(runs)
    }

    /// Marks `run`; other marks stay.
    pub async fn mark_run(&self, run: u64) -> Result<(), DriveError> {
        let name = run_mark_name(run);
        match self.drive().create(&name, 1).await {
            Ok(()) | Err(DriveError::Exists(_)) => self.drive().sync(&name).await,
            Err(error) => Err(error),
        }
    }

    /// Removes the marks of `marked`, except that of `run`.
    pub async fn remove_other_marks(&self, marked: BTreeSet<u64>, run: u64) -> Result<(), DriveError> {
        for other in marked.into_iter().filter(|other| *other != run) {
            self.drive().remove(&run_mark_name(other)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::testing::{run, staging};

    #[test]
    fn the_mark_of_a_run_survives_a_crash_and_is_neither_staged_nor_a_stranger() {
        run(async {
            let (drive, staging) = staging(1 << 20);
            assert!(staging.marked_runs().await.unwrap().is_empty());
            staging.mark_run(7).await.unwrap();
            staging.mark_run(7).await.unwrap();
            staging.mark_run(9).await.unwrap();
            drive.crash();
            assert_eq!(staging.marked_runs().await.unwrap(), [7, 9].into());
            staging.remove_other_marks([7, 9].into(), 9).await.unwrap();
            assert_eq!(staging.marked_runs().await.unwrap(), [9].into());
            assert_eq!(staging.inventory().await.unwrap(), crate::Inventory::default());
            assert_eq!(staging.survey().await.unwrap(), crate::Survey { slots_end: 0, marked_runs: [9].into() });
        });
    }
}
