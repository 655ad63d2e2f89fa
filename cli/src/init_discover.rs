//! `larder init --discover`: a rack of the disks of this machine.
//!
//! 1. The disks are surveyed, as `larder drive discover` does. Disks that cannot be used are left out, and so are disks
//!    that hold anything and are not named with `--wipe`.
//! 2. The operator sets the power limit: a number of disks that may spin, or watts. The properties of a drive are
//!    estimated.
//! 3. Group size and code follow from the limit: of the groups with redundancy that the limit carries, those that leave
//!    the most room for data, and of these the largest. If there are no such groups, groups of one disk.
//! 4. The rack, its plan and the disks to be wiped are shown. Nothing is written before the operator confirms that.

use crate::args::{CodeWish, Init};
use crate::human::{bytes, counted, table};
use crate::{output, plan};
use anyhow::{Context, bail};
use disk::discover::{Disk, Excused, Tree, find, survey, system_transports};
use engine::layout::{Layout, synthesise};
use model::{
    Code, Distribution, DomainId, DomainLimit, DriveId, DrivePower, DriveProfile, DriveSpec, FailureDomains, HeavyLoad,
    RackDraft, RackSpec, RateSpread, Resource, Watts,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

/// The largest group that is chosen without a request for it.
const GROUP_MAX: usize = 12;
/// The part of a disk that its file system takes, in percent, and the minimum.
const FILE_SYSTEM_PERCENT: u64 = 3;
const FILE_SYSTEM_MIN_BYTES: u64 = 128_000_000;
const FRAGMENT_BYTES: u32 = 128 << 10;
/// The size of packs, and the minimum number of packs for which a drive has room.
const PACK_BYTES: u64 = 200_000_000;
const PACKS_ON_DRIVE_MIN: u64 = 50;

/// The limit that the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Maximum number of disks that spin at once.
    Spinning(u32),
    /// Maximum power draw of all disks together, in watts.
    Watts(u32),
}

/// A disk that is left out, and the reason.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    disk: String,
    reason: String,
}

/// A rack of found disks.
#[derive(Debug)]
struct Proposal {
    spec: RackSpec,
    /// Its description.
    text: String,
    layout: Layout,
    left_out: Vec<LeftOut>,
}

/// The rack of the disks of this machine, as a description, after the operator has seen and confirmed it.
///
/// # Errors
/// If no rack can be made, or it is not confirmed; nothing is written then.
pub fn description(options: &Init) -> anyhow::Result<String> {
    let tree = Tree::below("/");
    let disks = survey(&tree, &system_transports);
    let (chosen, left_out) = choose(&tree, &disks, &options.wipe)?;
    let limit = match (options.spinning, options.watts) {
        (Some(drives), _) => Limit::Spinning(drives),
        (_, Some(watts)) => Limit::Watts(watts),
        (None, None) => Limit::Spinning(asked_limit(chosen.len())?),
    };
    let proposal = propose(&chosen, left_out, limit, options.code)?;
    output::print(&shown(&chosen, &proposal)?)?;
    if !options.yes {
        confirm(&chosen)?;
    }
    Ok(proposal.text)
}

/// The disks that may become drives, by enclosure and slot, and those that are left out.
fn choose<'a>(tree: &Tree, disks: &'a [Disk], wipe: &[String]) -> anyhow::Result<(Vec<&'a Disk>, Vec<LeftOut>)> {
    let mut wiped = Vec::new();
    for named in wipe {
        let disk = find(tree, disks, named).map_err(|error| anyhow::anyhow!("--wipe {named}: {error}"))?;
        if let Some(reason) = obstacle(disk, true) {
            bail!("--wipe {named}: {} cannot be used: {reason}", disk.name);
        }
        wiped.push(&disk.name);
    }
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    for disk in disks {
        match obstacle(disk, wiped.contains(&&disk.name)) {
            None => chosen.push(disk),
            Some(reason) => left_out.push(LeftOut { disk: disk.name.clone(), reason }),
        }
    }
    if chosen.is_empty() {
        let reasons: Vec<String> = left_out.iter().map(|one| format!("{}: {}", one.disk, one.reason)).collect();
        bail!("no disk can be used for a rack\n{}", reasons.join("\n"));
    }
    chosen.sort_by_key(|disk| place(disk));
    Ok((chosen, left_out))
}

/// Enclosure and slot, by slot number where there is one, then the name.
fn place(disk: &Disk) -> (Option<(String, u32, String)>, String) {
    let slot = disk.slot.as_ref();
    let slot = slot.map(|at| (at.enclosure.clone(), at.slot.parse().unwrap_or(u32::MAX), at.slot.clone()));
    (slot, disk.name.clone())
}

/// The reason why a disk cannot be a drive of the rack, if any.
fn obstacle(disk: &Disk, wiped: bool) -> Option<String> {
    let link = disk.by_id.as_ref().map_or(disk.name.clone(), |id| id.display().to_string());
    let objections = disk.objections(&link, Excused { wiped, volume: None });
    if let Some(first) = objections.into_iter().next() {
        return Some(first);
    }
    let reason = match disk {
        Disk { rotational: false, .. } if !wiped => {
            "it has no platters that could stop; if that is wrong, name it with --wipe"
        }
        Disk { by_id: None, .. } => {
            "it has no link in /dev/disk/by-id, so it could not be found again; check that udev runs"
        }
        _ if capacity_bytes(disk) == 0 => "it is too small",
        _ => return None,
    };
    Some(reason.to_owned())
}

/// The capacity that a file system leaves on a disk, in whole megabytes.
fn capacity_bytes(disk: &Disk) -> u64 {
    let taken = (disk.size_bytes / 100 * FILE_SYSTEM_PERCENT).max(FILE_SYSTEM_MIN_BYTES);
    disk.size_bytes.saturating_sub(taken) / 1_000_000 * 1_000_000
}

/// The rack of these disks under this limit.
fn propose(disks: &[&Disk], left_out: Vec<LeftOut>, limit: Limit, code: Option<CodeWish>) -> anyhow::Result<Proposal> {
    let stacks = code.map_or(2, |code| usize::from(code.data) + usize::from(code.parity));
    let largest = disks.len().min(GROUP_MAX.max(stacks + 1));
    let mut refusal =
        format!("a group needs at least {}, and there are {}", counted(stacks as u64, "drive"), disks.len());
    let mut best: Option<(RackSpec, Layout)> = None;
    // If the limit carries nothing else, and no code was requested, each disk is a group.
    let alone = code.is_none().then_some(1);
    for group in (stacks..=largest).rev().chain(alone) {
        let spec = rack(disks, limit, group, code_of(group, code))?;
        match synthesise(&spec) {
            Ok(_) if group == 1 && best.is_some() => {}
            Ok(layout)
                if best.as_ref().is_none_or(|best| data_bytes(&spec, &layout) > data_bytes(&best.0, &best.1)) =>
            {
                best = Some((spec, layout));
            }
            Ok(_) => {}
            Err(error) => refusal = error.to_string(),
        }
    }
    let Some((spec, layout)) = best else { bail!("these disks cannot form a rack: {refusal}") };
    let note = |drive: DriveId| {
        let disk = disks[drive.index()];
        let place = disk.slot.as_ref().map(|at| format!(", enclosure {}, slot {}", at.enclosure, at.slot));
        let serial = disk.serial.as_deref().unwrap_or("none");
        Some(format!("{}, serial number {serial}{}", disk.model, place.unwrap_or_default()))
    };
    let text = format!("{HEAD}{}", model::text::write(&spec, note));
    Ok(Proposal { spec, text, layout, left_out })
}

const HEAD: &str = "# Made by `larder init --discover`. Speed, power and rated starts in [drive] are estimated, not \
                    measured.\n\n";

/// The capacity of a rack for data.
fn data_bytes(spec: &RackSpec, layout: &Layout) -> u64 {
    let grouped = layout.groups.iter().flat_map(|group| &group.drives);
    let bytes: u64 = grouped.map(|drive| spec.capacity_bytes(*drive)).sum();
    bytes / spec.code.stacks() as u64 * u64::from(spec.code.data)
}

/// The code for groups of this size: in groups of three or more drives, one drive is left to rebuild upon.
fn code_of(group: usize, wish: Option<CodeWish>) -> Code {
    let stacks = if group > 2 { group - 1 } else { group };
    let parity = match stacks {
        0..=1 => 0,
        2..=5 => 1,
        _ => 2,
    };
    let chosen = CodeWish { data: (stacks - parity) as u8, parity: parity as u8 };
    let CodeWish { data, parity } = wish.unwrap_or(chosen);
    Code { data, parity, fragment_bytes: FRAGMENT_BYTES }
}

/// The rack of these disks, in groups of this size.
fn rack(disks: &[&Disk], limit: Limit, group: usize, code: Code) -> anyhow::Result<RackSpec> {
    let enclosures = enclosures(disks);
    let smallest_bytes = disks.iter().map(|disk| capacity_bytes(disk)).min().unwrap_or(0);
    let mut in_enclosure: BTreeMap<usize, u16> = BTreeMap::new();
    let mut drive = |(index, disk): (usize, &&Disk)| {
        let enclosure = enclosures.of[index];
        let position = in_enclosure.entry(enclosure).or_insert(0);
        *position += 1;
        let capacity_bytes = capacity_bytes(disk);
        let shared = enclosures.are_several().then_some(DomainId(enclosure as u32));
        DriveSpec {
            id: DriveId(index as u32),
            slot: [enclosure as u16, 0, *position - 1],
            resource_domains: vec![DomainId(0)],
            failure_domains: [DomainId(index as u32)].into_iter().chain(shared).collect(),
            capacity_bytes: (capacity_bytes != smallest_bytes).then_some(capacity_bytes),
            bytes_per_s: None,
            path: disk.by_id.as_ref().map(|id| id.display().to_string()),
            power: DrivePower::Own,
        }
    };
    let limit = match limit {
        Limit::Spinning(drives) => DomainLimit::ActiveDrives(drives),
        Limit::Watts(watts) => DomainLimit::Watts(watts),
    };
    let kind = |name: &str, loses_media| FailureDomains { name: name.to_owned(), loses_media };
    // The drives of an enclosure that fails can be put into another one.
    let shared = enclosures.are_several().then(|| kind("enclosure", false));
    let draft = RackDraft {
        name: "cupboard".to_owned(),
        code,
        group_drives: group as u32,
        pack_bytes: PACK_BYTES.min(smallest_bytes / PACKS_ON_DRIVE_MIN).max(1),
        resources: vec![Resource { name: "power".to_owned(), limit, hard: true }],
        failure_domains: [kind("drive", true)].into_iter().chain(shared).collect(),
        drives: disks.iter().enumerate().map(&mut drive).collect(),
        pool: Vec::new(),
        profile: profile(smallest_bytes),
    };
    RackSpec::validated(draft).map_err(|error| anyhow::anyhow!("these disks cannot form a rack: {error}"))
}

/// A typical 3.5-inch disk. `larder drive power ... test` shows how long one takes to start and to stop.
fn profile(capacity_bytes: u64) -> DriveProfile {
    let ms = Duration::from_millis;
    let between = |min, max, draws| Distribution { min: ms(min), max: ms(max), draws, stragglers: None };
    DriveProfile {
        capacity_bytes,
        bytes_per_s: 200_000_000,
        rate_spread: RateSpread::default(),
        seek: Duration::from_micros(8_500),
        spin_up: between(10_000, 25_000, 4),
        mount: between(500, 1_500, 4),
        mount_busy: between(1_000, 3_000, 4),
        heavy_load: HeavyLoad::StreamOnServer,
        unmount: between(100, 500, 2),
        spin_down: between(500, 2_000, 2),
        watts: Watts { standby_mw: 1_000, spin_up_mw: 25_000, active_mw: 8_000 },
        rated_starts: 50_000,
        life_years: 5,
    }
}

/// The enclosure number of each disk; disks in no enclosure share one.
struct EnclosureNumbers {
    of: Vec<usize>,
}

impl EnclosureNumbers {
    fn are_several(&self) -> bool {
        self.of.iter().any(|enclosure| *enclosure != self.of[0])
    }
}

fn enclosures(disks: &[&Disk]) -> EnclosureNumbers {
    let name = |disk: &&Disk| disk.slot.as_ref().map(|at| at.enclosure.clone());
    let mut names: Vec<_> = disks.iter().map(name).collect();
    names.sort_unstable();
    names.dedup();
    let number = |disk: &&Disk| names.iter().position(|other| *other == name(disk)).unwrap_or(0);
    EnclosureNumbers { of: disks.iter().map(number).collect() }
}

/// The rack that is to be made, and the disks that are left out.
fn shown(disks: &[&Disk], proposal: &Proposal) -> anyhow::Result<String> {
    let row = |(drive, disk): (&DriveSpec, &&Disk)| {
        let place = disk.slot.as_ref().map(|at| format!("{}/{}", at.enclosure, at.slot));
        let held = if disk.refusals.is_empty() { "nothing" } else { "wiped" };
        vec![
            drive.id.0.to_string(),
            disk.name.clone(),
            disk.model.clone(),
            disk.serial.clone().unwrap_or_else(|| "-".to_owned()),
            bytes(disk.size_bytes),
            place.unwrap_or_else(|| "-".to_owned()),
            held.to_owned(),
        ]
    };
    let head = ["drive", "disk", "model", "serial", "size", "enclosure/slot", "holds"];
    let mut text = table(&head, &["drive", "size"], proposal.spec.drives.iter().zip(disks).map(row));
    for LeftOut { disk, reason } in &proposal.left_out {
        let _ = writeln!(text, "{disk} is left out: {reason}");
    }
    text.push('\n');
    text.push_str(&plan::described_by(&proposal.spec, &proposal.layout)?);
    Ok(text)
}

/// The number of disks that may spin, as the operator answers.
fn asked_limit(disks: usize) -> anyhow::Result<u32> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "the number of disks that may spin at once is missing; give --spinning N or --watts W. Nothing was written"
        );
    }
    output::print(&format!("How many of {} may spin at once? ", counted(disks as u64, "disk")))?;
    let answer = line()?;
    answer.parse().with_context(|| format!("{answer:?} is not a number of disks. Nothing was written"))
}

/// Asks the operator to confirm that everything on the disks may be lost.
fn confirm(disks: &[&Disk]) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("the rack needs to be confirmed; give --yes. Nothing was written");
    }
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    output::print(&format!("\nEverything on {} will be lost. Create the rack? Type yes: ", names.join(", ")))?;
    if line()? != "yes" {
        bail!("nothing was written");
    }
    Ok(())
}

fn line() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the answer")?;
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::discover::{Bus, Contents, Protocol, Refusal, Slot};
    use disk::power::PowerMode;

    fn disk(index: usize, slot: Option<(&str, &str)>) -> Disk {
        let name = format!("sd{}", (b'a' + index as u8) as char);
        Disk {
            path: format!("/dev/{name}").into(),
            by_id: Some(format!("/dev/disk/by-id/ata-TEST_{index:02}").into()),
            model: "TEST 12T".into(),
            serial: Some(format!("{index:02}")),
            wwn: None,
            size_bytes: 12_000_138_625_024,
            bus: Bus::Ata,
            slot: slot.map(|(enclosure, slot)| Slot { enclosure: enclosure.into(), slot: slot.into() }),
            rotational: true,
            rotation_rpm: None,
            power_up_in_standby: None,
            allow_restart: None,
            protocol: Protocol::Ata,
            mode: Some(PowerMode::Active),
            partitions: vec![],
            contents: Contents::Nothing,
            counters: None,
            refusals: vec![],
            name,
        }
    }

    fn disks(count: usize) -> Vec<Disk> {
        (0..count).map(|index| disk(index, None)).collect()
    }

    fn proposed(disks: &[Disk], limit: Limit, code: Option<CodeWish>) -> anyhow::Result<Proposal> {
        let (chosen, left_out) = choose(&Tree::below("/nowhere"), disks, &[])?;
        let proposal = propose(&chosen, left_out, limit, code)?;
        let back = model::text::parse(&proposal.text, "rack.toml")?;
        assert_eq!(back, proposal.spec, "what is written is read back as the same rack");
        Ok(proposal)
    }

    /// Group size, k, r, groups and spares.
    fn shape(proposal: &Proposal) -> (u32, u8, u8, usize, usize) {
        let Proposal { spec, layout, .. } = proposal;
        (spec.group_drives, spec.code.data, spec.code.parity, layout.groups.len(), layout.spares.len())
    }

    #[test]
    fn group_size_and_code_follow_from_what_may_spin() {
        let of = |count, spinning| shape(&proposed(&disks(count), Limit::Spinning(spinning), None).unwrap());
        assert_eq!(of(8, 4), (4, 2, 1, 2, 0));
        assert_eq!(of(7, 4), (3, 1, 1, 2, 1));
        assert_eq!(of(4, 2), (2, 1, 1, 2, 0));
        assert_eq!(of(24, 24), (12, 9, 2, 2, 0));
        assert_eq!(of(1, 1), (1, 1, 0, 1, 0));
    }

    #[test]
    fn watts_carry_a_group_with_all_others_asleep() {
        let of = |watts| proposed(&disks(8), Limit::Watts(watts), None).map(|proposal| shape(&proposal));
        assert_eq!(of(104).unwrap(), (4, 2, 1, 2, 0), "four starting, four asleep");
        assert_eq!(of(56).unwrap(), (2, 1, 1, 4, 0), "two starting, six asleep");
        let message = of(7).unwrap_err().to_string();
        assert!(message.contains("8 sleeping drives of a domain draw 8 W, which is above 7 W"), "{message}");
    }

    #[test]
    fn a_code_that_is_asked_for_is_taken_or_said_not_to_fit() {
        let code = Some(CodeWish { data: 2, parity: 2 });
        assert_eq!(shape(&proposed(&disks(8), Limit::Spinning(5), code).unwrap()), (4, 2, 2, 2, 0));
        let message = proposed(&disks(8), Limit::Spinning(3), code).unwrap_err().to_string();
        assert!(message.contains("`power` lets 3 drives be awake at once, and a group has 4"), "{message}");
        let message = proposed(&disks(3), Limit::Spinning(3), code).unwrap_err().to_string();
        assert!(message.contains("a group needs at least 4 drives, and there are 3"), "{message}");
    }

    #[test]
    fn drives_are_in_the_order_of_enclosures_and_slots() {
        let places = [("b", "10"), ("b", "2"), ("a", "1"), ("a", "0")];
        let disks: Vec<Disk> = places.iter().enumerate().map(|(index, place)| disk(index, Some(*place))).collect();
        let Proposal { spec, text, .. } = proposed(&disks, Limit::Spinning(2), None).unwrap();
        let paths: Vec<&str> = spec.drives.iter().map(|drive| drive.path.as_deref().unwrap()).collect();
        assert_eq!(paths, [3, 2, 1, 0].map(|index| format!("/dev/disk/by-id/ata-TEST_0{index}")));
        let slots: Vec<[u16; 3]> = spec.drives.iter().map(|drive| drive.slot).collect();
        assert_eq!(slots, [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]);
        let kinds: Vec<_> = spec.failure_domains.iter().map(|kind| (kind.name.as_str(), kind.loses_media)).collect();
        assert_eq!(kinds, [("drive", true), ("enclosure", false)]);
        assert!(text.contains("# TEST 12T, serial number 03, enclosure a, slot 0\n[[drives]]"), "{text}");
    }

    #[test]
    fn what_holds_anything_is_left_out_unless_it_is_named() {
        let mut disks = disks(4);
        disks[1].refusals = vec![Refusal::Holds("a file system (ext4)".into())];
        disks[2].mode = None;
        disks[3].size_bytes = 100_000_000;
        let tree = Tree::below("/nowhere");
        let (chosen, left_out) = choose(&tree, &disks, &[]).unwrap();
        assert_eq!(chosen.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["sda"]);
        let reasons: Vec<&str> = left_out.iter().map(|one| one.reason.as_str()).collect();
        assert!(reasons[0].ends_with("Or give `--wipe /dev/disk/by-id/ata-TEST_01`: everything on it is lost then"));
        assert!(reasons[1].starts_with("it has no power mode, so it never sleeps; "), "{reasons:?}");
        assert_eq!(reasons[2..], ["it is too small"]);
        let (chosen, _) = choose(&tree, &disks, &["sdb".into()]).unwrap();
        let proposal = propose(&chosen, left_out, Limit::Spinning(2), None).unwrap();
        let text = shown(&chosen, &proposal).unwrap();
        for line in ["sdb   TEST 12T", "wiped", "sdc is left out: it has no power mode", "survives", "capacity"] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        let message = choose(&tree, &disks, &["sdc".into()]).unwrap_err().to_string();
        assert!(message.starts_with("--wipe sdc: sdc cannot be used: it has no power mode"), "{message}");
        let message = choose(&tree, &disks[2..], &[]).unwrap_err().to_string();
        assert!(message.starts_with("no disk can be used for a rack\nsdc: it has no power mode"), "{message}");
    }

    #[test]
    fn disks_of_several_sizes_keep_their_own() {
        let mut disks = disks(2);
        disks[1].size_bytes = 335_544_320;
        let Proposal { spec, .. } = proposed(&disks, Limit::Spinning(2), None).unwrap();
        assert_eq!((spec.profile.capacity_bytes, spec.drives[1].capacity_bytes), (207_000_000, None));
        assert_eq!(spec.drives[0].capacity_bytes, Some(11_640_134_000_000));
    }
}
