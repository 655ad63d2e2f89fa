//! The kinds of faults.

use serde::Serialize;

/// A kind of fault. Each run enables some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A bit of a file on a drive of the rack changes.
    BitRot,
    /// A sector of a file on a drive of the rack cannot be read until it is written again.
    BadSector,
    /// A file on a drive of the rack disappears.
    LostFile,
    /// A write is acknowledged and never reaches the medium.
    LostWrite,
    /// A write lands elsewhere on the drive.
    MisdirectedWrite,
    /// A write fails halfway.
    TornWrite,
    /// A sync is acknowledged and not done; the data that it should have made durable is lost when the drive loses
    /// power.
    LostSync,
    /// One call to a drive fails.
    FailedCall,
    /// A drive answers everything with an error for a while.
    DiesAndReturns,
    /// A drive answers everything with an error permanently, and its bytes are gone.
    DiesForGood,
    /// A drive answers nothing for a while.
    Hangs,
    /// A drive takes seconds for every call for a while.
    Slow,
    /// A drive does not start for a while.
    FailsToStart,
    /// A drive takes much longer than it should to start for a while.
    StartsSlowly,
    /// A drive shows another drive's label for a while.
    WrongLabel,
    /// A drive is full for a while.
    FullDrive,
    /// A drive is pulled, and comes back.
    Pulled,
    /// A fuse trips: all drives of the domain are gone until it resets.
    TrippedFuse,
    /// A failure domain, for example a chassis or a server, is gone for a while.
    LostDomain,
    /// The operator gives up a drive, and later puts another in its place.
    OperatorFailsDrive,
    /// The power of the server fails: unsynced data is lost or torn, everywhere.
    PowerLoss,
    /// The process is killed: written data stays.
    Kill,
    /// The catalog is restored from a backup, used, and replaced by the newest one.
    OlderCatalog,
    /// The wall clock jumps.
    ClockJump,
    /// A commit of the catalog is done and answered with an error.
    CommitUnanswered,
    /// The catalog's disk is full for a while.
    CatalogFull,
    /// One call to the workshop's disk fails.
    WorkshopFails,
    /// The workshop's disk is full for a while, before the workshop is.
    WorkshopFull,
    /// One call to the spool's disk fails.
    SpoolFails,
    /// A bit of a file of the workshop changes. Nothing makes up for that, so it occurs only in runs that exceed r on
    /// purpose.
    WorkshopRot,
    /// A file of another rack is in the place of a stack.
    ForeignFile,
    /// Some reads of catalog records are wrong: a bit is flipped, or another record is returned.
    CatalogMisread,
    /// The sync of a commit fails. The commit is answered with an error, and no other commit is accepted until the next
    /// start. That start finds the commit in the log, although the medium may not have it.
    CommitUnsynced,
    /// Everything on a drive is deleted, or all of it but its label.
    EmptiedDrive,
    /// An old copy of a drive takes its place: files written since are missing, and files removed since are back.
    OldCopy,
    /// The rack itself gives up a drive that stays away. Not drawn; it follows from other faults.
    GivenUpByRack,
    /// A drive's slot has a copy of another drive, which is in its own slot: two slots show one label.
    ClonedDrive,
    /// The catalog is lost after a life, and made again from the drives and a copy of the catalog, if there is a copy.
    LostCatalog,
    /// An answer to the engine arrives a second time, seconds or hours after the first.
    RepeatedAnswer,
    /// Another program starts a drive.
    SpunByOthers,
    /// Some listings of the catalog fail.
    CatalogUnlisted,
    /// Files of the log in front of the catalog are damaged as a whole, while no server runs.
    LogFileDamaged,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 42] = [
        Self::BitRot,
        Self::BadSector,
        Self::LostFile,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::TornWrite,
        Self::LostSync,
        Self::FailedCall,
        Self::DiesAndReturns,
        Self::DiesForGood,
        Self::Hangs,
        Self::Slow,
        Self::FailsToStart,
        Self::StartsSlowly,
        Self::WrongLabel,
        Self::FullDrive,
        Self::Pulled,
        Self::TrippedFuse,
        Self::LostDomain,
        Self::OperatorFailsDrive,
        Self::PowerLoss,
        Self::Kill,
        Self::OlderCatalog,
        Self::ClockJump,
        Self::CommitUnanswered,
        Self::CatalogFull,
        Self::WorkshopFails,
        Self::WorkshopFull,
        Self::SpoolFails,
        Self::WorkshopRot,
        Self::ForeignFile,
        Self::CatalogMisread,
        Self::CommitUnsynced,
        Self::EmptiedDrive,
        Self::OldCopy,
        Self::GivenUpByRack,
        Self::ClonedDrive,
        Self::LostCatalog,
        Self::RepeatedAnswer,
        Self::SpunByOthers,
        Self::CatalogUnlisted,
        Self::LogFileDamaged,
    ];

    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::BitRot => "bit rot",
            Self::BadSector => "bad sector",
            Self::LostFile => "lost file",
            Self::LostWrite => "lost write",
            Self::MisdirectedWrite => "misdirected write",
            Self::TornWrite => "torn write",
            Self::LostSync => "lost sync",
            Self::FailedCall => "failed call",
            Self::DiesAndReturns => "drive dies and returns",
            Self::DiesForGood => "drive dies for good",
            Self::Hangs => "drive hangs",
            Self::Slow => "slow drive",
            Self::FailsToStart => "drive does not start",
            Self::StartsSlowly => "drive starts slowly",
            Self::WrongLabel => "wrong label",
            Self::FullDrive => "full drive",
            Self::Pulled => "drive pulled",
            Self::TrippedFuse => "tripped fuse",
            Self::LostDomain => "lost failure domain",
            Self::OperatorFailsDrive => "drive given up by the operator",
            Self::PowerLoss => "power loss",
            Self::Kill => "process killed",
            Self::OlderCatalog => "older catalog",
            Self::ClockJump => "clock jump",
            Self::CommitUnanswered => "unanswered commit",
            Self::CatalogFull => "full catalog",
            Self::WorkshopFails => "failed call to the workshop",
            Self::WorkshopFull => "full workshop disk",
            Self::SpoolFails => "failed call to the spool",
            Self::WorkshopRot => "bit rot in the workshop",
            Self::ForeignFile => "another rack's file",
            Self::CatalogMisread => "misread records",
            Self::CommitUnsynced => "commit that is not synced",
            Self::EmptiedDrive => "emptied drive",
            Self::OldCopy => "old copy of a drive",
            Self::GivenUpByRack => "drive given up by the rack",
            Self::ClonedDrive => "cloned drive",
            Self::LostCatalog => "lost catalog",
            Self::RepeatedAnswer => "repeated answer",
            Self::SpunByOthers => "drive started by another program",
            Self::CatalogUnlisted => "failed listings of the catalog",
            Self::LogFileDamaged => "damaged file of the log",
        }
    }

    /// True for faults that end a life of the server; they are drawn between lives.
    pub fn ends_a_life(self) -> bool {
        matches!(self, Self::PowerLoss | Self::Kill | Self::OlderCatalog | Self::LostCatalog | Self::LogFileDamaged)
    }

    /// True for faults that the storm injects while a server runs.
    pub fn is_injected(self) -> bool {
        !self.ends_a_life() && self != Self::GivenUpByRack
    }
}
