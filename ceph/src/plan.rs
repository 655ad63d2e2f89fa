//! The plan: which OSDs of a cluster can go cold, and what that moves, needs, saves and risks.
//!
//! 1. Each pool gets a role (`roles`): hot-primary, hot only, left as it is, or in the way.
//! 2. The hot class is the fastest device class that has room for one copy of the hot-primary pools beside its current
//!    data, even after the loss of its largest failure domain (`choice`). OSDs of slower classes go cold; in a cluster
//!    of one class, as many as leave that room.
//! 3. Each host needs hot devices for `block.db`, and the data of an OSD that is out needs room on others (`hosts`).
//! 4. The rest follows from these: room, moved bytes, starts, watts, and the drives that a failed hot OSD wakes
//!    (`effects`).
//!
//! Cold OSDs get their own device class. So rules that take another class leave them alone, and a cluster in which only
//! some OSDs are converted is an ordinary one.
//!
//! Numbers of bytes are of data; the space that OSDs use for themselves is not counted as need, but as in use.

mod choice;
mod effects;
mod hosts;
mod roles;
#[cfg(test)]
pub(crate) mod tests;
mod types;

pub use choice::DB_LOG_BYTES;
pub use types::{
    HOT_ONLY_RULE, HOT_PRIMARY_RULE, HotFailure, Options, OsdPlan, OsdRole, Plan, PoolPlan, PoolRole, Room, Writes,
};

use crate::cluster::Cluster;
use types::Notes;

/// Plans for `cluster`.
pub fn plan(cluster: &Cluster, options: &Options) -> Plan {
    let mut notes = Notes::default();
    let (root, domain) = roles::place(cluster);
    let pools = roles::pools(cluster, options, &mut notes);
    let choice = choice::choose(cluster, options, &pools, (&root, &domain), &mut notes);
    now(cluster, &mut notes);
    let mut plan = Plan {
        fsid: cluster.fsid.clone(),
        is_suitable: false,
        reasons: Vec::new(),
        warnings: Vec::new(),
        hot_class: choice.hot_class.clone(),
        cold_class: options.cold_class.clone(),
        root,
        domain,
        pools,
        osds: choice.osds(cluster),
        hot: choice.hot_room,
        cold: choice.cold_room,
        moved_bytes: 0,
        starts_per_day_max: options.starts_per_day(),
        writes: None,
        saved_mw: choice.cold.len() as u64 * u64::from(options.spinning_mw.saturating_sub(options.standby_mw)),
        hot_failure: None,
    };
    hosts::judge(cluster, &plan.osds, &mut notes);
    effects::add(cluster, &choice, options, &mut plan, &mut notes);
    plan.is_suitable = notes.reasons.is_empty();
    plan.reasons = notes.reasons;
    plan.warnings = notes.warnings;
    plan
}

/// Notes the current obstacles.
fn now(cluster: &Cluster, notes: &mut Notes) {
    if cluster.pgs.is_empty() {
        notes.reason("no placement group is known; is a manager running?".to_owned());
    } else if !cluster.is_clean() {
        let unclean = cluster.unclean_count();
        notes.reason(format!("{unclean} placement groups are not active+clean; wait until `ceph -s` shows none"));
    }
}
