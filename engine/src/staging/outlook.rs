//! The outlook of a staged version for status reports: when it moves, by the same policy that the migrator follows.

use crate::policy::MigrationPolicy;
use crate::thermometer::Heat;
use core::time::Duration;

/// The time at which a staged version moves, as far as it is known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is due: it moves as soon as its pack is full enough, and within this time at the latest if the rack accepts
    /// it.
    Due {
        /// The time.
        within: Duration,
    },
    /// It is due after this time; before that it moves only because of a threshold.
    DueIn(Duration),
    /// It is due: it moves when the next pass of checks reaches it.
    WithChecks,
    /// It moves when the workshop is above its regular threshold, is idle and no client waits, or is above its critical
    /// one.
    AboveRegular,
    /// It moves only when the workshop is above its critical threshold.
    AboveCritical,
}

impl Outlook {
    /// The outlook of a version of `bytes` bytes that has been staged for `age`.
    pub fn of(policy: &MigrationPolicy, heat: Heat, age: Duration, bytes: u64) -> Self {
        let scan = policy.scan_interval;
        // A version that fills a pack waits for no other object.
        let linger = if bytes >= policy.pack_bytes { Duration::ZERO } else { policy.linger };
        let due_for = |due_for: Duration| Self::Due { within: linger.saturating_sub(due_for).saturating_add(scan) };
        match (heat, policy.due_age) {
            (Heat::Hot, _) => Self::AboveCritical,
            _ if bytes < policy.min_bytes => Self::AboveCritical,
            (Heat::Due(_), _) if policy.due_with_checks => Self::WithChecks,
            (Heat::Cold, Some(due)) if policy.due_with_checks && age >= due => Self::WithChecks,
            (Heat::Due(for_long), _) => due_for(for_long),
            (Heat::Cold, Some(due)) if age >= due => due_for(age.saturating_sub(due)),
            (Heat::Cold, Some(due)) => Self::DueIn(due.saturating_sub(age)),
            (Heat::Cold, None) => Self::AboveRegular,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn it_is_what_the_migrator_does() {
        let second = Duration::from_secs;
        let policy = MigrationPolicy {
            due_age: Some(second(100)),
            min_bytes: 10,
            pack_bytes: 1_000,
            linger: second(60),
            scan_interval: second(5),
            ..testing::quiet_policy().migration
        };
        let of = |heat, age, bytes| Outlook::of(&policy, heat, second(age), bytes);
        assert_eq!(of(Heat::Hot, 9_000, 500), Outlook::AboveCritical);
        assert_eq!(of(Heat::Due(second(9_000)), 9_000, 9), Outlook::AboveCritical, "too small to move of itself");
        assert_eq!(of(Heat::Due(second(50)), 0, 500), Outlook::Due { within: second(15) });
        assert_eq!(of(Heat::Due(second(0)), 0, 1_000), Outlook::Due { within: second(5) });
        assert_eq!(of(Heat::Cold, 99, 500), Outlook::DueIn(second(1)));
        assert_eq!(of(Heat::Cold, 500, 500), Outlook::Due { within: second(5) });
        let never = MigrationPolicy { due_age: None, ..policy.clone() };
        assert_eq!(Outlook::of(&never, Heat::Cold, second(500), 500), Outlook::AboveRegular);
        let late = MigrationPolicy { due_with_checks: true, ..policy };
        let of = |heat, age| Outlook::of(&late, heat, second(age), 500);
        assert_eq!([of(Heat::Due(second(0)), 0), of(Heat::Cold, 100)], [Outlook::WithChecks; 2]);
        assert_eq!(of(Heat::Cold, 99), Outlook::DueIn(second(1)));
    }
}
