//! Conversions, windows and the agent's loop over a made-up cluster.

#![allow(clippy::unwrap_used)]

use crate::conversion::{Goal, OsdRecord, next_for_osd};
use crate::world::convert::{ConvertError, Converter, Progress};
use crate::world::fake::{Fake, OSD};
use crate::world::lock::{self, Lock};
use crate::world::tools::{CephError, HostCommands};
use crate::world::windows::Windows;
use std::process::{Child, Command};
use std::time::Duration;

fn record(fake: &Fake) -> OsdRecord {
    let cluster = fake.ceph.cluster().unwrap();
    OsdRecord::new(&cluster, &cluster.osds[&OSD], "cold", "/dev/sdb".to_owned(), "vg/db".to_owned())
}

/// Converts or reverts; returns the result and the reasons for waiting.
fn convert(fake: &Fake, record: &OsdRecord) -> (Result<(), ConvertError>, Vec<String>) {
    let mut waits = Vec::new();
    let mut report = |progress: Progress<'_>| {
        if let Progress::Wait(reason) = progress {
            waits.push(reason.to_owned());
        }
    };
    let (host, folder) = (HostCommands::default(), fake.path("state"));
    let (wait_max, pause) = (Duration::from_secs(20), Duration::from_millis(50));
    let mut converter =
        Converter { ceph: fake.ceph, host: &host, folder: &folder, wait_max, pause, report: &mut report };
    let done = converter.osd(record);
    (done, waits)
}

fn last_words(log: &[String]) -> Vec<&str> {
    let steps = ["osd out", "systemctl stop", "osd destroy", "lvm zap", "lvm create", "osd in", "osd reweight"];
    log.iter().filter_map(|line| steps.into_iter().find(|step| line.contains(step))).collect()
}

#[test]
fn a_conversion_is_carried_out_and_undone_with_class_affinity_and_reweight() {
    let fake = Fake::new();
    fake.change(&["osd", "reweight", "3", "0.85"]);
    let before = fake.ceph.cluster().unwrap().osds[&OSD].clone();
    let mut record = record(&fake);
    convert(&fake, &record).0.unwrap();
    let all = ["osd out", "systemctl stop", "osd destroy", "lvm zap", "lvm create", "osd reweight"];
    assert_eq!(last_words(&fake.log()), all);
    let cold = fake.ceph.cluster().unwrap().osds[&OSD].clone();
    assert_eq!((cold.class.as_deref(), cold.affinity_permille, cold.has_db), (Some("cold"), 0, true));
    assert_eq!(cold.reweight, before.reweight);
    record.turn(&cold, Goal::Original);
    convert(&fake, &record).0.unwrap();
    let after = fake.ceph.cluster().unwrap().osds[&OSD].clone();
    assert_eq!((after.class, after.affinity_permille, after.has_db), (before.class, 1000, false));
    assert_eq!(after.reweight, before.reweight);
    assert!(!fake.path("state/osd.3.record").exists());
}

/// The state after a conversion that was killed after `osd new`.
fn announced(fake: &Fake) -> OsdRecord {
    let record = record(fake);
    for words in [
        &["osd", "out", "3"][..],
        &["stop", "3"],
        &["osd", "destroy", "3", ""],
        &["osd", "crush", "set-device-class", "cold", "osd.3"],
        &["osd", "primary-affinity", "osd.3", "0"],
    ] {
        fake.change(words);
    }
    let text = std::fs::read_to_string(fake.path("osd-dump.json")).unwrap();
    fake.write("osd-dump.json", &text.replace(r#"["destroyed", "exists"]"#, r#"["exists", "new"]"#));
    let cluster = fake.ceph.cluster().unwrap();
    assert!(cluster.osds[&OSD].is_new && !cluster.osds[&OSD].is_destroyed, "{:?}", next_for_osd(&record, &cluster));
    fake.log();
    record
}

#[test]
fn one_that_was_killed_before_the_osd_ran_goes_on_though_nothing_is_left_to_wipe() {
    let fake = Fake::new();
    let record = announced(&fake);
    fake.write("nothing-to-zap", "");
    convert(&fake, &record).0.unwrap();
    assert_eq!(last_words(&fake.log()), ["osd destroy", "lvm zap", "lvm create"]);
}

#[test]
fn other_failures_of_the_host_stop_it_and_it_goes_on_when_started_again() {
    let fake = Fake::new();
    let record = announced(&fake);
    fake.write("create-fails", "");
    let error = convert(&fake, &record).0.unwrap_err();
    assert!(error.to_string().contains("device is busy"), "{error}");
    fake.remove("create-fails");
    fake.log();
    convert(&fake, &record).0.unwrap();
    assert_eq!(last_words(&fake.log()), ["lvm zap", "lvm create"]);
}

fn create_of_before(fake: &Fake, record: &OsdRecord) -> Child {
    let create = &HostCommands::default().create(record)[1];
    Command::new(fake.path(&create[0])).args(&create[1..]).spawn().unwrap()
}

#[test]
fn what_a_killed_run_left_at_work_is_waited_for() {
    let fake = Fake::new();
    let record = announced(&fake);
    fake.write("slow", "");
    let mut earlier = create_of_before(&fake, &record);
    while lock::at_work(&[HostCommands::default().create(&record)[1].clone()]).is_none() {}
    let (done, waits) = convert(&fake, &record);
    // It must be waited for; otherwise it stays in the table of processes.
    assert!(earlier.wait().unwrap().success());
    done.unwrap();
    assert!(waits[0].contains("of an earlier run is still at work"), "{waits:?}");
    assert_eq!(last_words(&fake.log()), ["lvm create"], "the earlier one, and no second");
}

#[test]
fn one_conversion_at_a_time() {
    let fake = Fake::new();
    let _other = Lock::take(&fake.path("state"), lock::CONVERSION).unwrap().unwrap();
    let error = convert(&fake, &record(&fake)).0.unwrap_err();
    assert!(error.to_string().contains("another conversion"), "{error}");
    assert_eq!(fake.log(), Vec::<String>::new());
}

#[test]
fn encrypted_osds_are_known_by_their_keys() {
    let fake = Fake::new();
    let mut cluster = fake.ceph.cluster().unwrap();
    let uuid = cluster.osds[&OSD].uuid.clone();
    fake.change(&["config-key", "set", &format!("dm-crypt/osd/{uuid}/luks"), "secret"]);
    fake.ceph.mark_encrypted(&mut cluster).unwrap();
    let encrypted: Vec<_> = cluster.osds.values().filter(|osd| osd.is_encrypted).map(|osd| osd.id).collect();
    assert_eq!(encrypted, [OSD]);
    let plan = crate::plan::plan(&cluster, &crate::plan::Options::default());
    assert!(plan.osd(OSD).unwrap().reason.contains("encrypted"), "{plan:?}");
}

#[test]
fn a_command_that_fails_or_takes_too_long_says_so() {
    let fake = Fake::new();
    fake.write("monitors-away", "");
    let error = fake.ceph.epoch().unwrap_err();
    assert!(
        matches!(&error, CephError::Failed { output, .. } if output == "error connecting to the cluster"),
        "{error}"
    );
    let sleep = |time: &str| fake.ceph.program(&["sleep".to_owned(), time.to_owned()], Duration::from_millis(100));
    assert!(matches!(sleep("9"), Err(CephError::Timeout { .. })));
    let missing = fake.ceph.program(&["no-such-program".to_owned()], Duration::from_secs(9));
    assert!(matches!(missing, Err(CephError::NotRun { .. })));
}

fn flags(fake: &Fake) -> Vec<String> {
    let cluster = fake.ceph.cluster().unwrap();
    let scrub = |pool: &&crate::Pool| pool.flags.iter().any(|flag| flag.contains("scrub"));
    cluster.pools.values().filter(scrub).map(|pool| pool.name.clone()).collect()
}

fn keys(fake: &Fake) -> String {
    std::fs::read_to_string(fake.path("keys.json")).unwrap()
}

#[test]
fn windows_are_taken_twice_and_given_back_once_the_last_agent_ends() {
    let fake = Fake::new();
    fake.change(&["osd", "pool", "set", "attic", "noscrub", "1"]);
    let (one, two) = (Windows::new(fake.ceph, "one"), Windows::new(fake.ceph, "two"));
    for windows in [&one, &two, &one] {
        windows.take(&fake.ceph.cluster().unwrap(), &[OSD]).unwrap();
    }
    assert!(flags(&fake).contains(&"attic".to_owned()) && keys(&fake).contains("before/pool/2/nodeep-scrub"));
    fake.log();
    one.take(&fake.ceph.cluster().unwrap(), &[OSD]).unwrap();
    assert_eq!(fake.log(), ["ceph config get mgr mgr/devicehealth/enable_monitoring"], "nothing is changed twice");
    assert!(!one.release().unwrap() && two.release().unwrap());
    let attic = fake.ceph.cluster().unwrap().pool("attic").unwrap().flags.clone();
    assert!(attic.contains(&"noscrub".to_owned()), "the operator's own flag stays: {attic:?}");
    assert!(!attic.contains(&"nodeep-scrub".to_owned()) && !keys(&fake).contains("larder/"), "{attic:?}");
    assert!(two.release().unwrap(), "once more does no harm");
}

#[test]
fn windows_that_could_not_be_given_back_are_later() {
    let fake = Fake::new();
    let windows = Windows::new(fake.ceph, "one");
    windows.take(&fake.ceph.cluster().unwrap(), &[OSD]).unwrap();
    fake.write("monitors-away", "");
    assert!(windows.release().is_err());
    fake.remove("monitors-away");
    assert!(!flags(&fake).is_empty());
    assert!(windows.release().unwrap() && flags(&fake).is_empty() && !keys(&fake).contains("larder/"));
}
