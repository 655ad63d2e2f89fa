//! The end of a job: its output is published and its input removed, or everything that it wrote is removed.

use super::places::target_is_free;
use super::report::{Place, Request};
use super::shared::{Jobs, kept};
use super::writer::{out_prefix, prefix};
use crate::object_service::ObjectService;
use catalog::{CatalogError, Displaced, HIDDEN_BUCKET, Job, JobState, ListRequest, Publication};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::time::Duration;

/// Objects looked up at once.
const PAGE: usize = 1_000;
/// Objects that are published at once: a few tens of MB in one commit.
const PUBLISHED_AT_ONCE: usize = 20_000;
/// Concurrent removals, so that they share commits.
const REMOVED_BESIDE: usize = 64;

/// Why an output is not published for now.
type Blocked = String;

impl Jobs {
    /// Publishes the output of a complete job. Output that cannot be published stays where it is, and the job records
    /// the reason. The caller holds the job's state lock, or no other task knows the job yet.
    pub(super) async fn publish(&self, job: Job) -> Result<Job, CatalogError> {
        if job.state != JobState::Publishing {
            return Ok(job);
        }
        let request: Request = serde_json::from_str(&job.request).unwrap_or_default();
        let blocked = match self.publish_to(&job, &request).await {
            Ok(None) => {
                let state = if request.remove_input { JobState::Removing } else { JobState::Done };
                return self.advance(job, state).await;
            }
            Ok(Some(blocked)) => blocked,
            Err(error) => error.to_string(),
        };
        let reason = format!(
            "its output is complete but not published to {}: {blocked}; then run `larder repartition resume {number}`, \
             or `larder repartition cancel {number}`",
            request.to,
            number = job.job
        );
        tracing::error!(job = job.job, reason, "the output of a repartition job waits to be published");
        let explained = Job { reason, ..job.clone() };
        self.context.catalog.change_job(&job, &explained).await?;
        Ok(explained)
    }

    /// Finishes a job whose output is published: removes runs that a crash left between two deletes, and the input if
    /// the request asks for that.
    pub(super) async fn tidy(&self, job: Job) -> Result<(), CatalogError> {
        if job.state == JobState::Publishing {
            return Ok(());
        }
        self.context.catalog.clear_checkpoint(job.job).await?;
        self.roll_back_objects(job.job).await?;
        if job.state == JobState::Removing {
            self.remove_inputs(job.job).await?;
            self.advance(job, JobState::Done).await?;
        }
        Ok(())
    }

    async fn advance(&self, job: Job, state: JobState) -> Result<Job, CatalogError> {
        let ended_ms = state.is_over().then(|| (self.context.wall)());
        assert!(!job.state.is_over(), "job {} is not over before it goes on", job.job);
        let next = Job { state, ended_ms, reason: String::new(), ..job.clone() };
        self.context.catalog.change_job(&job, &next).await?;
        Ok(next)
    }

    async fn publish_to(&self, job: &Job, request: &Request) -> Result<Option<Blocked>, CatalogError> {
        let place = &request.to;
        let Some(target) = kept(job).target else { return Ok(Some("its target bucket is unknown".into())) };
        // Once clients see some of the output, the prefix holds this job's own objects.
        if self.nothing_is_published(job).await?
            && let Err(reason) = target_is_free(&self.context.catalog, &request.from, place).await
        {
            return Ok(Some(reason));
        }
        loop {
            let page = self.output(job.job, place, PUBLISHED_AT_ONCE).await?;
            if page.is_empty() {
                return Ok(None);
            }
            match self.context.catalog.publish(&target, &page).await {
                Ok(()) => {}
                Err(CatalogError::PreconditionFailed) => {
                    let key = self.context.catalog.first_taken(&place.bucket, &page).await?.unwrap_or_default();
                    return Ok(Some(format!("the object s3://{}/{key} already exists; remove it", place.bucket)));
                }
                Err(CatalogError::NoSuchBucket) => {
                    return Ok(Some(format!(
                        "the bucket `{}` is gone, or was replaced by another of that name",
                        place.bucket
                    )));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Unpublished output in key order, with the keys to publish it under.
    pub(super) async fn output(&self, job: u64, place: &Place, limit: usize) -> Result<Vec<Publication>, CatalogError> {
        let hidden = out_prefix(job);
        let mut found: Vec<Publication> = Vec::new();
        while found.len() < limit {
            let start_after = found.last().map(|last| last.from.clone());
            let list = ListRequest { prefix: hidden.clone(), start_after, max_keys: PAGE, delimiter: None };
            let page = self.context.catalog.list_objects(HIDDEN_BUCKET, &list).await?;
            found.extend(page.objects.into_iter().map(|(from, _)| {
                let name = from.strip_prefix(&hidden);
                let to = format!("{}{}", place.prefix, name.expect("a listing has what begins with its prefix"));
                Publication { from, to }
            }));
            if !page.truncated {
                break;
            }
        }
        Ok(found)
    }

    /// True if clients see nothing of a job's output yet: all the objects that it wrote are still hidden.
    pub(super) async fn nothing_is_published(&self, job: &Job) -> Result<bool, CatalogError> {
        let request: Request = serde_json::from_str(&job.request).unwrap_or_default();
        let hidden = self.output(job.job, &request.to, usize::MAX).await?;
        let written = kept(job).outcome.map_or(0, |outcome| outcome.output_objects);
        Ok(hidden.len() as u64 == written)
    }

    async fn remove_inputs(&self, job: u64) -> Result<(), CatalogError> {
        loop {
            let page = self.context.catalog.job_inputs(job, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            let catalog = &self.context.catalog;
            self.remove(page.into_iter().map(|input| async move { catalog.remove_job_input(job, &input).await }))
                .await?;
        }
    }

    /// Removes everything that a job has written, and forgets what it has read.
    pub(super) async fn roll_back(&self, job: u64) -> Result<(), CatalogError> {
        self.context.catalog.clear_checkpoint(job).await?;
        self.roll_back_objects(job).await?;
        self.context.catalog.clear_job_inputs(job).await
    }

    async fn roll_back_objects(&self, job: u64) -> Result<(), CatalogError> {
        loop {
            let list = ListRequest { prefix: prefix(job), max_keys: PAGE, ..ListRequest::default() };
            let page = match self.context.catalog.list_objects(HIDDEN_BUCKET, &list).await {
                Err(CatalogError::NoSuchBucket) => return Ok(()),
                page => page?,
            };
            if page.objects.is_empty() {
                return Ok(());
            }
            let catalog = &self.context.catalog;
            let keys = page.objects.into_iter().map(|(key, _)| key);
            self.remove(keys.map(|key| async move { catalog.delete_object(HIDDEN_BUCKET, &key).await })).await?;
        }
    }

    /// Runs removals concurrently, and frees what they displace.
    pub(super) async fn remove<Removal>(
        &self,
        removals: impl Iterator<Item = Removal> + Send,
    ) -> Result<(), CatalogError>
    where
        Removal: Future<Output = Result<Displaced, CatalogError>> + Send,
    {
        let service = ObjectService::new(self.context.clone(), self.world.clone(), Duration::ZERO);
        let mut removals = stream::iter(removals).buffer_unordered(REMOVED_BESIDE);
        while let Some(displaced) = removals.try_next().await? {
            service.displaced(displaced);
        }
        Ok(())
    }

    /// Removes leftovers of finished jobs: a write may have completed after its job ended.
    pub(super) async fn sweep(&self) -> Result<(), CatalogError> {
        let list = ListRequest { delimiter: Some("/".into()), max_keys: PAGE, ..ListRequest::default() };
        let found = match self.context.catalog.list_objects(HIDDEN_BUCKET, &list).await {
            Err(CatalogError::NoSuchBucket) => return Ok(()),
            found => found?,
        };
        for prefix in found.common_prefixes {
            let Ok(number) = prefix.trim_end_matches('/').parse() else { continue };
            // A job is recorded before it writes anything.
            let lives = self.context.catalog.job(number).await?.is_some_and(|job| !job.state.is_over());
            if !lives {
                tracing::warn!(job = number, "a repartition job that has ended left objects; they are removed");
                self.roll_back_objects(number).await?;
            }
        }
        Ok(())
    }

    /// Records that the job has ended.
    pub(super) async fn end(&self, job: Job, state: JobState, reason: String) -> Result<(), CatalogError> {
        let ended_ms = Some((self.context.wall)());
        self.enter(job, |job| Job { state, ended_ms, reason: reason.clone(), ..job.clone() }).await.map(drop)
    }
}
