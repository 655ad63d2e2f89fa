//! The bytes that carrying out a plan moves, and the drives that a failure wakes.
//!
//! CRUSH draws by hashes. The places of a placement group are unknown before the rule exists; their expectation is
//! known. A draw of one OSD of a class falls on a given OSD with the share of its weight.

use super::choice::Choice;
use super::types::{HotFailure, Notes, Options, Plan, PoolRole, Writes};
use crate::cluster::{Cluster, OsdId, Pg};
use std::collections::BTreeSet;

/// Adds the effects of `choice` to `plan`.
pub fn add(cluster: &Cluster, choice: &Choice, options: &Options, plan: &mut Plan, notes: &mut Notes) {
    let (hot, cold) = (Class::new(cluster, &choice.hot), Class::new(cluster, &choice.cold));
    for pool in plan.pools.iter_mut().filter(|pool| pool.new_rule.is_some()) {
        let Some(id) = cluster.pool(&pool.pool).map(|pool| pool.id) else { continue };
        let draws = match pool.role {
            PoolRole::HotPrimary => (1, pool.size.saturating_sub(1)),
            _ => (pool.size, 0),
        };
        let pgs = cluster.pgs.iter().filter(|pg| pg.pool == id);
        let moved: f64 = pgs.map(|pg| pg.bytes as f64 * moved_copies(pg, (&hot, draws.0), (&cold, draws.1))).sum();
        pool.moved_bytes = moved.round() as u64;
    }
    plan.moved_bytes = plan.pools.iter().map(|pool| pool.moved_bytes).sum();
    plan.hot_failure = hot_failure(cluster, choice, plan);
    plan.writes = writes(cluster, choice, options, plan);
    notes.warnings.extend(plan.writes.and_then(|writes| warning(&writes, plan.starts_per_day_max)));
    if choice.hot.len() == 1 {
        notes.warning("there is one hot OSD: when it fails every read wakes cold drives".to_owned());
    }
}

/// The OSDs of a planned device class, with their weight.
struct Class<'a> {
    cluster: &'a Cluster,
    osds: &'a BTreeSet<OsdId>,
    weight: u64,
}

impl<'a> Class<'a> {
    fn new(cluster: &'a Cluster, osds: &'a BTreeSet<OsdId>) -> Self {
        let weight = osds.iter().filter_map(|osd| cluster.osds.get(osd)).map(|osd| osd.weight).sum();
        Self { cluster, osds, weight }
    }

    /// The probability that one of `draws` falls on `osd`.
    fn chance(&self, osd: OsdId, draws: u32) -> f64 {
        if !self.osds.contains(&osd) || self.weight == 0 {
            return 0.0;
        }
        let weight = self.cluster.osds.get(&osd).map_or(0, |osd| osd.weight);
        (f64::from(draws) * weight as f64 / self.weight as f64).min(1.0)
    }
}

/// The expected number of copies of `pg` that move under a rule with these numbers of draws from each class.
fn moved_copies(pg: &Pg, hot: (&Class<'_>, u32), cold: (&Class<'_>, u32)) -> f64 {
    let stay: f64 = pg.acting.iter().map(|osd| hot.0.chance(*osd, hot.1) + cold.0.chance(*osd, cold.1)).sum();
    (f64::from(hot.1 + cold.1) - stay).max(0.0)
}

/// A warning to the operator about starts and sleep, if any.
fn warning(writes: &Writes, starts_max: u32) -> Option<String> {
    let Writes { per_day, starts_per_day, asleep_permille } = *writes;
    let so_many = format!("{per_day:.0} writes a day, as since the pools were made");
    if asleep_permille < ASLEEP_MIN_PERMILLE {
        Some(format!("{so_many}, leave a cold drive asleep for {} % of the time", asleep_permille / 10))
    } else if starts_per_day > f64::from(starts_max) {
        Some(format!(
            "{so_many}, start a cold drive {starts_per_day:.0} times a day if they do not come in batches, and \
             {starts_max} are allowed: it turns for the rest of the day"
        ))
    } else {
        None
    }
}

/// A drive that sleeps less than this share of the time gives a warning, in thousandths.
const ASLEEP_MIN_PERMILLE: u32 = 500;

const DAY_S: f64 = 86_400.0;

/// The effect of the hot-primary pools' writes on a cold drive. With `rate` writes a second at random, the drive sleeps
/// while the last is longer ago than the idle time, which has the probability `exp(-rate * idle)`, and each write that
/// finds it asleep starts it.
fn writes(cluster: &Cluster, choice: &Choice, options: &Options, plan: &Plan) -> Option<Writes> {
    let (mut per_day, mut rate) = (0.0, 0.0);
    for pool in plan.pools.iter().filter(|pool| pool.role == PoolRole::HotPrimary) {
        let pool = cluster.pool(&pool.pool)?;
        let age_s = cluster.seen_at?.since(pool.created?).as_secs_f64();
        if age_s <= 0.0 {
            return None;
        }
        let count: u64 = cluster.pgs.iter().filter(|pg| pg.pool == pool.id).map(|pg| pg.writes).sum();
        let copies = f64::from(pool.size.saturating_sub(1)) / choice.cold.len().max(1) as f64;
        per_day += count as f64 / age_s * DAY_S;
        rate += count as f64 / age_s * copies.min(1.0);
    }
    let asleep = (-rate * options.idle.as_secs_f64()).exp();
    Some(Writes { per_day, starts_per_day: rate * DAY_S * asleep, asleep_permille: (asleep * 1000.0).round() as u32 })
}

/// The failure of the hot OSD with the largest weight.
fn hot_failure(cluster: &Cluster, choice: &Choice, plan: &Plan) -> Option<HotFailure> {
    let heaviest = |osd: &&OsdId| cluster.osds.get(*osd).map_or(0, |osd| osd.weight);
    let osd = *choice.hot.iter().max_by_key(heaviest)?;
    let share = Class::new(cluster, &choice.hot).chance(osd, 1);
    let pools = plan.pools.iter().filter(|pool| pool.role == PoolRole::HotPrimary);
    let (mut pgs, mut bytes, mut asleep) = (0.0, 0.0, 1.0);
    for pool in pools {
        let of_pool = share * f64::from(cluster.pool(&pool.pool).map_or(0, |pool| pool.pg_count));
        pgs += of_pool;
        bytes += share * pool.stored_bytes as f64;
        // A cold OSD stays asleep if it has no copy of any of them.
        let one = f64::from(pool.size.saturating_sub(1)) / choice.cold.len().max(1) as f64;
        asleep *= (1.0 - one.min(1.0)).powf(of_pool);
    }
    let cold_osds = (choice.cold.len() as f64 * (1.0 - asleep)).round() as u64;
    Some(HotFailure { osd, pgs: pgs.round() as u64, cold_osds, bytes: bytes.round() as u64 })
}
