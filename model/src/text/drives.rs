//! The drives of a description and the domains they are in, by rule or drive by drive.

use super::fault::Fault;
use super::power;
use super::tree::{Item, Table, cut, nearest};
use super::units::{RATE, SIZE};
use crate::id::{DomainId, DriveId};
use crate::rack::{DRIVES_MAX, DrivePower, DriveSpec, FailureDomains, POOL_DRIVES_MAX, PoolDriveSpec, Resource};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

const AXES: [&str; 3] = ["width", "depth", "height"];
const SAME_EXAMPLE: &str = "same = [\"width\", \"height\"], same = [\"height/2\"] or same = [\"drive\"]";

/// The rule by which drives share a domain.
pub(super) enum DomainRule {
    /// Each drive has its own domain.
    EachDrive,
    /// Drives share a domain if their coordinates, each divided by its divisor, are the same: (index of the axis,
    /// divisor).
    Coordinates(Vec<(usize, u16)>),
}

impl DomainRule {
    /// The key that all drives of a domain have in common.
    fn key(&self, drive: &DriveSpec) -> (u32, Vec<u16>) {
        self.key_at(drive.slot).unwrap_or((drive.id.0, Vec::new()))
    }

    /// The key for `slot`; `None` if a drive there shares its domain with no other.
    fn key_at(&self, slot: [u16; 3]) -> Option<(u32, Vec<u16>)> {
        match self {
            Self::EachDrive => None,
            Self::Coordinates(axes) => Some((0, axes.iter().map(|(axis, by)| slot[*axis] / by).collect())),
        }
    }
}

/// A resource or a kind of failure domain, with the rule by which drives share a domain. Without a rule, each drive
/// names its own domain.
pub(super) struct Ruled<'a, T> {
    pub(super) name: &'a str,
    pub(super) kind: T,
    pub(super) rule: Option<DomainRule>,
    pub(super) table: Table<'a>,
}

/// A domain as a drive names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DomainLabel {
    Number(u32),
    Name(String),
}

/// The rule of a resource's or failure domain's table, if it has one.
pub(super) fn rule(table: &Table<'_>) -> Result<Option<DomainRule>, Fault> {
    let Some(same) = table.find("same") else { return Ok(None) };
    let elements = same.elements(SAME_EXAMPLE)?;
    if elements.len() == 1 && elements[0].as_str() == Some("drive") {
        return Ok(Some(DomainRule::EachDrive));
    }
    let mut axes: Vec<(usize, u16)> = Vec::new();
    for element in elements {
        let (axis, by) = coordinate(&element)?;
        if axes.iter().any(|(other, _)| *other == axis) {
            return Err(
                element.refuse(format!("{} is there twice; write it once, with the smaller divisor", AXES[axis]))
            );
        }
        axes.push((axis, by));
    }
    Ok(Some(DomainRule::Coordinates(axes)))
}

/// `"width"` or `"width/3"`.
fn coordinate(element: &Item<'_>) -> Result<(usize, u16), Fault> {
    let text = element.string("[\"width\"]")?;
    let (name, by) = text.split_once('/').map_or((text, "1"), |(name, by)| (name.trim(), by.trim()));
    let Some(axis) = AXES.iter().position(|axis| *axis == name.trim()) else {
        let near = nearest(name, &AXES).unwrap_or("width");
        return Err(element.refuse(format!(
            "{:?} is no coordinate; write \"{near}\" (known: width, depth, height; or \"drive\" alone)",
            cut(name)
        )));
    };
    match by.parse::<u16>() {
        Ok(by) if by > 0 => Ok((axis, by)),
        _ => Err(element.refuse(format!(
            "cannot divide by {:?}; write \"{1}\" or, for two in a row, \"{1}/2\"",
            cut(by),
            AXES[axis]
        ))),
    }
}

/// The drives of the rack, each in its domains, and those of the pool, in the domains of the rack's drives.
pub(super) fn drives(
    root: &Table<'_>,
    resources: &[Ruled<'_, Resource>],
    kinds: &[Ruled<'_, FailureDomains>],
) -> Result<(Vec<DriveSpec>, Vec<PoolDriveSpec>), Fault> {
    let default = power::default(root)?;
    let (mut drives, tables) = match (root.find("geometry"), root.find("drives")) {
        (Some(geometry), None) => (by_rule(&geometry.table()?, &default)?, Vec::new()),
        (None, Some(list)) => one_by_one(&list, &default)?,
        (Some(_), Some(list)) => {
            return Err(list.refuse("the drives follow from [geometry] already; leave out one of the two"));
        }
        (None, None) => {
            let message =
                "the rack has no drives; write [geometry] with width, depth and height, or [[drives]] with slots";
            return Err(root.refuse(message));
        }
    };
    check_named(&tables, "domains", resources)?;
    check_named(&tables, "fails_with", kinds)?;
    let (pooled, mut pool) = pool(root)?;
    check_named(&pooled.iter().map(|(table, _)| *table).collect::<Vec<_>>(), "domains", resources)?;
    for ruled in resources {
        let (domains, of_pool) = ruled.domains_with(&drives, &tables, "domains", &pooled)?;
        drives.iter_mut().zip(domains).for_each(|(drive, domain)| drive.resource_domains.push(domain));
        pool.iter_mut().zip(of_pool).for_each(|(drive, domain)| drive.resource_domains.push(domain));
    }
    for ruled in kinds {
        let (domains, _) = ruled.domains_with(&drives, &tables, "fails_with", &[])?;
        drives.iter_mut().zip(domains).for_each(|(drive, domain)| drive.failure_domains.push(domain));
    }
    Ok((drives, pool))
}

/// An example of a disk.
const DISK: &str = "\"/dev/disk/by-id/ata-MODEL_SERIAL\"";

/// The table of a drive of the pool, and its slot in the rack, if it has one.
type Pooled<'a> = (Table<'a>, Option<[u16; 3]>);

fn pool<'a>(root: &Table<'a>) -> Result<(Vec<Pooled<'a>>, Vec<PoolDriveSpec>), Fault> {
    let Some(list) = root.find("pool") else { return Ok(Default::default()) };
    let elements = list.elements("[[pool]] once for each drive")?;
    if elements.len() > POOL_DRIVES_MAX {
        return Err(list.refuse(format!("more drives than a pool may have; write at most {POOL_DRIVES_MAX}")));
    }
    let (mut tables, mut drives) = (Vec::new(), Vec::new());
    for element in elements {
        let table = element.table()?;
        table.only(&["slot", "path", "disk", "domains"])?;
        let at = if table.find("slot").is_some() { Some(slot(&table)?) } else { None };
        if let (None, Some(domains)) = (at, table.find("domains")) {
            let message = "a drive of the pool outside of the rack shares nothing with it; write its slot as well, \
                           or leave its domains out";
            return Err(domains.refuse(message));
        }
        let path = table.find("path").map(|p| p.string("\"/mnt/pool-0\"")).transpose()?.map(ToString::to_string);
        let disk = table.find("disk").map(|disk| disk.string(DISK)).transpose()?.map(ToString::to_string);
        drives.push(PoolDriveSpec { slot: at, resource_domains: Vec::new(), path, disk });
        tables.push((table, at));
    }
    Ok((tables, drives))
}

fn drive_at(id: usize, slot: [u16; 3]) -> DriveSpec {
    DriveSpec {
        id: DriveId(id as u32),
        slot,
        resource_domains: Vec::new(),
        failure_domains: Vec::new(),
        capacity_bytes: None,
        bytes_per_s: None,
        path: None,
        power: DrivePower::Own,
    }
}

/// A full cuboid, numbered along the depth, then the height, then the width, so the drives of a row have consecutive
/// numbers.
fn by_rule(geometry: &Table<'_>, default: &DrivePower) -> Result<Vec<DriveSpec>, Fault> {
    geometry.only(&AXES)?;
    let size = |axis| geometry.need(axis, "6")?.integer(1, u64::from(u16::MAX)).map(|n| n as u16);
    let (width, depth, height) = (size("width")?, size("depth")?, size("height")?);
    let count = u64::from(width) * u64::from(depth) * u64::from(height);
    if count > DRIVES_MAX as u64 {
        return Err(
            geometry.refuse(format!("{count} drives are more than a rack may have; write at most {DRIVES_MAX} in all"))
        );
    }
    let slots = (0..width).flat_map(|w| (0..height).flat_map(move |h| (0..depth).map(move |d| [w, d, h])));
    let one = |(id, slot)| {
        let drive = drive_at(id, slot);
        DriveSpec { power: power::of(&drive, None, default), ..drive }
    };
    Ok(slots.enumerate().map(one).collect())
}

fn one_by_one<'a>(list: &Item<'a>, default: &DrivePower) -> Result<(Vec<DriveSpec>, Vec<Table<'a>>), Fault> {
    let elements = list.elements("[[drives]] once for each drive")?;
    if elements.len() > DRIVES_MAX {
        return Err(list.refuse(format!("more drives than a rack may have; write at most {DRIVES_MAX}")));
    }
    let (mut drives, mut tables) = (Vec::new(), Vec::new());
    for (id, element) in elements.iter().enumerate() {
        let table = element.table()?;
        table.only(&["slot", "path", "capacity", "bytes_per_s", "domains", "fails_with", "power"])?;
        let mut drive = drive_at(id, slot(&table)?);
        drive.path = table.find("path").map(|p| p.string("\"/dev/sda\"")).transpose()?.map(ToString::to_string);
        drive.capacity_bytes = table.find("capacity").map(|c| c.quantity(&SIZE)).transpose()?;
        drive.bytes_per_s = table.find("bytes_per_s").map(|rate| rate.quantity(&RATE)).transpose()?;
        let own: Option<DrivePower> = table.find("power").map(|power| power::read(&power)).transpose()?;
        drive.power = power::of(&drive, own, default);
        drives.push(drive);
        tables.push(table);
    }
    Ok((drives, tables))
}

fn slot(table: &Table<'_>) -> Result<[u16; 3], Fault> {
    let item = table.need("slot", "[0, 0, 0]")?;
    let numbers = item.elements("slot = [0, 0, 0]")?;
    let [width, depth, height] = numbers.as_slice() else {
        return Err(item.refuse("a slot is three numbers; write [width, depth, height], such as [0, 0, 0]"));
    };
    let number = |item: &Item<'_>| item.integer(0, u64::from(u16::MAX)).map(|n| n as u16);
    Ok([number(width)?, number(depth)?, number(height)?])
}

/// Refuses names in the drives' tables that belong to no resource or failure domain.
fn check_named<T>(tables: &[Table<'_>], key: &str, kinds: &[Ruled<'_, T>]) -> Result<(), Fault> {
    let known: Vec<&str> = kinds.iter().map(|ruled| ruled.name).collect();
    let mut named = tables.iter().filter_map(|table| table.find(key));
    named.try_for_each(|named| named.table()?.only(&known))
}

impl<T> Ruled<'_, T> {
    /// The domain of each drive, numbered in the order of the keys that distinguish domains; and the domain of each
    /// drive of the pool, if it is in one of these. `key` is the key of a drive's own domains.
    fn domains_with(
        &self,
        drives: &[DriveSpec],
        tables: &[Table<'_>],
        key: &str,
        pooled: &[Pooled<'_>],
    ) -> Result<(Vec<DomainId>, Vec<Option<DomainId>>), Fault> {
        let name = cut(self.name);
        let Some(rule) = &self.rule else {
            if tables.is_empty() {
                let message =
                    format!("the rule is missing by which drives share a domain of `{name}`; write {SAME_EXAMPLE}");
                return Err(self.table.refuse(message));
            }
            let labels: Result<Vec<DomainLabel>, Fault> =
                tables.iter().map(|table| label(table, key, self.name)).collect();
            let of_pool = |(table, at): &Pooled<'_>| at.map(|_| label(table, key, self.name)).transpose();
            let of_pool: Result<Vec<_>, Fault> = pooled.iter().map(of_pool).collect();
            return Ok(numbered(&labels?, &of_pool?));
        };
        for table in tables.iter().chain(pooled.iter().map(|(table, _)| table)) {
            if let Some(item) = own_domain(table, key, self.name)? {
                let message = format!("`{name}` has a rule already; leave this out, or the `same` of the rule");
                return Err(item.refuse(message));
            }
        }
        let of_pool: Vec<_> = pooled.iter().map(|(_, at)| at.and_then(|slot| rule.key_at(slot))).collect();
        Ok(numbered(&drives.iter().map(|drive| rule.key(drive)).collect::<Vec<_>>(), &of_pool))
    }
}

/// The domain that a drive's own table names.
fn own_domain<'a>(table: &Table<'a>, key: &str, name: &str) -> Result<Option<Item<'a>>, Fault> {
    Ok(table.find(key).map(|named| named.table()).transpose()?.and_then(|named| named.find(name)))
}

fn label(table: &Table<'_>, key: &str, name: &str) -> Result<DomainLabel, Fault> {
    let Some(item) = own_domain(table, key, name)? else {
        let name = cut(name);
        return Err(table.refuse(format!("this drive is in no domain of `{name}`; write {key} = {{ {name} = 0 }}")));
    };
    match item.as_str() {
        Some(text) => Ok(DomainLabel::Name(text.to_string())),
        None => Ok(DomainLabel::Number(item.integer(0, u64::from(u32::MAX))? as u32)),
    }
}

/// The rank of each key among the different ones of `keys`; and the ranks of `others`, as far as they are among these.
fn numbered<K: Ord>(keys: &[K], others: &[Option<K>]) -> (Vec<DomainId>, Vec<Option<DomainId>>) {
    let ranks: Vec<&K> = keys.iter().collect::<BTreeSet<_>>().into_iter().collect();
    let rank = |key: &K| ranks.binary_search(&key).ok().map(|rank| DomainId(rank as u32));
    let of_keys = keys.iter().map(|key| rank(key).unwrap_or_else(|| unreachable!("every key is among its ranks")));
    (of_keys.collect(), others.iter().map(|key| key.as_ref().and_then(rank)).collect())
}
