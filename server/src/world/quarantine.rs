//! Sources that cannot be read: detected, named, and not retried again and again.
//!
//! Damage of a staged file belongs to its object. The catalog records it across restarts, `larder status` and `larder
//! explain` name it, and packs are made without it. If a file cannot be opened because the host has no descriptors or
//! memory left, no object is to blame, and nothing is recorded.

use crate::context::{Context, usage_of};
use crate::pacing::Turn;
use bytes::Bytes;
use catalog::{CatalogError, Cursor, Place, Version, VersionId};
use disk::DriveError;
use futures::StreamExt;
use std::io;
use workshop::{BLOCK_BYTES, CheckedBytes, Checksummer, NamedSlot, PackError, ReadError, SlotHold, whole_checksum};

/// Versions whose files are read again at once, at the start.
const RECHECKS_AT_ONCE: usize = 4;

/// Quarantine records read at once.
const PAGE: usize = 256;

/// True if this error is the file's fault, and not due to a host that is short of something.
pub(crate) fn blames_file(error: &ReadError) -> bool {
    let ReadError::Drive(DriveError::Io { source, .. }) = error else { return true };
    let short = [io::ErrorKind::OutOfMemory, io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock];
    // EMFILE and ENFILE have no `ErrorKind`: too many open files, in the process and in the system.
    !short.contains(&source.kind()) && !matches!(source.raw_os_error(), Some(23 | 24))
}

/// True if a pack failed because of the member that was being read.
pub(super) fn blames_member(error: &PackError) -> bool {
    match error {
        PackError::Read(error) => blames_file(error),
        PackError::MemberGone { .. }
        | PackError::MemberLength { .. }
        | PackError::MemberMismatch { .. }
        | PackError::EntryTooLong { .. } => true,
        PackError::Members(_) | PackError::TooLong => false,
    }
}

/// Quarantines a version that cannot be read at the place in `found`. False if it is gone from there by now, or the
/// catalog could not record it.
pub(crate) async fn quarantine(context: &Context, found: &Version, reason: &str) -> bool {
    let Version { bucket, key, .. } = found;
    match context.catalog.mark_unreadable(found, (context.wall)(), reason).await {
        Ok(true) => {
            tracing::error!(
                bucket,
                key,
                reason,
                "an object cannot be read and is in quarantine; write it again or delete it, or put its file back and \
                 restart the server"
            );
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::error!(bucket, key, reason, %error, "an unreadable object could not be put into quarantine");
            false
        }
    }
}

/// Damage of a version.
pub(super) struct Trouble {
    pub(super) reason: String,
    /// True if the damage is the version's own, and not the host's.
    pub(super) own: bool,
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        Self { reason: error.to_string(), own: blames_file(&error) }
    }
}

/// The result of reading every byte of a staged version.
pub(super) enum Examined {
    /// All of it is as it was staged; with its bytes, if they were to be kept.
    Sound(Option<CheckedBytes>),
    /// It is damaged, or cannot be read.
    Bad(Trouble),
    /// It is not stored there any more.
    Gone,
    /// Clients came in between.
    Busy,
}

/// The way in which staged versions are read for a check.
pub(super) struct Reading<'a> {
    context: &'a Context,
    /// True if the bytes are kept.
    keep: bool,
    /// The load, in thousandths, at which reading stops.
    load_limit_permille: Option<u32>,
    is_paced: bool,
    turn: Option<Turn>,
}

impl<'a> Reading<'a> {
    /// Reads at once, and to the end.
    fn at_once(context: &'a Context) -> Self {
        Self { context, keep: false, load_limit_permille: None, is_paced: false, turn: None }
    }

    /// Reads beside clients, in turns, and only below the load limit, if any.
    pub(super) fn paced(context: &'a Context, load_limit_permille: Option<u32>) -> Self {
        Self { load_limit_permille, is_paced: true, ..Self::at_once(context) }
    }

    /// Sets whether the bytes of the next version are kept.
    pub(super) fn keeping(&mut self, keep: bool) -> &mut Self {
        self.keep = keep;
        self
    }

    /// Accounts for `bytes` more that were read. False if clients go first.
    async fn goes_on(&mut self, bytes: u64) -> bool {
        let pacing = &self.context.pacing;
        if self.load_limit_permille.is_some_and(|limit| pacing.load_permille() >= limit) {
            return false;
        }
        let usage = || usage_of(self.context);
        self.turn = match self.turn.take() {
            _ if !self.is_paced => None,
            Some(turn) => Some(turn.copied(bytes, usage).await),
            None => Some(pacing.turn_to_check(usage).await),
        };
        true
    }

    /// Reads and checks all of a staged file of `of`; returns its length and, if they are to be kept, its bytes. `None`
    /// if clients came in between.
    async fn read_all(
        &mut self,
        of: &Version,
        hold: &SlotHold,
        mut sum: Option<&mut Checksummer>,
    ) -> Result<Option<(u64, Vec<Bytes>)>, ReadError> {
        if !self.goes_on(0).await {
            return Ok(None);
        }
        let reader = hold.open().await?.of_version(of.version.0, &of.bucket, &of.key)?;
        let (mut blocks, mut kept) = (reader.read(0..reader.bytes()), Vec::new());
        while let Some(block) = blocks.next().await {
            let block = block?;
            if let Some(sum) = &mut sum {
                sum.update(&block);
            }
            if !self.goes_on(block.len() as u64).await {
                return Ok(None);
            }
            if self.keep {
                // A short block is part of a longer buffer, which must not be kept.
                let is_short = block.len() < BLOCK_BYTES;
                kept.push(if is_short { Bytes::copy_from_slice(&block) } else { block });
            }
        }
        Ok(Some((reader.bytes(), kept)))
    }
}

/// Reads and checks every byte of a staged version.
pub(super) async fn examine(
    context: &Context,
    found: &Version,
    reading: &mut Reading<'_>,
) -> Result<Examined, CatalogError> {
    if matches!(found.place, Place::Stored { .. }) {
        return Ok(Examined::Gone);
    }
    let slots = context.catalog.slots_of(found.version, found.place).await?;
    let hold = |slot| context.staging.hold(NamedSlot::of(slot, &found.bucket, &found.key));
    let Some(holds) = slots.into_iter().map(hold).collect::<Option<Vec<_>>>() else { return Ok(Examined::Gone) };
    let object = context.catalog.staged_object(found.version).await?.map(|staged| staged.placed.object);
    let own = object.as_ref().and_then(whole_checksum);
    let mut sum = own.map(|own| Checksummer::new(own.kind));
    let (mut all_bytes, mut kept) = (0, Vec::new());
    for hold in holds {
        match reading.read_all(found, &hold, sum.as_mut()).await {
            Ok(None) => return Ok(Examined::Busy),
            Ok(Some((bytes, of_file))) => {
                all_bytes += bytes;
                kept.push(of_file);
            }
            Err(error) => return Ok(Examined::Bad(error.into())),
        }
    }
    if let (Some(own), Some(sum)) = (own, sum)
        && all_bytes == found.bytes
        && sum.finish() != *own
    {
        let reason = "its bytes do not have its own checksum".to_owned();
        return Ok(Examined::Bad(Trouble { reason, own: true }));
    }
    if all_bytes != found.bytes {
        let reason = format!("its files hold {all_bytes} bytes, and its record says {}", found.bytes);
        return Ok(Examined::Bad(Trouble { reason, own: true }));
    }
    Ok(Examined::Sound(reading.keep.then_some(kept)))
}

/// The damage of a staged version, found by reading and checking every byte; `None` if it has no damage, or is not
/// stored there any more.
async fn trouble(context: &Context, found: &Version) -> Result<Option<Trouble>, CatalogError> {
    Ok(match examine(context, found, &mut Reading::at_once(context)).await? {
        Examined::Bad(trouble) => Some(trouble),
        Examined::Sound(_) | Examined::Gone | Examined::Busy => None,
    })
}

/// Damage of a staged version's files that shows without reading them: one is missing, or too short.
pub(super) async fn missing(
    context: &Context,
    (bucket, key): (&str, &str),
    slots: &[u64],
    bytes: &[u64],
) -> Option<String> {
    for (slot, bytes) in slots.iter().zip(bytes) {
        match context.staging.charged_bytes(NamedSlot::of(*slot, bucket, key)).await {
            Err(DriveError::NotFound(file)) => return Some(format!("its file {file} is missing from the workshop")),
            Ok(charged_bytes) if charged_bytes < *bytes => {
                return Some(format!("the file of slot {slot} is shorter than its {bytes} bytes"));
            }
            // Any other damage shows when the file is read.
            _ => {}
        }
    }
    None
}

/// Reads every byte of the versions in quarantine again, and releases those that are readable, since their file was put
/// back or their disk repaired. Runs at the start; touches no drive of the rack.
pub(crate) async fn recheck(context: &Context) {
    let mut after: Option<Cursor> = None;
    loop {
        let page = match context.catalog.unreadable_page(after.as_ref(), PAGE).await {
            Ok(page) => page,
            Err(error) => return tracing::error!(%error, "could not check the objects in quarantine"),
        };
        let staged = page.items.into_iter().filter(|found| !matches!(found.place, Place::Stored { .. }));
        let checks = futures::stream::iter(staged.map(|found| recheck_one(context, found.version)));
        checks.buffer_unordered(RECHECKS_AT_ONCE).collect::<()>().await;
        after = page.next;
        if after.is_none() {
            return;
        }
    }
}

async fn recheck_one(context: &Context, version: VersionId) {
    let looked = async {
        let Some(found) = context.catalog.staged_version(version).await? else { return Ok(()) };
        let Version { bucket, key, .. } = &found;
        if let Some(trouble) = trouble(context, &found).await? {
            tracing::error!(bucket, key, trouble.reason, "an object is still in quarantine");
        } else {
            context.catalog.clear_unreadable(version).await?;
            tracing::info!(bucket, key, "an object can be read again and left quarantine");
        }
        Ok::<(), CatalogError>(())
    };
    if let Err(error) = looked.await {
        tracing::error!(version = version.0, %error, "an object in quarantine could not be looked up");
    }
}

/// Reads and checks every byte of `versions`, and quarantines those that cannot be read. Returns the others in their
/// order, without damaged ones that the catalog could not quarantine.
pub(super) async fn survey(context: &Context, versions: &[VersionId]) -> Result<Vec<VersionId>, CatalogError> {
    let mut left = Vec::with_capacity(versions.len());
    for version in versions {
        let Some(found) = context.catalog.staged_version(*version).await? else { continue };
        match trouble(context, &found).await? {
            None => left.push(*version),
            Some(trouble) if trouble.own => {
                quarantine(context, &found, &trouble.reason).await;
            }
            // The host's fault: this pack is made without it, and the next listing shows it again.
            Some(trouble) => tracing::warn!(key = found.key, trouble.reason, "a staged file is unreadable at present"),
        }
    }
    Ok(left)
}
