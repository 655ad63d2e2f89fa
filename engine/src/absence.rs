//! The drives that are away, since when, and the rules by which one is given up without an operator's decision.
//!
//! A drive that is away mostly has a cable or fuse problem or a busy kernel, and comes back with all its data. A drive
//! that stays away keeps its blobs one failure nearer to their loss. So a drive that was away for as long as the policy
//! allows is given up, as by `larder drive fail`, if all of these conditions hold:
//! 1. It is away now, as its own last try shows. A drive that stands by again after a pause, untried, has its group
//!    woken first. A drive that is away because its transfers failed is not given up before it was started and mounted
//!    again.
//! 2. It and all drives of its group that have lost something not yet rebuilt are r at most, so no blob loses more than
//!    r stacks by a decision made here.
//! 3. It is not one of many. In each of its failure domains and in the rack as a whole, fewer than one drive in
//!    sixteen, or only one, is away. With more, a broken cable, fuse, controller or enclosure is likelier than that
//!    many broken drives, and an operator has to look.
//! 4. The rack has run for an hour, or for the policy's time if that is shorter: after a start, the operator may still
//!    be plugging drives in, and a wrong clock has been corrected by then.
//!
//! A drive that is mounted, or that the world reports as back, was never away. Absences from before a restart are
//! forgotten: a drive is away from the first try in this run that finds it away.
//!
//! A drive is found again without any read or write. The group of a drive that stands by after a pause is woken once
//! [`TRY_AFTER`] has passed since the drive was last found away. That costs one start of each drive of the group.
//!
//! Invariants: memory is two times for each drive that is away; no drive is given up untried.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use model::{DriveId, RackSpec, Time};
use serde::Serialize;

/// Minimum time that a rack has run before a drive is given up, unless the policy's time is shorter.
const GRACE: Duration = Duration::from_hours(1);

/// Time after which a drive that was found away, and stands by again, is tried; in modelled time. A drive that fails
/// repeatedly stands by later, at most a day after its last try.
pub const TRY_AFTER: Duration = Duration::from_hours(6);

/// Time after which a try or giving up is requested again.
const AGAIN_AFTER: Duration = Duration::from_hours(1);

/// A drive is one of many if at least one in this number of a domain's drives is away, and at least two are.
const MANY_ONE_IN: usize = 16;

/// Why a drive that was away for long enough is not given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// More than r drives of its group would have lost something.
    TooManyOfGroup,
    /// So many drives of a failure domain or of the rack are away that a fault of a shared part is likelier.
    ManyAway,
    /// It is being tried once more.
    Tried,
}

/// A drive that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AbsenceView {
    /// The drive.
    pub drive: DriveId,
    /// Since when, as far as this run knows.
    pub since: Time,
    /// The earliest time at which it may be given up; `None` if only the operator may give it up.
    pub due: Option<Time>,
    /// Why it is not given up, if that time has come.
    pub held_back: Option<HeldBack>,
}

/// The facts about drives that a verdict needs.
pub(crate) struct Facts<'a> {
    pub spec: &'a RackSpec,
    /// True if a drive is away now.
    pub is_away: &'a dyn Fn(DriveId) -> bool,
    /// True if a drive is away because its transfers failed, and was not started and mounted again since.
    pub is_untried: &'a dyn Fn(DriveId) -> bool,
    /// Number of drives in the group of a drive that have lost something not yet rebuilt.
    pub lossy_beside: &'a dyn Fn(DriveId) -> usize,
}

/// The measure against a drive that was away for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GiveUp(DriveId),
    /// Wake its group, to see whether it is still away.
    Try(DriveId),
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    since: Time,
    /// When it was last found away.
    found_at: Time,
    /// Nothing is requested again before then.
    quiet_until: Time,
    /// The world was asked to give it up and has not confirmed that yet.
    asked: bool,
}

impl Absence {
    /// True if the drive stands by again, was last found away at least [`TRY_AFTER`] ago, and is not being given up.
    fn is_to_be_tried(&self, is_away: bool, now: Time) -> bool {
        !self.asked && self.found_at + TRY_AFTER <= now && !is_away
    }
}

/// The drives that are away. See the head of this file.
#[derive(Default)]
pub(crate) struct Absences {
    after: Option<Duration>,
    booted_at: Time,
    away: BTreeMap<DriveId, Absence>,
}

impl Absences {
    /// Drives are given up after this time away; never for `None`.
    pub fn new(after: Option<Duration>) -> Self {
        Self { after, ..Self::default() }
    }

    pub fn booted(&mut self, now: Time) {
        self.booted_at = now;
    }

    /// `drive` was found to be away.
    pub fn absent(&mut self, drive: DriveId, now: Time) {
        let first = Absence { since: now, found_at: now, quiet_until: Time::ZERO, asked: false };
        self.away.entry(drive).or_insert(first).found_at = now;
    }

    /// `drive` is there, or was given up.
    pub fn settled(&mut self, drive: DriveId) {
        self.away.remove(&drive);
    }

    /// When a drive may be given up.
    fn due(&self, absence: &Absence) -> Option<Time> {
        let after = self.after?;
        Some((absence.since + after).max(self.booted_at + GRACE.min(after)))
    }

    /// When the next verdict may be due after `now`; [`Time::MAX`] if none.
    pub fn deadline(&self, now: Time) -> Time {
        let next = |absence: &Absence| {
            let moments = [self.due(absence), Some(absence.found_at + TRY_AFTER)].into_iter().flatten();
            moments.map(|due| due.max(absence.quiet_until)).filter(|due| *due > now).min()
        };
        self.away.values().filter_map(next).min().unwrap_or(Time::MAX)
    }

    /// True if `drive` is to be given up, or to be tried once more before that.
    fn is_to_be_given_up(&self, drive: DriveId, absence: &Absence, now: Time, facts: &Facts) -> bool {
        let is_due = self.due(absence).is_some_and(|due| due <= now);
        let may = matches!(self.held_back(drive, facts), None | Some(HeldBack::Tried));
        is_due && may && !(facts.is_untried)(drive)
    }

    /// The next verdict that is due, in the order in which the drives went away. The caller repeats the call until it
    /// returns `None`, each time with the current facts.
    pub fn next_verdict(&mut self, now: Time, facts: &Facts) -> Option<Verdict> {
        let is_due = |drive: DriveId, absence: &Absence| {
            absence.quiet_until <= now
                && (absence.is_to_be_tried((facts.is_away)(drive), now)
                    || self.is_to_be_given_up(drive, absence, now, facts))
        };
        let due = self.away.iter().filter(|(drive, absence)| is_due(**drive, absence));
        let drive = due.min_by_key(|(drive, absence)| (absence.since, **drive)).map(|(drive, _)| *drive)?;
        let is_away = (facts.is_away)(drive);
        let absence = self.away.get_mut(&drive)?;
        (absence.quiet_until, absence.asked) = (now + AGAIN_AFTER, is_away);
        Some(if is_away { Verdict::GiveUp(drive) } else { Verdict::Try(drive) })
    }

    /// The group of `drive` was woken, so the drive was tried. If it is still away, its next verdict is due now.
    pub fn tried(&mut self, drive: DriveId, is_away: bool) {
        if let Some(absence) = self.away.get_mut(&drive).filter(|absence| is_away && !absence.asked) {
            absence.quiet_until = Time::ZERO;
        }
    }

    /// Why `drive` is not to be given up now; `None` if it may be.
    fn held_back(&self, drive: DriveId, facts: &Facts) -> Option<HeldBack> {
        let own = usize::from(!self.away.get(&drive).is_some_and(|absence| absence.asked));
        let parity = usize::from(facts.spec.code.parity);
        if (facts.lossy_beside)(drive) + own > parity {
            return Some(HeldBack::TooManyOfGroup);
        }
        if self.is_one_of_many(drive, facts) {
            return Some(HeldBack::ManyAway);
        }
        (!(facts.is_away)(drive) || (facts.is_untried)(drive)).then_some(HeldBack::Tried)
    }

    /// True if too many drives of the rack, or of a failure domain of `drive`, are away.
    fn is_one_of_many(&self, drive: DriveId, facts: &Facts) -> bool {
        let spec = facts.spec;
        let is_gone = |other: &DriveId| self.away.contains_key(other) || (facts.is_away)(*other);
        let many = |domain: &dyn Fn(DriveId) -> bool| {
            let (mut all, mut gone) = (0_usize, 0_usize);
            for other in spec.drives.iter().map(|other| other.id).filter(|other| domain(*other)) {
                all += 1;
                gone += usize::from(is_gone(&other));
            }
            all > 1 && gone >= all.div_ceil(MANY_ONE_IN).max(2)
        };
        let own = &spec.drive(drive).failure_domains;
        let in_kind = |kind: usize| many(&|other| spec.drive(other).failure_domains[kind] == own[kind]);
        many(&|_| true) || (0..spec.failure_domains.len()).any(in_kind)
    }

    /// Drives that the world was asked to give up and has not confirmed yet.
    pub fn asked(&self) -> impl Iterator<Item = DriveId> + '_ {
        self.away.iter().filter(|(_, absence)| absence.asked).map(|(drive, _)| *drive)
    }

    /// The drives that are away, by id.
    pub fn views(&self, now: Time, facts: &Facts) -> Vec<AbsenceView> {
        let view = |(drive, absence): (&DriveId, &Absence)| {
            let due = self.due(absence);
            let held_back = if due.is_some_and(|due| due <= now) { self.held_back(*drive, facts) } else { None };
            AbsenceView { drive: *drive, since: absence.since, due, held_back }
        };
        self.away.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use model::Rng;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_hours(24);

    fn rack(name: &str) -> RackSpec {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == name).unwrap();
        model::text::parse(text, name).unwrap()
    }

    fn verdicts(absences: &mut Absences, now: Time, facts: &Facts) -> Vec<Verdict> {
        core::iter::from_fn(|| absences.next_verdict(now, facts)).collect()
    }

    fn at(hours: u64) -> Time {
        Time::from_secs(hours * 3_600)
    }

    #[test]
    fn a_drive_that_stays_away_is_given_up_once_and_asked_for_again_after_an_hour() {
        let spec = rack("pelican");
        let mut absences = Absences::new(Some(DAY));
        let facts =
            |spec| Facts { spec, is_away: &|drive| drive == DriveId(3), is_untried: &|_| false, lossy_beside: &|_| 0 };
        absences.absent(DriveId(3), at(5));
        absences.absent(DriveId(3), at(9)); // known
        assert_eq!((absences.deadline(at(6)), absences.deadline(at(15))), (at(15), at(29)));
        assert_eq!(verdicts(&mut absences, at(28), &facts(&spec)), []);
        assert_eq!(verdicts(&mut absences, at(29), &facts(&spec)), [Verdict::GiveUp(DriveId(3))]);
        assert_eq!((verdicts(&mut absences, at(29), &facts(&spec)), absences.deadline(at(29))), (vec![], at(30)));
        assert_eq!(verdicts(&mut absences, at(30), &facts(&spec)), [Verdict::GiveUp(DriveId(3))]);
        absences.settled(DriveId(3));
        assert_eq!(absences.deadline(at(30)), Time::MAX);
        let mut never = Absences::new(None);
        never.absent(DriveId(3), at(5));
        assert_eq!((verdicts(&mut never, at(5_000), &facts(&spec)), never.deadline(at(11))), (vec![], Time::MAX));
    }

    #[test]
    fn one_that_stands_by_untried_is_tried_and_one_that_is_back_was_never_away() {
        let spec = rack("pelican");
        let mut absences = Absences::new(Some(DAY));
        let facts = |spec| Facts { spec, is_away: &|_| false, is_untried: &|_| false, lossy_beside: &|_| 0 };
        absences.absent(DriveId(3), at(0));
        assert_eq!(verdicts(&mut absences, at(24), &facts(&spec)), [Verdict::Try(DriveId(3))]);
        assert_eq!(absences.views(at(24), &facts(&spec))[0].held_back, Some(HeldBack::Tried));
        absences.settled(DriveId(3));
        absences.absent(DriveId(3), at(25));
        assert_eq!(verdicts(&mut absences, at(30), &facts(&spec)), [], "it was there an hour before");
    }

    #[test]
    fn one_that_stands_by_is_tried_though_nothing_is_ever_given_up_or_others_are_away_too() {
        let spec = rack("pelican");
        for after in [None, Some(DAY)] {
            let mut absences = Absences::new(after);
            let facts = |spec| Facts { spec, is_away: &|_| false, is_untried: &|_| false, lossy_beside: &|_| 9 };
            let both = [Verdict::Try(DriveId(3)), Verdict::Try(DriveId(4))];
            absences.absent(DriveId(3), at(0));
            absences.absent(DriveId(4), at(1));
            absences.absent(DriveId(3), at(2));
            assert_eq!((verdicts(&mut absences, at(6), &facts(&spec)), absences.deadline(at(6))), (vec![], at(7)));
            assert_eq!(verdicts(&mut absences, at(8), &facts(&spec)), both);
            assert_eq!((verdicts(&mut absences, at(8), &facts(&spec)), absences.deadline(at(8))), (vec![], at(9)));
            assert_eq!(verdicts(&mut absences, at(9), &facts(&spec)), both, "no group was woken");
            absences.absent(DriveId(3), at(9));
            absences.settled(DriveId(4));
            assert_eq!((verdicts(&mut absences, at(14), &facts(&spec)), absences.deadline(at(14))), (vec![], at(15)));
            let away = Facts { is_away: &|_| true, ..facts(&spec) };
            assert_eq!(verdicts(&mut absences, at(23), &away), [], "it does not stand by");
        }
    }

    #[test]
    fn one_whose_transfers_failed_is_tried_before_it_is_given_up() {
        let spec = rack("pelican");
        let mut absences = Absences::new(Some(Duration::from_mins(5)));
        absences.absent(DriveId(3), at(2));
        let mut at_minute = |minute, is_away, is_untried| {
            let (is_away, is_untried) = (move |drive| is_away && drive == DriveId(3), move |_| is_untried);
            let facts = Facts { spec: &spec, is_away: &is_away, is_untried: &is_untried, lossy_beside: &|_| 0 };
            let now = at(2) + Duration::from_mins(minute);
            (verdicts(&mut absences, now, &facts), absences.views(now, &facts)[0].held_back)
        };
        assert_eq!(at_minute(6, true, true), (vec![], Some(HeldBack::Tried)));
        assert_eq!(at_minute(10, false, false), (vec![Verdict::Try(DriveId(3))], Some(HeldBack::Tried)));
        assert_eq!(at_minute(71, true, false), (vec![Verdict::GiveUp(DriveId(3))], None));
    }

    #[test]
    fn what_a_tray_or_a_chassis_may_have_lost_is_left_to_the_operator() {
        let spec = rack("pelican");
        let tray = spec.failure_domains.iter().position(|kind| kind.name == "tray").unwrap();
        let domain = spec.drives[0].failure_domains[tray];
        let mates: Vec<DriveId> =
            spec.drives.iter().filter(|drive| drive.failure_domains[tray] == domain).map(|drive| drive.id).collect();
        assert_eq!(mates.len(), 16);
        let elsewhere = spec.drives.iter().find(|drive| drive.failure_domains[tray] != domain).unwrap().id;
        for (away, expected) in [(vec![mates[0], mates[1]], 0), (vec![mates[0], elsewhere], 2)] {
            let mut absences = Absences::new(Some(DAY));
            for drive in &away {
                absences.absent(*drive, at(0));
            }
            let facts = Facts {
                spec: &spec,
                is_away: &|drive| away.contains(&drive),
                is_untried: &|_| false,
                lossy_beside: &|_| 0,
            };
            assert_eq!(verdicts(&mut absences, at(24), &facts).len(), expected, "{away:?}");
            let held = absences.views(at(24), &facts)[0].held_back;
            assert_eq!(held == Some(HeldBack::ManyAway), expected == 0);
        }
    }

    #[test]
    fn nothing_is_given_up_in_the_first_hour_of_a_run_or_beyond_r() {
        let spec = rack("pelican");
        let mut absences = Absences::new(Some(DAY));
        absences.absent(DriveId(3), at(0));
        absences.booted(at(30));
        let alone = |absences: &mut Absences, now, lossy| {
            let facts = Facts {
                spec: &spec,
                is_away: &|drive| drive == DriveId(3),
                is_untried: &|_| false,
                lossy_beside: &|_| lossy,
            };
            verdicts(absences, now, &facts)
        };
        assert_eq!((alone(&mut absences, at(30), 0), absences.deadline(at(30))), (vec![], at(31)));
        assert_eq!(alone(&mut absences, at(31), 3), [], "r = 3 others have lost something");
        assert_eq!(alone(&mut absences, at(31), 2).len(), 1);
        let all = Facts { spec: &spec, is_away: &|drive| drive.0 < 500, is_untried: &|_| false, lossy_beside: &|_| 0 };
        assert_eq!(verdicts(&mut absences, at(90), &all), [], "hundreds are away");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a naive reading of the rules: every drive by itself, from a history that is kept whole.
        #[test]
        fn verdicts_are_those_of_the_rules_read_one_by_one(seed in any::<u64>()) {
            let (spec, mut rng) = (rack("pelican-mini"), Rng::new(seed));
            let mut absences = Absences::new(Some(DAY));
            let mut since = vec![None::<Time>; spec.drives.len()];
            let mut asked = BTreeSet::new();
            let mut now = Time::ZERO;
            for _ in 0..200 {
                now += Duration::from_mins(rng.below(400));
                let drive = DriveId(rng.below(spec.drives.len() as u64) as u32);
                if rng.below(4) == 0 {
                    absences.absent(drive, now);
                    since[drive.index()].get_or_insert(now);
                } else {
                    absences.settled(drive);
                    since[drive.index()] = None;
                    asked.remove(&drive);
                }
                let lossy = rng.below(4) as usize;
                let gone = since.clone();
                let is_away = |drive: DriveId| gone[drive.index()].is_some();
                let facts = Facts { spec: &spec, is_away: &is_away, is_untried: &|_| false, lossy_beside: &|_| lossy };
                let drive_of = |verdict| match verdict {
                    Verdict::GiveUp(drive) | Verdict::Try(drive) => drive,
                };
                let verdicts = verdicts(&mut absences, now, &facts);
                let found: BTreeSet<DriveId> = verdicts.into_iter().map(drive_of).collect();
                for drive in &spec.drives {
                    let Some(from) = since[drive.id.index()] else {
                        prop_assert!(!found.contains(&drive.id));
                        continue;
                    };
                    let many = (0..spec.failure_domains.len()).any(|kind| {
                        let of = |other: &&model::DriveSpec| other.failure_domains[kind] == drive.failure_domains[kind];
                        let all = spec.drives.iter().filter(of).count();
                        let away = spec.drives.iter().filter(of).filter(|other| is_away(other.id)).count();
                        all > 1 && away > 1 && away * 16 >= all
                    });
                    let rack = spec.drives.iter().filter(|other| is_away(other.id)).count() * 16 >= spec.drives.len();
                    let may = lossy + usize::from(!asked.contains(&drive.id)) <= 2 && !many && !rack;
                    if found.contains(&drive.id) {
                        prop_assert!(may && now >= from + DAY, "{:?}", drive.id);
                    } else if !asked.contains(&drive.id) {
                        prop_assert!(!(may && now >= from + DAY), "{:?} is left", drive.id);
                    }
                }
                asked.extend(found);
            }
        }
    }
}
