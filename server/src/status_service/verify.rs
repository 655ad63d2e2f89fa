//! Verifications beside the running server: one at a time, for a client that asks for its progress.

use super::StatusService;
use super::verifications::{Run, RunState, look_at, run};
use crate::admin::AdminError;
use crate::verify::{Ground, Options, Serving, VerifyProgress, VerifyRequest};
use disk::clock;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

impl StatusService {
    /// Starts, queries or ends a verification; `None` if no verification has that number.
    pub(super) async fn verify(&self, request: VerifyRequest) -> Result<Option<VerifyProgress>, AdminError> {
        match request {
            VerifyRequest::Begin { options, wakes } => self.begin_verification(options, wakes).await.map(Some),
            VerifyRequest::Look(number) => {
                let run = self.verifications.run.lock();
                let Some(run) = run.as_ref().filter(|run| run.number == number) else { return Ok(None) };
                Ok(Some(look_at(run)))
            }
            VerifyRequest::End(number) => {
                let run = self.verifications.run.lock().take_if(|run| run.number == number);
                let Some(run) = run else { return Ok(None) };
                Ok(Some(look_at(&run)))
            }
        }
    }

    /// Ends a verification that is under way, because the server ends.
    pub(crate) async fn end_verification(&self) {
        // Its outcome can still be queried.
        let ended = self.verifications.run.lock().as_mut().and_then(|run| {
            run.wanted = None;
            run.ended.take()
        });
        if let Some(ended) = ended {
            let _ = ended.await;
        }
    }

    async fn begin_verification(&self, options: Options, wakes: bool) -> Result<VerifyProgress, AdminError> {
        if options.deep && options.drives {
            self.is_on().await?;
            if self.look(|rack, _| rack.is_scrub_paused()).await? {
                let why = "scrubs are paused, and --deep is a scrub; run `larder scrub resume` first, or leave --deep \
                           out";
                return Err(AdminError::Because(why.into()));
            }
        }
        let rack = self.look(|rack, _| rack.spec().clone()).await?;
        let serving = Serving::new(self.context.clone(), self.world.clone(), wakes);
        let findings = serving.findings();
        let ground = Ground {
            rack,
            rack_uuid: self.context.rack_uuid,
            catalog: self.context.catalog.clone(),
            staging: self.context.staging.clone(),
            small: self.context.small.as_ref().map(|small| Arc::clone(&small.files)),
            spool: None,
            drives: None,
            serving: Some(serving),
        };
        let mut slot = self.verifications.run.lock();
        if slot.as_ref().is_some_and(|run| !run.gives_way()) {
            let why = "a verification is running already; wait for it, or interrupt the command that started it";
            return Err(AdminError::Because(why.into()));
        }
        let number = slot.as_ref().map_or(1, |run| run.number + 1);
        let progress = VerifyProgress { number, ..VerifyProgress::default() };
        let state = Arc::new(Mutex::new(RunState { progress: progress.clone(), asked: clock::monotonic() }));
        let (wanted, unwanted) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        (self.context.spawn)(Box::pin(run(ground, options, Arc::clone(&state), unwanted, end)));
        *slot = Some(Run { number, state, findings, wanted: Some(wanted), ended: Some(ended) });
        Ok(progress)
    }
}
