//! The end of a job: its output is published and its input removed, or everything that it wrote is.

use super::Shared;
use super::report::Request;
use super::writer::{out_prefix, prefix};
use crate::house::House;
use catalog::{CatalogError, HIDDEN_BUCKET, Job, JobState, ListRequest, Publication};
use std::time::Duration;

/// Objects that are published or removed at once.
const PAGE: usize = 1_000;

impl Shared {
    /// Publishes what is complete, and removes what was read if that was asked. What cannot be published stays where it
    /// is, and its job says why.
    pub(super) async fn complete(&self, mut job: Job) -> Result<(), CatalogError> {
        let request: Request = serde_json::from_str(&job.request).unwrap_or_default();
        if job.state == JobState::Publishing {
            if let Err(error) = self.publish(job.job, &request).await {
                let reason = format!(
                    "its output is complete and could not be published to {} ({error}); see that the bucket is there \
                     and the prefix empty, then `larder repartition resume {}`",
                    request.to, job.job
                );
                tracing::error!(job = job.job, reason, "a repartition waits to be published");
                return self.means.catalog.change_job(&job, &Job { reason, ..job.clone() }).await;
            }
            let state = if request.remove_input { JobState::Removing } else { JobState::Done };
            job = self.advance(job, state).await?;
        }
        // Runs that a crash left between two deletes, and whatever else is not output.
        self.roll_back_objects(job.job).await?;
        if job.state == JobState::Removing {
            self.remove_inputs(job.job).await?;
            self.advance(job, JobState::Done).await?;
        }
        Ok(())
    }

    async fn advance(&self, job: Job, state: JobState) -> Result<Job, CatalogError> {
        let ended_ms = state.is_over().then(|| (self.means.wall)());
        let next = Job { state, ended_ms, reason: String::new(), ..job.clone() };
        self.means.catalog.change_job(&job, &next).await?;
        Ok(next)
    }

    async fn publish(&self, job: u64, request: &Request) -> Result<(), CatalogError> {
        let hidden = out_prefix(job);
        loop {
            let list = ListRequest { prefix: hidden.clone(), max_keys: PAGE, ..ListRequest::default() };
            let page = self.means.catalog.list_objects(HIDDEN_BUCKET, &list).await?;
            let publication = |(from, _): (String, catalog::Object)| {
                let to = format!("{}{}", request.to.prefix, from.get(hidden.len()..).unwrap_or_default());
                Publication { from, to }
            };
            let publications: Vec<Publication> = page.objects.into_iter().map(publication).collect();
            if publications.is_empty() {
                return Ok(());
            }
            self.means.catalog.publish(&request.to.bucket, &publications).await?;
        }
    }

    async fn remove_inputs(&self, job: u64) -> Result<(), CatalogError> {
        let house = House::new(self.means.clone(), self.world.clone(), Duration::ZERO);
        loop {
            let page = self.means.catalog.job_inputs(job, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            for version in page {
                house.displaced(self.means.catalog.remove_job_input(job, version).await?);
            }
        }
    }

    /// Removes whatever a job has written, and forgets what it has read.
    pub(super) async fn roll_back(&self, job: u64) -> Result<(), CatalogError> {
        self.roll_back_objects(job).await?;
        self.means.catalog.clear_job_inputs(job).await
    }

    async fn roll_back_objects(&self, job: u64) -> Result<(), CatalogError> {
        let house = House::new(self.means.clone(), self.world.clone(), Duration::ZERO);
        loop {
            let list = ListRequest { prefix: prefix(job), max_keys: PAGE, ..ListRequest::default() };
            let page = match self.means.catalog.list_objects(HIDDEN_BUCKET, &list).await {
                Err(CatalogError::NoSuchBucket) => return Ok(()),
                page => page?,
            };
            if page.objects.is_empty() {
                return Ok(());
            }
            for (key, _) in page.objects {
                house.displaced(self.means.catalog.delete_object(HIDDEN_BUCKET, &key).await?);
            }
        }
    }

    /// The job is over.
    pub(super) async fn end(&self, job: Job, state: JobState, reason: String) -> Result<(), CatalogError> {
        let ended_ms = Some((self.means.wall)());
        self.enter(job, |job| Job { state, ended_ms, reason: reason.clone(), ..job.clone() }).await.map(drop)
    }
}
