//! The identity: marks a directory as Larder's, with its format and the rack for which its drives were laid out.
//!
//! Text lines `name = value`; the last one is the CRC-32C of those before it, so people can read the file and damage is
//! noticed. Of the rack it has what decides where data is stored: a description may change in everything else.

use super::credentials::random;
use super::error::{DataDirError, damaged, read_part, refused};
use crc_fast::{CrcAlgorithm, checksum};
use disk::label::RackUuid;
use model::{DomainId, FailureDomains, RackSpec, Resource};
use serde::Serialize;
use std::path::Path;

const HEAD: &str = "Larder data directory\n";
/// The format of the directory as a whole: version 2, in which the log in front of the catalog may have a manifest.
pub(super) const VERSION: u32 = 2;
/// The first version, which is also supported.
const FIRST_VERSION: u32 = 1;

/// The contents of the file `identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) version: u32,
    pub(super) rack_uuid: RackUuid,
    code: String,
    group_drives: String,
    drives: String,
    domains: String,
}

/// The geometry of a rack on which its layout depends.
#[derive(Serialize)]
struct Geometry<'a> {
    resources: &'a [Resource],
    failure_domains: &'a [FailureDomains],
    drives: Vec<(&'a [u16; 3], &'a [DomainId], &'a [DomainId])>,
    /// The domains of those drives of the pool that share power domains with the rack's drives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pool: Vec<&'a [Option<DomainId>]>,
}

impl Identity {
    pub(super) fn of(rack_uuid: RackUuid, rack: &RackSpec) -> Self {
        let pool = rack.pool.iter().map(|drive| &*drive.resource_domains);
        let geometry = Geometry {
            resources: &rack.resources,
            failure_domains: &rack.failure_domains,
            drives: rack.drives.iter().map(|d| (&d.slot, &*d.resource_domains, &*d.failure_domains)).collect(),
            pool: pool.filter(|domains| domains.iter().any(Option::is_some)).collect(),
        };
        let geometry = serde_json::to_vec(&geometry).expect("numbers and names are always JSON");
        let code = rack.code;
        Self {
            version: VERSION,
            rack_uuid,
            code: format!("{}+{} fragments of {} bytes", code.data, code.parity, code.fragment_bytes),
            group_drives: rack.group_drives.to_string(),
            drives: rack.drives.len().to_string(),
            domains: format!("{:08x}", crc32c(&geometry)),
        }
    }

    /// The same, with the version of this Larder.
    pub(super) fn raised(self) -> Self {
        Self { version: VERSION, ..self }
    }

    pub(super) fn to_text(&self) -> String {
        let Self { version, rack_uuid, code, group_drives, drives, domains } = self;
        let text = format!(
            "{HEAD}version = {version}\nrack = {rack_uuid}\ncode = {code}\ngroup_drives = {group_drives}\n\
             drives = {drives}\ndomains = {domains}\n"
        );
        let sum = crc32c(text.as_bytes());
        format!("{text}checksum = {sum:08x}\n")
    }

    pub(super) fn read(path: &Path) -> Result<Self, DataDirError> {
        let text = read_part(path)?;
        let Some(lines) = text.strip_prefix(HEAD) else {
            return Err(damaged(path, "is not the identity of a Larder data directory"));
        };
        let value = |name: &str| {
            let line = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.map(str::to_owned).ok_or_else(|| damaged(path, format!("has no line `{name}`")))
        };
        let found = value("version")?;
        let known = |version: &u32| (FIRST_VERSION..=VERSION).contains(version);
        let Some(version) = found.parse().ok().filter(known) else {
            let known = format!("this Larder knows versions {FIRST_VERSION} to {VERSION}");
            return Err(refused(path, format!("has format version {found}, and {known}; use the Larder that made it")));
        };
        let identity = Self {
            version,
            rack_uuid: uuid_from(&value("rack")?).ok_or_else(|| damaged(path, "has a bad line `rack`"))?,
            code: value("code")?,
            group_drives: value("group_drives")?,
            drives: value("drives")?,
            domains: value("domains")?,
        };
        if identity.to_text() != text {
            return Err(damaged(path, "is damaged: its checksum does not match"));
        }
        Ok(identity)
    }

    /// Refuses a description of another rack than the one for which the drives were laid out.
    pub(super) fn must_fit(&self, rack: &RackSpec, path: &Path) -> Result<(), DataDirError> {
        let now = Self::of(self.rack_uuid, rack);
        let rows = [
            ("the number of drives", now.drives, &self.drives),
            ("the code", now.code, &self.code),
            ("`group_drives`", now.group_drives, &self.group_drives),
            ("the checksum of slots, domains and limits", now.domains, &self.domains),
        ];
        match rows.into_iter().find(|(_, now, then)| now != *then) {
            None => Ok(()),
            Some((what, now, then)) => Err(refused(
                path,
                format!(
                    "describes another rack: {what} is {now}, and the drives were laid out for {then}; restore the \
                     earlier description, or create a new data directory"
                ),
            )),
        }
    }
}

/// A new rack's identity: a random UUID (RFC 9562, version 4).
pub(super) fn random_uuid() -> Result<RackUuid, DataDirError> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(RackUuid(bytes))
}

/// The UUID that `text` shows.
pub(super) fn uuid_from(text: &str) -> Option<RackUuid> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    let uuid = RackUuid(number.to_be_bytes());
    (uuid.to_string() == text).then_some(uuid)
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
