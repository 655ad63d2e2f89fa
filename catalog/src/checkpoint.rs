//! Checkpoints of jobs: the progress of a job, so that it resumes after a restart of the server.
//!
//! A checkpoint is one record, which the next checkpoint replaces, and one record for each input object that was read
//! to its end. The object records are added first and carry the serial number of the main record; without it they do
//! not count.
//!
//! Invariants: a job has at most one checkpoint, and it is whole; the objects that were read count with their
//! checkpoint or not at all.

use crate::catalog::{Catalog, STEP};
use crate::error::CatalogError;
use crate::key;
use crate::record::{VersionId, encode, value};
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The checkpoint of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCheckpoint {
    /// Its number, from 1 on: one more than the number of the previous checkpoint.
    pub serial: u64,
    /// The progress of the job, as JSON, which only the server interprets.
    pub state: String,
}

impl Catalog {
    /// Replaces the checkpoint of `job`. `read` are the input objects that were read to their end since the previous
    /// checkpoint, by version and key.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the job does not exist.
    pub async fn save_checkpoint(
        &self,
        job: u64,
        checkpoint: &JobCheckpoint,
        read: &[(VersionId, Arc<str>)],
    ) -> Result<(), CatalogError> {
        let batch = |writes| Batch::new(vec![Check::Present(key::job(job))], writes);
        for page in read.chunks(STEP) {
            let put = |(version, key): &(VersionId, Arc<str>)| {
                Write::Put(key::checkpoint_input(job, checkpoint.serial, *version), encode(&&**key))
            };
            self.apply_or(batch(page.iter().map(put).collect()), CatalogError::PreconditionFailed).await?;
        }
        let writes = vec![Write::Put(key::checkpoint(job), encode(checkpoint))];
        self.apply_or(batch(writes), CatalogError::PreconditionFailed).await
    }

    /// The checkpoint of `job`, if it has one.
    pub async fn checkpoint(&self, job: u64) -> Result<Option<JobCheckpoint>, CatalogError> {
        self.read(&key::checkpoint(job)).await
    }

    /// The input objects that `job` had read to their end at its checkpoint with this serial number.
    pub async fn checkpoint_inputs(&self, job: u64, serial: u64) -> Result<Vec<(VersionId, Arc<str>)>, CatalogError> {
        let input = |entry: &Entry| {
            if entry.key == key::checkpoint(job) {
                return Ok(None);
            }
            let [_, of, version] = key::numbers(&entry.key)?;
            let key: String = value(entry)?;
            Ok((of <= serial).then(|| (VersionId(version), Arc::from(key))))
        };
        Ok(self.all_entries(&key::checkpoint(job), input).await?.into_iter().flatten().collect())
    }

    /// Forgets the object records that were added for checkpoints after this serial number, which were never finished.
    pub async fn forget_unfinished_checkpoint(&self, job: u64, serial: u64) -> Result<(), CatalogError> {
        let later = KeyRange::prefix(&key::checkpoint_input_prefix(job, serial + 1));
        self.write(vec![Write::DeleteRange(later)]).await
    }

    /// Forgets the checkpoint of `job`.
    pub async fn clear_checkpoint(&self, job: u64) -> Result<(), CatalogError> {
        self.write(vec![Write::DeleteRange(KeyRange::prefix(&key::checkpoint(job)))]).await
    }
}
