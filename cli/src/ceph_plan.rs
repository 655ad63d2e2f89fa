//! `larder ceph plan`: which OSDs of a Ceph cluster can go cold, and what that moves, needs, saves and risks.

use crate::ceph_args::{CephPlan, CephPlanning};
use crate::human::{bytes, count, counted, table, watts};
use crate::output::show;
use anyhow::Context;
use ceph::Cluster;
use ceph::plan::{HOT_PRIMARY_RULE, Options, OsdPlan, OsdRole, Plan, PoolPlan, PoolRole, Room, Writes, plan};
use ceph::world::{Ceph, dump_files};
use std::fmt::Write;
use std::process::ExitCode;

/// `larder ceph plan`: exit code 1 for a cluster that is not suitable.
pub fn run(options: &CephPlan) -> anyhow::Result<ExitCode> {
    let cluster = if let Some(folder) = &options.dumps {
        dump_files::read(folder)?
    } else {
        let mut cluster = live()?;
        if let Err(error) = Ceph::default().mark_encrypted(&mut cluster) {
            tracing::warn!(%error, "cannot find out which OSDs are encrypted");
        }
        cluster
    };
    let milliwatts = |watts: f64| (watts * 1000.0).round() as u32;
    let options_of_plan = Options {
        spinning_mw: milliwatts(options.spinning_watts),
        standby_mw: milliwatts(options.standby_watts),
        rated_starts: options.rated_starts,
        life_years: options.life_years,
        ..planned(&options.planning)
    };
    let plan = plan(&cluster, &options_of_plan);
    show(options.json, &plan, text)?;
    Ok(if plan.is_suitable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cluster that `ceph` reaches.
pub fn live() -> anyhow::Result<Cluster> {
    Ceph::default().cluster().context("cannot read the cluster; check that `ceph -s` works here")
}

/// The options of a plan that all commands share.
pub fn planned(options: &CephPlanning) -> Options {
    Options {
        hot_class: options.hot_class.clone(),
        cold_class: options.cold_class.clone(),
        pools: options.pools.clone(),
        ..Options::default()
    }
}

fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    line(format!("cluster {}", plan.fsid));
    line(pools(plan));
    line(osds(plan));
    line(format!("hot   class {}: {}", plan.hot_class, room(&plan.hot, &plan.domain)));
    line(format!("cold  class {}: {}", plan.cold_class, room(&plan.cold, &plan.domain)));
    line(format!("the new rules move {} (expected), first copies included", bytes(plan.moved_bytes)));
    line(starts(plan));
    line(format!("power saved while all cold drives sleep: {}", watts(plan.saved_mw as f64 / 1000.0)));
    if let Some(failure) = plan.hot_failure.filter(|_| plan.cold.osds > 0) {
        line(format!(
            "when {} fails: {} wake for {} and {} of recovery (expected)",
            failure.osd,
            counted(failure.cold_osds, "cold OSD"),
            counted(failure.pgs, "placement group"),
            bytes(failure.bytes)
        ));
    }
    for warning in &plan.warnings {
        line(format!("note: {warning}"));
    }
    for reason in &plan.reasons {
        line(format!("not suitable: {reason}"));
    }
    if plan.is_suitable {
        line("suitable".to_owned());
        next(plan).into_iter().for_each(&mut line);
        rule(plan).into_iter().for_each(line);
    }
    text
}

/// The number of starts of a cold drive.
fn starts(plan: &Plan) -> String {
    let allowed = plan.starts_per_day_max;
    let scrubs = "one or two per week for deep scrubs";
    match plan.writes {
        None => format!("starts of a drive: {scrubs}, and one for each batch of writes; {allowed} per day are allowed"),
        Some(Writes { per_day, starts_per_day, asleep_permille }) => format!(
            "starts of a cold drive: {scrubs}, and {starts_per_day:.1} per day for {per_day:.1} writes per day, if \
             they come one by one; it sleeps {} % of the time; {allowed} starts per day are allowed",
            asleep_permille / 10
        ),
    }
}

/// The rule that hot-primary pools get, and the primary affinity of cold OSDs.
fn rule(plan: &Plan) -> Vec<String> {
    let is_new = plan.pools.iter().any(|pool| pool.new_rule.as_deref() == Some(HOT_PRIMARY_RULE));
    let osds = plan.osds.iter().filter(|osd| osd.role == OsdRole::GoesCold);
    let osds: Vec<String> = osds.map(|osd| osd.osd.to_string()).collect();
    let mut lines = Vec::new();
    if is_new {
        lines.push("the rule, without its number, which is the first free one:".to_owned());
        lines.extend(plan.rule().text(0, true).lines().filter(|line| !line.contains("\tid ")).map(str::to_owned));
    }
    if !osds.is_empty() {
        lines.push(format!("primary affinity 0: {}", osds.join(", ")));
    }
    lines
}

/// The commands that come next.
fn next(plan: &Plan) -> Vec<String> {
    let osds = plan.osds.iter().filter(|osd| osd.role == OsdRole::GoesCold);
    let osds = osds.map(|osd| format!("  larder ceph convert {} --db DEVICE        (on {})", osd.osd, osd.host));
    let pools = plan.pools.iter().filter(|pool| pool.new_rule.is_some());
    let pools = pools.map(|pool| format!("  larder ceph convert pool/{}", pool.pool));
    let steps: Vec<String> = osds.chain(pools).collect();
    if steps.is_empty() { vec!["nothing is left to convert".to_owned()] } else { steps }
}

fn room(room: &Room, domain: &str) -> String {
    format!(
        "{} in {}, {} of {} used; {} after the loss of the largest {domain}",
        counted(room.osds as u64, "OSD"),
        counted(room.domains as u64, domain),
        bytes(room.need_bytes),
        bytes(room.room_bytes),
        bytes(room.room_after_loss_bytes),
    )
}

fn pools(plan: &Plan) -> String {
    let row = |pool: &PoolPlan| {
        let role = match pool.role {
            PoolRole::HotPrimary => "hot primary",
            PoolRole::HotOnly => "hot only",
            PoolRole::Untouched => "untouched",
            PoolRole::InTheWay => "in the way",
        };
        vec![
            pool.pool.clone(),
            role.to_owned(),
            count(u64::from(pool.size)),
            bytes(pool.stored_bytes),
            pool.rule.clone(),
            pool.new_rule.clone().unwrap_or_else(|| "-".to_owned()),
            bytes(pool.moved_bytes),
            pool.reason.clone(),
        ]
    };
    let head = ["pool", "role", "copies", "stored", "rule", "becomes", "moves", "why"];
    table(&head, &["copies", "stored", "moves"], plan.pools.iter().map(row))
}

fn osds(plan: &Plan) -> String {
    let row = |osd: &OsdPlan| {
        let role = match osd.role {
            OsdRole::Hot => "hot",
            OsdRole::GoesCold => "goes cold",
            OsdRole::Cold => "cold",
            OsdRole::Stays => "stays",
        };
        vec![
            osd.osd.to_string(),
            osd.host.clone(),
            osd.class.clone().unwrap_or_else(|| "-".to_owned()),
            role.to_owned(),
            bytes(osd.used_bytes),
            if osd.db_bytes == 0 { "-".to_owned() } else { bytes(osd.db_bytes) },
            osd.reason.clone(),
        ]
    };
    table(
        &["OSD", "host", "class", "role", "used", "block.db", "why"],
        &["used", "block.db"],
        plan.osds.iter().map(row),
    )
}
