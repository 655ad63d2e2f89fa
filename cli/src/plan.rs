//! `larder plan`: the groups and classes of a rack, the number that can be active at once, and the power that this
//! takes.

use crate::args::Plan;
use crate::human::{binary_bytes, bytes, count, counted, runs, table, watts};
use crate::output;
use anyhow::{Context, bail, ensure};
use engine::check;
use engine::layout::{Bound, Layout, Warning, synthesise};
use model::{Code, DriveId, DriveSpec, GroupId, RackSpec};
use serde::Serialize;
use server::data_dir::read_rack;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The plan as JSON. Groups and classes are numbered by their positions in their lists.
#[derive(Debug, Serialize)]
struct PlanReport<'a> {
    rack: &'a str,
    code: Code,
    group_drives: u32,
    drives: Vec<PlannedDrive<'a>>,
    pool_drives: usize,
    groups: Vec<&'a [DriveId]>,
    classes: &'a [Vec<GroupId>],
    spares: &'a [DriveId],
    active_groups_max: u32,
    active_drives_max: u32,
    bound: &'a Bound,
    watts: PlannedPower,
    capacity_bytes: u64,
    survives: Survived<'a>,
    warnings: Vec<Message<'a>>,
}

/// The losses that a rack survives at once without losing an object.
#[derive(Debug, Serialize)]
struct Survived<'a> {
    /// This number of drives of each group, any of them.
    drives_of_group: u8,
    /// Number of drives of a group that can be rebuilt inside it, one after the other, before there is no room.
    rebuilds_in_group: u32,
    /// One domain of each of these kinds, which takes the media of several drives with it, except for the groups at
    /// risk.
    domains: Vec<SurvivedDomain<'a>>,
    /// Kinds of domains that keep the media of their drives: while one is off, this number of groups cannot be read.
    /// Groups are not spread over these.
    unreadable_while_off: Vec<UnreadableWhileOff<'a>>,
}

#[derive(Debug, Serialize)]
struct UnreadableWhileOff<'a> {
    kind: &'a str,
    /// Maximum number of groups that one domain of the kind takes with it.
    groups: u32,
}

#[derive(Debug, Serialize)]
struct SurvivedDomain<'a> {
    kind: &'a str,
    groups_at_risk: u32,
}

#[derive(Debug, Serialize)]
struct PlannedDrive<'a> {
    id: DriveId,
    slot: [u16; 3],
    group: Option<GroupId>,
    domains: BTreeMap<&'a str, u32>,
    failure_domains: BTreeMap<&'a str, u32>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PlannedPower {
    asleep: f64,
    /// With the maximum number of drives starting at once, and the other drives of one group of each class active.
    waking: f64,
    active: f64,
    starting_drives_max: u64,
}

/// A warning for programs and for people.
#[derive(Debug, Serialize)]
struct Message<'a> {
    #[serde(flatten)]
    warning: &'a Warning,
    message: String,
}

/// `larder plan`.
pub fn plan(options: &Plan) -> anyhow::Result<()> {
    let (_, spec) = read_rack(&options.rack)?;
    let layout = checked(&spec)?;
    let report = report(&spec, &layout);
    if let Some(path) = &options.svg {
        std::fs::write(path, picture(&spec, &layout, options.awake)?)
            .with_context(|| format!("writing {}; give --svg a file in a directory of yours", path.display()))?;
    }
    output::show(options.json, &report, |report| text(&spec, &layout, report))
}

/// The picture of the rack by classes, or asleep and with a group awake.
fn picture(spec: &RackSpec, layout: &Layout, awake: Option<u32>) -> anyhow::Result<String> {
    let Some(group) = awake else { return Ok(sim::report::rack_picture(spec, layout, GroupId(0))) };
    let groups = layout.groups.len();
    ensure!((group as usize) < groups, "{} has no group {group}: its groups are 0 to {}", spec.name, groups - 1);
    Ok(sim::report::waking_picture(spec, layout, GroupId(group)))
}

/// The layout of `spec`, verified by code that shares nothing with the synthesis.
fn checked(spec: &RackSpec) -> anyhow::Result<Layout> {
    let layout = synthesise(spec)?;
    verified(spec, &layout)?;
    Ok(layout)
}

fn verified(spec: &RackSpec, layout: &Layout) -> anyhow::Result<()> {
    if let Err(violations) = check::layout(spec, layout) {
        let shown: Vec<String> = violations.iter().take(3).map(ToString::to_string).collect();
        bail!(
            "the layout found for {} is wrong ({}); please report this with the description",
            spec.name,
            shown.join("; ")
        );
    }
    Ok(())
}

fn report<'a>(spec: &'a RackSpec, layout: &'a Layout) -> PlanReport<'a> {
    let in_watts = |milliwatts: u64| milliwatts as f64 / 1000.0;
    let grouped = layout.groups.iter().flat_map(|group| &group.drives);
    PlanReport {
        rack: &spec.name,
        code: spec.code,
        group_drives: spec.group_drives,
        drives: spec.drives.iter().map(|drive| described(spec, layout, drive)).collect(),
        pool_drives: spec.pool.len(),
        groups: layout.groups.iter().map(|group| group.drives.as_slice()).collect(),
        classes: &layout.classes,
        spares: &layout.spares,
        active_groups_max: layout.active_groups_max(),
        active_drives_max: layout.drives_active_max(),
        bound: &layout.bound,
        watts: PlannedPower {
            asleep: in_watts(layout.asleep_mw(spec)),
            waking: in_watts(layout.waking_mw(spec)),
            active: in_watts(layout.active_mw(spec)),
            starting_drives_max: layout.drives_starting_max(spec),
        },
        capacity_bytes: grouped.map(|drive| spec.capacity_bytes(*drive)).sum(),
        survives: survived(spec, layout),
        warnings: layout.warnings.iter().map(|warning| Message { warning, message: warning.to_string() }).collect(),
    }
}

/// The loss of a domain of several drives costs a blob at most r stacks where groups are spread over these domains; the
/// layout warns of the groups that are not.
fn survived<'a>(spec: &'a RackSpec, layout: &Layout) -> Survived<'a> {
    let kinds = spec.failure_domains.iter().enumerate().filter(|(_, kind)| kind.loses_media);
    let shared = kinds.filter(|(column, _)| {
        let domains = spec.drives.iter().map(|drive| drive.failure_domains[*column]);
        domains.collect::<BTreeSet<_>>().len() < spec.drives.len()
    });
    let at_risk = |name: &str| {
        let groups = layout.warnings.iter().find_map(|warning| match warning {
            Warning::Spread { failure_domain, groups } if failure_domain == name => Some(*groups),
            _ => None,
        });
        groups.unwrap_or(0)
    };
    let none = layout.groups.len() as u32;
    let of_kind = |(_, kind): (usize, &'a model::FailureDomains)| SurvivedDomain {
        kind: &kind.name,
        groups_at_risk: if spec.code.parity == 0 { none } else { at_risk(&kind.name) },
    };
    Survived {
        drives_of_group: spec.code.parity,
        rebuilds_in_group: spec.group_drives - spec.code.stacks() as u32,
        domains: shared.map(of_kind).collect(),
        unreadable_while_off: unreadable_while_off(spec, layout),
    }
}

/// The kinds of domains whose loss takes no media, but puts more than r drives of a group out of reach.
fn unreadable_while_off<'a>(spec: &'a RackSpec, layout: &Layout) -> Vec<UnreadableWhileOff<'a>> {
    let kept = spec.failure_domains.iter().enumerate().filter(|(_, kind)| !kind.loses_media);
    let of_kind = |(column, kind): (usize, &'a model::FailureDomains)| {
        let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
        for group in &layout.groups {
            let mut drives: BTreeMap<u32, usize> = BTreeMap::new();
            for drive in &group.drives {
                *drives.entry(spec.drive(*drive).failure_domains[column].0).or_default() += 1;
            }
            let lacking = drives.into_iter().filter(|(_, drives)| *drives > usize::from(spec.code.parity));
            lacking.for_each(|(domain, _)| *groups.entry(domain).or_default() += 1);
        }
        groups.into_values().max().map(|groups| UnreadableWhileOff { kind: &kind.name, groups })
    };
    kept.filter_map(of_kind).collect()
}

/// The survived losses, as a sentence.
fn survival(survived: &Survived<'_>) -> String {
    let Survived { drives_of_group, rebuilds_in_group, domains, .. } = survived;
    if *drives_of_group == 0 {
        return "no loss of a drive, since the code has no redundancy".to_owned();
    }
    let mut text = format!("the loss of any {} of each group at once", counted(u64::from(*drives_of_group), "drive"));
    for SurvivedDomain { kind, groups_at_risk } in domains {
        let _ = match groups_at_risk {
            0 => write!(text, ", or of any one `{kind}`"),
            groups => write!(text, ", or of any one `{kind}` but in {}", counted(u64::from(*groups), "group")),
        };
    }
    let _ = match rebuilds_in_group {
        0 => write!(text, "; lost stacks can be rebuilt only on a new drive"),
        drives => {
            write!(
                text,
                "; {} of a group can be rebuilt on its other drives",
                counted(u64::from(*drives), "lost drive")
            )
        }
    };
    text
}

/// The plan of a rack, for people.
pub fn described_by(spec: &RackSpec, layout: &Layout) -> anyhow::Result<String> {
    verified(spec, layout)?;
    Ok(text(spec, layout, &report(spec, layout)))
}

fn described<'a>(spec: &'a RackSpec, layout: &Layout, drive: &DriveSpec) -> PlannedDrive<'a> {
    let resources = spec.resources.iter().map(|resource| resource.name.as_str());
    let kinds = spec.failure_domains.iter().map(|kind| kind.name.as_str());
    PlannedDrive {
        id: drive.id,
        slot: drive.slot,
        group: layout.group_of(drive.id),
        domains: resources.zip(drive.resource_domains.iter().map(|domain| domain.0)).collect(),
        failure_domains: kinds.zip(drive.failure_domains.iter().map(|domain| domain.0)).collect(),
    }
}

fn text(spec: &RackSpec, layout: &Layout, report: &PlanReport<'_>) -> String {
    let mut text = String::new();
    let code = spec.code;
    let row = |text: &mut String, name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    row(&mut text, "rack", format!("{}, {}", spec.name, counted(spec.drives.len() as u64, "drive")));
    if !spec.pool.is_empty() {
        let drives = counted(spec.pool.len() as u64, "drive");
        row(&mut text, "pool", format!("{drives} for small objects, whose power is reserved at all times"));
    }
    let fragment = binary_bytes(u64::from(code.fragment_bytes));
    row(&mut text, "code", format!("{} + {}, fragments of {fragment}", code.data, code.parity));
    let (groups, classes) = (layout.groups.len() as u64, layout.classes.len());
    let (each, kind) = (spec.group_drives, if classes == 1 { "class" } else { "classes" });
    row(&mut text, "groups", format!("{} of {each} drives in {classes} {kind}", count(groups)));
    let useful = report.capacity_bytes / code.stacks() as u64 * u64::from(code.data);
    row(&mut text, "capacity", format!("{}, {} of it for data", bytes(report.capacity_bytes), bytes(useful)));
    let (active, drives) = (u64::from(report.active_groups_max), u64::from(report.active_drives_max));
    row(&mut text, "active", format!("{} at once, {}", counted(active, "group"), counted(drives, "drive")));
    row(&mut text, "bound", report.bound.to_string());
    let PlannedPower { asleep, waking, active, starting_drives_max } = report.watts;
    let in_turn = match starting_drives_max {
        starting if starting < drives => format!(" ({} starting at once)", counted(starting, "drive")),
        _ => String::new(),
    };
    let shown = format!(
        "{} all asleep, {} all classes waking{in_turn}, {} all active",
        watts(asleep),
        watts(waking),
        watts(active)
    );
    row(&mut text, "power", shown);
    row(&mut text, "survives", survival(&report.survives));
    for UnreadableWhileOff { kind, groups } in &report.survives.unreadable_while_off {
        let all = layout.groups.len();
        let shown =
            format!("while a `{kind}` is off, {groups} of {all} groups cannot be read; no data on them is lost");
        row(&mut text, "unreadable", shown);
    }
    let spares: Vec<u32> = layout.spares.iter().map(|drive| drive.0).collect();
    row(&mut text, "spares", if spares.is_empty() { "none".to_owned() } else { runs(&spares) });
    for warning in &report.warnings {
        row(&mut text, "warning", warning.message.clone());
    }
    text.push('\n');
    text.push_str(&groups_table(layout));
    text
}

fn groups_table(layout: &Layout) -> String {
    let rows = layout.groups.iter().enumerate().map(|(id, group)| {
        let drives: Vec<u32> = group.drives.iter().map(|drive| drive.0).collect();
        vec![group.class.0.to_string(), id.to_string(), runs(&drives)]
    });
    table(&["class", "group", "drives"], &["class", "group"], rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn planned(rack: &str) -> (serde_json::Value, String) {
        let (_, spec) = read_rack(rack).unwrap();
        let layout = checked(&spec).unwrap();
        let report = report(&spec, &layout);
        (serde_json::to_value(&report).unwrap(), text(&spec, &layout, &report))
    }

    #[test]
    fn pelican_is_48_groups_of_24_in_4_classes_with_96_drives_active() {
        let (json, text) = planned("pelican");
        assert_eq!(json["drives"].as_array().unwrap().len(), 1152);
        assert_eq!(json["groups"].as_array().unwrap().len(), 48);
        assert!(json["groups"].as_array().unwrap().iter().all(|group| group.as_array().unwrap().len() == 24));
        let classes = json["classes"].as_array().unwrap();
        assert!(classes.len() == 4 && classes.iter().all(|class| class.as_array().unwrap().len() == 12));
        assert_eq!((&json["active_groups_max"], &json["active_drives_max"]), (&4.into(), &96.into()));
        assert_eq!(json["spares"].as_array().unwrap().len(), 0);
        let power: Vec<f64> =
            ["asleep", "waking", "active"].iter().map(|w| json["watts"][w].as_f64().unwrap()).collect();
        assert!((power[1] / 1000.0 - 3.7).abs() < 0.05 && (power[2] / 1000.0 - 2.6).abs() < 0.05, "{power:?}");
        assert!(
            text.contains("48 of 24 drives in 4 classes") && text.contains("4 groups at once, 96 drives"),
            "{text}"
        );
    }

    #[test]
    fn a_drive_has_its_slot_and_domains() {
        let (json, _) = planned("pelican-mini");
        let drive = &json["drives"][5];
        assert_eq!(drive["id"], 5);
        assert_eq!(drive["slot"].as_array().unwrap().len(), 3);
        for domain in ["power", "cooling", "vibration", "pcie"] {
            assert!(drive["domains"][domain].is_u64(), "{drive}");
        }
        assert!(drive["failure_domains"]["chassis"].is_u64());
        let group = drive["group"].as_u64().unwrap() as usize;
        assert!(json["groups"][group].as_array().unwrap().contains(&5.into()));
        assert_eq!(json["code"]["data"], 4);
    }

    #[test]
    fn every_shipped_rack_has_a_plan() {
        for (name, _) in model::text::SHIPPED {
            let (json, text) = planned(name);
            assert!(!json["groups"].as_array().unwrap().is_empty() && !text.is_empty());
        }
    }

    #[test]
    fn what_may_be_lost_is_said() {
        let sentence = |rack: &str| {
            let (_, text) = planned(rack);
            text.lines().find_map(|line| line.strip_prefix("survives ")).unwrap().trim().to_owned()
        };
        assert_eq!(
            sentence("nas8"),
            "the loss of any 1 drive of each group at once; 1 lost drive of a group can be rebuilt on its other drives"
        );
        let pelican = sentence("pelican");
        assert!(
            pelican.starts_with("the loss of any 3 drives of each group at once, or of any one `tray`"),
            "{pelican}"
        );
        let (json, text) = planned("nas8");
        assert_eq!(json["survives"]["rebuilds_in_group"], 1);
        assert_eq!(
            json["survives"]["unreadable_while_off"],
            serde_json::json!([{ "kind": "controller", "groups": 2 }])
        );
        assert!(text.contains("while a `controller` is off, 2 of 2 groups cannot be read"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.toml");
        let (_, nas8) = model::text::SHIPPED.iter().find(|(name, _)| *name == "nas8").unwrap();
        std::fs::write(&path, nas8.replace("r = 1", "r = 0")).unwrap();
        assert_eq!(sentence(path.to_str().unwrap()), "no loss of a drive, since the code has no redundancy");
    }

    #[test]
    fn a_plan_is_drawn_into_a_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("rack.svg");
        plan(&Plan { rack: "nas8".into(), json: true, svg: Some(path.clone()), awake: None }).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("nas8: 8 drives"), "{svg}");
        let waking = |group| Plan { rack: "nas8".into(), json: true, svg: Some(path.clone()), awake: Some(group) };
        plan(&waking(1)).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for words in
            ["no drive spins, all drives draw 6 W", "A read wakes group 1", "4 drives spin, all drives draw 29 W"]
        {
            assert!(svg.contains(words), "{svg}");
        }
        assert_eq!(plan(&waking(2)).unwrap_err().to_string(), "nas8 has no group 2: its groups are 0 to 1");
        let nowhere = root.path().join("none/rack.svg");
        let message =
            plan(&Plan { rack: "nas8".into(), json: true, svg: Some(nowhere), awake: None }).unwrap_err().to_string();
        assert!(message.ends_with("give --svg a file in a directory of yours"), "{message}");
    }

    #[test]
    fn an_error_in_a_description_has_its_place() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r.toml");
        std::fs::write(&path, "name = \"x\"\ngroup_drives = \"y\"\n").unwrap();
        let options = Plan { rack: path.to_str().unwrap().into(), json: false, svg: None, awake: None };
        let message = plan(&options).unwrap_err().to_string();
        assert!(message.contains("r.toml:"), "{message}");
    }
}
