//! Writes a rack description, drive by drive. The text is read back as the same rack, if a description can express the
//! rack: a drive of the pool in domains has a slot, and a rate is below 10^18 bytes/s.

use super::power::COMMAND_TIMEOUT;
use crate::id::{DomainId, DriveId};
use crate::rack::{
    Distribution, DomainLimit, DrivePower, DriveProfile, DriveSpec, HeavyLoad, PoolDriveSpec, PowerCommand, RackSpec,
    RateSpread,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{Display, Write};
use core::time::Duration;

/// Names and sizes of units, the largest first; the last one is 1.
type Scale = [(&'static str, u64)];
const BYTES: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KiB", 1 << 10), ("B", 1)];
const NANOS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
const PERMILLE: [(&str, u64); 2] = [("%", 10), ("permille", 1)];

/// The description of `rack`. `note` returns a comment of one line for a drive.
pub fn write(rack: &RackSpec, note: impl Fn(DriveId) -> Option<String>) -> String {
    let mut text = String::new();
    line(&mut text, "name", quoted(&rack.name));
    line(&mut text, "group_drives", rack.group_drives);
    line(&mut text, "pack", bytes(rack.pack_bytes));
    let _ = writeln!(text, "\n[code]");
    line(&mut text, "k", rack.code.data);
    line(&mut text, "r", rack.code.parity);
    line(&mut text, "fragment", bytes(rack.code.fragment_bytes.into()));
    for resource in &rack.resources {
        let _ = writeln!(text, "\n[resources.{}]", key(&resource.name));
        match resource.limit {
            DomainLimit::ActiveDrives(drives) => line(&mut text, "active_drives", drives),
            DomainLimit::StartingDrives(drives) => line(&mut text, "starting_drives", drives),
            DomainLimit::Watts(watts) => line(&mut text, "watts", watts),
            DomainLimit::BytesPerS(rate) => line(&mut text, "bytes_per_s", self::rate(rate)),
        }
        line(&mut text, "hard", resource.hard);
    }
    for kind in &rack.failure_domains {
        let _ = writeln!(text, "\n[failure_domains.{}]", key(&kind.name));
        line(&mut text, "loses_media", kind.loses_media);
    }
    rack.drives.iter().for_each(|drive| self::drive(&mut text, rack, drive, note(drive.id)));
    rack.pool.iter().for_each(|drive| pool_drive(&mut text, rack, drive));
    profile(&mut text, &rack.profile);
    text
}

fn line(text: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(text, "{key} = {value}");
}

fn drive(text: &mut String, rack: &RackSpec, drive: &DriveSpec, note: Option<String>) {
    text.push('\n');
    if let Some(note) = note {
        let _ = writeln!(text, "# {}", note.replace(char::is_control, " "));
    }
    let _ = writeln!(text, "[[drives]]");
    line(text, "slot", slot(drive.slot));
    if let Some(path) = &drive.path {
        line(text, "path", quoted(path));
    }
    if let Some(capacity_bytes) = drive.capacity_bytes {
        line(text, "capacity", bytes(capacity_bytes));
    }
    if let Some(bytes_per_s) = drive.bytes_per_s {
        line(text, "bytes_per_s", rate(bytes_per_s));
    }
    match &drive.power {
        DrivePower::Own => {}
        DrivePower::None => line(text, "power", quoted("none")),
        DrivePower::Command(command) => line(text, "power", self::command(command)),
    }
    let resources = rack.resources.iter().map(|resource| resource.name.as_str());
    let kinds = rack.failure_domains.iter().map(|kind| kind.name.as_str());
    domains(text, "domains", resources.zip(drive.resource_domains.iter().map(|domain| domain.0)));
    domains(text, "fails_with", kinds.zip(drive.failure_domains.iter().map(|domain| domain.0)));
}

fn pool_drive(text: &mut String, rack: &RackSpec, drive: &PoolDriveSpec) {
    let _ = writeln!(text, "\n[[pool]]");
    if let Some(path) = &drive.path {
        line(text, "path", quoted(path));
    }
    if let Some(disk) = &drive.disk {
        line(text, "disk", quoted(disk));
    }
    let Some(slot) = drive.slot else { return };
    line(text, "slot", self::slot(slot));
    // A number that no drive of the rack has stands for a domain without drives.
    let named = rack.resources_by_id().zip(&drive.resource_domains);
    let number = |domain: &Option<DomainId>, none: usize| domain.map_or(none as u32, |domain| domain.0);
    domains(
        text,
        "domains",
        named.map(|((id, what), domain)| (what.name.as_str(), number(domain, rack.domain_count(id)))),
    );
}

fn domains<'a>(text: &mut String, name: &str, domains: impl Iterator<Item = (&'a str, u32)>) {
    let named: Vec<String> = domains.map(|(name, domain)| format!("{} = {domain}", key(name))).collect();
    if !named.is_empty() {
        line(text, name, format!("{{ {} }}", named.join(", ")));
    }
}

fn profile(text: &mut String, profile: &DriveProfile) {
    let _ = writeln!(text, "\n[drive]");
    line(text, "capacity", bytes(profile.capacity_bytes));
    line(text, "bytes_per_s", rate(profile.bytes_per_s));
    let RateSpread { zone_permille, drive_permille } = profile.rate_spread;
    if profile.rate_spread != RateSpread::default() {
        let (zone, drive) = (share(zone_permille), share(drive_permille));
        line(text, "rate_spread", format!("{{ zone = {zone}, drive = {drive} }}"));
    }
    line(text, "seek", span(profile.seek));
    line(text, "spin_up", distribution(&profile.spin_up));
    line(text, "mount", distribution(&profile.mount));
    line(text, "mount_busy", distribution(&profile.mount_busy));
    match profile.heavy_load {
        HeavyLoad::StreamOnServer => {}
        HeavyLoad::StreamsInRack(drives) => line(text, "heavy_load", format!("{{ streams = {drives} }}")),
        HeavyLoad::QueueFill(permille) => line(text, "heavy_load", format!("{{ queues = {} }}", share(permille))),
    }
    line(text, "unmount", distribution(&profile.unmount));
    line(text, "spin_down", distribution(&profile.spin_down));
    let [standby, spin_up, active] =
        [profile.watts.standby_mw, profile.watts.spin_up_mw, profile.watts.active_mw].map(|mw| exact(mw.into(), 1_000));
    line(text, "watts", format!("{{ standby = {standby}, spin_up = {spin_up}, active = {active} }}"));
    line(text, "rated_starts", profile.rated_starts);
    line(text, "life_years", profile.life_years);
}

fn command(command: &PowerCommand) -> String {
    let words: Vec<String> = command.argv.iter().map(|word| quoted(word)).collect();
    let timeout = match command.timeout {
        COMMAND_TIMEOUT => String::new(),
        timeout => format!(", timeout = {}", span(timeout)),
    };
    format!("{{ command = [{}]{timeout} }}", words.join(", "))
}

fn distribution(distribution: &Distribution) -> String {
    let Distribution { min, max, draws, stragglers } = distribution;
    if *distribution == Distribution::constant(*min) {
        return span(*min);
    }
    let stragglers = stragglers.map(|tail| {
        let (share, max) = (share(tail.permille), span(tail.max));
        format!(", stragglers = {{ share = {share}, max = {max} }}")
    });
    format!("{{ min = {}, max = {}, draws = {draws}{} }}", span(*min), span(*max), stragglers.unwrap_or_default())
}

fn slot([width, depth, height]: [u16; 3]) -> String {
    format!("[{width}, {depth}, {height}]")
}

fn bytes(bytes: u64) -> String {
    quantity(bytes, &BYTES, "")
}

fn rate(bytes_per_s: u64) -> String {
    quantity(bytes_per_s, &BYTES, "/s")
}

fn span(span: Duration) -> String {
    quantity(span.as_nanos() as u64, &NANOS, "")
}

fn share(permille: u16) -> String {
    quantity(permille.into(), &PERMILLE, "")
}

/// `number` of the smallest unit, in the largest unit that needs no more than three decimals.
fn quantity(number: u64, scale: &Scale, per: &str) -> String {
    let fits =
        |(_, unit): &&(&str, u64)| number >= *unit && (u128::from(number) * 1_000).is_multiple_of((*unit).into());
    let (name, unit) = scale.iter().find(fits).copied().unwrap_or((scale[scale.len() - 1].0, 1));
    format!("\"{} {name}{per}\"", exact(number, unit))
}

/// `number / unit`, which needs no more than three decimals.
fn exact(number: u64, unit: u64) -> String {
    let thousandths = u128::from(number % unit) * 1_000 / u128::from(unit);
    let text = format!("{}.{thousandths:03}", number / unit);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A TOML key: bare if possible.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_string() } else { quoted(name) }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => drop(write!(quoted, "\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
