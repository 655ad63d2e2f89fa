//! The conversion and reversion of one OSD, or one pool.
//!
//! ```text
//! OSD    Out -> wait until it holds nothing -> Stop -> Destroy -> Class -> Affinity -> Create -> Start -> In -> wait
//! pool   AddRule -> SetRule -> wait                               back: SetRule -> RemoveRule -> wait
//! ```
//!
//! [`next_for_osd`] and [`next_for_pool`] look at the current state, not at the last action: the first step whose
//! effect is missing comes next. So a conversion can stop after each step and resume later, and `revert` is the same
//! machine with the original as its goal. The [`OsdRecord`] stores what the cluster does not show: the original state.
//!
//! The OSD is destroyed, not purged: number and place in the CRUSH map stay (Ceph's documentation, "Replacing an OSD").
//!
//! A run that was killed while it created an OSD again may leave one that was announced and never ran (`ceph osd new`
//! comes before its devices are written): nothing is stored on it, and it is destroyed and created again.
//!
//! Invariant: no step is next while a placement group is not active+clean, except those that bring an OSD back
//! unchanged (Start, and In of an OSD that was not created again).

use crate::cluster::{Cluster, Osd, OsdId, REWEIGHT_WHOLE};
use crate::crush_rule::HotPrimary;
use crate::plan::HOT_ONLY_RULE;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The goal of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Cold.
    Converted,
    /// The original state.
    Original,
}

/// The properties of an OSD that a conversion changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Its device class.
    pub class: Option<String>,
    /// Its primary affinity, in thousandths.
    pub affinity_permille: u32,
    /// True if it has a `block.db`.
    pub has_db: bool,
}

impl Shape {
    /// The shape of `osd`.
    pub fn of(osd: &Osd) -> Self {
        Self { class: osd.class.clone(), affinity_permille: osd.affinity_permille, has_db: osd.has_db }
    }
}

/// The conversion of one OSD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdRecord {
    /// The cluster's identity.
    pub fsid: String,
    /// The OSD.
    pub osd: OsdId,
    /// The goal.
    pub goal: Goal,
    /// The OSD's original shape.
    pub original: Shape,
    /// Its shape after the conversion.
    pub converted: Shape,
    /// The identity of the OSD that must be created again to reach the goal; `None` if none must be.
    pub replaces: Option<String>,
    /// Its share of what its CRUSH weight gives it, in parts of [`REWEIGHT_WHOLE`]; Ceph loses it when an OSD is taken
    /// out and in again.
    #[serde(default = "whole")]
    pub reweight: u32,
    /// The device of its data.
    pub data: String,
    /// The device of its `block.db` after the conversion.
    pub db: String,
}

fn whole() -> u32 {
    REWEIGHT_WHOLE
}

impl Record for OsdRecord {
    const KIND: &'static str = "osd";
}

/// A step of the conversion of an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OsdStep {
    /// CRUSH no longer chooses it; its data move to others.
    Out,
    /// Its daemon stops.
    Stop,
    /// Its identity is given up; number and place stay.
    Destroy,
    /// It gets its device class.
    Class,
    /// It gets its primary affinity.
    Affinity,
    /// Its devices are wiped, and it is created again.
    Create,
    /// Its daemon starts.
    Start,
    /// CRUSH may choose it; data move to it.
    In,
}

/// The next step of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<S> {
    /// This step.
    Do(S),
    /// Nothing until the cluster has changed by itself.
    Wait(String),
    /// Nothing: the goal is reached.
    Done,
    /// Nothing; the operator must act first.
    Refused(String),
}

impl OsdRecord {
    /// The conversion of `osd` of `cluster`, which is in its original state.
    pub fn new(cluster: &Cluster, osd: &Osd, cold_class: &str, data: String, db: String) -> Self {
        let converted = Shape { class: Some(cold_class.to_owned()), affinity_permille: 0, has_db: true };
        let mut record = Self {
            fsid: cluster.fsid.clone(),
            osd: osd.id,
            goal: Goal::Converted,
            original: Shape::of(osd),
            converted,
            replaces: None,
            reweight: if osd.is_in { osd.reweight } else { REWEIGHT_WHOLE },
            data,
            db,
        };
        record.turn(osd, Goal::Converted);
        record
    }

    /// Sets the goal; `osd` is the current state.
    pub fn turn(&mut self, osd: &Osd, goal: Goal) {
        self.goal = goal;
        // It is unknown if an OSD that never ran has a `block.db`; nothing is stored on it that must be kept.
        let is_other = osd.has_db != self.wanted().has_db || osd.is_new;
        self.replaces = (is_other && !osd.is_destroyed).then(|| osd.uuid.clone());
    }

    /// The shape at its goal.
    pub fn wanted(&self) -> &Shape {
        match self.goal {
            Goal::Converted => &self.converted,
            Goal::Original => &self.original,
        }
    }
}

/// The steps of `record`, as far as they are known before the first is done; a step whose effect already exists is
/// skipped at its turn.
pub fn outline(record: &OsdRecord) -> Vec<OsdStep> {
    use OsdStep::{Affinity, Class, Create, Destroy, In, Out, Stop};
    match record.replaces {
        Some(_) => vec![Out, Stop, Destroy, Class, Affinity, Create, In],
        None => vec![Class, Affinity, In],
    }
}

/// True if the effect of `step` exists.
pub fn has_effect(step: OsdStep, record: &OsdRecord, cluster: &Cluster) -> bool {
    let Some(osd) = cluster.osds.get(&record.osd) else { return false };
    match step {
        OsdStep::Out => !osd.is_in,
        OsdStep::Stop => !osd.is_up,
        OsdStep::Destroy => osd.is_destroyed,
        OsdStep::Class => osd.class == record.wanted().class,
        OsdStep::Affinity => osd.affinity_permille == record.wanted().affinity_permille,
        OsdStep::Create | OsdStep::Start => osd.is_up,
        OsdStep::In => osd.is_in && osd.reweight.abs_diff(record.reweight) <= 1,
    }
}

/// The reason why `osd` cannot be reverted yet: without it a pool's cold copies would have no place.
pub fn revert_obstacle(cluster: &Cluster, osd: OsdId) -> Option<String> {
    let class = cluster.osds.get(&osd)?.class.as_ref()?;
    cluster.pools.values().find_map(|pool| {
        let takes = cluster.rule_of(pool)?.takes.as_ref()?;
        let take = takes.iter().find(|take| take.class.as_ref() == Some(class) && take.count < 0)?;
        let left = cluster.osds.values().filter(|other| other.id != osd && other.class.as_ref() == Some(class));
        let places: BTreeSet<&str> = left.filter_map(|other| other.place(&take.domain)).collect();
        let wanted = pool.size.saturating_sub(1) as usize;
        (places.len() < wanted).then(|| {
            let (name, domain, there) = (&pool.name, &take.domain, places.len());
            format!(
                "pool {name} has {wanted} cold copies, and without {osd} there are cold OSDs in {there} {domain}s; \
                     `larder ceph revert pool/{name}` first"
            )
        })
    })
}

/// The reason to wait for the cluster; `None` if every placement group is active+clean.
fn unclean(cluster: &Cluster) -> Option<String> {
    (!cluster.is_clean())
        .then(|| format!("{} of {} placement groups are not active+clean", cluster.unclean_count(), cluster.pgs.len()))
}

/// The next step of `record`.
pub fn next_for_osd(record: &OsdRecord, cluster: &Cluster) -> Next<OsdStep> {
    if cluster.fsid != record.fsid {
        return Next::Refused(format!("this is cluster {}, and the conversion is of {}", cluster.fsid, record.fsid));
    }
    let Some(osd) = cluster.osds.get(&record.osd) else {
        return Next::Refused(format!("{} is no longer in the cluster", record.osd));
    };
    let is_made_anew = !osd.is_destroyed && record.replaces.as_ref() != Some(&osd.uuid);
    let next = match (is_made_anew, osd.is_destroyed) {
        (false, false) => emptied(osd, cluster),
        (false, true) => shaped(record, osd).unwrap_or(Next::Do(OsdStep::Create)),
        (true, _) => returned(record, osd),
    };
    let is_return = record.goal == Goal::Original && record.replaces.is_none() && next == Next::Do(OsdStep::In);
    match (next, unclean(cluster)) {
        (next @ Next::Do(OsdStep::Start), _) => next,
        (next, _) if is_return => next,
        (Next::Do(_) | Next::Done, Some(reason)) => Next::Wait(reason),
        (next, _) => next,
    }
}

/// The OSD that is given up is emptied, stopped and destroyed.
fn emptied(osd: &Osd, cluster: &Cluster) -> Next<OsdStep> {
    match (osd.is_in, cluster.pgs_on(osd.id), osd.is_up) {
        (true, ..) => Next::Do(OsdStep::Out),
        (false, pgs @ 1.., _) => Next::Wait(format!("{} still holds {pgs} placement groups", osd.id)),
        (false, 0, true) => Next::Do(OsdStep::Stop),
        (false, 0, false) => Next::Do(OsdStep::Destroy),
    }
}

/// Class and affinity, which a destroyed OSD keeps for its successor.
fn shaped(record: &OsdRecord, osd: &Osd) -> Option<Next<OsdStep>> {
    let wanted = record.wanted();
    if osd.class != wanted.class {
        Some(Next::Do(OsdStep::Class))
    } else if osd.affinity_permille != wanted.affinity_permille {
        Some(Next::Do(OsdStep::Affinity))
    } else {
        None
    }
}

/// The current OSD is started, gets its shape, and is taken in.
fn returned(record: &OsdRecord, osd: &Osd) -> Next<OsdStep> {
    if !osd.is_up {
        return Next::Do(if osd.is_new { OsdStep::Destroy } else { OsdStep::Start });
    }
    if osd.has_db != record.wanted().has_db {
        let is = if osd.has_db { "with" } else { "without" };
        return Next::Refused(format!("{} was made {is} a block.db, by other hands; see what it is", osd.id));
    }
    // Monitors by themselves take in an OSD that runs for the first time (`mon_osd_auto_mark_new_in`), with its whole
    // weight. Any other reweight is the operator's decision.
    let is_weighted = osd.reweight != REWEIGHT_WHOLE || record.reweight == REWEIGHT_WHOLE;
    let chosen = || if osd.is_in && is_weighted { Next::Done } else { Next::Do(OsdStep::In) };
    shaped(record, osd).unwrap_or_else(chosen)
}

/// The rule that a pool gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolRule {
    /// The first copy on hot drives, the others on cold ones.
    HotPrimary,
    /// All copies on hot drives.
    HotOnly,
}

/// The conversion of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The cluster's identity.
    pub fsid: String,
    /// The pool's number, which survives renaming.
    pub pool: u64,
    /// Its name when it was converted.
    pub name: String,
    /// The goal.
    pub goal: Goal,
    /// Its original rule.
    pub original_rule: String,
    /// The kind of rule that it gets.
    pub kind: PoolRule,
    /// Names of the rule, classes, root and failure domain.
    pub rule: String,
    /// The CRUSH root.
    pub root: String,
    /// The device class of the hot copies.
    pub hot_class: String,
    /// The device class of the cold copies.
    pub cold_class: String,
    /// The failure domain.
    pub domain: String,
}

impl Record for PoolRecord {
    const KIND: &'static str = "pool";
}

impl PoolRecord {
    /// Its hot-primary rule.
    pub fn hot_primary(&self) -> HotPrimary {
        let Self { rule, root, hot_class, cold_class, domain, .. } = self.clone();
        HotPrimary { name: rule, root, hot_class, cold_class, domain }
    }

    /// The rule at its goal.
    fn wanted(&self) -> &str {
        match self.goal {
            Goal::Converted => &self.rule,
            Goal::Original => &self.original_rule,
        }
    }
}

/// A step of the conversion of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolStep {
    /// The rule is added to the CRUSH map.
    AddRule,
    /// The pool gets its rule; data move.
    SetRule,
    /// A rule of Larder's that no pool uses is removed.
    RemoveRule,
}

/// The next step of `record`.
pub fn next_for_pool(record: &PoolRecord, cluster: &Cluster) -> Next<PoolStep> {
    if cluster.fsid != record.fsid {
        return Next::Refused(format!("this is cluster {}, and the conversion is of {}", cluster.fsid, record.fsid));
    }
    let Some(pool) = cluster.pools.get(&record.pool) else {
        return Next::Refused(format!("pool {} is no longer there", record.name));
    };
    if let Some(reason) = unclean(cluster) {
        return Next::Wait(reason);
    }
    let current = cluster.rule_of(pool).map(|rule| rule.name.as_str());
    match (record.goal, cluster.rule(record.wanted())) {
        (Goal::Converted, _) if too_few_cold(record, pool.size, cluster).is_some() => {
            Next::Refused(too_few_cold(record, pool.size, cluster).unwrap_or_default())
        }
        (Goal::Converted, None) => Next::Do(PoolStep::AddRule),
        (Goal::Converted, Some(rule)) if !is_as_meant(record, rule) => {
            Next::Refused(format!("there is a rule {} that says something else; rename or remove it", rule.name))
        }
        (Goal::Original, None) => Next::Refused(format!("the rule {} is gone; make it again", record.original_rule)),
        (_, Some(rule)) if current != Some(&rule.name) => Next::Do(PoolStep::SetRule),
        (Goal::Original, Some(_)) if is_left(record, cluster) => Next::Do(PoolStep::RemoveRule),
        _ => Next::Done,
    }
}

fn is_as_meant(record: &PoolRecord, rule: &crate::Rule) -> bool {
    match record.kind {
        PoolRule::HotPrimary => record.hot_primary().is(rule),
        PoolRule::HotOnly => rule.takes.iter().flatten().all(|take| take.class.as_ref() == Some(&record.hot_class)),
    }
}

/// The reason why the cold copies would have no place: each needs its own failure domain with a converted OSD.
fn too_few_cold(record: &PoolRecord, size: u32, cluster: &Cluster) -> Option<String> {
    let cold = cluster.osds.values().filter(|osd| osd.class.as_ref() == Some(&record.cold_class) && osd.is_in);
    let places: BTreeSet<&str> = cold.filter_map(|osd| osd.place(&record.domain)).collect();
    let (wanted, there) = (size.saturating_sub(1) as usize, places.len());
    (record.kind == PoolRule::HotPrimary && there < wanted).then(|| {
        let PoolRecord { name, domain, .. } = record;
        format!(
            "pool {name} has {wanted} cold copies, and converted OSDs are in {there} {domain}s; convert more OSDs first"
        )
    })
}

/// True if the pool's rule is one of Larder's, exists, and is used by no pool.
fn is_left(record: &PoolRecord, cluster: &Cluster) -> bool {
    let is_larders = record.rule == HOT_ONLY_RULE || record.kind == PoolRule::HotPrimary;
    let rule = cluster.rule(&record.rule);
    is_larders && rule.is_some_and(|rule| cluster.pools.values().all(|pool| pool.rule != rule.id))
}

#[cfg(test)]
mod tests;
