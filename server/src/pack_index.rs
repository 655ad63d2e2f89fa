//! The index of the pack in a blob, read from its stacks while no server runs.

use crate::error::text;
use disk::Drive;
use disk::stack::{Blob, Policy, StackReader};
use std::sync::Arc;
use workshop::{IndexEntry, PACK_FOOTER_BYTES, decode_footer, decode_index};

/// The index of the pack in `blob`, read from these stacks of it; `None` if it is longer than `bytes_max`. Nothing is
/// repaired.
///
/// # Errors
/// The reason that it cannot be read, for people.
pub(crate) async fn read_index(
    blob: Blob,
    stacks: Vec<(u8, Arc<dyn Drive>)>,
    bytes_max: u64,
) -> Result<Option<Vec<IndexEntry>>, String> {
    let payload_bytes = blob.payload_bytes;
    let opened = StackReader::open(blob, stacks, Policy::K).await.result;
    let mut reader = opened.map_err(text)?.without_repairs();
    let footer_at = payload_bytes.checked_sub(PACK_FOOTER_BYTES as u64).ok_or("it is too short for a pack")?;
    let mut bytes = Vec::new();
    reader.read(footer_at..payload_bytes, &mut bytes).await.map_err(text)?;
    let footer = decode_footer(&bytes).map_err(text)?;
    if footer.index_offset.checked_add(footer.index_bytes) != Some(footer_at) {
        return Err("its index is not where it should be".to_owned());
    }
    if footer.index_bytes > bytes_max {
        return Ok(None);
    }
    bytes.clear();
    reader.read(footer.index_offset..footer_at, &mut bytes).await.map_err(text)?;
    decode_index(&footer, &bytes).map(Some).map_err(text)
}
