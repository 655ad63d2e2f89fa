//! The temperature of staged objects: gives the known facts about them to the engine's thermometer.
//!
//! Facts are looked up in pages and only for objects that a rule names; all others have the default temperature.

use crate::context::Context;
use catalog::{AgedVersion, CatalogError, PlacedObject, Reads, Version, VersionId};
use engine::Heat;
use engine::thermometer::{Facts, Thermometer, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// Judges staged objects at one moment.
#[derive(Clone)]
pub(crate) struct Judge {
    context: Context,
    pub(crate) thermometer: Arc<Thermometer>,
    pub(crate) now_ms: u64,
}

/// The judgement on a staged version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// Its temperature.
    pub(crate) heat: Heat,
    /// Its reads, as far as they were looked up.
    pub(crate) reads: Option<Reads>,
    /// The thermometer's verdict, if a rule names the version.
    pub(crate) verdict: Option<Verdict>,
}

impl Judge {
    /// A judge at the present moment.
    pub(crate) fn now(context: &Context, thermometer: Arc<Thermometer>) -> Self {
        Self { context: context.clone(), thermometer, now_ms: (context.wall)() }
    }

    /// The reads of an object, with those that are not recorded yet.
    pub(crate) fn all_reads(&self, placed: &PlacedObject, recorded: Option<Reads>) -> Reads {
        let pending = self.context.counters.reads.pending(AgedVersion::of(placed));
        recorded.unwrap_or_default().and(pending)
    }

    /// The known facts about an object.
    pub(crate) fn facts<'a>(
        &self,
        (bucket, key): (&'a str, &'a str),
        placed: &'a PlacedObject,
        reads: Option<Reads>,
    ) -> Facts<'a> {
        let object = &placed.object;
        let reads = self.all_reads(placed, reads);
        let read_ms = reads.last_ms.max(self.context.counters.reads.floor_ms());
        Facts {
            bucket,
            key,
            tags: &object.tags,
            bytes: object.bytes,
            created_ms: if object.created_ms == 0 { object.modified_ms } else { object.created_ms },
            read_ms: (read_ms > 0).then_some(read_ms),
            reads: reads.count,
            is_read_through: reads.is_through,
        }
    }

    /// The thermometer's verdict on an object.
    pub(crate) fn verdict(&self, at: (&str, &str), placed: &PlacedObject, reads: Option<Reads>) -> Verdict {
        self.thermometer.judge(&self.facts(at, placed, reads), self.now_ms)
    }

    /// The same in the engine's form.
    pub(crate) fn heat(&self, verdict: &Verdict) -> Heat {
        let due_for = Duration::from_millis(self.now_ms.saturating_sub(verdict.since_ms));
        verdict.heat(self.context.clock.to_modelled(due_for))
    }

    /// The temperature of an object that no rule names.
    fn unnamed(&self) -> Heat {
        match self.thermometer.unruled() {
            engine::thermometer::Standing::Hot => Heat::Hot,
            _ => Heat::Cold,
        }
    }

    /// Each of `versions` judged; with `with_reads`, also the reads of those that no rule names.
    pub(crate) async fn judged(&self, versions: &[Version], with_reads: bool) -> Result<Vec<Judged>, CatalogError> {
        let catalog = &self.context.catalog;
        let named = |version: &Version| self.thermometer.names(&version.bucket, &version.key, version.bytes);
        let any_named = self.thermometer.is_used() && versions.iter().any(named);
        let aged = |at: &Version| AgedVersion { staged_ms: at.staged_ms, version: at.version };
        let reads = if any_named || with_reads {
            catalog.reads_of(&versions.iter().map(aged).collect::<Vec<_>>()).await?
        } else {
            vec![None; versions.len()]
        };
        let mut placed = vec![None; versions.len()];
        if any_named {
            let at: Vec<usize> = (0..versions.len()).filter(|at| named(&versions[*at])).collect();
            let names: Vec<_> = at.iter().map(|at| (&*versions[*at].bucket, &*versions[*at].key)).collect();
            for (at, found) in at.iter().zip(catalog.placed_objects(&names).await?) {
                placed[*at] = found.filter(|found| found.object.version == versions[*at].version);
            }
        }
        let judged = versions.iter().zip(placed).zip(reads).map(|((version, placed), reads)| {
            let verdict = placed.map(|placed| self.verdict((&version.bucket, &version.key), &placed, reads));
            Judged { heat: verdict.map_or(self.unnamed(), |verdict| self.heat(&verdict)), reads, verdict }
        });
        Ok(judged.collect())
    }

    /// The same for versions that are known by their numbers only; `None` for a version that is no longer staged.
    pub(crate) async fn judged_by_number(
        &self,
        versions: &[(AgedVersion, u64, Option<Reads>)],
    ) -> Result<Vec<Option<Heat>>, CatalogError> {
        if !self.thermometer.is_used() {
            return Ok(vec![Some(Heat::Cold); versions.len()]);
        }
        let numbers: Vec<VersionId> = versions.iter().map(|(of, _, _)| of.version).collect();
        let found = self.context.catalog.staged_records(&numbers).await?;
        let judged = found.into_iter().zip(versions).map(|(found, (_, _, reads))| {
            let (bucket, key, placed) = found?;
            if !self.thermometer.names(&bucket, &key, placed.object.bytes) {
                return Some(self.unnamed());
            }
            Some(self.heat(&self.verdict((&bucket, &key), &placed, *reads)))
        });
        Ok(judged.collect())
    }
}
