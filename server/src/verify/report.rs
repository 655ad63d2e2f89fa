//! The findings of a verification, for people and programs.

use catalog::Audit;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Maximum number of findings that a report lists; more are only counted.
const TOLD_MAX: usize = 1_000;

/// The extent of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True if drives of the rack are inspected, for which their groups must be awake.
    pub drives: bool,
    /// True if everything is read, not only the ends of files.
    pub deep: bool,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The catalog's file is damaged, or records of it are missing.
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
    /// An object of a lost blob, which cannot be read.
    ObjectLost,
    /// Too many drives of a blob cannot be used: its objects are readable again when they are back.
    BlobUnavailable,
    /// An object of an unavailable blob.
    ObjectUnavailable,
    /// The payload of a blob differs from its contents in the catalog.
    PayloadUnlike,
    /// A stack that the catalog shows not to be needed: leaked space.
    Orphan,
    /// A stack or a staged file that this catalog does not know. A newer catalog may know it.
    Unknown,
    /// More bytes are accounted to a drive than it holds.
    Accounts,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The finding, in words.
    pub what: String,
    /// The fix.
    pub mend: Cow<'static, str>,
    /// The object it is about, as `s3://bucket/key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The blob it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// The drive it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<u32>,
    /// The file it is about: its name on its drive or in the workshop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, what: impl Into<String>, mend: &'static str) -> Self {
        let mend = Cow::Borrowed(mend);
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

/// Checked files of the workshop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkshopCounts {
    /// Staged files that belong to an object or an upload.
    pub files: u64,
    /// Bytes that they take on the disk.
    pub file_bytes: u64,
    /// Payload bytes whose checksums were compared: all of them in the deep form.
    pub checked_bytes: u64,
}

/// Checked stacks of the rack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackCounts {
    /// True if any drives were inspected.
    pub drives_read: bool,
    /// Groups with blobs: the number of wakes that it takes to inspect all drives.
    pub groups: u64,
    /// Stacks that belong to a blob.
    pub stacks: u64,
    /// Bytes that they take on the drives.
    pub stack_bytes: u64,
    /// Bytes that they take according to the catalog: more if dead blobs are partly removed or partly written.
    pub accounted_bytes: u64,
    /// Stacks that were on permanently failed drives, and wait to be rebuilt.
    pub stacks_to_rebuild: u64,
    /// Objects that cannot be read, since too many stacks of their blobs are bad on their drives.
    pub lost_objects: u64,
    /// Objects that are readable again when drives are back.
    pub unavailable_objects: u64,
    /// Payload bytes that were read and compared with all their checksums: all of them in the deep form.
    pub checked_bytes: u64,
    /// Groups with drives that were not inspected, beside a running server.
    pub skipped: Vec<SkippedGroup>,
}

/// A group that was not inspected, or not completely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedGroup {
    /// The group.
    pub group: u32,
    /// The reason.
    pub why: String,
}

/// Leftovers of a server that crashed, which the next start removes. They are no faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Staged files of no object, which the next start or the one after it removes.
    pub staged_files: u64,
    /// Bytes that they take.
    pub staged_bytes: u64,
    /// Files of recalls.
    pub spool_files: u64,
    /// Blobs that were being written.
    pub unfinished_blobs: u64,
    /// Stacks that were being rebuilt; they are removed before their next rebuild.
    pub rebuilt_stacks: u64,
}

/// The findings of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// True if nothing is wrong.
    pub clean: bool,
    /// The number of findings.
    pub finding_count: u64,
    /// The first of them, without lost objects, whose number has no limit.
    pub findings: Vec<Finding>,
    /// Records of the catalog.
    pub catalog: Audit,
    /// Checked files of the workshop.
    pub workshop: WorkshopCounts,
    /// Checked stacks of the rack.
    pub rack: RackCounts,
    /// Leftovers that the next start removes.
    pub leftovers: Leftovers,
}

impl Report {
    pub(super) fn found(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < TOLD_MAX
            && !matches!(finding.kind, FindingKind::ObjectLost | FindingKind::ObjectUnavailable)
        {
            self.findings.push(finding);
        }
    }
}

/// The progress of a verification beside a running server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyPhase {
    /// The catalog's records are compared.
    #[default]
    Catalog,
    /// Staged files are checked.
    Workshop {
        /// Files that are done.
        done: u64,
        /// All files.
        files: u64,
    },
    /// Drives are inspected.
    Rack {
        /// Blobs that are done.
        done: u64,
        /// All blobs.
        blobs: u64,
        /// The number of their groups.
        groups: u64,
    },
    /// Drives are inspected, and the verification waits for the scrub of a group.
    Scrub {
        /// Blobs that are done.
        done: u64,
        /// All blobs.
        blobs: u64,
        /// The number of their groups.
        groups: u64,
        /// The share of all bytes that the scrubs have covered, in thousandths.
        permille: u64,
    },
}

/// A verification beside a running server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyProgress {
    /// Its number.
    pub number: u64,
    /// Its progress.
    pub phase: VerifyPhase,
    /// Findings since the last answer.
    pub findings: Vec<Finding>,
    /// Everything but the findings, once it has ended.
    pub report: Option<Report>,
    /// The error that ended it early, if any.
    pub error: Option<String>,
}

/// A command about verifications of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyRequest {
    /// Start one.
    Begin {
        /// Its extent.
        options: Options,
        /// True if groups that sleep are woken, one after another.
        wakes: bool,
    },
    /// Report its progress.
    Look(u64),
    /// End it.
    End(u64),
}
