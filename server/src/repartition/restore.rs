//! Saves the progress of a job, and restores it.
//!
//! A job that resumes removes what was written after its checkpoint, and continues to read. Runs that were refilled
//! since the last checkpoint are therefore removed only with the next one. If anything differs from the checkpoint, the
//! job restarts.
//!
//! Invariant: a job resumes from a checkpoint completely or not at all.

use super::checkpoint::{Checkpoint, OpenInputs, RunNote, VERSION};
use super::job_work::JobWork;
use super::resume::Resume;
use super::shared::Jobs;
use super::writer::{OffloadedRun, prefix, run_prefix};
use crate::object_service::ObjectService;
use batch::MultisetChecksum;
use catalog::{CatalogError, HIDDEN_BUCKET, ListRequest, Place};
use model::GroupId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Objects looked up at once.
const PAGE: usize = 1_000;

/// Why a checkpoint is useless.
type Useless = &'static str;

impl Jobs {
    /// The checkpoint from which a job resumes; removes what was written after it. Without a usable checkpoint, removes
    /// everything, and the job restarts.
    pub(super) async fn restore(&self, job: u64) -> Result<Option<Resume>, CatalogError> {
        let Some(saved) = self.context.catalog.checkpoint(job).await? else {
            self.roll_back(job).await?;
            return Ok(None);
        };
        match self.restore_from(job, &saved).await? {
            Ok(resume) => {
                tracing::info!(job, serial = resume.serial, "a repartition job resumes from its checkpoint");
                Ok(Some(resume))
            }
            Err(useless) => {
                self.begin_anew(job, useless).await?;
                Ok(None)
            }
        }
    }

    /// Removes everything that a job has written, with its checkpoint.
    pub(super) async fn begin_anew(&self, job: u64, useless: &str) -> Result<(), CatalogError> {
        tracing::warn!(
            job,
            useless,
            "a repartition job restarts from its beginning, since its checkpoint cannot be used"
        );
        self.roll_back(job).await
    }

    async fn restore_from(
        &self,
        job: u64,
        saved: &catalog::JobCheckpoint,
    ) -> Result<Result<Resume, Useless>, CatalogError> {
        let serial = saved.serial;
        let Ok(checkpoint) = serde_json::from_str::<Checkpoint>(&saved.state) else {
            return Ok(Err("it is of another version, or damaged"));
        };
        if checkpoint.version != VERSION || checkpoint.read.checksum().is_none() {
            return Ok(Err("it is of another version"));
        }
        self.context.catalog.forget_unfinished_checkpoint(job, serial).await?;
        let read = self.context.catalog.checkpoint_inputs(job, serial).await?;
        if read.len() as u64 != checkpoint.inputs_read {
            return Ok(Err("the list of the objects read is incomplete"));
        }
        let hidden = self.remove_behind(job, &checkpoint).await?;
        let objects = hidden.iter().filter(|(key, _)| !key.starts_with(&run_prefix(job))).count() as u64;
        if objects != checkpoint.progress.output_objects {
            return Ok(Err("some of its output is gone"));
        }
        let runs = self.runs(job, hidden).await?;
        let runs = runs.filter(|runs| runs.values().map(Vec::len).sum::<usize>() as u64 == checkpoint.runs);
        let Some(runs) = runs else { return Ok(Err("some offloaded records are gone")) };
        let found: MultisetChecksum = runs.values().flatten().map(|run| run.tally).sum();
        let whole = checkpoint.written.checksum().map(|written| written + found);
        if whole != checkpoint.read.checksum() {
            return Ok(Err("the records written and offloaded differ from those read"));
        }
        Ok(Ok(Resume { serial, checkpoint, read, runs }))
    }

    /// Removes what was written after a checkpoint, or was refilled before it; returns the keys of the other objects,
    /// and their notes.
    async fn remove_behind(&self, job: u64, checkpoint: &Checkpoint) -> Result<Vec<(String, String)>, CatalogError> {
        let refilled: BTreeSet<u64> = checkpoint.refilled.iter().copied().collect();
        let (mut kept, mut start_after) = (Vec::new(), None);
        loop {
            let list = ListRequest { prefix: prefix(job), start_after, max_keys: PAGE, delimiter: None };
            let page = match self.context.catalog.list_objects(HIDDEN_BUCKET, &list).await {
                Err(CatalogError::NoSuchBucket) => return Ok(kept),
                page => page?,
            };
            start_after = page.objects.last().map(|(key, _)| key.clone());
            let mut behind = Vec::new();
            for (key, object) in page.objects {
                let is_refilled = number_of_run(job, &key).is_some_and(|run| refilled.contains(&run));
                if object.version >= checkpoint.objects_below || is_refilled {
                    behind.push(key);
                } else {
                    kept.push((key, object.metadata.into_iter().map(|(_, note)| note).collect()));
                }
            }
            self.remove_hidden(behind).await?;
            if !page.truncated {
                return Ok(kept);
            }
        }
    }

    /// The runs among these objects; `None` if one of them is incomplete.
    async fn runs(
        &self,
        job: u64,
        hidden: Vec<(String, String)>,
    ) -> Result<Option<BTreeMap<(GroupId, GroupId), Vec<OffloadedRun>>>, CatalogError> {
        let mut by_number: BTreeMap<u64, Vec<(String, RunNote)>> = BTreeMap::new();
        for (key, note) in hidden {
            let Some(number) = number_of_run(job, &key) else { continue };
            let Ok(note) = serde_json::from_str(&note) else { return Ok(None) };
            by_number.entry(number).or_default().push((key, note));
        }
        let mut runs: BTreeMap<_, Vec<OffloadedRun>> = BTreeMap::new();
        for (number, members) in by_number {
            let target = members[0].1.target;
            let Some(run) = self.run(number, members).await? else { return Ok(None) };
            runs.entry((run.blob.group, target)).or_default().push(run);
        }
        Ok(Some(runs))
    }

    /// The run of these members; `None` unless they are complete and in one blob.
    async fn run(&self, number: u64, members: Vec<(String, RunNote)>) -> Result<Option<OffloadedRun>, CatalogError> {
        let note = members[0].1.clone();
        let at: Vec<_> = members.iter().map(|(key, _)| (HIDDEN_BUCKET, key.as_str())).collect();
        let placed = self.context.catalog.placed_objects(&at).await?;
        let mut blobs = BTreeSet::new();
        let mut found = Vec::new();
        for ((key, note), placed) in members.iter().zip(placed) {
            let Some(placed) = placed else { return Ok(None) };
            let Place::Stored { blob, offset } = placed.place else { return Ok(None) };
            blobs.insert(blob);
            found.push((note.partition, key.clone(), offset..offset + placed.object.bytes));
        }
        let (Some(blob), true) = (blobs.pop_first(), blobs.is_empty()) else { return Ok(None) };
        let Some(tally) = note.tally.checksum().filter(|_| found.len() as u64 == note.members) else {
            return Ok(None);
        };
        let Some(blob) = self.context.catalog.blob(blob).await? else { return Ok(None) };
        found.sort_by_key(|(_, _, range)| range.start);
        Ok(Some(OffloadedRun { number, blob, members: found, counted: note.counted, tally }))
    }

    async fn remove_hidden(&self, keys: Vec<String>) -> Result<(), CatalogError> {
        let catalog = &self.context.catalog;
        self.remove(keys.into_iter().map(|key| async move { catalog.delete_object(HIDDEN_BUCKET, &key).await })).await
    }
}

/// The number of the run to which an object of the hidden bucket belongs.
fn number_of_run(job: u64, key: &str) -> Option<u64> {
    key.strip_prefix(&run_prefix(job))?.split('/').next()?.parse().ok()
}

impl JobWork {
    /// Makes the progress of the job durable, with these objects of the input open. Nothing is buffered or under way.
    ///
    /// # Errors
    /// Why that failed, in words; nothing has changed then.
    pub async fn checkpoint(&self, open: &OpenInputs, pending: MultisetChecksum) -> Result<(), String> {
        let catalog = &self.context.catalog;
        let objects_below = catalog.next_version_id().await.map_err(|error| error.to_string())?;
        let spent = self.spent().await.ok_or("the world has ended")?;
        let (serial, checkpoint, read) = self.state_of(objects_below, spent, (open, pending))?;
        let state = serde_json::to_string(&checkpoint).map_err(|error| error.to_string())?;
        let saved = catalog::JobCheckpoint { serial, state };
        catalog.save_checkpoint(self.job.0, &saved, &read).await.map_err(|error| error.to_string())?;
        let removed = self.was_saved(serial, read.len());
        let service = ObjectService::new(self.context.clone(), self.world.clone(), Duration::ZERO);
        for (_, key, _) in removed.iter().flat_map(|run| &run.members) {
            // Objects that cannot be removed now are removed when the job has ended.
            if let Ok(displaced) = catalog.delete_object(HIDDEN_BUCKET, key).await {
                service.displaced(displaced);
            }
        }
        Ok(())
    }
}
