//! The thermometer's verdicts, for people: on an object, and on all objects below a prefix.

use super::StatusService;
use crate::admin::AdminError;
use crate::report::{
    ChangeReport, DryRunReport, MoveEstimate, MoveReport, ObjectTotal, RuleName, RuleReport, RuleTotal,
    TemperatureReport,
};
use crate::temperature::{Judge, Judged};
use catalog::{AgedVersion, CatalogError, PlacedObject, Version, VersionId};
use engine::staging::Outlook;
use engine::staging::dry_run::DryRun;
use engine::thermometer::{Facts, Rule, RuleState, Standing, Temperature, Thermometer, Verdict};
use engine::{GroupChoice, Heat, MigrationPolicy, PinnedTo, Rack, StagedEntry};
use std::sync::Arc;
use std::time::Duration;

impl StatusService {
    /// The report about a staged object; `is_moving` if it is in a pack that is being written, `stays` if it is in
    /// quarantine.
    pub(super) async fn temperature(
        &self,
        (bucket, key): (&str, &str),
        placed: &PlacedObject,
        (is_moving, stays): (bool, bool),
    ) -> Result<TemperatureReport, AdminError> {
        let context = &self.context;
        let reads = context.catalog.reads_of(&[AgedVersion::of(placed)]).await?.pop().flatten();
        let policy = self.look(|rack, _| rack.policy().migration.clone()).await?;
        let judge = Judge::now(context, Arc::new(policy.thermometer.clone()));
        let verdict = judge.verdict((bucket, key), placed, reads);
        let facts = judge.facts((bucket, key), placed, reads);
        let moves = match (stays, is_moving) {
            (true, _) => MoveReport { when: "stays".into(), at_ms: None },
            (_, true) => MoveReport { when: "moving".into(), at_ms: None },
            _ => self.moves(&judge, &policy, placed, &verdict),
        };
        let rules = &policy.thermometer.rules;
        let next = verdict.next.map(|next| ChangeReport {
            at_ms: next.at_ms,
            temperature: temperature(next.standing).into(),
            rule: name(rules, next.rule),
        });
        Ok(TemperatureReport {
            temperature: temperature(verdict.standing).into(),
            rule: verdict.rule.map(|rule| name(rules, rule)),
            since_ms: verdict.since_ms,
            next,
            rules: (0..rules.len()).filter_map(|at| rule_report(rules, at, &facts, judge.now_ms)).collect(),
            created_ms: facts.created_ms,
            reads: facts.reads,
            read_ms: Some(judge.all_reads(placed, reads)).filter(|all| all.count > 0).map(|all| all.last_ms),
            read_through: facts.is_read_through,
            counted_from_ms: context.counters.reads.floor_ms(),
            moves,
        })
    }

    fn moves(&self, judge: &Judge, policy: &MigrationPolicy, placed: &PlacedObject, verdict: &Verdict) -> MoveReport {
        let clock = &self.context.clock;
        let age = clock.to_modelled(Duration::from_millis(judge.now_ms.saturating_sub(placed.staged_ms)));
        let at = |span: Duration| {
            let span_ms = u64::try_from(clock.to_wall(span).as_millis()).unwrap_or(u64::MAX);
            Some(judge.now_ms.saturating_add(span_ms))
        };
        let bytes = placed.object.bytes;
        let (when, at_ms) = match Outlook::of(policy, judge.heat(verdict), age, bytes) {
            Outlook::Due { within } => ("due", at(within)),
            Outlook::DueIn(span) => ("later", at(span)),
            Outlook::WithChecks => ("with_checks", None),
            Outlook::AboveRegular => ("above_regular", None),
            Outlook::AboveCritical => ("above_critical", None),
        };
        // A rule that comes to hold before that.
        let cools_ms = verdict.next.filter(|next| next.standing == Standing::Due && bytes >= policy.min_bytes);
        match cools_ms.map(|next| next.at_ms) {
            Some(cools_ms) if when != "due" && at_ms.is_none_or(|at_ms| cools_ms < at_ms) => {
                MoveReport { when: "later".into(), at_ms: Some(cools_ms) }
            }
            _ => MoveReport { when: when.into(), at_ms },
        }
    }

    /// The decisions of the server's rules about the objects staged below a prefix, or those of `rule` alone, all else
    /// being hot. `None` if there is no such bucket.
    pub(super) async fn rules_dry_run(
        &self,
        (bucket, prefix): (&str, &str),
        rule: Option<Rule>,
    ) -> Result<Option<DryRunReport>, AdminError> {
        let context = &self.context;
        match context.catalog.bucket(bucket).await {
            Err(CatalogError::NoSuchBucket) => return Ok(None),
            found => found?,
        };
        let (policy, rack) = self.look(|rack, _| (rack.policy().migration.clone(), RackShape::of(rack))).await?;
        let thermometer = match rule {
            Some(rule) => Thermometer { rules: vec![rule], default: Temperature::Hot },
            None => policy.thermometer.clone(),
        };
        let judge = Judge::now(context, Arc::new(thermometer));
        let mut count = Count::new(&judge, &policy, (bucket, prefix));
        let mut after = None;
        loop {
            let page = context.catalog.staged_below((bucket, prefix), after.as_ref()).await?;
            let numbers: Vec<VersionId> = page.items.iter().map(|version| version.version).collect();
            let quarantined = context.catalog.are_unreadable(&numbers).await?;
            let judged = judge.judged(&page.items, false).await?;
            let readable = page.items.iter().zip(judged).zip(quarantined).filter(|(_, quarantined)| !quarantined);
            for ((version, judged), _) in readable {
                count.add(version, &judged, (context.pin_of)(&version.bucket, &version.key).into());
            }
            after = page.next;
            if after.is_none() {
                return Ok(Some(count.finish(&rack)));
            }
        }
    }
}

/// The facts about a rack that a dry run needs.
struct RackShape {
    choice: GroupChoice,
    /// Groups of each class.
    groups: Vec<u64>,
    /// Drives of its largest group.
    group_drives: u64,
}

impl RackShape {
    fn of(rack: &Rack) -> Self {
        let layout = rack.layout();
        Self {
            choice: rack.policy().group_choice,
            groups: layout.classes.iter().map(|groups| groups.len() as u64).collect(),
            group_drives: layout.groups.iter().map(|group| group.drives.len() as u64).max().unwrap_or(0),
        }
    }

    fn groups(&self, pin: PinnedTo) -> u64 {
        match pin {
            PinnedTo::Anywhere => self.groups.iter().sum(),
            PinnedTo::Class(class) => self.groups.get(class.index()).copied().unwrap_or(0),
            PinnedTo::Group(_) => 1,
        }
    }
}

/// Counts the decisions of rules about objects.
struct Count<'a> {
    policy: &'a MigrationPolicy,
    run: DryRun,
    report: DryRunReport,
}

impl<'a> Count<'a> {
    fn new(judge: &Judge, policy: &'a MigrationPolicy, (bucket, prefix): (&str, &str)) -> Self {
        let rules = &judge.thermometer.rules;
        let total = |at: usize| RuleTotal {
            rule: name(rules, at),
            is: temperature_of(rules[at].is).into(),
            total: ObjectTotal::default(),
        };
        let report = DryRunReport {
            bucket: bucket.into(),
            prefix: prefix.into(),
            staged: ObjectTotal::default(),
            rules: (0..rules.len()).map(total).collect(),
            default: temperature_of(judge.thermometer.default).into(),
            by_default: ObjectTotal::default(),
            due: MoveEstimate::default(),
            too_small: ObjectTotal::default(),
            later: ObjectTotal::default(),
            last_ms: None,
        };
        Self { policy, run: DryRun::new(policy), report }
    }

    fn add(&mut self, version: &Version, judged: &Judged, pin: PinnedTo) {
        let (report, bytes) = (&mut self.report, version.bytes);
        report.staged.add(bytes);
        match judged.verdict.and_then(|verdict| verdict.rule) {
            Some(rule) => report.rules[rule].total.add(bytes),
            None => report.by_default.add(bytes),
        }
        if matches!(judged.heat, Heat::Due(_)) {
            if bytes < self.policy.min_bytes {
                report.too_small.add(bytes);
            }
            let (age, heat) = (Duration::ZERO, judged.heat);
            self.run.add(&StagedEntry { version: version.version.0, bytes, age, pin, heat });
        } else if let Some(next) = judged.verdict.and_then(|verdict| verdict.next)
            && next.standing == Standing::Due
        {
            report.later.add(bytes);
            report.last_ms = report.last_ms.max(Some(next.at_ms));
        }
    }

    fn finish(self, rack: &RackShape) -> DryRunReport {
        let estimate = self.run.finish(rack.choice, |pin| rack.groups(pin), rack.group_drives);
        let engine::staging::dry_run::Estimate { objects, bytes, blobs, wakes, starts } = estimate;
        DryRunReport { due: MoveEstimate { objects, bytes, blobs, wakes, starts }, ..self.report }
    }
}

fn rule_report(rules: &[Rule], at: usize, facts: &Facts, now_ms: u64) -> Option<RuleReport> {
    if !rules[at].names(facts.bucket, facts.key, facts.bytes) {
        return None;
    }
    let (holds, from_ms) = match rules[at].state(facts, now_ms) {
        RuleState::Never => (false, None),
        RuleState::From(from_ms) => (false, Some(from_ms)),
        RuleState::Since(since_ms) => (true, Some(since_ms)),
    };
    Some(RuleReport { rule: name(rules, at), is: temperature_of(rules[at].is).into(), holds, from_ms })
}

fn name(rules: &[Rule], at: usize) -> RuleName {
    RuleName { number: at + 1, name: rules[at].name.clone() }
}

fn temperature(standing: Standing) -> &'static str {
    if standing == Standing::Hot { "hot" } else { "cold" }
}

fn temperature_of(temperature: Temperature) -> &'static str {
    match temperature {
        Temperature::Hot => "hot",
        Temperature::Cold => "cold",
    }
}
