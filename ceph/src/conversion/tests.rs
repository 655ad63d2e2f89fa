//! Conversions of a made-up cluster that executes the steps, stopped and reversed at each.

#![allow(clippy::unwrap_used)]

use super::{
    Goal, Next, OsdRecord, OsdStep, PoolRecord, PoolRule, PoolStep, Shape, has_effect, next_for_osd, next_for_pool,
    revert_obstacle,
};
use crate::cluster::{Cluster, OsdId, Rule, Take};
use crate::plan::tests::{converted, ordinary};

const OSD: OsdId = OsdId(3);

fn record(cluster: &Cluster) -> OsdRecord {
    OsdRecord::new(cluster, &cluster.osds[&OSD], "cold", "/dev/sdb".to_owned(), "/dev/nvme0n1p3".to_owned())
}

/// Applies the effect of `step` to a cluster.
fn apply(step: OsdStep, record: &OsdRecord, cluster: &mut Cluster) {
    let wanted = record.wanted().clone();
    let osd = cluster.osds.get_mut(&OSD).unwrap();
    match step {
        OsdStep::Out => {
            (osd.is_in, osd.reweight) = (false, 0);
            cluster.pgs.iter_mut().for_each(|pg| pg.acting.retain(|acting| *acting != OSD));
        }
        OsdStep::Stop => osd.is_up = false,
        OsdStep::Destroy => {
            (osd.is_destroyed, osd.reweight, osd.uuid) = (true, 0, "00000000-0000-0000-0000-000000000000".to_owned());
        }
        OsdStep::Class => osd.class = wanted.class,
        OsdStep::Affinity => osd.affinity_permille = wanted.affinity_permille,
        OsdStep::Create => {
            cluster.crush_version += 1;
            osd.uuid = format!("anew {}", cluster.crush_version);
            (osd.is_destroyed, osd.is_new, osd.is_up, osd.has_db) = (false, false, true, wanted.has_db);
        }
        OsdStep::Start => osd.is_up = true,
        OsdStep::In => (osd.is_in, osd.reweight) = (true, record.reweight),
    }
}

/// Follows `record` for at most `steps_max` steps.
fn follow(record: &OsdRecord, cluster: &mut Cluster, steps_max: usize) -> Vec<OsdStep> {
    let mut done = Vec::new();
    while done.len() < steps_max {
        match next_for_osd(record, cluster) {
            Next::Do(step) => {
                apply(step, record, cluster);
                assert!(has_effect(step, record, cluster), "{step:?}");
                done.push(step);
            }
            Next::Done => break,
            other => panic!("{other:?} after {done:?}"),
        }
    }
    done
}

#[test]
fn a_conversion_takes_the_documented_steps() {
    use OsdStep::{Affinity, Class, Create, Destroy, In, Out, Stop};
    let mut cluster = ordinary();
    let record = record(&cluster);
    assert_eq!(follow(&record, &mut cluster, 99), [Out, Stop, Destroy, Class, Affinity, Create, In]);
    assert_eq!(Shape::of(&cluster.osds[&OSD]), record.converted);
    assert_eq!(next_for_osd(&record, &cluster), Next::Done);
}

#[test]
fn it_can_be_stopped_and_reverted_after_each_step() {
    for stopped_after in 0..=7 {
        let (mut cluster, before) = (ordinary(), ordinary());
        let mut record = record(&cluster);
        let done = follow(&record, &mut cluster, stopped_after);
        record.turn(&cluster.osds[&OSD], Goal::Original);
        let back = follow(&record, &mut cluster, 99);
        let osd = &cluster.osds[&OSD];
        assert_eq!(Shape::of(osd), record.original, "after {done:?}: {back:?}");
        assert!(osd.is_in && osd.is_up && !osd.is_destroyed);
        let was_kept = !done.contains(&OsdStep::Destroy);
        assert_eq!(
            osd.uuid == before.osds[&OSD].uuid,
            was_kept,
            "nothing is made anew without need: {done:?}: {back:?}"
        );
        // And forward again.
        record.turn(&cluster.osds[&OSD], Goal::Converted);
        follow(&record, &mut cluster, 99);
        assert_eq!(Shape::of(&cluster.osds[&OSD]), record.converted);
    }
}

#[test]
fn no_step_is_next_while_a_placement_group_flaps() {
    for steps in 0..7 {
        let mut cluster = ordinary();
        let record = record(&cluster);
        follow(&record, &mut cluster, steps);
        let next = next_for_osd(&record, &cluster);
        for state in ["peering", "active+undersized+degraded", "active+remapped+backfilling", "down"] {
            cluster.pgs[0].state = state.to_owned();
            assert!(matches!(next_for_osd(&record, &cluster), Next::Wait(_)), "{state}: {next:?}");
        }
        cluster.pgs.pop();
        assert!(matches!(next_for_osd(&record, &cluster), Next::Wait(_)), "a group that is not reported: {next:?}");
    }
}

#[test]
fn it_waits_until_the_osd_is_empty() {
    let mut cluster = ordinary();
    let record = record(&cluster);
    cluster.osds.get_mut(&OSD).unwrap().is_in = false;
    let held = cluster.pgs_on(OSD);
    assert_eq!(next_for_osd(&record, &cluster), Next::Wait(format!("osd.3 still holds {held} placement groups")));
}

#[test]
fn an_osd_that_is_taken_back_before_it_was_emptied_returns_at_once() {
    let mut cluster = ordinary();
    let mut record = record(&cluster);
    cluster.osds.get_mut(&OSD).unwrap().is_in = false;
    cluster.pgs[0].state = "active+undersized+remapped".to_owned();
    record.turn(&cluster.osds[&OSD], Goal::Original);
    assert_eq!(next_for_osd(&record, &cluster), Next::Do(OsdStep::In));
}

#[test]
fn another_cluster_a_lost_osd_and_other_hands_are_refused() {
    let cluster = ordinary();
    let record = record(&cluster);
    let refused = |cluster: &Cluster, word: &str| match next_for_osd(&record, cluster) {
        Next::Refused(reason) => assert!(reason.contains(word), "{reason}"),
        other => panic!("{other:?}"),
    };
    refused(&Cluster { fsid: "another".to_owned(), ..cluster.clone() }, "another");
    let mut lost = cluster.clone();
    lost.osds.remove(&OSD);
    refused(&lost, "no longer");
    let mut made = cluster.clone();
    made.osds.get_mut(&OSD).unwrap().uuid = "by somebody".to_owned();
    refused(&made, "by other hands");
}

fn pool_record(cluster: &Cluster, kind: PoolRule) -> PoolRecord {
    let text = str::to_owned;
    let rule = if kind == PoolRule::HotOnly { "larder-hot-only" } else { "larder-hot-primary" };
    PoolRecord {
        fsid: cluster.fsid.clone(),
        pool: 2,
        name: text("attic"),
        goal: Goal::Converted,
        original_rule: text("replicated_rule"),
        kind,
        rule: text(rule),
        root: text("default"),
        hot_class: text("ssd"),
        cold_class: text("cold"),
        domain: text("host"),
    }
}

#[test]
fn a_pool_gets_its_rule_and_gives_it_back() {
    let mut cluster = converted();
    let mut record = pool_record(&cluster, PoolRule::HotPrimary);
    assert_eq!(next_for_pool(&record, &cluster), Next::Done, "the dumps are of a converted pool");
    let added = cluster.rules.remove(&1).unwrap();
    cluster.pools.get_mut(&2).unwrap().rule = 0;
    assert_eq!(next_for_pool(&record, &cluster), Next::Do(PoolStep::AddRule));
    cluster.rules.insert(1, added);
    assert_eq!(next_for_pool(&record, &cluster), Next::Do(PoolStep::SetRule));
    cluster.pools.get_mut(&2).unwrap().rule = 1;
    record.goal = Goal::Original;
    assert_eq!(next_for_pool(&record, &cluster), Next::Do(PoolStep::SetRule));
    cluster.pools.get_mut(&2).unwrap().rule = 0;
    assert_eq!(next_for_pool(&record, &cluster), Next::Do(PoolStep::RemoveRule));
    cluster.pools.get_mut(&1).unwrap().rule = 1;
    assert_eq!(next_for_pool(&record, &cluster), Next::Done, "another pool uses it");
    cluster.pgs[0].state = "peering".to_owned();
    assert!(matches!(next_for_pool(&record, &cluster), Next::Wait(_)));
}

#[test]
fn a_pool_is_not_converted_before_its_osds_nor_by_a_rule_of_others() {
    let refused =
        |cluster: &Cluster, word: &str| match next_for_pool(&pool_record(cluster, PoolRule::HotPrimary), cluster) {
            Next::Refused(reason) => assert!(reason.contains(word), "{reason}"),
            other => panic!("{other:?}"),
        };
    refused(&ordinary(), "convert more OSDs first");
    let mut cluster = converted();
    let take = Take { root: "default".to_owned(), class: None, count: 0, domain: "osd".to_owned() };
    let rule = Rule { id: 1, name: "larder-hot-primary".to_owned(), takes: Some(vec![take]) };
    cluster.rules.insert(1, rule);
    refused(&cluster, "says something else");
}

#[test]
fn an_osd_is_not_reverted_from_under_a_pool() {
    let cluster = converted();
    assert_eq!(revert_obstacle(&cluster, OSD), None, "two hosts are left for two cold copies");
    let mut cluster = cluster;
    cluster.osds.get_mut(&OsdId(4)).unwrap().class = Some("hdd".to_owned());
    assert!(revert_obstacle(&cluster, OSD).unwrap().contains("revert pool/attic"));
}

/// The state that `ceph osd new` leaves when nothing comes after it.
fn announced(cluster: &mut Cluster) {
    let osd = cluster.osds.get_mut(&OSD).unwrap();
    (osd.is_destroyed, osd.is_new, osd.is_up, osd.uuid) = (false, true, false, "announced".to_owned());
}

#[test]
fn what_was_announced_and_never_ran_is_destroyed_and_made_again() {
    use OsdStep::{Affinity, Class, Create, Destroy, In};
    let mut cluster = ordinary();
    let mut record = record(&cluster);
    follow(&record, &mut cluster, 5);
    announced(&mut cluster);
    assert_eq!(follow(&record, &mut cluster, 99), [Destroy, Create, In]);
    // The same if the reversion starts there, and is interrupted there as well.
    let mut cluster = ordinary();
    follow(&record, &mut cluster, 5);
    announced(&mut cluster);
    record.turn(&cluster.osds[&OSD], Goal::Original);
    assert_eq!(follow(&record, &mut cluster, 3), [Destroy, Class, Affinity]);
    announced(&mut cluster);
    assert_eq!(follow(&record, &mut cluster, 99), [Destroy, Create, In]);
    assert_eq!(Shape::of(&cluster.osds[&OSD]), record.original);
}

#[test]
fn an_osd_that_ran_once_and_is_down_is_started() {
    let mut cluster = ordinary();
    let record = record(&cluster);
    follow(&record, &mut cluster, 6);
    cluster.osds.get_mut(&OSD).unwrap().is_up = false;
    assert_eq!(follow(&record, &mut cluster, 99), [OsdStep::Start, OsdStep::In]);
}

#[test]
fn the_reweight_is_given_back() {
    let mut cluster = ordinary();
    cluster.osds.get_mut(&OSD).unwrap().reweight = 55_705;
    let record = record(&cluster);
    assert_eq!(record.reweight, 55_705);
    follow(&record, &mut cluster, 99);
    assert_eq!(cluster.osds[&OSD].reweight, 55_705);
    // The monitors take it in by themselves, and do not know of it.
    cluster.osds.get_mut(&OSD).unwrap().reweight = crate::cluster::REWEIGHT_WHOLE;
    assert_eq!(follow(&record, &mut cluster, 99), [OsdStep::In]);
    assert_eq!(cluster.osds[&OSD].reweight, 55_705);
    cluster.osds.get_mut(&OSD).unwrap().reweight = 50_000;
    assert_eq!(next_for_osd(&record, &cluster), Next::Done, "an operator's");
    let host = crate::world::HostCommands::default();
    let command = crate::world::convert::osd_commands(OsdStep::In, &record, &host)[0].join(" ");
    assert!(command.ends_with("osd reweight 3 0.849991"), "{command}");
    let weight: f64 = command.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!((weight * 65_536.0) as u32, 55_705, "Ceph cuts off");
}

#[test]
fn a_record_of_before_reweight_was_kept_is_read() {
    let record = record(&ordinary());
    let mut old = serde_json::to_value(&record).unwrap();
    old.as_object_mut().unwrap().remove("reweight");
    assert_eq!(serde_json::from_value::<OsdRecord>(old).unwrap(), record);
}
