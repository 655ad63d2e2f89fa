//! The server beside which a verification runs, and the verification's state for it.

use super::report::Finding;
use crate::context::Context;
use crate::world::{InspectedDrives, WorldHandle};
use catalog::Catalog;
use model::{BlobId, DriveId, GroupId, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Number of unfetched findings at which the verification waits.
const UNREAD_MAX: usize = 2_048;

pub(super) const DRIVE: &str =
    "put the drive back, or mount it; if it will not come back, give it up with `larder drive fail`";
/// Why a group was skipped: it sleeps, and is not to be woken.
pub const ASLEEP: &str = "asleep";

/// The drives of a group, or the spares.
pub(super) struct GroupDrives {
    pub(super) group: Option<GroupId>,
    pub(super) drives: Vec<DriveId>,
}

/// A running server.
pub struct Serving {
    pub(super) context: Context,
    pub(super) world: WorldHandle,
    /// True if sleeping groups are woken, one after another.
    pub(super) wakes: bool,
    pub(super) findings: FindingQueue,
}

impl Serving {
    /// A verification beside the server of this world; sleeping groups are woken if `wakes`.
    pub fn new(context: Context, world: WorldHandle, wakes: bool) -> Self {
        Self { context, world, wakes, findings: FindingQueue::default() }
    }

    /// The queue from which all findings can be fetched; they wait there.
    pub fn findings(&self) -> FindingQueue {
        self.findings.clone()
    }
}

/// Findings that wait to be fetched.
#[derive(Clone, Default)]
pub struct FindingQueue(Arc<Unread>);

#[derive(Default)]
struct Unread {
    findings: Mutex<Vec<Finding>>,
    fetched: Notify,
}

impl FindingQueue {
    pub(super) fn push(&self, finding: &Finding) {
        self.0.findings.lock().push(finding.clone());
    }

    /// Takes all waiting findings.
    pub fn take(&self) -> Vec<Finding> {
        let taken = std::mem::take(&mut *self.0.findings.lock());
        self.0.fetched.notify_waiters();
        taken
    }

    /// Waits until there are few findings.
    pub(super) async fn room(&self) {
        loop {
            let fetched = self.0.fetched.notified();
            if self.0.findings.lock().len() < UNREAD_MAX {
                return;
            }
            fetched.await;
        }
    }
}

/// The state of a verification beside a running server.
#[derive(Default)]
pub(super) struct Beside {
    /// The catalog as of one moment, while its records are compared.
    pub(super) view: Option<Catalog>,
    /// The drives being inspected, while the engine has the inspection in service.
    pub(super) lent: Option<InspectedDrives>,
    /// Drives that were absent when their group was inspected.
    pub(super) absent: BTreeSet<DriveId>,
    /// Stacks that the scrub found damaged: another look at them is not a second finding.
    pub(super) scrubbed: BTreeSet<(BlobId, u8)>,
    /// Payload bytes of blobs that the scrub found lost.
    pub(super) lost: BTreeMap<BlobId, Vec<(u64, u64)>>,
    /// When the scrub was requested, in modelled time.
    pub(super) asked: Option<Time>,
}
