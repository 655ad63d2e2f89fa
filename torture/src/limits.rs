//! Limits that always hold: on power, workshop, spool, and the time in which a server closes.

use crate::journal::{Journal, Rule};
use crate::site::Running;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum time in which a server puts everything to sleep, regardless of its drives.
const CLOSE_MAX: Duration = Duration::from_hours(2);

/// Checks that no fuse has tripped except those that the storm tripped.
pub(crate) fn no_fuse_tripped(running: &Running) {
    let seen = running.context.counters.fuse_trips.load(Ordering::Relaxed);
    let made = running.trips.load(Ordering::Relaxed);
    running
        .journal
        .demand(seen <= made, Rule::Budgets, || format!("{seen} drives lost their fuse, and {made} were to"));
}

/// Closes the server, and checks that it closes in time regardless of its drives.
pub(crate) async fn close(running: &Running) {
    let closed = tokio::time::timeout(CLOSE_MAX, running.world.close()).await;
    running.journal.demand(closed.is_ok(), Rule::Live, || format!("the server does not close within {CLOSE_MAX:?}"));
    running.journal.note(|| "closed".to_owned());
}

/// Checks the limits of workshop and spool.
pub(crate) fn budgets_hold(running: &Running) {
    let journal: &Journal = &running.journal;
    let (staging, spool) = (running.context.staging.usage(), running.context.spool.usage());
    let taken = staging.staged_bytes + staging.reserved_bytes;
    journal.demand(taken <= staging.capacity_bytes + staging.found_bytes, Rule::Budgets, || {
        format!(
            "the workshop holds {taken} bytes of {}, {} of which were found",
            staging.capacity_bytes, staging.found_bytes
        )
    });
    journal.demand(spool.used_bytes <= spool.capacity_bytes, Rule::Budgets, || {
        format!("the spool holds {} bytes of {}", spool.used_bytes, spool.capacity_bytes)
    });
    let state = running.overlay.state();
    let on_disk = state.medium(state.rack_drives() + 1).used_bytes();
    drop(state);
    journal.demand(on_disk <= spool.capacity_bytes, Rule::Budgets, || {
        format!("{on_disk} bytes lie on the disk of a spool of {}", spool.capacity_bytes)
    });
}
