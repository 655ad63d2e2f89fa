//! An operation as a queue sees it.

use model::{GroupId, OpId, Time};

/// An operation as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Which operation.
    pub op: OpId,
    /// The group it needs awake.
    pub group: GroupId,
    /// Its share of u, in the unit of [`Weighing`](crate::Weighing). Fixed at admission. 0 is taken for 1, since
    /// otherwise something weightless could overtake without end; above 2^61 over the queue's depth (2 PB at 1,000) it
    /// is taken for that, so that sums fit.
    pub weight: u64,
    /// u: how much weight may overtake it, in the same unit. Above 2^61 (`u64::MAX`, say) it is any amount.
    pub overtake_limit: u64,
    /// When it is overdue; [`Time::MAX`] is never. Never earlier than that of one that was queued before.
    pub due: Time,
}
