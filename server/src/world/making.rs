//! Blobs made from bytes in memory: written by an ordinary operation of the background priority class to a given group,
//! read back, and then committed together with their objects.
//!
//! The order is that of a migration: intent, stacks, sync, read back, commit. After a failure before the commit the
//! stacks are dead and no object is known. There is nothing to free after the commit.

use super::operation::{MakeError, Making, Operation, Origin, WriteOrder, WrittenBlob};
use super::outcome::give_up;
use super::state::World;
use catalog::JobObject;
use disk::stack;
use engine::{Outcome, PinnedTo, PriorityClass, Rejection, Request, Work};
use model::OpId;
use std::sync::Arc;
use workshop::HeldPack;

impl World {
    pub(super) fn order_write(&mut self, order: WriteOrder) {
        let WriteOrder { pack, group, keys, job, answer } = order;
        assert_eq!(keys.len(), pack.plan().members().len(), "each member has a key");
        let of = Origin::Memory(Box::new(Making { keys, job, answer }));
        self.submit_write(None, pack, of, PinnedTo::Group(group));
    }

    /// Submits the write of `pack`, under the migrator's number or the next of the world's own. That number is taken
    /// only here, since the engine must receive the world's numbers in ascending order.
    pub(super) fn submit_write(&mut self, migrators: Option<OpId>, pack: Arc<HeldPack>, of: Origin, pin: PinnedTo) {
        let job = match &of {
            Origin::Memory(making) => Some(making.job),
            Origin::Workshop(_) => None,
        };
        let migration = migrators.is_some();
        assert!(!migration || job.is_none(), "the world numbers what its jobs write");
        let op = migrators.unwrap_or_else(|| self.next_op());
        let bytes = pack.plan().payload_bytes();
        let stack_bytes = stack::stack_bytes(self.rack.spec().code, bytes);
        let work = Work::Write { bytes, stack_bytes, pin, migration };
        let before = self.operations.insert(op, Operation::Write { pack, of, written: None });
        assert!(before.is_none(), "{op} is one operation");
        self.submit(job, Request { op, priority: PriorityClass::Background, overtake_limit: None, work });
    }

    /// Ends the write of a blob from memory: commits it, or reports the failure.
    pub(super) fn made(&mut self, pack: &HeldPack, making: Making, written: Option<WrittenBlob>, outcome: &Outcome) {
        let Making { keys, answer, .. } = making;
        let (Outcome::Written { group, drives }, Some(written)) = (outcome, written) else {
            let error = match outcome {
                Outcome::Failed(reason) => MakeError::Refused(*reason),
                Outcome::Cancelled => MakeError::Withdrawn,
                _ => MakeError::Refused(Rejection::WriteFailed),
            };
            let _ = answer.send(Err(error));
            return;
        };
        let blob = written.into_committed(*group, drives);
        self.committing += 1;
        let placed = pack.plan().members().iter().zip(pack.plan().offsets()).zip(keys);
        let made: Vec<JobObject> = placed
            .map(|((member, offset), key)| JobObject { key, object: member.object.clone(), offset: *offset })
            .collect();
        self.start_with(move |handle, context| async move {
            let committed = context.catalog.commit_job_blob(&blob, &made).await;
            let outcome = match committed {
                Ok(()) => Ok(blob),
                Err(error) => {
                    give_up(&context, &handle, &blob).await;
                    Err(MakeError::Catalog(error.to_string()))
                }
            };
            let _ = answer.send(outcome);
            handle.run(|world| world.committed(&[]));
        });
    }
}
