//! Jobs that write objects: their records, the hidden bucket of unpublished objects, and the batches that publish them.
//!
//! An object of a job was never in the workshop: one batch makes a blob, which was written from memory, known together
//! with the objects in it ([`Catalog::commit_job_blob`]). They are in the bucket [`HIDDEN_BUCKET`], whose name no S3
//! client can use. Publishing moves records and no bytes ([`Catalog::publish`]).
//!
//! Invariants: a job's record changes only from the state that the caller has seen; an object is in the hidden bucket
//! or where it was published, never in both; a published object never takes the place of another object.

use crate::blob::{check_members, commit_batch};
use crate::catalog::{Catalog, STEP};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::object::Displaced;
use crate::object::{enter_workshop, leave_workshop};
use crate::record::{Blob, Bucket, Member, Object, Place, PlacedObject, VersionId, encode, value};
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The bucket of objects that jobs have written and not yet published. No bucket of S3 begins with a dot.
pub const HIDDEN_BUCKET: &str = ".larder-jobs";

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It works. After a restart of the server it resumes from its checkpoint, or starts over.
    Running,
    /// It is paused. Resuming continues from where it stopped or, after a restart of the server, from its checkpoint or
    /// from the beginning.
    Paused,
    /// Its output is complete and verified, and is being moved to its destination.
    Publishing,
    /// Its output is published, and the input that was read is being removed.
    Removing,
    /// It ended with success.
    Done,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed,
}

impl JobState {
    /// True if the job has ended.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Failed)
    }
}

/// The record of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number; from 1 on, in the order of the requests.
    pub job: u64,
    /// Its state.
    pub state: JobState,
    /// Time of the request, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// Time at which it ended, in milliseconds of the Unix epoch.
    pub ended_ms: Option<u64>,
    /// The request, as JSON, which only the server interprets.
    pub request: String,
    /// Forecast and result, as JSON, which only the server interprets. Empty at first.
    pub report: String,
    /// The reason for its failure or for not continuing, for people; empty if it has no reason.
    pub reason: String,
}

/// An object of a job, with its position in the blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobObject {
    /// Its key in the hidden bucket.
    pub key: String,
    /// Its S3 record.
    pub object: Object,
    /// Offset of its first byte in the payload.
    pub offset: u64,
}

/// An object that a job has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInput {
    /// The version that was read.
    pub version: VersionId,
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
}

/// A move of an object out of the hidden bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Its key in the hidden bucket.
    pub from: String,
    /// Its key after publication.
    pub to: String,
}

impl Catalog {
    /// Adds a new job. Its number is chosen here, and the number in `job` is ignored.
    ///
    /// # Errors
    /// [`CatalogError::Conflict`].
    pub async fn create_job(&self, job: &Job) -> Result<Job, CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let highest = self.last_job().await?;
            let job = Job { job: highest + 1, ..job.clone() };
            let at = key::job(job.job);
            let writes = vec![Write::Put(at.clone(), encode(&job))];
            if self.apply(Batch::new(vec![Check::Absent(at)], writes)).await? {
                return Ok(job);
            }
        }
    }

    /// The highest number of a job that has a record, damaged or not; 0 if no job has one.
    async fn last_job(&self) -> Result<u64, CatalogError> {
        let jobs = self.all_entries(&key::all(Tag::Job), |entry| key::numbers::<1>(&entry.key)).await?;
        Ok(jobs.last().map_or(0, |[job]| *job))
    }

    /// All jobs, by number.
    pub async fn jobs(&self) -> Result<Vec<Job>, CatalogError> {
        self.all_entries(&key::all(Tag::Job), value).await
    }

    /// The job of that number.
    pub async fn job(&self, job: u64) -> Result<Option<Job>, CatalogError> {
        self.read(&key::job(job)).await
    }

    /// Replaces the record `old` with `new`.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the record is not `old`.
    pub async fn change_job(&self, old: &Job, new: &Job) -> Result<(), CatalogError> {
        assert_eq!(old.job, new.job, "the number of a job never changes");
        let at = key::job(old.job);
        let writes = vec![Write::Put(at.clone(), encode(new))];
        self.apply_or(Batch::new(vec![Check::Is(at, encode(old))], writes), CatalogError::PreconditionFailed).await
    }

    /// Forgets a job that has ended, and the list of objects that it had read.
    pub async fn forget_job(&self, job: u64) -> Result<(), CatalogError> {
        let ranges = [key::job_inputs(job), key::checkpoint(job)];
        let mut writes = vec![Write::Delete(key::job(job))];
        writes.extend(ranges.iter().map(|range| Write::DeleteRange(KeyRange::prefix(range))));
        self.write(writes).await
    }

    /// Records that `job` has read these objects of `bucket`, by version and key. They are removed when its output is
    /// published.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the job does not exist.
    pub async fn add_job_inputs(
        &self,
        job: u64,
        bucket: &str,
        inputs: &[(VersionId, Arc<str>)],
    ) -> Result<(), CatalogError> {
        for page in inputs.chunks(STEP) {
            let put = |(version, key): &(VersionId, Arc<str>)| {
                Write::Put(key::job_input(job, *version), encode(&(bucket, &**key)))
            };
            let writes = page.iter().map(put).collect();
            let batch = Batch::new(vec![Check::Present(key::job(job))], writes);
            self.apply_or(batch, CatalogError::PreconditionFailed).await?;
        }
        Ok(())
    }

    /// The first `limit` objects that `job` has read and that must still be removed.
    pub async fn job_inputs(&self, job: u64, limit: usize) -> Result<Vec<JobInput>, CatalogError> {
        let input = |entry: &Entry| {
            let [_, version] = key::numbers(&entry.key)?;
            let (bucket, key) = value(entry)?;
            Ok(JobInput { version: VersionId(version), bucket, key })
        };
        Ok(self.page(&key::job_inputs(job), None, limit, input).await?.items)
    }

    /// Forgets all versions that `job` has read; they stay in the catalog.
    pub async fn clear_job_inputs(&self, job: u64) -> Result<(), CatalogError> {
        let writes = vec![Write::DeleteRange(KeyRange::prefix(&key::job_inputs(job)))];
        self.write(writes).await
    }

    /// Removes an object that `job` has read, if that version lives, and deletes it from the job's list.
    ///
    /// # Errors
    /// [`CatalogError::Conflict`].
    pub async fn remove_job_input(&self, job: u64, input: &JobInput) -> Result<Displaced, CatalogError> {
        let JobInput { version, bucket, key } = input;
        let done = Write::Delete(key::job_input(job, *version));
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let mut batch = Batch::new(Vec::new(), vec![done.clone()]);
            let mut displaced = Displaced::Nothing;
            let is_read = |placed: &PlacedObject| placed.object.version == *version;
            let living = self.living(bucket, key).await?;
            if let Some(living) = living.filter(|living| living.placed.as_ref().is_some_and(is_read)) {
                let taken = self.displace(bucket, key, Some(&living), &mut batch).await?;
                let Ok(taken) = taken else { continue };
                batch.writes.push(Write::Delete(key::object(bucket, key)));
                displaced = taken;
            }
            if self.apply(batch).await? {
                return Ok(displaced);
            }
        }
    }

    /// Creates the hidden bucket unless it exists.
    pub async fn make_hidden_bucket(&self, now_ms: u64) -> Result<(), CatalogError> {
        match self.create_bucket(&Bucket::new(HIDDEN_BUCKET, now_ms, "")).await {
            Ok(()) | Err(CatalogError::BucketExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes `blob`, whose stacks are synced and read back, known together with its objects. From now on they are in
    /// the hidden bucket and in no other place.
    ///
    /// # Errors
    /// [`CatalogError::NoIntent`] if the blob was not begun, or was committed or aborted;
    /// [`CatalogError::PreconditionFailed`] if the hidden bucket does not exist, or an object of that key or version
    /// does.
    ///
    /// # Panics
    /// If a member reaches beyond the payload or is named twice.
    pub async fn commit_job_blob(&self, blob: &Blob, made: &[JobObject]) -> Result<(), CatalogError> {
        let member =
            |made: &JobObject| Member { version: made.object.version, offset: made.offset, bytes: made.object.bytes };
        let members: Vec<Member> = made.iter().map(member).collect();
        check_members(blob, &members);
        assert!(!members.is_empty(), "a job writes a blob for the objects in it");
        let mut batch = commit_batch(blob);
        batch.checks.push(Check::Present(key::bucket(HIDDEN_BUCKET)));
        for (JobObject { key, object, offset }, member) in made.iter().zip(&members) {
            let place = Place::Stored { blob: blob.blob, offset: *offset };
            let placed = PlacedObject { object: object.clone(), place, staged_ms: object.modified_ms };
            let at = key::object(HIDDEN_BUCKET, key);
            batch.checks.push(Check::Absent(at.clone()));
            batch.checks.push(Check::Absent(key::member(blob.blob, *offset, object.version)));
            batch.writes.push(Write::Put(at, encode(&placed)));
            batch.writes.push(Write::Put(key::member(blob.blob, *offset, object.version), encode(&member.bytes)));
        }
        if self.apply(batch).await? {
            return Ok(());
        }
        let begun = self.store.get(&key::intent(blob.blob)).await?.is_some();
        Err(if begun { CatalogError::PreconditionFailed } else { CatalogError::NoIntent(blob.blob) })
    }

    /// Moves these objects of the hidden bucket to `bucket` in one batch; no bytes move. An object that is no longer in
    /// the hidden bucket is left out.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], also if another bucket has that name by now;
    /// [`CatalogError::PreconditionFailed`] if a destination key has an object (see [`Catalog::first_taken`]);
    /// [`CatalogError::Conflict`].
    pub async fn publish(&self, bucket: &Bucket, publications: &[Publication]) -> Result<(), CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let is_there = Check::Is(key::bucket(&bucket.name), self.same_bucket(bucket).await?);
            let mut batch = Batch::new(vec![is_there], Vec::new());
            for publication in publications {
                self.move_out(&bucket.name, publication, &mut batch).await?;
            }
            if self.apply(batch).await? {
                return Ok(());
            }
            if self.first_taken(&bucket.name, publications).await?.is_some() {
                return Err(CatalogError::PreconditionFailed);
            }
        }
    }

    /// The first destination key that already has an object.
    pub async fn first_taken(&self, bucket: &str, to: &[Publication]) -> Result<Option<String>, CatalogError> {
        for page in to.chunks(STEP) {
            let keys = page.iter().map(|publication| key::object(bucket, &publication.to)).collect();
            let found = self.store.get_many(keys).await?;
            if let Some(at) = found.iter().position(Option::is_some) {
                return Ok(Some(page[at].to.clone()));
            }
        }
        Ok(None)
    }

    /// Adds to `batch`: one object leaves the hidden bucket.
    async fn move_out(&self, bucket: &str, publication: &Publication, batch: &mut Batch) -> Result<(), CatalogError> {
        let Publication { from, to } = publication;
        let (source, target) = (key::object(HIDDEN_BUCKET, from), key::object(bucket, to));
        let Some((placed, raw)) = self.read_raw::<PlacedObject>(&source).await? else { return Ok(()) };
        batch.checks.push(Check::Is(source.clone(), raw.clone()));
        batch.checks.push(Check::Absent(target.clone()));
        // The workshop's indexes have a version by its name if it was evacuated meanwhile.
        if matches!(placed.place, Place::Staged { .. }) {
            leave_workshop(HIDDEN_BUCKET, from, &placed, batch);
            enter_workshop(bucket, to, &placed, batch);
        } else {
            // Its mark has the old name; the next failed read marks it again.
            batch.writes.push(Write::Delete(key::unreadable(placed.object.version)));
        }
        batch.writes.push(Write::Delete(source));
        batch.writes.push(Write::Put(target, raw));
        Ok(())
    }
}
