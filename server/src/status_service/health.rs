//! Facts about drives beside those that the engine decides by: their health, their starts, and their habits. From the
//! catalog; no drive is asked.

use super::StatusService;
use crate::admin::AdminError;
use crate::condition::{Condition, Warning};
use crate::report::{DriveReport, HabitsReport, HealthReport};
use catalog::{DriveHabits, DriveHealth};
use model::DriveId;
use std::collections::BTreeMap;

/// Worn drives that a status names.
const WORN_NAMED: usize = 5;

impl StatusService {
    /// Adds to `reports` the facts that the engine does not know.
    pub(super) async fn complete(&self, reports: &mut [DriveReport]) -> Result<(), AdminError> {
        let healths = self.context.catalog.drive_healths().await?;
        let mut healths: BTreeMap<u32, DriveHealth> =
            healths.into_iter().map(|health| (health.drive, health)).collect();
        let starts = self.context.catalog.drives().await?;
        let starts: BTreeMap<DriveId, u64> =
            starts.into_iter().map(|record| (record.drive, record.starts_total)).collect();
        let habits = self.context.catalog.drive_habits().await?;
        let mut habits: BTreeMap<u32, DriveHabits> = habits.into_iter().map(|habits| (habits.drive, habits)).collect();
        for report in reports {
            let drive = DriveId(report.drive);
            report.starts_total = starts.get(&drive).copied().unwrap_or(0);
            report.habits = habits.remove(&report.drive).map(habits_report);
            if let Some(health) = healths.remove(&report.drive) {
                report.rated_starts = health.said.starts_rated.unwrap_or(report.rated_starts);
                report.health = Some(health_report(&health));
            }
        }
        Ok(())
    }

    /// Warnings about drives that expect to fail.
    pub(super) async fn failures_predicted(&self) -> Result<Vec<Warning>, AdminError> {
        let healths = self.context.catalog.drive_healths().await?;
        let expect = healths.iter().filter(|health| health.said.predicts_failure == Some(true));
        let sentence = |health: &DriveHealth| {
            let drive = health.drive;
            Condition::DrivePredictsFailure.warns(format!(
                "drive {drive} expects to fail; `larder drive retire {drive}` empties it before it does"
            ))
        };
        Ok(expect.take(WORN_NAMED).map(sentence).collect())
    }
}

fn habits_report(habits: DriveHabits) -> HabitsReport {
    let DriveHabits { said, woke_itself, woken_by_others, last_wake, .. } = habits;
    HabitsReport { said, woke_itself, woken_by_others, last_unasked_wake: last_wake }
}

fn health_report(health: &DriveHealth) -> HealthReport {
    HealthReport { read_ms: health.read_ms, first_bad_sectors: health.first_bad_sectors, said: health.said }
}
