//! Signs of a newer catalog on a drive, checked at the drive's first mount in a run of the server.
//!
//! The work is bounded: one listing of names per drive, a lookup of those whose numbers were assigned since the first
//! run that the catalog remembers, and a few headers. Nothing is changed on the drive.

use crate::catalog_age::{self, FIX};
use crate::context::Context;
use crate::error::text;
use catalog::Known;
use disk::stack::{self, Header, Provenance};
use disk::{BLOCK_BYTES, Buffer, Drive, DriveError, FileName};
use lineage::RunStamp;
use model::{BlobId, DriveId};

/// Stacks are looked up if their blob number is at most this far below the first one that was unassigned when the first
/// remembered run began: the size of one reservation. A newer catalog that continued with the same reservation does not
/// show in the numbers.
const RECENT: u64 = 1_024;
/// Blobs looked up at once.
const PAGE: usize = 1_024;
/// Maximum number of headers read from one drive.
const HEADERS_MAX: usize = 64;

/// Looks for stacks on `device` that were written under a newer catalog; once per drive.
pub(super) async fn look(context: &Context, drive: DriveId, device: &dyn Drive) {
    if !context.catalog_age.is_first_look(drive) {
        return;
    }
    match newer_stack(context, device).await {
        Ok(None) => {}
        Ok(Some((name, run))) => {
            let why = format!("stack {name} on drive {drive} was written under a newer catalog than this");
            catalog_age::found_newer(&context.catalog_age, (&context.catalog, &context.staging), run, why).await;
        }
        Err(error) => {
            tracing::warn!(%drive, error, "a drive could not be compared with the catalog; {FIX} if that is older");
            context.catalog_age.look_again(drive);
        }
    }
}

/// The name of a stack that was written under a newer catalog, and the run that wrote it, if one is found.
async fn newer_stack(context: &Context, device: &dyn Drive) -> Result<Option<(FileName, RunStamp)>, String> {
    let recent = context.catalog_age.blobs_compared_from().saturating_sub(RECENT);
    let names = device.list().await.map_err(text)?;
    let stacks = names.into_iter().filter_map(|name| Some((stack::stack_of(&name)?.0, name)));
    let stacks: Vec<(BlobId, FileName)> = stacks.filter(|(blob, _)| blob.number >= recent).collect();
    let (mut headers, mut unread) = (0, None);
    // The newest first: they are the likeliest.
    for page in stacks.rchunks(PAGE) {
        let ids: Vec<BlobId> = page.iter().map(|(blob, _)| *blob).collect();
        let known = context.catalog.known_blobs(&ids).await.map_err(text)?;
        for ((blob, name), known) in page.iter().zip(known).rev() {
            if known != Known::Nothing || headers == HEADERS_MAX {
                continue;
            }
            headers += 1;
            match newer_run(context, *blob, name, device).await {
                Ok(Some(run)) => return Ok(Some((name.clone(), run))),
                Ok(None) => {}
                Err(error) => unread = Some(text(error)),
            }
        }
    }
    unread.map_or(Ok(None), Err)
}

/// The run that wrote a stack of a blob unknown to the catalog, if it wrote under a newer catalog: the stack then has a
/// higher commit sequence number than this catalog had when it was opened. Stacks of this run do not count (their blob
/// may have been removed since the drive was listed), nor do stacks that were written aside, under a catalog known to
/// be older.
///
/// # Errors
/// The drive's: a header that cannot be read shows nothing.
pub(super) async fn newer_run(
    context: &Context,
    blob: BlobId,
    name: &FileName,
    device: &dyn Drive,
) -> Result<Option<RunStamp>, DriveError> {
    let block = match device.read_at(name, 0, Buffer::zeroed(BLOCK_BYTES)).await {
        Ok(block) => block,
        Err(DriveError::NotFound(_) | DriveError::Short(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(header) = Header::decode(&block) else { return Ok(None) };
    let ours = header.blob.rack == context.rack_uuid && header.blob.id == blob;
    let Provenance { sequence, run, .. } = header.provenance;
    let run = RunStamp::from_bits(run);
    Ok((ours && context.catalog_age.is_newer(run, sequence)).then_some(run))
}
