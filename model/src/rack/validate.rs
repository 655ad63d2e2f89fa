//! Checks a draft against the invariants of a [`RackSpec`](super::RackSpec).
//!
//! Each check states one invariant; the first that fails is reported, with its key and the text to write instead.
//! Counts and spans are bounded so that later arithmetic cannot overflow, for example a `u64` sum over drives or a
//! product of days.

use super::draft::{
    Code, Distribution, DomainLimit, DrivePower, DriveProfile, DriveSpec, PowerCommand, RackDraft, RateSpread,
    Resource, SpecError, Stragglers, Watts,
};
use crate::id::{DomainId, DriveId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;
use core::time::Duration;

/// The maximum number of drives of a rack, which bounds the memory that a description by rule can request.
pub(crate) const DRIVES_MAX: usize = 1 << 20;
/// The longest span of a drive's profile. A longer one is a mistyped unit.
const SPAN_MAX: Duration = Duration::from_hours(24);
const CAPACITY_MAX_BYTES: u64 = 1_000_000_000_000_000;
const FRAGMENT_MAX_BYTES: u32 = 64 << 20;
const PACK_MAX_BYTES: u64 = 1_000_000_000_000;
/// The maximum number of drives of a pool of small records that `intake` allows.
pub(crate) const POOL_DRIVES_MAX: usize = 64;
const BLOCK_BYTES: u32 = 4096;
/// The longest timeout of a command for a drive's power. The engine gives up on a drive that takes longer anyway.
pub(crate) const COMMAND_TIMEOUT_MAX: Duration = Duration::from_mins(2);

type Checked = Result<(), SpecError>;

fn refuse(key: impl Display, message: impl Display) -> Checked {
    Err(SpecError { key: key.to_string(), message: message.to_string() })
}

/// Succeeds if an invariant holds. `key` and `message` are formatted only if it does not.
fn require(holds: bool, key: impl Display, message: impl Display) -> Checked {
    if holds { Ok(()) } else { refuse(key, message) }
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
    draft.resources.iter().enumerate().try_for_each(|(column, resource)| check_resource(draft, column, resource))
}

/// Names go into paths, labels and metrics, so they must be plain.
fn check_name(key: &str, name: &str) -> Checked {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let shown: String = name.chars().take(20).collect();
    require(
        (1..=63).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.'),
        key,
        format_args!(
            "{shown:?} cannot be a name; write 1 to 63 letters, digits, `-`, `_` or `.`, not beginning with `.`, such \
             as \"cold-1\""
        ),
    )
}

fn check_code(code: Code) -> Checked {
    let at_least = "a stripe needs at least one data fragment; write k = 1 or more, such as k = 15";
    require(code.data > 0, "code.k", at_least)?;
    let (stacks, most) = (code.stacks(), 255 - code.data);
    let too_many = format_args!("k + r is {stacks}, and the code has room for 255; write r = {most} or less");
    require(stacks <= 255, "code.r", too_many)?;
    let bytes = code.fragment_bytes;
    let near = (bytes / BLOCK_BYTES).clamp(1, FRAGMENT_MAX_BYTES / BLOCK_BYTES) * 4;
    require(
        (1..=FRAGMENT_MAX_BYTES).contains(&bytes) && bytes.is_multiple_of(BLOCK_BYTES),
        "code.fragment",
        format_args!(
            "a fragment of {bytes} bytes is not a whole number of 4 KiB blocks from 4 KiB to 64 MiB; write fragment = \
             \"{near} KiB\", or \"128 KiB\" as the paper does"
        ),
    )
}

fn check_sizes(draft: &RackDraft) -> Checked {
    let (drives, stacks) = (draft.group_drives as usize, draft.code.stacks());
    require(
        drives >= stacks,
        "group_drives",
        format_args!(
            "a group of {drives} cannot hold a blob, which lies on k + r = {stacks} drives; write group_drives = {} or \
             more, so that a failed drive can be rebuilt inside its group",
            stacks + 1
        ),
    )?;
    let too_many = format_args!("no rack has so many drives; write {DRIVES_MAX} or less");
    require(drives <= DRIVES_MAX, "group_drives", too_many)?;
    let pack = "a pack is above 0 and at most 1 TB; write pack = \"1 GB\", or \"200 MB\" at least on a real rack";
    require((1..=PACK_MAX_BYTES).contains(&draft.pack_bytes), "pack", pack)
}

fn check_profile(profile: &DriveProfile) -> Checked {
    check_capacity("drive.capacity", profile.capacity_bytes)?;
    let no_bytes = "a drive that moves no bytes is of no use; write such as \"105 MB/s\"";
    require(profile.bytes_per_s > 0, "drive.bytes_per_s", no_bytes)?;
    let seek = "a seek longer than a day is a mistyped unit; write such as \"4.2 ms\"";
    require(profile.seek <= SPAN_MAX, "drive.seek", seek)?;
    check_distribution("drive.spin_up", &profile.spin_up)?;
    check_distribution("drive.mount", &profile.mount)?;
    check_distribution("drive.mount_busy", &profile.mount_busy)?;
    check_spread(profile.rate_spread)?;
    check_distribution("drive.unmount", &profile.unmount)?;
    check_distribution("drive.spin_down", &profile.spin_down)?;
    let Watts { standby_mw, spin_up_mw, active_mw } = profile.watts;
    let watts = "a drive in standby draws more than one that spins; write standby as the smallest, such as \
                 { standby = 1.56, spin_up = 21.53, active = 9.42 }";
    require(standby_mw <= active_mw.min(spin_up_mw), "drive.watts", watts)?;
    let starts = "a drive that may never start cannot be read; write such as 30000";
    require(profile.rated_starts > 0, "drive.rated_starts", starts)?;
    let years = profile.life_years;
    let life = format_args!("a life of {years} years gives no daily budget; write 1 to 100, such as 8");
    require((1..=100).contains(&years), "drive.life_years", life)
}

fn check_capacity(key: impl Display, bytes: u64) -> Checked {
    let message =
        format_args!("{bytes} bytes is no drive's capacity; write above 0 and at most 1 PB, such as \"4.55 TB\"");
    require((1..=CAPACITY_MAX_BYTES).contains(&bytes), key, message)
}

fn check_distribution(key: &str, distribution: &Distribution) -> Checked {
    let Distribution { min, max, draws, stragglers } = distribution;
    require(min <= max, key, format_args!("min {min:?} is above max {max:?}; write the shorter one as min"))?;
    let too_long = "longer than a day is a mistyped unit; write such as \"10 s\" or \"800 ms\"";
    require(*max <= SPAN_MAX, key, too_long)?;
    let wrong =
        format_args!("{draws} draws cannot be averaged; write draws = 1 (uniform) to 16, such as 4 (bell-shaped)");
    require((1..=16).contains(draws), key, wrong)?;
    let Some(Stragglers { permille, max: slowest }) = stragglers else { return Ok(()) };
    let none = "stragglers are 0.1 % to 100 % of all; without any, leave `stragglers` out";
    require((1..=1_000).contains(permille), key, none)?;
    let quick = format_args!("the slowest straggler takes {slowest:?}, less than max {max:?}; write the longer span");
    require(slowest >= max, key, quick)?;
    require(*slowest <= SPAN_MAX, key, too_long)
}

fn check_spread(spread: RateSpread) -> Checked {
    let RateSpread { zone_permille, drive_permille } = spread;
    let stands = "rates that differ by half or more are mistyped; write such as { zone = \"30 %\", drive = \"5 %\" }";
    require(zone_permille < 500 && drive_permille < 500, "drive.rate_spread", stands)
}

fn check_names(draft: &RackDraft) -> Checked {
    let resources = draft.resources.iter().map(|r| ("resources", &r.name));
    let kinds = draft.failure_domains.iter().map(|f| ("failure_domains", &f.name));
    let mut seen = BTreeSet::new();
    for (table, name) in resources.chain(kinds) {
        let key = format!("{table}.{name}");
        check_name(&key, name)?;
        let twice = format_args!("{name:?} is there twice; give the second another name");
        require(seen.insert((table, name)), key, twice)?;
    }
    Ok(())
}

fn check_drives(draft: &RackDraft) -> Checked {
    let count = draft.drives.len();
    let wrong = format_args!("a rack has 1 to {DRIVES_MAX} drives, this one {count}; fix the geometry or list them");
    require((1..=DRIVES_MAX).contains(&count), "drives", wrong)?;
    let (mut slots, mut paths) = (BTreeMap::new(), BTreeMap::new());
    for (index, drive) in draft.drives.iter().enumerate() {
        let numbered = format_args!("its id is {}; number drives 0, 1, 2, ...", drive.id);
        require(drive.id == DriveId(index as u32), format_args!("drives[{index}]"), numbered)?;
        check_slot("drives", index, drive.slot, &mut slots)?;
        if let Some(path) = &drive.path {
            check_path("path", ("drives", index), path, &mut paths)?;
        }
        if let Some(bytes) = drive.capacity_bytes {
            check_capacity(format_args!("drives[{index}].capacity"), bytes)?;
        }
        let stands = "a drive that moves nothing is useless; write its measured rate, or leave it out";
        require(drive.bytes_per_s != Some(0), format_args!("drives[{index}].bytes_per_s"), stands)?;
    }
    check_power(draft)?;
    check_pool(draft, &mut slots, &mut paths)?;
    // Sums over drives are stored in `u64`.
    let each = draft.profile.capacity_bytes;
    let total: u128 = draft.drives.iter().map(|d| u128::from(d.capacity_bytes.unwrap_or(each))).sum();
    let too_much = "the drives hold 9.2 EB or more together; write a smaller capacity";
    require(total < 1 << 63, "drive.capacity", too_much)
}

/// A directory beside whole disks must declare that it has no power control, which a whole disk must not; a command
/// controls a whole disk.
fn check_power(draft: &RackDraft) -> Checked {
    let some_devices = draft.drives.iter().any(DriveSpec::is_device);
    for (index, drive) in draft.drives.iter().enumerate() {
        let key = format_args!("drives[{index}].power");
        match &drive.power {
            DrivePower::Own => require(
                !some_devices || drive.is_device() || drive.path.is_none(),
                key,
                "the disk of a directory is never stopped, while other drives of this rack sleep; write power = \
                 \"none\", and it counts as spinning at all times",
            )?,
            DrivePower::None => require(
                !drive.is_device(),
                key,
                "a whole disk is started and stopped; leave `power` out, or mount a file system on it yourself and \
                 name the directory as path",
            )?,
            DrivePower::Command(command) => check_command(index, drive, command)?,
        }
    }
    Ok(())
}

fn check_command(index: usize, drive: &DriveSpec, command: &PowerCommand) -> Checked {
    let key = format_args!("drives[{index}].power");
    let disk = "a command controls the power of a whole disk; name its link below /dev/disk/by-id as path";
    require(drive.is_device(), key, disk)?;
    let program = "a command is found by its absolute path; write such as { command = [\"/usr/local/sbin/relay\"] }";
    require(command.argv.first().is_some_and(|program| program.starts_with('/')), key, program)?;
    let nul = "no argument of a command has a zero byte in it; leave it out";
    require(command.argv.iter().all(|argument| !argument.contains('\0')), key, nul)?;
    let timeout = "a command has up to 2 minutes; write such as timeout = \"30 s\"";
    require(!command.timeout.is_zero() && command.timeout <= COMMAND_TIMEOUT_MAX, key, timeout)
}

/// The drives of the pool have slots and paths that no other drive has, and are in domains of the rack's drives.
fn check_pool<'a>(draft: &'a RackDraft, slots: &mut Places<[u16; 3]>, paths: &mut Places<&'a str>) -> Checked {
    let count = draft.pool.len();
    let many = format_args!("a pool has at most {POOL_DRIVES_MAX} drives, this one {count}; leave some out");
    require(count <= POOL_DRIVES_MAX, "pool", many)?;
    for (index, drive) in draft.pool.iter().enumerate() {
        if let Some(slot) = drive.slot {
            check_slot("pool", index, slot, slots)?;
        }
        if let Some(path) = &drive.path {
            check_path("path", ("pool", index), path, paths)?;
        }
        if let Some(disk) = &drive.disk {
            let message = "the directory on the disk is missing; write its path as well, or leave the disk out";
            require(drive.path.is_some(), format_args!("pool[{index}].disk"), message)?;
            check_path("disk", ("pool", index), disk, paths)?;
        }
        let (named, resources) = (drive.resource_domains.len(), draft.resources.len());
        let message = format_args!("names {named} domains; name one for each of the {resources} resources");
        require(named == resources, format_args!("pool[{index}].domains"), message)?;
        for (column, domain) in drive.resource_domains.iter().enumerate() {
            let is_known =
                domain.is_none_or(|domain| draft.drives.iter().any(|d| d.resource_domains[column] == domain));
            let message = "no drive of the rack is in that domain; leave it out";
            require(is_known, format_args!("pool[{index}].domains"), message)?;
        }
    }
    Ok(())
}

/// The users of places: the list and the number of the drive in each.
type Places<K> = BTreeMap<K, (&'static str, usize)>;

fn check_slot(list: &'static str, index: usize, slot: [u16; 3], seen: &mut Places<[u16; 3]>) -> Checked {
    let Some((other_list, other)) = seen.insert(slot, (list, index)) else { return Ok(()) };
    let [w, d, h] = slot;
    let taken = format!("slot [{w}, {d}, {h}] is that of {other_list}[{other}] already; give each drive its own slot");
    refuse(format_args!("{list}[{index}].slot"), taken)
}

fn check_path<'a>(key: &str, at: (&'static str, usize), path: &'a str, seen: &mut Places<&'a str>) -> Checked {
    let (list, index) = at;
    let key = format!("{list}[{index}].{key}");
    let empty = "an empty path leads nowhere; write a directory or device, or leave the key out";
    require(!path.is_empty(), &key, empty)?;
    match seen.insert(path, at) {
        Some((list, other)) => {
            refuse(key, format_args!("{path:?} is that of {list}[{other}] already; give each drive its own path"))
        }
        None => Ok(()),
    }
}

/// Every drive is in one domain of each kind; domains are numbered 0, 1, 2, ... without a gap.
fn check_domains(draft: &RackDraft) -> Checked {
    let (resources, kinds) = (draft.resources.len(), draft.failure_domains.len());
    for DriveSpec { id, resource_domains, failure_domains, .. } in &draft.drives {
        let (index, of_resources, of_kinds) = (id.index(), resource_domains.len(), failure_domains.len());
        let message = format_args!("names {of_resources} domains; name one for each of the {resources} resources");
        require(of_resources == resources, format_args!("drives[{index}].domains"), message)?;
        let message = format_args!("names {of_kinds} domains; name one for each of the {kinds} kinds");
        require(of_kinds == kinds, format_args!("drives[{index}].fails_with"), message)?;
    }
    for (column, resource) in draft.resources.iter().enumerate() {
        let domains = draft.drives.iter().map(|d| d.resource_domains[column]);
        check_dense(format_args!("resources.{}", resource.name), domains)?;
    }
    for (column, kind) in draft.failure_domains.iter().enumerate() {
        let domains = draft.drives.iter().map(|d| d.failure_domains[column]);
        check_dense(format_args!("failure_domains.{}", kind.name), domains)?;
    }
    Ok(())
}

fn check_dense(key: impl Display, domains: impl Iterator<Item = DomainId>) -> Checked {
    let used: BTreeSet<DomainId> = domains.collect();
    let gap = used.iter().enumerate().find(|(expected, domain)| domain.index() != *expected);
    let Some((gap, _)) = gap else { return Ok(()) };
    refuse(key, format_args!("no drive is in its domain {gap}, yet one is in a later one; number domains 0, 1, 2, ..."))
}

fn check_resource(draft: &RackDraft, column: usize, resource: &Resource) -> Checked {
    let require = |holds: bool, limit: &str, message: &str| {
        require(holds, format_args!("resources.{}.{limit}", resource.name), message)
    };
    match resource.limit {
        DomainLimit::ActiveDrives(most) => {
            require(most > 0, "active_drives", "no drive could ever spin; write active_drives = 1 or more")?;
            let taken = always_on_sizes(draft, column).into_iter().max().unwrap_or(0);
            let message = format!("{taken} drives of one domain count as spinning at all times; write more than that");
            require(!resource.hard || taken <= u64::from(most), "active_drives", &message)
        }
        DomainLimit::StartingDrives(most) => {
            require(most > 0, "starting_drives", "no drive could ever start; write starting_drives = 1 or more")
        }
        DomainLimit::BytesPerS(most) => {
            let no_bytes = "a link that moves no bytes is of no use; write such as \"64 Gb/s\"";
            require(most > 0, "bytes_per_s", no_bytes)?;
            let hard = "a link that is full only slows its drives down, so it cannot be hard; write hard = false";
            require(!resource.hard, "hard", hard)
        }
        DomainLimit::Watts(watts) if resource.hard => check_standby(draft, column, watts, &resource.name),
        DomainLimit::Watts(_) => Ok(()),
    }
}

/// The drives in each domain of the resource in `column` that count as active at all times.
fn always_on_sizes(draft: &RackDraft, column: usize) -> Vec<u64> {
    let mut sizes = vec![0_u64; draft.drives.len()];
    for domain in draft.always_on_domains(column) {
        sizes[domain.index()] += 1;
    }
    sizes
}

/// A domain must at least supply its drives while all that can sleep do so, and while the others spin.
fn check_standby(draft: &RackDraft, column: usize, watts: u32, name: &str) -> Checked {
    let mut sizes = vec![0_u64; draft.drives.len()];
    for drive in draft.drives.iter().filter(|drive| drive.power != DrivePower::None) {
        sizes[drive.resource_domains[column].index()] += 1;
    }
    let Watts { standby_mw, spin_up_mw, active_mw } = draft.profile.watts;
    let drawn = |(asleep, always_on): (u64, u64)| {
        (asleep * u64::from(standby_mw) + always_on * u64::from(active_mw.max(spin_up_mw)), asleep, always_on)
    };
    let most = sizes.into_iter().zip(always_on_sizes(draft, column)).map(drawn).max().unwrap_or_default();
    let (drawn_mw, asleep, always_on) = most;
    let with_others =
        if always_on == 0 { String::new() } else { format!(" and {always_on} that may start at any moment") };
    require(
        drawn_mw <= u64::from(watts) * 1000,
        format_args!("resources.{name}.watts"),
        format_args!(
            "{asleep} sleeping drives of a domain{with_others} draw {} W, which is above {watts} W; write a higher \
             limit or smaller domains",
            milliwatts(drawn_mw)
        ),
    )
}

fn milliwatts(mw: u64) -> String {
    let text = format!("{}.{:03}", mw / 1000, mw % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::id::ResourceId;
    use crate::rack::{FailureDomains, HeavyLoad, PoolDriveSpec, RackSpec};

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
                    bytes_per_s: None,
                    path: None,
                    power: DrivePower::Own,
                })
                .collect(),
            pool: Vec::new(),
            profile: DriveProfile {
                capacity_bytes: 1 << 40,
                bytes_per_s: 100_000_000,
                rate_spread: RateSpread::default(),
                seek: Duration::from_millis(4),
                spin_up: span,
                mount: span,
                mount_busy: span,
                heavy_load: HeavyLoad::default(),
                unmount: span,
                spin_down: span,
                watts: Watts { standby_mw: 1_500, spin_up_mw: 20_000, active_mw: 9_000 },
                rated_starts: 30_000,
                life_years: 8,
            },
        }
    }

    /// The key and message with which `change` is refused. Every message must contain a fix.
    fn refused(change: impl FnOnce(&mut RackDraft)) -> (String, String) {
        let mut draft = draft();
        change(&mut draft);
        let error = RackSpec::validated(draft).unwrap_err();
        assert!(error.message.contains(';'), "no fix in: {error}");
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
        assert!(message.contains("that of drives[1]"), "{message}");
        let same = |d: &mut RackDraft| {
            d.drives[1].path = Some("/dev/sda".into());
            d.drives[2].path = Some("/dev/sda".into());
        };
        assert_eq!(refused(same).0, "drives[2].path");
        let pooled = |path: Option<&str>| PoolDriveSpec {
            slot: None,
            resource_domains: vec![None],
            path: path.map(Into::into),
            disk: Some("/dev/sda".into()),
        };
        let one_disk = |d: &mut RackDraft| d.pool = vec![pooled(Some("/mnt/a")), pooled(Some("/mnt/b"))];
        let (key, message) = refused(one_disk);
        assert_eq!(key, "pool[1].disk");
        assert!(message.contains("that of pool[0]"), "{message}");
        assert_eq!(refused(|d| d.pool = vec![pooled(None)]).0, "pool[0].disk");
        assert_eq!(refused(|d| d.drives[1].path = Some(String::new())).0, "drives[1].path");
        assert_eq!(refused(|d| d.drives[1].capacity_bytes = Some(0)).0, "drives[1].capacity");
    }

    #[test]
    fn a_directory_among_disks_says_that_nobody_stops_it() {
        let mixed = |power| {
            move |d: &mut RackDraft| {
                d.drives[0].path = Some("/dev/disk/by-id/a".into());
                (d.drives[1].path, d.drives[1].power) = (Some("/mnt/b".into()), power);
            }
        };
        let (key, message) = refused(mixed(DrivePower::Own));
        assert_eq!(key, "drives[1].power");
        assert!(message.contains("write power = \"none\""), "{message}");
        let mut none = draft();
        mixed(DrivePower::None)(&mut none);
        let spec = RackSpec::validated(none).unwrap();
        assert_eq!((spec.always_on_drives(), spec.always_on_in(ResourceId(0))), (1, vec![1, 0]));
        // Among emulated drives, a directory sleeps as they do.
        let mut alone = draft();
        alone.drives[1].path = Some("/mnt/b".into());
        assert_eq!(RackSpec::validated(alone).map(|spec| spec.always_on_drives()), Ok(0));
    }

    #[test]
    fn what_always_spins_leaves_room_or_is_refused() {
        let on = |count: usize| {
            move |d: &mut RackDraft| d.drives[..count].iter_mut().for_each(|drive| drive.power = DrivePower::None)
        };
        let (key, message) = refused(|d| {
            on(4)(d);
            d.resources[0].limit = DomainLimit::ActiveDrives(3);
        });
        assert_eq!(key, "resources.power.active_drives");
        assert!(message.starts_with("4 drives of one domain count as spinning"), "{message}");
        let (_, message) = refused(|d| {
            on(2)(d);
            d.resources[0].limit = DomainLimit::Watts(42);
        });
        assert!(message.starts_with("2 sleeping drives of a domain and 2 that may start at any moment draw 43 W"));
    }

    #[test]
    fn commands_that_cannot_control_a_disk_are_refused() {
        let command = |argv: &[&str], timeout| {
            let argv = argv.iter().map(|word| (*word).into()).collect();
            DrivePower::Command(PowerCommand { argv, timeout })
        };
        let minute = Duration::from_mins(1);
        let of_disk = |power| {
            move |d: &mut RackDraft| {
                (d.drives[2].path, d.drives[2].power) = (Some("/dev/disk/by-id/a".into()), power);
            }
        };
        for wrong in [
            command(&[], minute),
            command(&["relay"], minute),
            command(&["/bin/relay", "a\0b"], minute),
            command(&["/bin/relay"], Duration::ZERO),
            command(&["/bin/relay"], minute * 3),
            DrivePower::None,
        ] {
            assert_eq!(refused(of_disk(wrong)).0, "drives[2].power");
        }
        assert_eq!(refused(|d| d.drives[2].power = command(&["/bin/relay"], minute)).0, "drives[2].power");
        let mut right = draft();
        of_disk(command(&["/bin/relay", "7"], minute))(&mut right);
        assert!(RackSpec::validated(right).is_ok());
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
