//! Verifications beside the running server: one at a time, for whoever asks how far it is.

use super::StatusService;
use crate::admin::AdminError;
use crate::error::text;
use crate::verify::{FindingQueue, Ground, Options, Serving, Step, verify};
use crate::verify::{VerifyPhase, VerifyProgress, VerifyRequest};
use disk::clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A verification ends when nobody has asked about it for so long.
const UNASKED_MAX: Duration = Duration::from_mins(1);
/// One that nobody has asked about for so long gives way to another.
const GIVES_WAY: Duration = Duration::from_secs(5);
/// The interval of looking whether anybody has.
const LOOK: Duration = Duration::from_secs(5);

/// The verification that was asked for last.
#[derive(Default)]
pub(super) struct Verifications {
    run: Mutex<Option<Run>>,
}

struct Run {
    number: u64,
    state: Arc<Mutex<RunState>>,
    findings: FindingQueue,
    /// Dropped, it ends the verification.
    wanted: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

struct RunState {
    progress: VerifyProgress,
    asked: Instant,
}

impl Run {
    /// It is over, or nobody waits for it.
    fn gives_way(&self) -> bool {
        let state = self.state.lock();
        let is_over = state.progress.report.is_some() || state.progress.error.is_some();
        is_over || state.asked.elapsed() > GIVES_WAY
    }
}

impl StatusService {
    /// Begins, asks about or ends a verification; `None` if there is none of that number.
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

    /// Ends a verification that is under way, as the server does.
    pub(crate) async fn end_verification(&self) {
        // What has become of it can still be asked.
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
                let why = "scrubs are paused, and --deep is one; say `larder scrub resume` first, or leave --deep out";
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
            drives: Vec::new(),
            serving: Some(serving),
        };
        let mut slot = self.verifications.run.lock();
        if slot.as_ref().is_some_and(|run| !run.gives_way()) {
            let why = "a verification is under way; wait for it, or interrupt it where it was asked for";
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

/// The state of `run`, and the findings since the last look.
fn look_at(run: &Run) -> VerifyProgress {
    // The state first: what is found before it is over is among the findings then.
    let mut progress = {
        let mut state = run.state.lock();
        state.asked = clock::monotonic();
        state.progress.clone()
    };
    progress.findings = run.findings.take();
    progress
}

async fn run(
    ground: Ground,
    options: Options,
    state: Arc<Mutex<RunState>>,
    unwanted: oneshot::Receiver<()>,
    end: oneshot::Sender<()>,
) {
    let watch = |step: Step<'_>| note(&mut state.lock().progress.phase, step);
    let result = tokio::select! {
        result = verify(&ground, options, &watch) => result.map_err(text),
        _ = unwanted => Err("it was interrupted, or the server is stopping".to_owned()),
        () = unasked(&state) => Err("nobody has asked about it any more".to_owned()),
    };
    // Its view of the catalog and its looks go with it, before anybody hears that it is over.
    drop(ground);
    let mut state = state.lock();
    match result {
        Ok(report) => state.progress.report = Some(report),
        Err(error) => state.progress.error = Some(error),
    }
    let _ = end.send(());
}

/// Until nobody has asked for a while.
async fn unasked(state: &Mutex<RunState>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let asked = state.lock().asked;
        if asked.elapsed() > UNASKED_MAX {
            return;
        }
    }
}

fn note(phase: &mut VerifyPhase, step: Step<'_>) {
    match step {
        Step::Catalog => *phase = VerifyPhase::Catalog,
        Step::Workshop { files } => *phase = VerifyPhase::Workshop { done: 0, files },
        Step::Rack { blobs, groups } => *phase = VerifyPhase::Rack { done: 0, blobs, groups },
        Step::Scrubbing { permille } => {
            if let VerifyPhase::Rack { done, blobs, groups } | VerifyPhase::Scrub { done, blobs, groups, .. } = *phase {
                *phase = VerifyPhase::Scrub { done, blobs, groups, permille };
            }
        }
        Step::Done => match phase {
            VerifyPhase::Workshop { done, .. } | VerifyPhase::Rack { done, .. } | VerifyPhase::Scrub { done, .. } => {
                *done += 1;
            }
            VerifyPhase::Catalog => {}
        },
        Step::Found(_) => {}
    }
}
