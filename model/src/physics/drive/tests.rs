//! The physics of one drive: states, durations, energy.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::rack::{Distribution, HeavyLoad, RateSpread, Stragglers};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

const MIB: u64 = 1 << 20;

pub(in crate::physics) fn profile() -> DriveProfile {
    let seconds = |min, max| Distribution {
        min: Duration::from_secs(min),
        max: Duration::from_secs(max),
        draws: 4,
        stragglers: None,
    };
    DriveProfile {
        capacity_bytes: 1_000_000_000_000,
        bytes_per_s: 100_000_000,
        rate_spread: RateSpread::default(),
        seek: Duration::from_millis(4),
        spin_up: seconds(8, 12),
        mount: seconds(2, 3),
        mount_busy: seconds(20, 30),
        heavy_load: HeavyLoad::default(),
        unmount: seconds(1, 2),
        spin_down: seconds(1, 1),
        watts: Watts { standby_mw: 1_560, spin_up_mw: 21_530, active_mw: 9_420 },
        rated_starts: 30_000,
        life_years: 8,
    }
}

fn drive() -> DrivePhysics {
    DrivePhysics::new(Arc::new(profile()), 1, DriveId(0))
}

fn ready_drive() -> (DrivePhysics, Time) {
    let mut drive = drive();
    let at_speed = drive.spin_up(Time::ZERO).unwrap();
    let mounted = drive.mount(at_speed, ServerLoad::Idle).unwrap();
    (drive, mounted)
}

#[test]
fn a_drive_wakes_works_and_sleeps() {
    let mut drive = drive();
    let at_speed = drive.spin_up(Time::from_secs(10)).unwrap();
    assert!(at_speed >= Time::from_secs(18) && at_speed <= Time::from_secs(22));
    assert_eq!(drive.state(Time::from_secs(11)), PowerState::SpinningUp);
    assert_eq!(drive.spin_up(Time::from_secs(12)), Ok(at_speed));
    assert_eq!(drive.state(at_speed), PowerState::Active);
    let not_mounted = Refused { state: PowerState::Active, mounted: false };
    assert_eq!(drive.transfer(at_speed, 1, 0, 1), Err(not_mounted));
    let mounted = drive.mount(at_speed, ServerLoad::Idle).unwrap();
    assert_eq!(drive.mount(mounted, ServerLoad::Idle), Ok(mounted));
    let still_mounted = Refused { state: PowerState::Active, mounted: true };
    assert_eq!(drive.stop(mounted), Err(still_mounted));
    let unmounted = drive.unmount(mounted).unwrap();
    let still = drive.stop(unmounted).unwrap();
    assert_eq!(still, unmounted + Duration::from_secs(1));
    assert_eq!(drive.state(still - Duration::from_nanos(1)), PowerState::SpinningDown);
    assert_eq!(drive.state(still), PowerState::Standby);
    assert_eq!(drive.starts(), 1);
}

#[test]
fn only_what_goes_on_where_the_last_transfer_ended_does_without_a_seek() {
    let (mut drive, start) = ready_drive();
    let (seek, transfer) = (Duration::from_millis(4), transfer_time(MIB, 100_000_000));
    let first = drive.transfer(start, 1, 0, MIB).unwrap();
    assert_eq!(first, start + seek + transfer);
    // Asked for at once, it waits for the first.
    let second = drive.transfer(start, 1, MIB, MIB).unwrap();
    assert_eq!(second, first + transfer);
    let other_file = drive.transfer(second, 2, 2 * MIB, MIB).unwrap();
    assert_eq!(other_file, second + seek + transfer);
    let touched = drive.touch(other_file).unwrap();
    assert_eq!(touched, other_file + seek);
    assert_eq!(drive.transfer(touched, 2, 3 * MIB, MIB), Ok(touched + seek + transfer));
}

#[test]
fn energy_does_not_depend_on_how_often_one_looks() {
    let (mut seldom, mut often) = (drive(), drive());
    for second in 0..100 {
        often.energy(Time::from_secs(second));
    }
    let at = Time::from_secs(100);
    let slept = Energy { standby_mj: 156_000, ..Energy::default() };
    assert_eq!(seldom.energy(at), slept);
    assert_eq!(often.energy(at), slept);
    let ready = seldom.spin_up(at).unwrap();
    often.spin_up(at).unwrap();
    often.energy(at + Duration::from_secs(3));
    let end = ready + Duration::from_secs(1);
    assert_eq!(seldom.energy(end), often.energy(end));
    assert_eq!(seldom.energy(end).active_mj, 9_420);
    assert_eq!(seldom.draw_mw(end), 9_420);
}

#[test]
fn what_other_drives_do_shifts_no_drive() {
    let times = |drive: u32| DrivePhysics::new(Arc::new(profile()), 9, DriveId(drive)).spin_up(Time::ZERO);
    assert_eq!(times(5), times(5));
    assert_ne!(times(5), times(6));
}

#[test]
fn a_lost_drive_draws_nothing_and_comes_back_in_standby() {
    let (mut drive, now) = ready_drive();
    drive.lose(now);
    drive.lose(now);
    assert_eq!((drive.draw_mw(now), drive.losses()), (0, 1));
    let away = Refused { state: PowerState::Away, mounted: false };
    assert_eq!(drive.spin_up(now), Err(away));
    let before = drive.energy(now);
    let later = now + Duration::from_mins(1);
    assert_eq!(drive.energy(later), before);
    drive.come_back(later);
    assert_eq!(drive.state(later), PowerState::Standby);
    assert!(drive.spin_up(later).is_ok());
}

#[test]
fn a_busy_server_mounts_slowly() {
    let mut drive = drive();
    let at_speed = drive.spin_up(Time::ZERO).unwrap();
    assert!(drive.mount(at_speed, ServerLoad::Busy).unwrap() >= at_speed + Duration::from_secs(20));
}

#[test]
fn a_few_of_a_thousand_mounts_are_slow() {
    let quick = Distribution { min: Duration::from_secs(1), max: Duration::from_secs(2), draws: 4, stragglers: None };
    let slowest = Duration::from_secs(20);
    let tailed = Distribution { stragglers: Some(Stragglers { permille: 20, max: slowest }), ..quick };
    let mut rng = Rng::new(7);
    let spans: Vec<Duration> = (0..100_000).map(|_| tailed.sample(&mut rng)).collect();
    let slow = spans.iter().filter(|span| **span > quick.max).count();
    assert!((1_900..2_100).contains(&slow), "{slow} of 100,000 where 2,000 are expected");
    assert!(spans.iter().all(|span| (quick.min..=slowest).contains(span)));
    assert_eq!((quick.longest(), tailed.longest()), (quick.max, slowest));
    let mean = spans.iter().sum::<Duration>() / 100_000;
    assert!(mean.abs_diff(tailed.mean()) < Duration::from_millis(20), "{mean:?} beside {:?}", tailed.mean());
}

#[test]
fn rates_differ_by_drive_and_by_zone_around_the_mean() {
    let spread = RateSpread { zone_permille: 300, drive_permille: 50 };
    let spread_out = Arc::new(DriveProfile { rate_spread: spread, ..profile() });
    let drives: Vec<_> = (0..1_000).map(|id| DrivePhysics::new(Arc::clone(&spread_out), 1, DriveId(id))).collect();
    let rates: Vec<u64> = drives.iter().map(|drive| drive.bytes_per_s(77)).collect();
    let mean = rates.iter().sum::<u64>() / 1_000;
    assert!(mean.abs_diff(100_000_000) < 2_000_000, "{mean} bytes/s on average");
    assert!(rates.iter().all(|rate| (66_500_000..=136_500_000).contains(rate)));
    assert!(rates.iter().any(|rate| *rate < 75_000_000) && rates.iter().any(|rate| *rate > 125_000_000));
    let files: BTreeSet<u64> = (0..100).map(|file| drives[0].bytes_per_s(file)).collect();
    assert!(files.len() > 50, "files lie in all zones");
    assert_eq!(drives[0].bytes_per_s(5), drives[0].bytes_per_s(5), "a file stays where it is");
    assert_eq!(drive().bytes_per_s(5), 100_000_000, "without a spread all are alike");
    assert_eq!(drive().at_rate(Some(7_000)).bytes_per_s(5), 7_000, "one that was measured is as it was measured");
    assert_eq!(drive().at_rate(None).bytes_per_s(5), 100_000_000);
}
