//! `larder ceph migrate`: moves objects of RGW into a cold storage class by the rules of larder.toml.

use crate::ceph_args::CephMigrate;
use crate::human::{bytes, counted};
use crate::output::{show, wait_for};
use anyhow::{Context, bail};
use ceph::lifecycle::Way;
use ceph::world::Ceph;
use ceph::world::migrate::{BucketReport, LifecycleState, Migration, MigrationReport, Total};
use ceph::world::rgw::Rgw;
use ceph::world::rgw::signing::Keys;
use server::config::Config;
use std::env;
use std::fmt::Write;

/// `larder ceph migrate`.
pub fn run(options: &CephMigrate) -> anyhow::Result<()> {
    let thermometer = Config::read(&options.rules)?.thermometer.thermometer();
    if !thermometer.has_cold_rules() {
        bail!(
            "{} has no `[[thermometer.rule]]` with is = \"cold\", so nothing would move; add one",
            options.rules.display()
        );
    }
    let variable =
        |name: &str| env::var(name).with_context(|| format!("{name} is not set; give the key of RGW's user"));
    let keys = Keys {
        access: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        region: env::var("AWS_DEFAULT_REGION").unwrap_or_else(|_| "us-east-1".to_owned()),
    };
    let mut migration = Migration {
        ceph: Ceph::default(),
        rgw: Rgw::new(&options.endpoint, keys)?,
        thermometer,
        class: options.storage_class.clone(),
        cold_class: options.cold_class.clone(),
        buckets: options.buckets.clone(),
        write_once: options.write_once.clone(),
        copies_per_s: options.rate,
        is_applied: options.apply,
        window: options.in_window.then_some(options.window),
    };
    let report = wait_for(async { Ok(migration.run().await?) })?;
    show(options.json, &report, text)
}

fn total(total: Total) -> String {
    format!("{}, {}", counted(total.objects, "object"), bytes(total.bytes))
}

fn text(report: &MigrationReport) -> String {
    let mut text = String::new();
    for bucket in &report.buckets {
        text.push_str(&of_bucket(bucket, report));
    }
    for (bucket, reason) in &report.refused {
        let _ = writeln!(text, "{bucket}: refused: {reason}");
    }
    if !report.is_applied {
        text.push_str("# nothing was changed; run again with --apply to migrate\n");
    }
    text
}

fn of_bucket(bucket: &BucketReport, report: &MigrationReport) -> String {
    let lifecycle = match bucket.lifecycle {
        LifecycleState::NotNeeded => "not needed",
        LifecycleState::Foreign => "set by another program, and not changed",
        LifecycleState::Wanted => "would be set",
        LifecycleState::Set => "set",
        LifecycleState::Removed => "removed, since no rule needs it any more",
    };
    let mut text = format!("s3://{} -> {} (pool {})\n", bucket.bucket, report.class, bucket.pool);
    for rule in &bucket.rules {
        let name = if rule.name.is_empty() { String::new() } else { format!(" ({})", rule.name) };
        let way = match rule.way {
            Way::Lifecycle { days } => format!("by lifecycle after {}", counted(u64::from(days), "day")),
            Way::Copy => "by copy".to_owned(),
            Way::Hidden => "never".to_owned(),
            Way::Refused => "refused".to_owned(),
        };
        let _ = writeln!(text, "  rule {}{name}: {way}: {}", rule.number, rule.reason);
    }
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<13} {value}");
    };
    row("lifecycle", lifecycle.to_owned());
    row("by lifecycle", total(bucket.by_lifecycle));
    row("by copy", total(bucket.by_copy));
    if report.is_applied {
        row("copied", total(bucket.copied));
    }
    for (reason, left) in &bucket.left {
        row("left alone", format!("{}: {reason}", total(*left)));
    }
    row("stay", total(bucket.hot));
    row("cold before", total(bucket.cold));
    text
}
