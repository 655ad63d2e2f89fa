//! The tables of a description: code, drive profile, resources and failure domains.

use super::drives::{self, Ruled};
use super::fault::Fault;
use super::tree::{Item, Table};
use super::units::{RATE, SHARE, SIZE};
use crate::rack::{
    Code, Distribution, DomainLimit, DriveProfile, FailureDomains, HeavyLoad, RackDraft, RateSpread, Resource,
    Stragglers, Watts,
};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;
use toml::de::DeTable;

const ROOT_KEYS: [&str; 10] =
    ["name", "group_drives", "pack", "code", "geometry", "drives", "pool", "resources", "failure_domains", "drive"];
const DRIVE_KEYS: [&str; 14] = [
    "capacity",
    "bytes_per_s",
    "rate_spread",
    "seek",
    "spin_up",
    "mount",
    "mount_busy",
    "heavy_load",
    "unmount",
    "spin_down",
    "watts",
    "rated_starts",
    "life_years",
    "power",
];

/// The rack that `root` describes.
pub(super) fn draft(root: &DeTable<'_>) -> Result<RackDraft, Fault> {
    let root = Table::root(root);
    root.only(&ROOT_KEYS)?;
    let resources = entries(&root, "resources", resource)?;
    let kinds = entries(&root, "failure_domains", failure_domains)?;
    let (drives, pool) = drives::drives(&root, &resources, &kinds)?;
    Ok(RackDraft {
        name: root.need("name", "\"cold-1\"")?.string("\"cold-1\"")?.to_string(),
        code: code(&root)?,
        group_drives: root.need("group_drives", "24")?.integer(1, u64::from(u32::MAX))? as u32,
        pack_bytes: root.need("pack", "\"1 GB\"")?.quantity(&SIZE)?,
        profile: profile(&root)?,
        drives,
        pool,
        resources: resources.into_iter().map(|r| r.kind).collect(),
        failure_domains: kinds.into_iter().map(|k| k.kind).collect(),
    })
}

fn entries<'a, T>(
    root: &Table<'a>,
    key: &str,
    read: impl Fn(&str, &Table<'a>) -> Result<T, Fault>,
) -> Result<Vec<Ruled<'a, T>>, Fault> {
    let Some(item) = root.find(key) else { return Ok(Vec::new()) };
    let one = |item: Item<'a>| {
        let table = item.table()?;
        Ok(Ruled { name: item.key(), kind: read(item.key(), &table)?, rule: drives::rule(&table)?, table })
    };
    item.table()?.items().into_iter().map(one).collect()
}

fn code(root: &Table<'_>) -> Result<Code, Fault> {
    let table = root.need_table("code", &["k", "r", "fragment"])?;
    let fragment = table.need("fragment", "\"128 KiB\"")?;
    let bytes = fragment.quantity(&SIZE)?;
    let too_large =
        |_| fragment.refuse("a fragment this large is never in memory at once; write \"128 KiB\", at most \"64 MiB\"");
    Ok(Code {
        data: table.need("k", "15")?.integer(0, 255)? as u8,
        parity: table.need("r", "3")?.integer(0, 255)? as u8,
        fragment_bytes: u32::try_from(bytes).map_err(too_large)?,
    })
}

fn resource(name: &str, table: &Table<'_>) -> Result<Resource, Fault> {
    table.only(&["same", "active_drives", "starting_drives", "watts", "bytes_per_s", "hard"])?;
    let limits = ["active_drives", "starting_drives", "watts", "bytes_per_s"].map(|key| table.find(key));
    let rate = limits[3];
    let count = |item: Item<'_>| item.integer(0, u64::from(u32::MAX)).map(|n| n as u32);
    let limit = match limits {
        [Some(item), None, None, None] => DomainLimit::ActiveDrives(count(item)?),
        [None, Some(item), None, None] => DomainLimit::StartingDrives(count(item)?),
        [None, None, Some(item), None] => DomainLimit::Watts(count(item)?),
        [None, None, None, Some(item)] => DomainLimit::BytesPerS(item.quantity(&RATE)?),
        _ => {
            let message = "a resource has exactly one limit; write one of active_drives = 2, starting_drives = 1, \
                           watts = 60, bytes_per_s = \"64 Gb/s\"";
            return Err(table.refuse(message));
        }
    };
    let hard = match (table.find("hard"), rate) {
        (None, Some(_)) => false,
        _ => table
            .need("hard", "true if a fuse trips beyond the limit, hard = false if it only costs speed")?
            .boolean()?,
    };
    Ok(Resource { name: name.to_string(), limit, hard })
}

fn failure_domains(name: &str, table: &Table<'_>) -> Result<FailureDomains, Fault> {
    table.only(&["same", "loses_media"])?;
    let example = "true if its loss loses what is on its drives, loses_media = false if they can be attached elsewhere";
    Ok(FailureDomains { name: name.to_string(), loses_media: table.need("loses_media", example)?.boolean()? })
}

fn profile(root: &Table<'_>) -> Result<DriveProfile, Fault> {
    let table = root.need_table("drive", &DRIVE_KEYS)?;
    let span = |key| distribution(&table.need(key, "\"10 s\" or { min = \"8 s\", max = \"12 s\", draws = 4 }")?);
    let count = |key, example| table.need(key, example)?.integer(0, u64::from(u32::MAX)).map(|n| n as u32);
    Ok(DriveProfile {
        capacity_bytes: table.need("capacity", "\"4.55 TB\"")?.quantity(&SIZE)?,
        bytes_per_s: table.need("bytes_per_s", "\"105 MB/s\"")?.quantity(&RATE)?,
        rate_spread: table.find("rate_spread").map_or(Ok(RateSpread::default()), |spread| rate_spread(&spread))?,
        seek: table.need("seek", "\"4.2 ms\"")?.duration()?,
        spin_up: span("spin_up")?,
        mount: span("mount")?,
        mount_busy: span("mount_busy")?,
        heavy_load: table.find("heavy_load").map_or(Ok(HeavyLoad::default()), |load| heavy_load(&load))?,
        unmount: span("unmount")?,
        spin_down: span("spin_down")?,
        watts: watts(&table)?,
        rated_starts: count("rated_starts", "30000")?,
        life_years: count("life_years", "8")?,
    })
}

fn watts(profile: &Table<'_>) -> Result<Watts, Fault> {
    let table = profile.need("watts", "{ standby = 1.56, spin_up = 21.53, active = 9.42 }")?.table()?;
    table.only(&["standby", "spin_up", "active"])?;
    Ok(Watts {
        standby_mw: table.need("standby", "1.56")?.milliwatts()?,
        spin_up_mw: table.need("spin_up", "21.53")?.milliwatts()?,
        active_mw: table.need("active", "9.42")?.milliwatts()?,
    })
}

/// `"stream"`, or a table of one number: drives that move payload, or a share of the queues' capacity.
fn heavy_load(item: &Item<'_>) -> Result<HeavyLoad, Fault> {
    let fix = || item.refuse("a load is heavy by \"stream\", { streams = 36 } or { queues = \"50 %\" }".to_string());
    if let Some(word) = item.as_str() {
        return if word == "stream" { Ok(HeavyLoad::StreamOnServer) } else { Err(fix()) };
    }
    let table = item.table().map_err(|_| fix())?;
    table.only(&["streams", "queues"])?;
    match (table.find("streams"), table.find("queues")) {
        (Some(streams), None) => Ok(HeavyLoad::StreamsInRack(streams.integer(1, u64::from(u32::MAX))? as u32)),
        (None, Some(queues)) => match share(&queues)? {
            permille @ 1..=1_000 => Ok(HeavyLoad::QueueFill(permille)),
            _ => Err(queues.refuse("queues are filled by more than 0 and at most 100 %".to_string())),
        },
        _ => Err(fix()),
    }
}

/// `"10 s"`, or a table of min, max and draws.
fn distribution(item: &Item<'_>) -> Result<Distribution, Fault> {
    if item.as_str().is_some() {
        return item.duration().map(Distribution::constant);
    }
    let Ok(table) = item.table() else {
        let example = "write \"10 s\", or { min = \"8 s\", max = \"12 s\", draws = 4 }";
        return Err(item.refuse(format!("`{}` is neither a duration nor a distribution; {example}", item.key())));
    };
    table.only(&["min", "max", "draws", "stragglers"])?;
    let end = |key, example| -> Result<Duration, Fault> { table.need(key, example)?.duration() };
    Ok(Distribution {
        min: end("min", "\"8 s\"")?,
        max: end("max", "\"12 s\"")?,
        draws: table.find("draws").map_or(Ok(1), |draws| draws.integer(0, 255))? as u8,
        stragglers: table.find("stragglers").map(|tail| stragglers(&tail)).transpose()?,
    })
}

fn stragglers(item: &Item<'_>) -> Result<Stragglers, Fault> {
    let table = item.table()?;
    table.only(&["share", "max"])?;
    Ok(Stragglers {
        permille: share(&table.need("share", "\"0.5 %\"")?)?,
        max: table.need("max", "\"20 s\"")?.duration()?,
    })
}

fn rate_spread(item: &Item<'_>) -> Result<RateSpread, Fault> {
    let table = item.table()?;
    table.only(&["zone", "drive"])?;
    let part = |key| table.find(key).map_or(Ok(0), |found| share(&found));
    Ok(RateSpread { zone_permille: part("zone")?, drive_permille: part("drive")? })
}

/// A share of a whole, in thousandths.
fn share(item: &Item<'_>) -> Result<u16, Fault> {
    Ok(u16::try_from(item.quantity(&SHARE)?).unwrap_or(u16::MAX))
}
