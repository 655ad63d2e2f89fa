//! The needs of cold OSDs: a hot device on their host for `block.db`, and room on other OSDs for the data of the one
//! that is out.

use super::choice::{DB_LOG_BYTES, db_wanted, is_db_small};
use super::types::{Notes, OsdPlan, OsdRole};
use crate::cluster::{Cluster, Osd, OsdId, Pool};
use std::collections::{BTreeMap, BTreeSet};

/// Notes the obstacles to converting `osds`, and the prerequisites.
pub fn judge(cluster: &Cluster, osds: &[OsdPlan], notes: &mut Notes) {
    let going: Vec<&OsdPlan> = osds.iter().filter(|osd| osd.role == OsdRole::GoesCold).collect();
    let obstacles: Vec<String> =
        going.iter().filter_map(|plan| no_room_while_out(cluster, cluster.osds.get(&plan.osd)?)).collect();
    if let Some(first) = obstacles.first() {
        let more = if obstacles.len() > 1 { format!(" ({} OSDs in all)", obstacles.len()) } else { String::new() };
        notes.reason(format!("{first}{more}"));
    }
    let hosts: BTreeSet<&str> = going.iter().map(|plan| plan.host.as_str()).collect();
    for host in hosts {
        let of_host = going.iter().filter(|plan| plan.host == host);
        let (names, bytes): (Vec<String>, Vec<u64>) = of_host.map(|plan| (plan.osd.to_string(), plan.db_bytes)).unzip();
        let (names, megabytes) = (names.join(", "), bytes.iter().sum::<u64>() as f64 / 1e6);
        let known = hot_devices(cluster, osds, host);
        let known = if known.is_empty() {
            "Ceph knows of none there".to_owned()
        } else {
            format!("Ceph knows of {} there, and not what of it is free (`lsblk`)", known.join(", "))
        };
        notes.warning(format!(
            "{host}: block.db of {names} wants {megabytes:.1} MB on flash or on a drive that always spins; {known}"
        ));
    }
    let cold = osds.iter().filter(|plan| plan.role == OsdRole::Cold);
    for osd in cold.filter_map(|plan| cluster.osds.get(&plan.osd)).filter(|osd| is_db_small(osd)) {
        let (id, mb) = (osd.id, |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6));
        notes.warning(format!(
            "{id}: block.db of {} is small: RocksDB's logs alone take up to {}, and what finds no room is written to \
             the cold drive and wakes it (BLUEFS_SPILLOVER in `ceph health detail`); {} are advised: enlarge its \
             device (`ceph-bluestore-tool bluefs-bdev-expand`), or revert it and convert it with another --db",
            mb(osd.db_bytes),
            mb(DB_LOG_BYTES),
            mb(db_wanted(osd))
        ));
    }
}

/// Devices of hot OSDs on `host`, and those that hold `block.db` there and do not spin.
fn hot_devices(cluster: &Cluster, osds: &[OsdPlan], host: &str) -> Vec<String> {
    let role = |id: OsdId| osds.iter().find(|plan| plan.osd == id).map(|plan| plan.role);
    let of_host = || cluster.osds.values().filter(|osd| osd.hostname == host);
    let hot = of_host().filter(|osd| role(osd.id) == Some(OsdRole::Hot)).flat_map(|osd| &osd.devices);
    let dbs = of_host().filter(|osd| osd.db_spins == Some(false)).flat_map(|osd| &osd.devices);
    // A name may be that of a drive which goes cold, or is cold: data and `block.db` are not distinguished there.
    let cold = |osd: &&Osd| matches!(role(osd.id), Some(OsdRole::GoesCold | OsdRole::Cold));
    let asleep: BTreeSet<&String> = of_host().filter(cold).flat_map(|osd| &osd.data_devices).collect();
    let names: BTreeSet<&String> = hot.chain(dbs).filter(|name| !asleep.contains(name)).collect();
    names.into_iter().cloned().collect()
}

/// The reason why the data of `osd` would have no room while it is out.
fn no_room_while_out(cluster: &Cluster, osd: &Osd) -> Option<String> {
    let mut needs: BTreeMap<Vec<OsdId>, u64> = BTreeMap::new();
    for pool in cluster.pools.values() {
        let pgs = cluster.pgs.iter().filter(|pg| pg.pool == pool.id && pg.acting.contains(&osd.id));
        let (count, bytes) = pgs.fold((0, 0), |(count, bytes), pg| (count + 1, bytes + pg.bytes));
        if count > 0 {
            *needs.entry(takers(cluster, pool, osd)).or_default() += bytes;
        }
    }
    needs.into_iter().find_map(|(takers, bytes)| {
        let free: u64 = takers.iter().filter_map(|taker| cluster.osds.get(taker)).map(|osd| free(cluster, osd)).sum();
        let (id, gb) = (osd.id, |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9));
        if takers.is_empty() {
            return Some(format!("{id} cannot be emptied: no other OSD may take its placement groups"));
        }
        let names: Vec<String> = takers.iter().take(4).map(ToString::to_string).collect();
        let names = names.join(", ") + if takers.len() > 4 { ", ..." } else { "" };
        (free < bytes).then(|| {
            format!(
                "{id} cannot be emptied: its {} would go to {names}, which have {} before they are nearly full",
                gb(bytes),
                gb(free)
            )
        })
    })
}

fn free(cluster: &Cluster, osd: &Osd) -> u64 {
    (osd.capacity_bytes / 1000 * cluster.nearfull_permille).saturating_sub(osd.used_bytes)
}

/// The OSDs that may take the data that `osd` has of `pool`; if the pool needs every failure domain, those in the same
/// one.
fn takers(cluster: &Cluster, pool: &Pool, osd: &Osd) -> Vec<OsdId> {
    let rule = cluster.rule_of(pool);
    let take =
        rule.and_then(|rule| rule.takes.as_ref()?.iter().find(|take| take.class.is_none() || take.class == osd.class));
    let domain = take.map_or("host", |take| take.domain.as_str());
    let place = |osd: &Osd| osd.place(domain).map_or_else(|| osd.id.to_string(), str::to_owned);
    let may = |other: &&Osd| {
        let is_chosen = rule.is_none_or(|rule| rule.may_choose(other));
        // Copies of one `take` stay within its device class.
        let is_of_class = take.is_none_or(|take| take.class.is_none() || take.class == other.class);
        other.id != osd.id && other.is_up && other.is_in && is_chosen && is_of_class
    };
    let others: Vec<&Osd> = cluster.osds.values().filter(may).collect();
    let places: BTreeSet<String> = others.iter().copied().chain([osd]).map(place).collect();
    let wanted = match take.map_or(0, |take| take.count) {
        count @ 1.. => count as usize,
        count => (i64::from(pool.size) + count).max(1) as usize,
    };
    let is_bound = places.len() <= wanted;
    others.into_iter().filter(|other| !is_bound || place(other) == place(osd)).map(|other| other.id).collect()
}
