//! The last verification that was requested beside the running server.

use crate::error::text;
use crate::verify::{FindingQueue, Ground, Options, Step, VerifyPhase, VerifyProgress, verify};
use disk::clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The time without a query after which a verification ends.
const UNASKED_MAX: Duration = Duration::from_mins(1);
/// The time without a query after which a verification gives way to another.
const GIVES_WAY: Duration = Duration::from_secs(5);
/// The interval of checks for queries.
const LOOK: Duration = Duration::from_secs(5);

/// The last verification that was requested.
#[derive(Default)]
pub(super) struct Verifications {
    pub(super) run: Mutex<Option<Run>>,
}

pub(super) struct Run {
    pub(super) number: u64,
    pub(super) state: Arc<Mutex<RunState>>,
    pub(super) findings: FindingQueue,
    /// Dropping it ends the verification.
    pub(super) wanted: Option<oneshot::Sender<()>>,
    pub(super) ended: Option<oneshot::Receiver<()>>,
}

pub(super) struct RunState {
    pub(super) progress: VerifyProgress,
    pub(super) asked: Instant,
}

impl Run {
    /// True if it has ended, or no client waits for it.
    pub(super) fn gives_way(&self) -> bool {
        let state = self.state.lock();
        let is_over = state.progress.report.is_some() || state.progress.error.is_some();
        is_over || state.asked.elapsed() > GIVES_WAY
    }
}

/// The state of `run`, and the findings since the last look.
pub(super) fn look_at(run: &Run) -> VerifyProgress {
    // The state first: the findings then include everything that was found before the end.
    let mut progress = {
        let mut state = run.state.lock();
        state.asked = clock::monotonic();
        state.progress.clone()
    };
    progress.findings = run.findings.take();
    progress
}

pub(super) async fn run(
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
        () = unasked(&state) => Err("no client has asked for its progress any more".to_owned()),
    };
    // Its view of the catalog and its queries are dropped before a client sees that it has ended.
    drop(ground);
    let mut state = state.lock();
    match result {
        Ok(report) => state.progress.report = Some(report),
        Err(error) => state.progress.error = Some(error),
    }
    let _ = end.send(());
}

/// Returns once no client has asked for [`UNASKED_MAX`].
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
