//! Sabotage: known bugs that a test switches on at run time, to show that the torture test catches each of them.
//!
//! Only the feature `sabotage` compiles them in. Only a test of `torture` uses that feature; the binary refuses to be
//! built with it. Without the feature [`is_on`] is `false` at compile time, so the places that call it behave as if
//! they did not.
//!
//! Invariant: a bug is on for the thread that switched it on, and for no other.

/// A bug that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A drive is used although it shows another one's label.
    DriveLabelUnchecked,
    /// A stack is removed by its name, without a check of its header.
    StackIdentityUnchecked,
    /// The checksum of a record of the catalog is not compared.
    RecordChecksumIgnored,
    /// The checksum of a fragment is not compared.
    FragmentChecksumIgnored,
    /// A pack that cannot be read is written again elsewhere, as if a drive had failed.
    SourceErrorTriedElsewhere,
    /// A drive may take any time to answer.
    NoDeadline,
    /// The right to a change is checked when the request is admitted, and not when it is committed.
    RightsCheckedEarly,
    /// The workshop is swept by a catalog whose log was not synced after it was opened.
    SweepBeforeCheckpoint,
    /// Stacks count as durable without a sync.
    StackSyncSkipped,
    /// Staged files count as durable without a sync.
    StagedSyncSkipped,
    /// Staged files are freed when their blob is written, before it was read back and committed.
    FreeBeforeVerify,
    /// The ledger grants one permit too many.
    LedgerOffByOne,
    /// Some reads of the catalog return the state before the last change.
    StaleCatalogRead,
    /// A fragment is rebuilt with the index of its neighbour.
    WrongFragmentIndex,
    /// Operations are overtaken by any amount: o - t <= u is not checked.
    OvertakeUnchecked,
    /// The stacks of a dead blob are removed during a read of it.
    HoldIgnored,
    /// A catalog that was restored from a backup is taken for the newest.
    OlderCatalogTrusted,
    /// Starts of drives are not stored.
    StartsNotRemembered,
    /// A drive is used although its label is gone.
    MissingLabelIgnored,
    /// A drive is used although it is a copy of another drive, which is in its own place.
    CloneBelieved,
    /// Uncounted data on a drive that is back is left there.
    LeftOversForgotten,
    /// A recovery takes the copy that it finds last for the newest.
    RecoverTakesTheLast,
    /// A log has records before the manifest names it.
    ManifestWrittenLate,
    /// A dead log is removed before the manifest records that it is dead.
    RemovedBeforeManifest,
    /// A rotation that lost records is taken for a complete one.
    CopyBelievedComplete,
    /// A recovery marks the workshop as its own before its catalog is in place.
    RecoverMarksItsSource,
}

/// True if this is a build with bugs in it.
pub const BUILT_IN: bool = cfg!(feature = "sabotage");

/// True if `bug` is switched on for this thread.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn is_on(_bug: Sabotage) -> bool {
    false
}

#[cfg(feature = "sabotage")]
pub use switched::{is_on, switch};

#[cfg(feature = "sabotage")]
mod switched {
    use super::Sabotage;
    use core::cell::Cell;
    use std::thread_local;

    thread_local! {
        static ON: Cell<Option<Sabotage>> = const { Cell::new(None) };
    }

    /// True if `bug` is switched on for this thread.
    pub fn is_on(bug: Sabotage) -> bool {
        ON.get() == Some(bug)
    }

    /// From now on `bug` is on for this thread alone; with `None` no bug is.
    pub fn switch(bug: Option<Sabotage>) {
        ON.set(bug);
    }
}
