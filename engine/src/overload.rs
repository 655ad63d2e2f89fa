//! The relief of an overload: of a clients' queue that has filled up.
//!
//! Near the highest rate that a class can serve, its queue has two states. While it is short, groups are served whole,
//! and no operation is overtaken by u. Once a burst has filled it, every operation is overtaken by u long before it is
//! served: batches close early, more time goes into switches, and less is served than arrives. The queue then stays
//! full, although the same load would never have filled it. So it needs relief, which ends when the queue is short
//! again:
//!
//! ```text
//!                 `from` of the depth is queued
//!   Usual  ---------------------------------------->  Overloaded: new operations are refused, or may be overtaken
//!          <----------------------------------------              by more than u, as the policy has it
//!                 no more than `until` of it is
//! ```
//!
//! This goes beyond the paper, whose rack stays overloaded.
//!
//! Invariants: the state changes only when an operation arrives, and nothing else depends on it; operations that are
//! queued already keep the bound that they arrived with; operations of other priority classes are neither refused nor
//! widened.

use crate::policy::{Relief, SchedulerPolicy};
use crate::reorder::{QueueFull, Queued};

/// The overload state of a clients' queue. See the head of this file.
pub(crate) struct Overload {
    relief: Relief,
    /// The queue length at which an overload begins, and the length down to which it lasts.
    from: usize,
    until: usize,
    on: bool,
}

impl Overload {
    /// The state for a class's queue under `policy`, which is empty.
    pub fn new(policy: &SchedulerPolicy) -> Self {
        let share = |permille: u32| (u64::from(policy.queue_depth) * u64::from(permille) / 1_000) as usize;
        let (from, until) = (share(policy.overload.from_permille).max(1), share(policy.overload.until_permille));
        Self { relief: policy.overload.relief, from, until: until.min(from - 1), on: false }
    }

    /// A client's operation arrives while `queued` are queued. Returns it as it is to be queued, or refuses it.
    pub fn admit(&mut self, item: Queued, queued: usize) -> Result<Queued, QueueFull> {
        self.on = if self.on { queued > self.until } else { queued >= self.from };
        assert!(self.until < self.from && (!self.on || queued > self.until), "it ends below where it begins");
        match self.relief {
            Relief::Shed if self.on => Err(QueueFull),
            Relief::Widen { times } if self.on => {
                Ok(Queued { overtake_limit: item.overtake_limit.saturating_mul(u64::from(times)), ..item })
            }
            Relief::None | Relief::Shed | Relief::Widen { .. } => Ok(item),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::OverloadPolicy;
    use crate::testing;
    use model::{GroupId, OpId, Time};

    fn overload(relief: Relief) -> Overload {
        let overload = OverloadPolicy { relief, from_permille: 900, until_permille: 500 };
        Overload::new(&SchedulerPolicy { queue_depth: 10, overload, ..testing::quiet_policy().scheduler })
    }

    fn item() -> Queued {
        Queued { op: OpId(1), group: GroupId(0), weight: 1, switch_weight: 0, overtake_limit: 7, due: Time::MAX }
    }

    /// The limit of an operation that arrives at each length of the queue; `None` if it is refused.
    fn limits(relief: Relief, lengths: &[usize]) -> Vec<Option<u64>> {
        let mut overload = overload(relief);
        lengths.iter().map(|queued| overload.admit(item(), *queued).ok().map(|item| item.overtake_limit)).collect()
    }

    use alloc::vec::Vec;

    #[test]
    fn it_begins_at_one_length_and_ends_at_another() {
        let lengths = [5, 8, 9, 8, 6, 5, 6, 8, 10];
        let usual = Some(7);
        assert_eq!(limits(Relief::None, &lengths), [usual; 9]);
        let refused = [usual, usual, None, None, None, usual, usual, usual, None];
        assert_eq!(limits(Relief::Shed, &lengths), refused);
        let wide = Some(28);
        let widened = [usual, usual, wide, wide, wide, usual, usual, usual, wide];
        assert_eq!(limits(Relief::Widen { times: 4 }, &lengths), widened);
    }

    #[test]
    fn a_queue_of_one_is_overloaded_by_one() {
        let overload_policy = OverloadPolicy { relief: Relief::Shed, from_permille: 0, until_permille: 1_000 };
        let policy = SchedulerPolicy { queue_depth: 1, overload: overload_policy, ..testing::quiet_policy().scheduler };
        let mut overload = Overload::new(&policy);
        assert!(overload.admit(item(), 0).is_ok() && overload.admit(item(), 1).is_err());
        assert!(overload.admit(item(), 0).is_ok());
    }
}
