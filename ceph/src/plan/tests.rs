//! Plans for clusters that were dumped from Ceph 16.2, and for changed versions of them.

#![allow(clippy::unwrap_used)]

use super::{Options, OsdRole, PoolRole, plan};
use crate::cluster::{Cluster, OsdId};
use crate::dumps::DumpError;
use crate::{Pool, dumps};

/// Six OSDs on three hosts, of class ssd and hdd; a pool of three copies under the rule that Ceph makes.
pub fn ordinary() -> Cluster {
    let dump = |name: &str| {
        Ok::<_, DumpError>(match name {
            "osd-dump" => include_str!("../../tests/dumps/ordinary/osd-dump.json").to_owned(),
            "osd-crush-dump" => include_str!("../../tests/dumps/ordinary/osd-crush-dump.json").to_owned(),
            "osd-df" => include_str!("../../tests/dumps/ordinary/osd-df.json").to_owned(),
            "osd-metadata" => include_str!("../../tests/dumps/ordinary/osd-metadata.json").to_owned(),
            _ => include_str!("../../tests/dumps/ordinary/pg-dump.json").to_owned(),
        })
    };
    dumps::cluster(dump).unwrap()
}

/// The same with osd.3 to osd.5 and both pools converted.
pub fn converted() -> Cluster {
    let dump = |name: &str| {
        Ok::<_, DumpError>(match name {
            "osd-dump" => include_str!("../../tests/dumps/converted/osd-dump.json").to_owned(),
            "osd-crush-dump" => include_str!("../../tests/dumps/converted/osd-crush-dump.json").to_owned(),
            "osd-df" => include_str!("../../tests/dumps/converted/osd-df.json").to_owned(),
            "osd-metadata" => include_str!("../../tests/dumps/converted/osd-metadata.json").to_owned(),
            _ => include_str!("../../tests/dumps/converted/pg-dump.json").to_owned(),
        })
    };
    dumps::cluster(dump).unwrap()
}

fn attic(cluster: &mut Cluster) -> &mut Pool {
    cluster.pools.get_mut(&2).unwrap()
}

fn reasons(cluster: &Cluster) -> String {
    let plan = plan(cluster, &Options::default());
    assert!(!plan.is_suitable, "{plan:?}");
    plan.reasons.join("\n")
}

/// This number of OSDs of class hdd, with 1 GB each, on three hosts; the paper's clusters have 24.
fn of_one_class(osds: u32, stored_bytes: u64) -> Cluster {
    let mut cluster = ordinary();
    let one = cluster.osds[&OsdId(0)].clone();
    cluster.osds = (0..osds)
        .map(|id| {
            let host = (id % 3).to_string();
            let places = vec![("host".to_owned(), host), ("root".to_owned(), "default".to_owned())];
            let class = Some("hdd".to_owned());
            (OsdId(id), crate::Osd { id: OsdId(id), class, places, capacity_bytes: 1_000_000_000, ..one.clone() })
        })
        .collect();
    let pgs = cluster.pgs.iter_mut().filter(|pg| pg.pool == 2);
    pgs.for_each(|pg| pg.bytes = stored_bytes / 16);
    cluster
}

#[test]
fn the_slower_class_goes_cold() {
    let cluster = ordinary();
    let plan = plan(&cluster, &Options::default());
    assert!(plan.is_suitable, "{:?}", plan.reasons);
    assert_eq!((plan.hot_class.as_str(), plan.root.as_str(), plan.domain.as_str()), ("ssd", "default", "host"));
    let roles: Vec<OsdRole> = plan.osds.iter().map(|osd| osd.role).collect();
    assert_eq!(roles, [[OsdRole::Hot; 3], [OsdRole::GoesCold; 3]].concat());
    let (attic, health) = (plan.pool("attic").unwrap(), plan.pool("device_health_metrics").unwrap());
    assert_eq!((attic.role, attic.new_rule.as_deref()), (PoolRole::HotPrimary, Some("larder-hot-primary")));
    assert_eq!((health.role, health.new_rule.as_deref()), (PoolRole::HotOnly, Some("larder-hot-only")));
    assert_eq!(attic.stored_bytes, cluster.stored_bytes(2));
    assert_eq!(plan.saved_mw, 3 * (5200 - 950));
    assert_eq!(plan.starts_per_day_max, 10, "30,000 over 8 years");
    assert!(
        plan.warnings.iter().any(|text| text.contains("two of 3 copies may lie in one host")),
        "{:?}",
        plan.warnings
    );
}

/// Setting the rule on the cluster of these dumps moved 1,485 MB of 2,746 MB, by `ceph pg dump` before and after. The
/// estimate is an expectation over 16 placement groups.
#[test]
fn the_bytes_that_move_are_about_those_that_did() {
    let mut cluster = ordinary();
    let (before, after) = (ordinary(), converted());
    let moved: u64 = (before.pgs.iter().zip(&after.pgs))
        .map(|(before, after)| {
            assert_eq!(before.name, after.name);
            before.bytes * after.acting.iter().filter(|osd| !before.acting.contains(osd)).count() as u64
        })
        .sum();
    let expected = plan(&cluster, &Options::default()).moved_bytes;
    assert!(expected.abs_diff(moved) * 4 < moved, "expected {expected}, moved {moved}");
    cluster.pgs.iter_mut().for_each(|pg| pg.bytes = 0);
    assert_eq!(plan(&cluster, &Options::default()).moved_bytes, 0);
}

#[test]
fn a_converted_cluster_has_nothing_left() {
    let plan = plan(&converted(), &Options::default());
    assert!(plan.is_suitable, "{:?}", plan.reasons);
    let roles: Vec<OsdRole> = plan.osds.iter().map(|osd| osd.role).collect();
    assert_eq!(roles, [[OsdRole::Hot; 3], [OsdRole::Cold; 3]].concat());
    assert!(plan.pools.iter().all(|pool| pool.new_rule.is_none() && pool.moved_bytes == 0), "{:?}", plan.pools);
    // The machine of these dumps has virtual disks that count as spinning, also the one with block.db.
    assert!(plan.osds[3].reason.contains("block.db is on a drive that spins"), "{}", plan.osds[3].reason);
}

#[test]
fn in_a_cluster_of_one_class_as_many_go_cold_as_leave_room_for_one_copy() {
    let plan_of = |stored| plan(&of_one_class(24, stored), &Options::default());
    let cold = |stored: u64| plan_of(stored).osds.iter().filter(|osd| osd.role == OsdRole::GoesCold).count();
    let plan = plan_of(4_000_000_000);
    assert!(plan.is_suitable, "{:?}", plan.reasons);
    // 85 % of what is left of the hot OSDs without one host must hold 4 GB: 8 in two hosts could not lose one of those.
    assert_eq!((cold(4_000_000_000), plan.hot.osds), (16, 8));
    assert!(plan.hot.fits_after_loss());
    assert!(cold(6_000_000_000) < cold(4_000_000_000));
}

#[test]
fn too_little_room_for_one_copy_is_a_reason() {
    let mut cluster = ordinary();
    cluster.pgs.iter_mut().for_each(|pg| pg.bytes *= 20);
    assert!(reasons(&cluster).contains("add hot OSDs, or name fewer pools"), "{}", reasons(&cluster));
}

#[test]
fn an_erasure_coded_pool_over_all_drives_is_in_the_way() {
    let mut cluster = ordinary();
    attic(&mut cluster).is_replicated = false;
    let text = reasons(&cluster);
    assert!(
        text.contains("pool attic: it is erasure coded in 3 shards") && text.contains("device class first"),
        "{text}"
    );
    let mut cluster = converted();
    let pool = Pool {
        id: 3,
        name: "coded".to_owned(),
        is_replicated: false,
        rule: 2,
        pg_count: 0,
        ..cluster.pools[&2].clone()
    };
    cluster.pools.insert(3, pool);
    let plan = plan(&cluster, &Options::default());
    assert_eq!((plan.is_suitable, plan.pool("coded").unwrap().role), (true, PoolRole::Untouched), "{:?}", plan.reasons);
}

#[test]
fn one_copy_a_cache_tier_and_unknown_pools_are_reasons() {
    let named = |cluster: &Cluster, name: &str| {
        let options = Options { pools: vec![name.to_owned()], ..Options::default() };
        plan(cluster, &options).reasons.join("\n")
    };
    let mut cluster = ordinary();
    assert!(named(&cluster, "cellar").contains("there is no pool cellar"));
    attic(&mut cluster).size = 1;
    assert!(named(&cluster, "attic").contains("one copy, which must be hot"));
    attic(&mut cluster).size = 2;
    assert!(named(&cluster, "attic").contains("make its size 3"), "both copies may lie in one host");
    attic(&mut cluster).is_tiered = true;
    assert!(named(&cluster, "attic").contains("cache tier"));
}

#[test]
fn placement_groups_that_flap_are_a_reason_and_scrubs_are_none() {
    let mut cluster = ordinary();
    cluster.pgs[3].state = "active+clean+scrubbing+deep".to_owned();
    assert!(plan(&cluster, &Options::default()).is_suitable);
    for state in ["peering", "active+undersized+degraded", "active+remapped+backfilling", "stale+active+clean"] {
        cluster.pgs[3].state = state.to_owned();
        assert!(reasons(&cluster).contains("1 placement groups are not active+clean"), "{state}");
    }
    cluster.pgs.clear();
    assert!(reasons(&cluster).contains("is a manager running"));
}

#[test]
fn what_is_down_or_out_or_of_another_store_does_not_go_cold() {
    let mut cluster = ordinary();
    cluster.osds.get_mut(&OsdId(3)).unwrap().is_up = false;
    cluster.osds.get_mut(&OsdId(4)).unwrap().objectstore = "filestore".to_owned();
    let plan = plan(&cluster, &Options::default());
    assert_eq!((plan.osds[3].role, plan.osds[4].role), (OsdRole::Stays, OsdRole::Stays));
    assert!(!plan.is_suitable, "two cold copies need two hosts: {:?}", plan.reasons);
}

#[test]
fn dumps_of_something_else_are_refused_by_name() {
    for text in ["", "{}", "[]", "{\"fsid\": 3}", "null"] {
        let error = dumps::cluster(|_| Ok::<_, DumpError>(text.to_owned())).unwrap_err().to_string();
        assert!(error.contains("ceph osd dump --format json"), "{error}");
    }
}

#[test]
fn an_osd_whose_data_find_no_room_while_it_is_out_is_a_reason() {
    let mut cluster = ordinary();
    // With three copies on three hosts, the data of osd.3 must go to the other OSD of its host.
    let osd = cluster.osds.get_mut(&OsdId(0)).unwrap();
    osd.used_bytes = osd.capacity_bytes;
    let text = reasons(&cluster);
    assert!(
        text.contains("osd.3 cannot be emptied") && text.contains("would go to osd.0, which have 0.0 GB"),
        "{text}"
    );
    cluster.osds.get_mut(&OsdId(0)).unwrap().is_in = false;
    let text = reasons(&cluster);
    assert!(text.contains("osd.3 cannot be emptied: no other OSD may take its placement groups"), "{text}");
}

#[test]
fn hosts_are_told_what_block_db_needs_and_which_hot_devices_ceph_knows_there() {
    let warnings = |cluster: &Cluster| plan(cluster, &Options::default()).warnings.join("\n");
    let mut cluster = ordinary();
    let text = warnings(&cluster);
    assert!(
        text.contains("host-0: block.db of osd.3 wants 1352.9 MB") && text.contains("knows of vda there"),
        "{text}"
    );
    cluster.osds.get_mut(&OsdId(0)).unwrap().hostname = "elsewhere".to_owned();
    let text = warnings(&cluster);
    assert!(text.contains("wants 1352.9 MB on flash or on a drive that always spins; Ceph knows of none"), "{text}");
}

#[test]
fn a_block_db_without_room_for_the_logs_is_warned_of() {
    let mut cluster = converted();
    let mut warned = |db_bytes| {
        cluster.osds.get_mut(&OsdId(3)).unwrap().db_bytes = db_bytes;
        let warnings = plan(&cluster, &Options::default()).warnings;
        warnings.into_iter().find(|text| text.starts_with("osd.3: block.db"))
    };
    let text = warned(256 << 20).unwrap();
    assert!(text.contains("block.db of 268.4 MB is small") && text.contains("1374.4 MB are advised"), "{text}");
    assert_eq!((warned(0), warned(2 << 30)), (None, None), "what is not known is no reason to warn");
}

#[test]
fn starts_follow_from_writes_and_the_age_of_the_pools() {
    let mut cluster = ordinary();
    assert_eq!(plan(&cluster, &Options::default()).writes, None, "these dumps say no age");
    let writes = |cluster: &mut Cluster, count: u64| {
        cluster.pgs.iter_mut().filter(|pg| pg.pool == 2).for_each(|pg| pg.writes = count / 16);
        plan(cluster, &Options::default())
    };
    cluster.seen_at = Some(model::Time::from_secs(2_000_000 + 10 * 86_400));
    attic(&mut cluster).created = Some(model::Time::from_secs(2_000_000));
    // 4.8 writes a day, and two thirds of them fall on each of three drives; idle for 660 s each time.
    let few = writes(&mut cluster, 48).writes.unwrap();
    assert!((few.per_day - 4.8).abs() < 0.01 && (few.starts_per_day - 3.2 * 0.976).abs() < 0.01, "{few:?}");
    assert_eq!(few.asleep_permille, 976);
    let many = writes(&mut cluster, 48_000);
    let starts = many.writes.unwrap();
    assert!(starts.asleep_permille < 1 && starts.starts_per_day < 0.1, "it never sleeps: {starts:?}");
    assert!(many.warnings.iter().any(|text| text.contains("asleep for 0 %")), "{:?}", many.warnings);
    let some = writes(&mut cluster, 480);
    assert!(some.warnings.iter().any(|text| text.contains("and 10 are allowed")), "{:?}", some.warnings);
}
