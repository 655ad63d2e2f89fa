//! Shared by tests of the engine: a policy in which nothing happens by itself.

use crate::policy::{
    GroupChoice, IdleTimeout, MigrationPolicy, RackPolicy, ReadPolicy, SchedulerPolicy, Shares, SpinDownPolicy,
    Weighing,
};
use crate::staging::checks::CheckPolicy;
use alloc::vec::Vec;
use core::time::Duration;

/// No group sleeps, nothing migrates, no limit is ever reached. A test changes the settings that it is about.
pub(crate) fn quiet_policy() -> RackPolicy {
    RackPolicy {
        scheduler: SchedulerPolicy {
            queue_depth: 1000,
            overtake_limit: 1 << 40,
            weighing: Weighing::Bytes,
            wait_limit: None,
            join_in_service: false,
            anticipation: Duration::ZERO,
            overload: crate::OverloadPolicy::default(),
            shares: Shares { client: 1, rebuild: 1, background: 1 },
            quantum: Duration::from_mins(1),
        },
        group_choice: GroupChoice::Random,
        idle_timeout: IdleTimeout::Never,
        read_policy: ReadPolicy::All,
        starts_per_day: 10,
        spin_down: SpinDownPolicy::default(),
        host_slack: Duration::from_secs(30),
        deadlines: crate::Deadlines::default(),
        migration: MigrationPolicy {
            due_age: None,
            min_age: Duration::ZERO,
            min_bytes: 0,
            regular_permille: 1000,
            critical_permille: 1000,
            drained_permille: None,
            order: crate::policy::MoveOrder::default(),
            pack_bytes: 1,
            pack_members: 1,
            linger: Duration::ZERO,
            window: 1,
            scan_interval: Duration::from_hours(1),
            thermometer: crate::thermometer::Thermometer::none(),
            due_with_checks: false,
        },
        checks: CheckPolicy::default(),
        evacuate_permille: 1000,
        give_up_after: None,
        tries_given_up: false,
        rebuild_read_back: false,
        write_read_back: true,
        checkpoint_interval: Duration::from_hours(1),
        scrub: crate::ScrubPolicy::default(),
        health: crate::HealthPolicy::default(),
        classes: Vec::new(),
    }
}
