//! What a verification found, for people and programs.

use serde::Serialize;

/// Findings that are told one by one; more are only counted.
const TOLD_MAX: usize = 1_000;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The catalog's file is damaged.
    CatalogFile,
    /// A record of the catalog is damaged, or contradicts another one.
    CatalogRecord,
    /// The catalog belongs to another rack, or is older than the workshop.
    ForeignCatalog,
    /// A staged file is missing.
    StagedMissing,
    /// A staged file is damaged, or of another length than its record says.
    StagedDamaged,
    /// A file that Larder did not make.
    Stranger,
    /// A drive, or one's directory, cannot be used.
    DriveUnusable,
    /// A blob's record does not fit the rack.
    BlobMisfit,
    /// A stack is missing, damaged or unlike its record; the blob can still be read.
    StackBad,
    /// Too many stacks of a blob are bad: its objects are lost, or some of them.
    BlobLost,
    /// An object of such a blob that cannot be read.
    ObjectLost,
    /// Too many drives of a blob cannot be used: its objects can be read again when they are back.
    BlobUnavailable,
    /// An object of such a blob.
    ObjectUnavailable,
    /// The payload of a blob is not what the catalog says it holds.
    PayloadUnlike,
    /// A stack that the catalog shows not to be needed: leaked space.
    Orphan,
    /// A stack or a staged file that this catalog does not know. A newer one may.
    Unknown,
    /// More bytes are accounted to a drive than it holds.
    Accounts,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// What is wrong, in words.
    pub what: String,
    /// What to do about it.
    pub mend: &'static str,
    /// The object it is about, as `s3://bucket/key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The blob it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// The drive it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<u32>,
    /// The file it is about: its name on its drive or in the workshop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Finding {
    pub(super) fn new(kind: Kind, what: impl Into<String>, mend: &'static str) -> Self {
        Self { kind, what: what.into(), mend, object: None, blob: None, drive: None, file: None }
    }

    pub(super) fn object(self, object: Option<String>) -> Self {
        Self { object, ..self }
    }

    pub(super) fn blob(self, blob: model::BlobId) -> Self {
        Self { blob: Some(blob.to_string()), ..self }
    }

    pub(super) fn drive(self, drive: model::DriveId) -> Self {
        Self { drive: Some(drive.0), ..self }
    }

    pub(super) fn file(self, file: &disk::FileName) -> Self {
        Self { file: Some(file.to_string()), ..self }
    }
}

/// What the catalog holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CatalogCounts {
    /// Objects.
    pub objects: u64,
    /// Versions in the workshop.
    pub staged: u64,
    /// Payload bytes of those.
    pub staged_bytes: u64,
    /// Versions in the rack.
    pub stored: u64,
    /// Payload bytes of those.
    pub stored_bytes: u64,
    /// Uploads in parts that are neither completed nor aborted.
    pub uploads: u64,
    /// The bytes of their parts.
    pub upload_bytes: u64,
    /// Blobs, those without living versions included.
    pub blobs: u64,
    /// Payload bytes in the rack that nobody refers to, and that wait for their group's next wake.
    pub doomed_bytes: u64,
}

/// What was looked at in the workshop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkshopCounts {
    /// Staged files that belong to an object or an upload.
    pub files: u64,
    /// What they take on the disk, in bytes.
    pub file_bytes: u64,
    /// Payload bytes whose checksums were compared: all of them in the deep form.
    pub checked_bytes: u64,
}

/// What was looked at in the rack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RackCounts {
    /// Whether the drives were looked at, at all.
    pub drives_read: bool,
    /// Groups with blobs: so many wakes it takes to look at all drives.
    pub groups: u64,
    /// Stacks that belong to a blob.
    pub stacks: u64,
    /// What those take on the drives, in bytes.
    pub stack_bytes: u64,
    /// What the catalog says they take, in bytes: more where doomed blobs are half removed or were half written.
    pub accounted_bytes: u64,
    /// Stacks that lay on drives which failed for good, and wait for being rebuilt.
    pub stacks_to_rebuild: u64,
    /// Objects that cannot be read, since too many stacks of their blobs are bad where they lie.
    pub lost_objects: u64,
    /// Objects that can be read again when drives are back.
    pub unavailable_objects: u64,
    /// Payload bytes that were read and compared with all their checksums: all of them in the deep form.
    pub checked_bytes: u64,
}

/// What a server that ended in a crash leaves, and the next start takes away. Nothing is wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Staged files of no object that the next start, or the one behind it, takes away.
    pub staged_files: u64,
    /// What they take, in bytes.
    pub staged_bytes: u64,
    /// Files of recalls.
    pub spool_files: u64,
    /// Blobs that were being written.
    pub unfinished_blobs: u64,
    /// Stacks that were being rebuilt; they are removed when they are rebuilt anew.
    pub rebuilt_stacks: u64,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether nothing is wrong.
    pub clean: bool,
    /// How many things are wrong.
    pub finding_count: u64,
    /// The first of them, lost objects left out: there may be any number.
    pub findings: Vec<Finding>,
    /// What the catalog holds.
    pub catalog: CatalogCounts,
    /// What was looked at in the workshop.
    pub workshop: WorkshopCounts,
    /// What was looked at in the rack.
    pub rack: RackCounts,
    /// What the next start takes away.
    pub leftovers: Leftovers,
}

impl Report {
    pub(super) fn found(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < TOLD_MAX && !matches!(finding.kind, Kind::ObjectLost | Kind::ObjectUnavailable) {
            self.findings.push(finding);
        }
    }
}
