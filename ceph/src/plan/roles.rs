//! The role of each pool.

use super::types::{HOT_ONLY_RULE, HOT_PRIMARY_RULE, Notes, Options, PoolPlan, PoolRole};
use crate::cluster::{Cluster, Pool, Rule};
use std::collections::BTreeMap;

/// Minimum share of all data, in thousandths, from which a pool is worth a hot-primary rule.
const SHARE_MIN_PERMILLE: u64 = 10;

/// The CRUSH root and failure domain of most of the data.
pub fn place(cluster: &Cluster) -> (String, String) {
    let mut places: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for pool in cluster.pools.values() {
        let Some(take) = cluster.rule_of(pool).and_then(|rule| rule.takes.as_ref()?.first()) else { continue };
        *places.entry((&take.root, &take.domain)).or_default() += cluster.stored_bytes(pool.id) + 1;
    }
    let most = places.into_iter().max_by_key(|(_, bytes)| *bytes);
    let ((root, domain), _) = most.unwrap_or((("default", "host"), 0));
    (root.to_owned(), domain.to_owned())
}

/// The roles of all pools.
pub fn pools(cluster: &Cluster, options: &Options, notes: &mut Notes) -> Vec<PoolPlan> {
    for name in &options.pools {
        if cluster.pool(name).is_none() {
            notes.reason(format!("there is no pool {name}; `ceph osd pool ls` lists them"));
        }
    }
    let total: u64 = cluster.pools.values().map(|pool| cluster.stored_bytes(pool.id)).sum();
    let plans: Vec<PoolPlan> = cluster.pools.values().map(|pool| one(cluster, options, total, pool)).collect();
    for plan in plans.iter().filter(|plan| plan.role == PoolRole::InTheWay) {
        notes.reason(format!("pool {}: {}", plan.pool, plan.reason));
    }
    if !plans.iter().any(|plan| plan.role == PoolRole::HotPrimary) {
        notes.reason("no pool would have cold copies; name one with --pool".to_owned());
    }
    plans
}

fn one(cluster: &Cluster, options: &Options, total: u64, pool: &Pool) -> PoolPlan {
    let rule = cluster.rule_of(pool);
    let stored_bytes = cluster.stored_bytes(pool.id);
    let (role, reason) = role(options, pool, rule, (stored_bytes, total));
    let is_named = |name: &str| rule.is_some_and(|rule| rule.name == name);
    let new_rule = match role {
        PoolRole::HotPrimary if !is_hot_primary(rule, &options.cold_class) => Some(HOT_PRIMARY_RULE),
        PoolRole::HotOnly if !is_named(HOT_ONLY_RULE) => Some(HOT_ONLY_RULE),
        _ => None,
    };
    PoolPlan {
        pool: pool.name.clone(),
        role,
        reason,
        size: pool.size,
        stored_bytes,
        rule: rule.map_or_else(|| format!("number {}", pool.rule), |rule| rule.name.clone()),
        new_rule: new_rule.map(str::to_owned),
        moved_bytes: 0,
    }
}

/// True if `rule` takes the first copy from one class and the others from the cold one.
fn is_hot_primary(rule: Option<&Rule>, cold_class: &str) -> bool {
    let Some([first, rest]) = rule.and_then(|rule| rule.takes.as_deref()) else { return false };
    first.count == 1 && rest.count == -1 && rest.class.as_deref() == Some(cold_class)
}

fn role(options: &Options, pool: &Pool, rule: Option<&Rule>, (stored, total): (u64, u64)) -> (PoolRole, String) {
    let text = |role, reason: &str| (role, reason.to_owned());
    if is_hot_primary(rule, &options.cold_class) {
        return text(PoolRole::HotPrimary, "it has a hot-primary rule");
    }
    let is_named = options.pools.contains(&pool.name);
    // A rule that takes from one class cannot choose a cold OSD, which has its own class.
    let is_apart = rule.is_some_and(|rule| {
        let takes = rule.takes.as_deref().unwrap_or_default();
        let apart = |class: &Option<String>| class.as_ref().is_some_and(|class| *class != options.cold_class);
        !takes.is_empty() && takes.iter().all(|take| apart(&take.class))
    });
    if let Some(obstacle) = obstacle(pool, rule) {
        return match (is_named, is_apart) {
            (false, true) => text(PoolRole::Untouched, "its rule takes from a device class"),
            (_, true) => (PoolRole::InTheWay, obstacle),
            _ => (PoolRole::InTheWay, format!("{obstacle}, and its rule takes from every drive{GIVE_IT_A_CLASS}")),
        };
    }
    let is_large = stored > 0 && stored.saturating_mul(1000) >= total.saturating_mul(SHARE_MIN_PERMILLE);
    let is_data = is_large && !pool.applications.iter().any(|application| application.starts_with("mgr"));
    match (is_named, options.pools.is_empty() && is_data, is_apart) {
        (true, _, _) if pool.size < 2 => text(PoolRole::InTheWay, "it has one copy, which must be hot"),
        (true, _, _) => text(PoolRole::HotPrimary, "named"),
        (_, true, _) if pool.size >= 2 => text(PoolRole::HotPrimary, "replicated, 1 % of all data or more"),
        (_, _, true) => text(PoolRole::Untouched, "its rule takes from a device class"),
        _ => text(PoolRole::HotOnly, "small or not named, and its rule takes from every drive"),
    }
}

const GIVE_IT_A_CLASS: &str = ", cold ones included; give it a rule of a device class first";

/// The reason why the pool cannot get a rule of two classes.
fn obstacle(pool: &Pool, rule: Option<&Rule>) -> Option<String> {
    if !pool.is_replicated {
        let size = pool.size;
        return Some(format!("it is erasure coded in {size} shards, so that every read needs several drives"));
    }
    if pool.is_tiered {
        return Some("it is part of a cache tier, which moves objects by itself".to_owned());
    }
    if rule.is_none_or(|rule| rule.takes.is_none()) {
        return Some("its CRUSH rule is of several stages, which is not understood".to_owned());
    }
    None
}
