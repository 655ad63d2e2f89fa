//! The server beside which a verification runs, and what the verification keeps of it.

use super::report::Finding;
use crate::context::Context;
use crate::world::{InspectedDrives, WorldHandle};
use catalog::Catalog;
use model::{BlobId, DriveId, GroupId, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Findings that wait to be fetched; then the verification waits.
const UNREAD_MAX: usize = 2_048;

pub(super) const DRIVE: &str =
    "put the drive back, or mount it; if it will not come back, give it up with `larder drive fail`";
/// Why a group is not looked at that is not to be woken.
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
    /// True if groups that sleep are woken, one after another.
    pub(super) wakes: bool,
    pub(super) findings: FindingQueue,
}

impl Serving {
    /// Beside the server of this world; sleeping groups are woken if `wakes`.
    pub fn new(context: Context, world: WorldHandle, wakes: bool) -> Self {
        Self { context, world, wakes, findings: FindingQueue::default() }
    }

    /// Where all findings can be fetched from; they wait until they are.
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

    /// Takes those that wait.
    pub fn take(&self) -> Vec<Finding> {
        let taken = std::mem::take(&mut *self.0.findings.lock());
        self.0.fetched.notify_waiters();
        taken
    }

    /// Waits until there are few.
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

/// What a verification keeps beside a running server.
#[derive(Default)]
pub(super) struct Beside {
    /// The catalog as of one moment, while its records are compared.
    pub(super) view: Option<Catalog>,
    /// The drives that are looked at, while the engine has the look in service.
    pub(super) lent: Option<InspectedDrives>,
    /// Drives that were not there when their group was looked at.
    pub(super) absent: BTreeSet<DriveId>,
    /// Stacks that the scrub has found damaged: no other look at them is a second finding.
    pub(super) scrubbed: BTreeSet<(BlobId, u8)>,
    /// Payload bytes of blobs that the scrub has found lost.
    pub(super) lost: BTreeMap<BlobId, Vec<(u64, u64)>>,
    /// When the scrub was asked for, in modelled time.
    pub(super) asked: Option<Time>,
}
