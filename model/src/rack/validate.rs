//! Checks a draft against the invariants of a [`RackSpec`](super::RackSpec).
//!
//! Each check states one invariant; the first that fails is reported, with its key and what to write instead. Counts
//! and spans are bounded so that later arithmetic cannot overflow, such as a `u64` sum over drives or a product of
//! days.

use super::draft::{Code, Distribution, DomainLimit, DriveProfile, RackDraft, SpecError, Watts};
use crate::id::{DomainId, DriveId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::time::Duration;

/// The most drives of a rack, which bounds the memory that a description by rule can ask for.
pub(crate) const DRIVES_MAX: usize = 1 << 20;
/// The longest span of a drive's profile. A longer one is a mistyped unit.
const SPAN_MAX: Duration = Duration::from_hours(24);
const CAPACITY_MAX_BYTES: u64 = 1_000_000_000_000_000;
const FRAGMENT_MAX_BYTES: u32 = 64 << 20;
const PACK_MAX_BYTES: u64 = 1_000_000_000_000;
const BLOCK_BYTES: u32 = 4096;

type Checked = Result<(), SpecError>;

fn refuse(key: impl Into<String>, message: impl Into<String>) -> Checked {
    Err(SpecError { key: key.into(), message: message.into() })
}

/// Checks every invariant of a rack.
pub(super) fn check(draft: &RackDraft) -> Checked {
    check_name("name", &draft.name)?;
    check_code(draft.code)?;
    check_sizes(draft)?;
    check_profile(&draft.profile)?;
    check_names(draft)?;
    check_drives(draft)?;
    check_domains(draft)?;
    check_resources(draft)
}

/// Names go into paths, labels and metrics, so they are kept plain.
fn check_name(key: &str, name: &str) -> Checked {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(plain) || name.starts_with('.') {
        let shown: String = name.chars().take(20).collect();
        return refuse(
            key,
            format!(
                "{shown:?} cannot be a name; write 1 to 63 letters, digits, `-`, `_` or `.`, not beginning with `.`, \
                 such as \"cold-1\""
            ),
        );
    }
    Ok(())
}

fn check_code(code: Code) -> Checked {
    if code.data == 0 {
        return refuse("code.k", "a stripe needs at least one data fragment; write k = 1 or more, such as k = 15");
    }
    if code.stacks() > 255 {
        let most = 255 - code.data;
        return refuse(
            "code.r",
            format!("k + r is {}, and the code has room for 255; write r = {most} or less", code.stacks()),
        );
    }
    let bytes = code.fragment_bytes;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) || bytes > FRAGMENT_MAX_BYTES {
        let near = (bytes / BLOCK_BYTES).clamp(1, FRAGMENT_MAX_BYTES / BLOCK_BYTES) * 4;
        return refuse(
            "code.fragment",
            format!(
                "a fragment of {bytes} bytes is not a whole number of 4 KiB blocks from 4 KiB to 64 MiB; write \
                 fragment = \"{near} KiB\", or \"128 KiB\" as the paper does"
            ),
        );
    }
    Ok(())
}

fn check_sizes(draft: &RackDraft) -> Checked {
    let stacks = draft.code.stacks();
    if (draft.group_drives as usize) < stacks {
        return refuse(
            "group_drives",
            format!(
                "a group of {} cannot hold a blob, which lies on k + r = {stacks} drives; write group_drives = {} or \
                 more, so that a failed drive can be rebuilt inside its group",
                draft.group_drives,
                stacks + 1
            ),
        );
    }
    if draft.group_drives as usize > DRIVES_MAX {
        return refuse("group_drives", format!("no rack has so many drives; write {DRIVES_MAX} or less"));
    }
    if draft.pack_bytes == 0 || draft.pack_bytes > PACK_MAX_BYTES {
        return refuse(
            "pack",
            "a pack is above 0 and at most 1 TB; write pack = \"1 GB\", or \"200 MB\" at least on a real rack",
        );
    }
    Ok(())
}

fn check_profile(profile: &DriveProfile) -> Checked {
    check_capacity("drive.capacity", profile.capacity_bytes)?;
    if profile.bytes_per_s == 0 {
        return refuse("drive.bytes_per_s", "a drive that moves no bytes is of no use; write such as \"105 MB/s\"");
    }
    if profile.seek > SPAN_MAX {
        return refuse("drive.seek", "a seek longer than a day is a mistyped unit; write such as \"4.2 ms\"");
    }
    check_distribution("drive.spin_up", &profile.spin_up)?;
    check_distribution("drive.mount", &profile.mount)?;
    check_distribution("drive.mount_busy", &profile.mount_busy)?;
    check_distribution("drive.unmount", &profile.unmount)?;
    check_distribution("drive.spin_down", &profile.spin_down)?;
    check_watts(profile.watts)?;
    if profile.rated_starts == 0 {
        return refuse("drive.rated_starts", "a drive that may never start cannot be read; write such as 30000");
    }
    if profile.life_years == 0 || profile.life_years > 100 {
        return refuse(
            "drive.life_years",
            format!("a life of {} years gives no daily budget; write 1 to 100, such as 8", profile.life_years),
        );
    }
    Ok(())
}

fn check_capacity(key: &str, bytes: u64) -> Checked {
    if bytes == 0 || bytes > CAPACITY_MAX_BYTES {
        return refuse(
            key,
            format!("{bytes} bytes is no drive's capacity; write above 0 and at most 1 PB, such as \"4.55 TB\""),
        );
    }
    Ok(())
}

fn check_distribution(key: &str, span: &Distribution) -> Checked {
    if span.min > span.max {
        return refuse(key, format!("min {:?} is above max {:?}; write the shorter one as min", span.min, span.max));
    }
    if span.max > SPAN_MAX {
        return refuse(key, "longer than a day is a mistyped unit; write such as \"10 s\" or \"800 ms\"");
    }
    if !(1..=16).contains(&span.draws) {
        return refuse(
            key,
            format!(
                "{} draws cannot be averaged; write draws = 1 (uniform) to 16, such as 4 (bell-shaped)",
                span.draws
            ),
        );
    }
    Ok(())
}

fn check_watts(watts: Watts) -> Checked {
    if watts.standby_mw > watts.active_mw || watts.standby_mw > watts.spin_up_mw {
        return refuse(
            "drive.watts",
            "a drive in standby draws more than one that spins; write standby as the smallest, such as \
             { standby = 1.56, spin_up = 21.53, active = 9.42 }",
        );
    }
    Ok(())
}

fn check_names(draft: &RackDraft) -> Checked {
    let resources = draft.resources.iter().map(|r| ("resources", &r.name));
    let kinds = draft.failure_domains.iter().map(|f| ("failure_domains", &f.name));
    let mut seen = BTreeSet::new();
    for (table, name) in resources.chain(kinds) {
        let key = format!("{table}.{name}");
        check_name(&key, name)?;
        if !seen.insert((table, name)) {
            return refuse(key, format!("{name:?} is there twice; give the second another name"));
        }
    }
    Ok(())
}

fn check_drives(draft: &RackDraft) -> Checked {
    if draft.drives.is_empty() || draft.drives.len() > DRIVES_MAX {
        return refuse(
            "drives",
            format!(
                "a rack has 1 to {DRIVES_MAX} drives, this one {}; mend the geometry or list them",
                draft.drives.len()
            ),
        );
    }
    let mut slots = BTreeMap::new();
    let mut paths = BTreeMap::new();
    for (index, drive) in draft.drives.iter().enumerate() {
        if drive.id != DriveId(index as u32) {
            return refuse(format!("drives[{index}]"), format!("its id is {}; number drives 0, 1, 2, ...", drive.id));
        }
        if let Some(other) = slots.insert(drive.slot, index) {
            let [w, d, h] = drive.slot;
            return refuse(
                format!("drives[{index}].slot"),
                format!("slot [{w}, {d}, {h}] is that of drive {other} already; give each drive a slot of its own"),
            );
        }
        if let Some(path) = &drive.path {
            check_path(index, path, &mut paths)?;
        }
        if let Some(bytes) = drive.capacity_bytes {
            check_capacity(&format!("drives[{index}].capacity"), bytes)?;
        }
    }
    check_total(draft)
}

fn check_path<'a>(index: usize, path: &'a str, seen: &mut BTreeMap<&'a str, usize>) -> Checked {
    let key = || format!("drives[{index}].path");
    if path.is_empty() {
        return refuse(key(), "an empty path leads nowhere; write a directory or device, or leave the key out");
    }
    if let Some(other) = seen.insert(path, index) {
        return refuse(key(), format!("{path:?} is that of drive {other} already; give each drive a path of its own"));
    }
    Ok(())
}

/// Sums over drives are kept in `u64`.
fn check_total(draft: &RackDraft) -> Checked {
    let each = draft.profile.capacity_bytes;
    let total: u128 = draft.drives.iter().map(|d| u128::from(d.capacity_bytes.unwrap_or(each))).sum();
    if total >= 1 << 63 {
        return refuse("drive.capacity", "the drives hold 9.2 EB or more together; write a smaller capacity");
    }
    Ok(())
}

/// Every drive in one domain of each kind; domains 0, 1, 2, ... without a gap.
fn check_domains(draft: &RackDraft) -> Checked {
    let (resources, kinds) = (draft.resources.len(), draft.failure_domains.len());
    for drive in &draft.drives {
        let key = |what: &str| format!("drives[{}].{what}", drive.id.index());
        if drive.resource_domains.len() != resources {
            let message = format!(
                "names {} domains; name one for each of the {resources} resources",
                drive.resource_domains.len()
            );
            return refuse(key("domains"), message);
        }
        if drive.failure_domains.len() != kinds {
            let message =
                format!("names {} domains; name one for each of the {kinds} kinds", drive.failure_domains.len());
            return refuse(key("fails_with"), message);
        }
    }
    for (column, resource) in draft.resources.iter().enumerate() {
        let domains = draft.drives.iter().map(|d| d.resource_domains[column]);
        check_dense(&format!("resources.{}", resource.name), domains)?;
    }
    for (column, kind) in draft.failure_domains.iter().enumerate() {
        let domains = draft.drives.iter().map(|d| d.failure_domains[column]);
        check_dense(&format!("failure_domains.{}", kind.name), domains)?;
    }
    Ok(())
}

fn check_dense(key: &str, domains: impl Iterator<Item = DomainId>) -> Checked {
    let used: BTreeSet<DomainId> = domains.collect();
    let gap = used.iter().enumerate().find(|(expected, domain)| domain.index() != *expected);
    match gap {
        Some((expected, _)) => refuse(
            key,
            format!("no drive is in its domain {expected}, yet one is in a later one; number domains 0, 1, 2, ..."),
        ),
        None => Ok(()),
    }
}

fn check_resources(draft: &RackDraft) -> Checked {
    for (column, resource) in draft.resources.iter().enumerate() {
        let key = |limit: &str| format!("resources.{}.{limit}", resource.name);
        match resource.limit {
            DomainLimit::ActiveDrives(0) => {
                return refuse(key("active_drives"), "no drive could ever spin; write active_drives = 1 or more");
            }
            DomainLimit::StartingDrives(0) => {
                return refuse(key("starting_drives"), "no drive could ever start; write starting_drives = 1 or more");
            }
            DomainLimit::BytesPerS(0) => {
                return refuse(
                    key("bytes_per_s"),
                    "a link that moves no bytes is of no use; write such as \"64 Gb/s\"",
                );
            }
            DomainLimit::BytesPerS(_) if resource.hard => {
                let message =
                    "a link that is full only slows its drives down, so it cannot be hard; write hard = false";
                return refuse(key("hard"), message);
            }
            DomainLimit::Watts(watts) if resource.hard => check_standby(draft, column, watts, &key("watts"))?,
            _ => {}
        }
    }
    Ok(())
}

/// A domain must at least carry its drives while all of them sleep.
fn check_standby(draft: &RackDraft, column: usize, watts: u32, key: &str) -> Checked {
    let mut sizes = vec![0_u64; draft.drives.len()];
    for drive in &draft.drives {
        sizes[drive.resource_domains[column].index()] += 1;
    }
    let most = sizes.iter().copied().max().unwrap_or(0);
    let asleep_mw = most * u64::from(draft.profile.watts.standby_mw);
    if asleep_mw > u64::from(watts) * 1000 {
        return refuse(
            key,
            format!(
                "{most} sleeping drives of a domain draw {} W, which is above {watts} W; write a higher limit or \
                 smaller domains",
                milliwatts(asleep_mw)
            ),
        );
    }
    Ok(())
}

fn milliwatts(mw: u64) -> String {
    let text = format!("{}.{:03}", mw / 1000, mw % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rack::{DriveSpec, FailureDomains, RackSpec, Resource};

    fn draft() -> RackDraft {
        let span = Distribution::constant(Duration::from_secs(1));
        RackDraft {
            name: "box".into(),
            code: Code { data: 2, parity: 1, fragment_bytes: 4096 },
            group_drives: 4,
            pack_bytes: 1 << 20,
            resources: vec![Resource { name: "power".into(), limit: DomainLimit::ActiveDrives(4), hard: true }],
            failure_domains: vec![FailureDomains { name: "drive".into(), loses_media: true }],
            drives: (0..8)
                .map(|i| DriveSpec {
                    id: DriveId(i),
                    slot: [i as u16, 0, 0],
                    resource_domains: vec![DomainId(i / 4)],
                    failure_domains: vec![DomainId(i)],
                    capacity_bytes: None,
                    path: None,
                })
                .collect(),
            profile: DriveProfile {
                capacity_bytes: 1 << 40,
                bytes_per_s: 100_000_000,
                seek: Duration::from_millis(4),
                spin_up: span,
                mount: span,
                mount_busy: span,
                unmount: span,
                spin_down: span,
                watts: Watts { standby_mw: 1_500, spin_up_mw: 20_000, active_mw: 9_000 },
                rated_starts: 30_000,
                life_years: 8,
            },
        }
    }

    /// The key and message that `change` is refused with. Every message must say what to do.
    fn refused(change: impl FnOnce(&mut RackDraft)) -> (String, String) {
        let mut draft = draft();
        change(&mut draft);
        let error = RackSpec::validated(draft).unwrap_err();
        assert!(error.message.contains(';'), "no mend in: {error}");
        (error.key, error.message)
    }

    #[test]
    fn a_sound_draft_becomes_a_rack_and_survives_serde() {
        let spec = RackSpec::validated(draft()).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RackSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn serde_lets_no_unsound_rack_in() {
        let mut unsound = draft();
        unsound.code.data = 0;
        let text = serde_json::to_string(&unsound).unwrap();
        let error = serde_json::from_str::<RackSpec>(&text).unwrap_err();
        assert!(error.to_string().contains("write k = 1 or more"), "{error}");
    }

    #[test]
    fn names_are_plain() {
        for name in ["", "a b", "../x", ".hidden", "ü", &"x".repeat(64)] {
            assert_eq!(refused(|d| d.name = name.into()).0, "name");
        }
        assert_eq!(refused(|d| d.resources[0].name = "a/b".into()).0, "resources.a/b");
        assert_eq!(refused(|d| d.failure_domains[0].name = String::new()).0, "failure_domains.");
    }

    #[test]
    fn two_resources_of_one_name_are_refused() {
        let (key, message) = refused(|d| {
            d.resources.push(d.resources[0].clone());
            d.drives.iter_mut().for_each(|drive| drive.resource_domains.push(DomainId(0)));
        });
        assert_eq!(key, "resources.power");
        assert!(message.contains("twice"));
    }

    #[test]
    fn codes_that_make_no_stripe_are_refused() {
        assert_eq!(refused(|d| d.code.data = 0).0, "code.k");
        let (key, message) = refused(|d| (d.code.data, d.code.parity) = (200, 100));
        assert_eq!(key, "code.r");
        assert!(message.ends_with("write r = 55 or less"), "{message}");
        let (key, message) = refused(|d| d.code.fragment_bytes = 130_000);
        assert_eq!(key, "code.fragment");
        assert!(message.contains("\"124 KiB\""), "{message}");
        assert_eq!(refused(|d| d.code.fragment_bytes = 0).0, "code.fragment");
        assert_eq!(refused(|d| d.code.fragment_bytes = 128 << 20).0, "code.fragment");
    }

    #[test]
    fn groups_and_packs_of_impossible_size_are_refused() {
        let (key, message) = refused(|d| d.group_drives = 2);
        assert_eq!(key, "group_drives");
        assert!(message.contains("write group_drives = 4 or more"), "{message}");
        assert_eq!(refused(|d| d.group_drives = u32::MAX).0, "group_drives");
        assert_eq!(refused(|d| d.pack_bytes = 0).0, "pack");
        assert_eq!(refused(|d| d.pack_bytes = u64::MAX).0, "pack");
    }

    #[test]
    fn profiles_of_no_real_drive_are_refused() {
        assert_eq!(refused(|d| d.profile.capacity_bytes = 0).0, "drive.capacity");
        assert_eq!(refused(|d| d.profile.capacity_bytes = u64::MAX).0, "drive.capacity");
        assert_eq!(refused(|d| d.profile.bytes_per_s = 0).0, "drive.bytes_per_s");
        assert_eq!(refused(|d| d.profile.seek = Duration::MAX).0, "drive.seek");
        assert_eq!(refused(|d| d.profile.spin_up.min = Duration::from_secs(2)).0, "drive.spin_up");
        assert_eq!(refused(|d| d.profile.mount.max = Duration::MAX).0, "drive.mount");
        assert_eq!(refused(|d| d.profile.mount_busy.draws = 0).0, "drive.mount_busy");
        assert_eq!(refused(|d| d.profile.unmount.draws = 17).0, "drive.unmount");
        assert_eq!(refused(|d| d.profile.spin_down.draws = 0).0, "drive.spin_down");
        assert_eq!(refused(|d| d.profile.watts.standby_mw = 10_000).0, "drive.watts");
        assert_eq!(refused(|d| d.profile.rated_starts = 0).0, "drive.rated_starts");
        assert_eq!(refused(|d| d.profile.life_years = 0).0, "drive.life_years");
        assert_eq!(refused(|d| d.profile.life_years = 101).0, "drive.life_years");
    }

    #[test]
    fn drives_that_cannot_be_told_apart_are_refused() {
        assert_eq!(refused(|d| d.drives.clear()).0, "drives");
        assert_eq!(refused(|d| d.drives[3].id = DriveId(7)).0, "drives[3]");
        let (key, message) = refused(|d| d.drives[5].slot = [1, 0, 0]);
        assert_eq!(key, "drives[5].slot");
        assert!(message.contains("that of drive 1"), "{message}");
        let same = |d: &mut RackDraft| {
            d.drives[1].path = Some("/dev/sda".into());
            d.drives[2].path = Some("/dev/sda".into());
        };
        assert_eq!(refused(same).0, "drives[2].path");
        assert_eq!(refused(|d| d.drives[1].path = Some(String::new())).0, "drives[1].path");
        assert_eq!(refused(|d| d.drives[1].capacity_bytes = Some(0)).0, "drives[1].capacity");
    }

    #[test]
    fn more_bytes_than_sums_can_hold_are_refused() {
        let drives = |d: &mut RackDraft| {
            let one = d.drives[0].clone();
            d.profile.capacity_bytes = CAPACITY_MAX_BYTES;
            d.drives =
                (0..10_000).map(|i| DriveSpec { id: DriveId(i), slot: [i as u16, 0, 0], ..one.clone() }).collect();
        };
        assert_eq!(refused(drives).0, "drive.capacity");
    }

    #[test]
    fn every_drive_is_in_one_domain_of_each_kind() {
        assert_eq!(refused(|d| d.drives[2].resource_domains.clear()).0, "drives[2].domains");
        assert_eq!(refused(|d| d.drives[2].failure_domains.push(DomainId(0))).0, "drives[2].fails_with");
        assert_eq!(refused(|d| d.drives[7].failure_domains[0] = DomainId(9)).0, "failure_domains.drive");
        let gap = |d: &mut RackDraft| d.drives.iter_mut().for_each(|drive| drive.resource_domains[0].0 += 1);
        assert_eq!(refused(gap).0, "resources.power");
    }

    #[test]
    fn limits_that_let_nothing_happen_are_refused() {
        let limit = |limit, hard| move |d: &mut RackDraft| (d.resources[0].limit, d.resources[0].hard) = (limit, hard);
        assert_eq!(refused(limit(DomainLimit::ActiveDrives(0), false)).0, "resources.power.active_drives");
        assert_eq!(refused(limit(DomainLimit::StartingDrives(0), true)).0, "resources.power.starting_drives");
        assert_eq!(refused(limit(DomainLimit::BytesPerS(0), false)).0, "resources.power.bytes_per_s");
        assert_eq!(refused(limit(DomainLimit::BytesPerS(1), true)).0, "resources.power.hard");
        let (key, message) = refused(limit(DomainLimit::Watts(5), true));
        assert_eq!(key, "resources.power.watts");
        assert!(message.contains("4 sleeping drives of a domain draw 6 W"), "{message}");
    }
}
