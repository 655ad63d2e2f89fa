//! Checkpoints of jobs: how far a job is, so that it goes on from there when the server has ended.
//!
//! A checkpoint is one record, which the next one replaces, and a record for each object of the input that was read to
//! its end. Those are added before the record whose serial number they carry: until it is there they do not count.
//!
//! Invariants: a job has one checkpoint at most, and it is whole; what was read counts with its checkpoint, or not at
//! all.

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
    /// Its number, from 1 on: one more than that of the checkpoint before it.
    pub serial: u64,
    /// How far the job is, as JSON, which only the server interprets.
    pub state: String,
}

impl Catalog {
    /// Replaces the checkpoint of `job`. `read` are the objects of the input that were read to their end since the
    /// checkpoint before, by version and key.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if there is no such job.
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

    /// The objects of the input that `job` had read to their end at its checkpoint of this serial number.
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

    /// Forgets what was added for checkpoints behind the one of this serial number, which never came to be.
    pub async fn forget_unfinished_checkpoint(&self, job: u64, serial: u64) -> Result<(), CatalogError> {
        let later = KeyRange::prefix(&key::checkpoint_input_prefix(job, serial + 1));
        self.write(vec![Write::DeleteRange(later)]).await
    }

    /// Forgets the checkpoint of `job`.
    pub async fn clear_checkpoint(&self, job: u64) -> Result<(), CatalogError> {
        self.write(vec![Write::DeleteRange(KeyRange::prefix(&key::checkpoint(job)))]).await
    }
}
