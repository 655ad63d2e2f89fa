//! `larder ceph convert` and `larder ceph revert`: converts one OSD or one pool to cold, or back.

use crate::ceph_args::CephConvert;
use crate::ceph_plan::{live, planned};
use crate::human::bytes;
use crate::output::print;
use anyhow::{Context, bail};
use ceph::conversion::{Goal, OsdRecord, PoolRecord, PoolRule, PoolStep, outline, revert_obstacle};
use ceph::plan::{OsdPlan, OsdRole, Plan, PoolRole, plan};
use ceph::record;
use ceph::world::convert::{Converter, Progress, osd_commands, pool_command};
use ceph::world::db::{self, DbError};
use ceph::world::{Ceph, HostCommands};
use ceph::{Cluster, Osd, OsdId};
use disk::discover::Tree;
use std::path::Path;
use std::time::Duration;

/// Time between two looks at the cluster while a conversion waits for it.
const PAUSE: Duration = Duration::from_secs(2);

/// An OSD or a pool.
enum Subject {
    Osd(OsdId),
    Pool(String),
}

fn subject(what: &str) -> anyhow::Result<Subject> {
    let osd = what.strip_prefix("osd.").and_then(|id| id.parse().ok());
    match (osd, what.strip_prefix("pool/")) {
        (Some(id), _) => Ok(Subject::Osd(OsdId(id))),
        (_, Some(pool)) if !pool.is_empty() => Ok(Subject::Pool(pool.to_owned())),
        _ => bail!("`{what}` is neither an OSD nor a pool; write one such as `osd.3` or `pool/NAME`"),
    }
}

/// `larder ceph convert`.
pub fn convert(options: &CephConvert) -> anyhow::Result<()> {
    go(options, Goal::Converted)
}

/// `larder ceph revert`.
pub fn revert(options: &CephConvert) -> anyhow::Result<()> {
    go(options, Goal::Original)
}

fn go(options: &CephConvert, goal: Goal) -> anyhow::Result<()> {
    let mut cluster = live()?;
    Ceph::default().mark_encrypted(&mut cluster).context("cannot find out which OSDs are encrypted")?;
    match subject(&options.what)? {
        Subject::Osd(osd) => {
            let record = osd_record(options, &cluster, osd, goal)?;
            if options.apply {
                apply(options, |converter| Ok(converter.osd(&record)?))
            } else {
                show_osd(options, &record)
            }
        }
        Subject::Pool(name) => {
            let record = pool_record(options, &cluster, &name, goal)?;
            if options.apply { apply(options, |converter| Ok(converter.pool(&record)?)) } else { show_pool(&record) }
        }
    }
}

fn osd_record(options: &CephConvert, cluster: &Cluster, id: OsdId, goal: Goal) -> anyhow::Result<OsdRecord> {
    let osd = cluster.osds.get(&id).with_context(|| format!("{id} is not in the cluster; see `ceph osd tree`"))?;
    let path = Converter::path(&options.state, &id.to_string());
    if let Some(mut record) = record::read::<OsdRecord>(&path)? {
        if record.goal != goal {
            record.turn(osd, goal);
            if let Some(reason) = revert_obstacle(cluster, id).filter(|_| goal == Goal::Original) {
                bail!("{reason}");
            }
        }
        return Ok(record);
    }
    if goal == Goal::Original {
        bail!(
            "{} does not exist, so {id} was not converted with this --state, and its earlier state is unknown",
            path.display()
        );
    }
    let plan = suitable(options, cluster)?;
    match plan.osd(id) {
        Some(OsdPlan { role: OsdRole::GoesCold, .. }) => {}
        Some(osd) => bail!("the plan does not make {id} cold: {} (see `larder ceph plan`)", osd.reason),
        None => bail!("the plan does not include {id}"),
    }
    let db = options
        .db
        .clone()
        .context("name the device for the OSD's metadata with --db; it must be flash, or a drive that always spins")?;
    check_db(options, &db, osd, (cluster, &plan))?;
    Ok(OsdRecord::new(cluster, osd, &plan.cold_class, data_device(options, osd)?, db))
}

/// Checks that `db` is a device that does not sleep. The operator's own commands may take other things than devices.
fn check_db(options: &CephConvert, db: &str, osd: &Osd, (cluster, plan): (&Cluster, &Plan)) -> anyhow::Result<()> {
    let part = |id| plan.osd(id).map(|part| (part.role, part.db_bytes));
    let is_cold = |id| matches!(part(id), Some((OsdRole::Cold | OsdRole::GoesCold, _)));
    let wanted_bytes = part(osd.id).map_or(0, |(_, bytes)| bytes);
    match db::check(&Tree::below("/"), db, osd, cluster, is_cold) {
        Err(DbError::NotADevice(_)) if options.create_command.is_some() => Ok(()),
        Ok(device) if device.bytes < wanted_bytes => {
            let (has, wants) = (bytes(device.bytes), bytes(wanted_bytes));
            Ok(print(&format!(
                "# note: {db} has {has}, and {wants} are advised for {}: RocksDB's logs and 4 % of its size; access to \
                 metadata that does not fit wakes the drive\n",
                osd.id
            ))?)
        }
        checked => Ok(checked.map(drop)?),
    }
}

fn data_device(options: &CephConvert, osd: &Osd) -> anyhow::Result<String> {
    match (&options.data, osd.data_devices.as_slice()) {
        (Some(device), _) => Ok(device.clone()),
        (None, [device]) => Ok(format!("/dev/{device}")),
        (None, devices) => bail!("the data of {} is stored on {devices:?}; name the device with --data", osd.id),
    }
}

fn suitable(options: &CephConvert, cluster: &Cluster) -> anyhow::Result<Plan> {
    let plan = plan(cluster, &planned(&options.planning));
    match plan.reasons.as_slice() {
        [] => Ok(plan),
        reasons => bail!("the cluster is not suitable: {}", reasons.join("; ")),
    }
}

fn pool_record(options: &CephConvert, cluster: &Cluster, name: &str, goal: Goal) -> anyhow::Result<PoolRecord> {
    let pool = cluster.pool(name).with_context(|| format!("there is no pool {name}; see `ceph osd pool ls`"))?;
    let path = Converter::path(&options.state, &format!("pool/{}", pool.id));
    if let Some(record) = record::read::<PoolRecord>(&path)? {
        return Ok(PoolRecord { goal, ..record });
    }
    if goal == Goal::Original {
        bail!("{} does not exist, so pool {name} was not converted with this --state", path.display());
    }
    let plan = suitable(options, cluster)?;
    let of_pool = plan.pool(name).context("the plan does not include the pool")?;
    let kind = match of_pool.role {
        PoolRole::HotPrimary => PoolRule::HotPrimary,
        PoolRole::HotOnly => PoolRule::HotOnly,
        PoolRole::Untouched | PoolRole::InTheWay => bail!("pool {name} keeps its rule: {}", of_pool.reason),
    };
    let Some(rule) = &of_pool.new_rule else {
        bail!("pool {name} already uses the right rule, {}: there is nothing to convert", of_pool.rule)
    };
    Ok(PoolRecord {
        fsid: cluster.fsid.clone(),
        pool: pool.id,
        name: name.to_owned(),
        goal,
        original_rule: of_pool.rule.clone(),
        kind,
        rule: rule.clone(),
        root: plan.root.clone(),
        hot_class: plan.hot_class.clone(),
        cold_class: plan.cold_class.clone(),
        domain: plan.domain.clone(),
    })
}

fn host_commands(options: &CephConvert) -> HostCommands {
    let CephConvert { stop_command, create_command, start_command, .. } = options;
    HostCommands { stop: stop_command.clone(), create: create_command.clone(), start: start_command.clone() }
}

/// A command as a shell reads it.
fn shell(command: &[String]) -> String {
    let is_plain = |word: &String| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@".contains(c));
    let quoted =
        |word: &String| if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn show_osd(options: &CephConvert, record: &OsdRecord) -> anyhow::Result<()> {
    let host = host_commands(options);
    let mut text =
        format!("# {} on its host, each step only while every placement group is active+clean\n", record.osd);
    for step in outline(record) {
        for command in osd_commands(step, record, &host) {
            text.extend([shell(&command).as_str(), "\n"]);
        }
        if matches!(step, ceph::conversion::OsdStep::Out) {
            text.push_str("# wait until it holds no placement group\n");
        }
    }
    text.push_str(
        "# wait until every placement group is active+clean\n# nothing was changed; run again with --apply to apply \
         these steps\n",
    );
    Ok(print(&text)?)
}

fn show_pool(record: &PoolRecord) -> anyhow::Result<()> {
    let steps = match (record.goal, &record.kind) {
        (Goal::Converted, _) => [PoolStep::AddRule, PoolStep::SetRule],
        (Goal::Original, _) => [PoolStep::SetRule, PoolStep::RemoveRule],
    };
    let mut text = String::new();
    for step in steps {
        if step == PoolStep::AddRule && record.kind == PoolRule::HotPrimary {
            text.push_str("ceph osd getcrushmap -o crush.map && crushtool -d crush.map -o crush.txt\n");
            text.push_str("# this rule is added to crush.txt:\n");
            text.push_str(&record.hot_primary().text(0, true).replace("\tid 0\n", "\tid (the first that is free)\n"));
            text.push_str("crushtool -c crush.txt -o crush.new && ceph osd setcrushmap -i crush.new\n");
        } else {
            text.extend([shell(&pool_command(step, record)).as_str(), "\n"]);
            text.push_str("# wait until every placement group is active+clean\n");
        }
    }
    text.push_str("# nothing was changed; run again with --apply to apply these steps\n");
    Ok(print(&text)?)
}

fn apply(options: &CephConvert, act: impl FnOnce(&mut Converter<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let host = host_commands(options);
    let folder: &Path = &options.state;
    let mut report = |progress: Progress<'_>| {
        let line = match progress {
            Progress::Run(command) => shell(command),
            Progress::Edit(rule) => format!("# rule {rule} added to the text"),
            Progress::Wait(reason) => format!("# waiting: {reason}"),
        };
        // The reader of the output may have gone; the conversion continues.
        let _ = print(&format!("{line}\n"));
    };
    let mut converter = Converter {
        ceph: Ceph::default(),
        host: &host,
        folder,
        wait_max: options.wait,
        pause: PAUSE,
        report: &mut report,
    };
    act(&mut converter)?;
    Ok(print("# done; every placement group is active+clean\n")?)
}
