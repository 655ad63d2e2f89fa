//! The disks of this machine, before they are drives of a rack: `larder drive discover` lists them,
//! `larder drive power` queries, starts, stops and tests one, `larder drive doctor` finds programs and settings that
//! wake them or keep them awake. None of it needs a server.

use crate::drive_args::{Discover, Doctor, Power, PowerAction};
use crate::human::{self, bytes};
use crate::output::show;
use disk::discover::{Contents, Disk, Role, Tree, find, habits_of, survey, system_transports};
use disk::doctor::{Finding, examine};
use disk::power::trial::{self, TrialTimes};
use disk::power::{PowerControl, PowerMode};
use model::PowerUpInStandby;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A disk, as `larder drive discover --json` prints it.
#[derive(Serialize)]
struct DiskReport {
    name: String,
    path: PathBuf,
    by_id: Option<PathBuf>,
    model: String,
    serial: Option<String>,
    wwn: Option<String>,
    size_bytes: u64,
    bus: &'static str,
    enclosure: Option<String>,
    slot: Option<String>,
    rotational: bool,
    rotation_rpm: Option<u16>,
    power_up_in_standby: Option<&'static str>,
    /// The level of Advanced Power Management; below 128 the disk may stop its platters by itself.
    apm_level: Option<u8>,
    /// True if its own timers may stop its platters.
    epc_enabled: Option<bool>,
    allow_restart: Option<bool>,
    /// `standby`, `starting`, `active`, `unknown`; `None` for a disk without power mode.
    state: Option<&'static str>,
    /// Names of its contents; `None` if unknown.
    holds: Option<Vec<HeldReport>>,
    partitions: Vec<String>,
    usable: bool,
    reasons: Vec<String>,
}

/// One of the contents of a disk.
#[derive(Serialize)]
struct HeldReport {
    name: String,
    role: &'static str,
    label: Option<String>,
}

/// The name of a mode.
fn state(mode: &PowerMode) -> &'static str {
    match mode {
        PowerMode::Standby => "standby",
        PowerMode::Starting => "starting",
        PowerMode::Active => "active",
        PowerMode::Unknown(_) => "unknown",
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::PartitionTable => "partition table",
        Role::FileSystem => "file system",
        Role::Member => "member",
        Role::Swap => "swap",
        Role::Encrypted => "encrypted",
        Role::Unrecognised => "unrecognised",
    }
}

impl From<Disk> for DiskReport {
    fn from(disk: Disk) -> Self {
        let habits = habits_of(&Tree::below("/"), &disk.name);
        let held = disk.contents.signatures().iter();
        let held: Vec<HeldReport> = held
            .map(|one| HeldReport { name: one.name.clone(), role: role(one.role), label: one.label.clone() })
            .collect();
        let known = !held.is_empty() || disk.contents == Contents::Nothing;
        Self {
            usable: disk.refusals.is_empty(),
            reasons: disk.refusals.iter().map(ToString::to_string).collect(),
            state: disk.mode.as_ref().map(state),
            holds: known.then_some(held),
            power_up_in_standby: habits.power_up_in_standby.map(PowerUpInStandby::name),
            apm_level: habits.apm_level,
            epc_enabled: habits.epc_enabled,
            bus: disk.bus.name(),
            enclosure: disk.slot.as_ref().map(|slot| slot.enclosure.clone()),
            slot: disk.slot.map(|slot| slot.slot),
            name: disk.name,
            path: disk.path,
            by_id: disk.by_id,
            model: disk.model,
            serial: disk.serial,
            wwn: disk.wwn,
            size_bytes: disk.size_bytes,
            rotational: disk.rotational,
            rotation_rpm: disk.rotation_rpm,
            allow_restart: disk.allow_restart,
            partitions: disk.partitions,
        }
    }
}

/// `larder drive discover`.
pub fn discover(options: &Discover) -> anyhow::Result<()> {
    let disks = survey(&Tree::below("/"), &system_transports);
    let reports: Vec<DiskReport> = disks.into_iter().map(DiskReport::from).collect();
    show(options.json, &reports, |reports| table(reports))
}

/// A row for each disk; below them, the reasons against those that cannot be used.
fn table(disks: &[DiskReport]) -> String {
    if disks.is_empty() {
        return "no disks found: the kernel shows none below /sys/block\n".to_owned();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |disk: &DiskReport| {
        let place = disk.enclosure.as_ref().zip(disk.slot.as_ref());
        let held = disk.holds.as_ref().map(|held| {
            let names: Vec<&str> = held.iter().map(|held| held.name.as_str()).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        });
        vec![
            disk.name.clone(),
            disk.model.clone(),
            or_dash(disk.serial.clone()),
            bytes(disk.size_bytes),
            disk.bus.to_owned(),
            or_dash(place.map(|(enclosure, slot)| format!("{enclosure}/{slot}"))),
            disk.state.unwrap_or("always on").to_owned(),
            held.unwrap_or_else(|| "not known".to_owned()),
            if disk.usable { "yes" } else { "no" }.to_owned(),
        ]
    };
    let head = ["disk", "model", "serial", "size", "bus", "enclosure/slot", "state", "holds", "usable"];
    let reasons = disks.iter().flat_map(|disk| disk.reasons.iter().map(|reason| format!("{}: {reason}\n", disk.name)));
    human::table(&head, &["size"], disks.iter().map(row)) + &reasons.collect::<String>()
}

/// The answer of `larder drive power`.
#[derive(Serialize)]
struct PowerReport {
    disk: String,
    state: &'static str,
    /// The reason for an unknown state.
    reason: Option<String>,
    /// Time from the stop until it stood still.
    stop_ms: Option<u64>,
    /// Time from the start until it was at speed.
    start_ms: Option<u64>,
}

/// `larder drive power`.
pub fn power(options: &Power) -> anyhow::Result<()> {
    let tree = Tree::below("/");
    let disks = survey(&tree, &system_transports);
    let disk = find(&tree, &disks, &options.disk)?;
    if matches!(options.action, PowerAction::Stop | PowerAction::Test)
        && let Some(usage) = disk.uses().next()
    {
        anyhow::bail!("{} is in use and was not stopped: {usage}", disk.name);
    }
    let control = disk.power_control(&tree, &system_transports)?;
    let (stop, start) = act(options.action, control.as_ref())?;
    let mode = control.mode();
    let ms = |span: Option<Duration>| span.map(|span| span.as_millis() as u64);
    let reason = match &mode {
        PowerMode::Unknown(error) => Some(error.to_string()),
        _ => None,
    };
    let report =
        PowerReport { disk: disk.name.clone(), state: state(&mode), reason, stop_ms: ms(stop), start_ms: ms(start) };
    show(options.json, &report, sentences)
}

/// Executes `action`. Returns the times that it took to stop and to start.
fn act(action: PowerAction, control: &dyn PowerControl) -> anyhow::Result<(Option<Duration>, Option<Duration>)> {
    let times = TrialTimes::default();
    let sleep = &mut std::thread::sleep;
    match action {
        PowerAction::State => Ok((None, None)),
        PowerAction::Start => {
            control.start()?;
            let took = trial::wait_for(control, (times.pause, times.start_max), &PowerMode::Active, sleep)?;
            let took = took.ok_or(trial::TrialError::StartIgnored(times.start_max))?;
            Ok((None, Some(took)))
        }
        PowerAction::Stop => {
            control.stop()?;
            let took = trial::wait_for(control, (times.pause, times.stop_max), &PowerMode::Standby, sleep)?;
            let took = took.ok_or(trial::TrialError::StopIgnored(times.stop_max))?;
            Ok((Some(took), None))
        }
        PowerAction::Test => {
            let report = trial::run(control, times, sleep)?;
            Ok((Some(report.stop), Some(report.start)))
        }
    }
}

fn sentences(report: &PowerReport) -> String {
    let PowerReport { disk, state, reason, stop_ms, start_ms } = report;
    let seconds = |ms: u64| human::seconds(ms as f64 / 1000.0);
    let line = match reason {
        Some(reason) => format!("{disk} is in an unknown state: {reason}\n"),
        None => format!("{disk} is {state}\n"),
    };
    let stopped = stop_ms.map(|ms| format!("its platters stood still {} after the stop command\n", seconds(ms)));
    let started = start_ms.map(|ms| format!("it was at speed {} after the start command\n", seconds(ms)));
    [Some(line), stopped, started].into_iter().flatten().collect()
}

/// A finding, as `larder drive doctor --json` prints it.
#[derive(Serialize)]
struct FindingReport {
    cause: &'static str,
    place: String,
    found: String,
    mend: String,
}

impl From<Finding> for FindingReport {
    fn from(finding: Finding) -> Self {
        Self { cause: finding.cause, place: finding.place, found: finding.found, mend: finding.mend }
    }
}

/// `larder drive doctor`.
pub fn doctor(options: &Doctor) -> anyhow::Result<ExitCode> {
    let findings: Vec<FindingReport> =
        examine(&Tree::below(&options.root)).into_iter().map(FindingReport::from).collect();
    show(options.json, &findings, |findings| diagnosis(findings))?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn diagnosis(findings: &[FindingReport]) -> String {
    if findings.is_empty() {
        return "found nothing that wakes disks or keeps them awake\n".to_owned();
    }
    let one = |finding: &FindingReport| {
        let FindingReport { cause, place, found, mend } = finding;
        format!("{cause} ({place})\n  {found}\n  fix: {mend}\n")
    };
    findings.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report() -> DiskReport {
        DiskReport {
            name: "sdb".into(),
            path: "/dev/sdb".into(),
            by_id: Some("/dev/disk/by-id/wwn-0x5000c500a1b2c3d4".into()),
            model: "SEAGATE ST16000NM002G".into(),
            serial: Some("ZL20AB12".into()),
            wwn: None,
            size_bytes: 16_000_900_661_248,
            bus: "sas",
            enclosure: Some("0x500304801e95413f".into()),
            slot: Some("4".into()),
            rotational: true,
            rotation_rpm: Some(7200),
            power_up_in_standby: None,
            apm_level: None,
            epc_enabled: None,
            allow_restart: Some(true),
            state: Some("active"),
            holds: Some(vec![]),
            partitions: vec![],
            usable: true,
            reasons: vec![],
        }
    }

    #[test]
    fn each_disk_has_a_row_and_each_reason_a_line() {
        let held = HeldReport { name: "xfs".into(), role: "file system", label: None };
        let other = DiskReport {
            name: "sdc".into(),
            holds: Some(vec![held]),
            usable: false,
            reasons: vec!["it holds a file system (xfs)".into()],
            ..report()
        };
        let text = table(&[report(), other]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        let place = "0x500304801e95413f/4";
        assert_eq!(
            words,
            ["sdb", "SEAGATE", "ST16000NM002G", "ZL20AB12", "16.0", "TB", "sas", place, "active", "nothing", "yes"]
        );
        assert!(lines[2].trim_end().ends_with("no") && lines[2].contains(" xfs "), "{text}");
        assert_eq!(lines[3], "sdc: it holds a file system (xfs)");
    }

    #[test]
    fn an_unknown_state_is_not_left_without_its_reason() {
        let report = PowerReport {
            disk: "sdb".into(),
            state: "unknown",
            reason: Some("the disk is gone".into()),
            stop_ms: None,
            start_ms: Some(12_500),
        };
        assert_eq!(
            sentences(&report),
            "sdb is in an unknown state: the disk is gone\nit was at speed 13 s after the start command\n"
        );
    }
}
