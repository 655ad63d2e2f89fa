//! Helpers that the tests of this crate share.
#![allow(clippy::unwrap_used)]

use crate::{ReadError, StageError, StagedFile, Staging, Stamp};
use bytes::Bytes;
use disk::{Drive, MemoryDrive};
use futures::stream::{Stream, StreamExt};
use std::sync::Arc;

/// A runtime of one thread, in virtual time.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(test)
}

/// An empty staging area on a drive that has room for all of it.
pub(crate) fn staging(capacity_bytes: u64) -> (Arc<MemoryDrive>, Staging) {
    let drive = Arc::new(MemoryDrive::new(1 << 30));
    (Arc::clone(&drive), Staging::new(drive, capacity_bytes))
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn sample(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Stages `data`, written in pieces of `piece` bytes, with room for `room` bytes.
pub(crate) async fn stage_in_pieces(
    staging: &Staging,
    slot: u64,
    data: &[u8],
    piece: usize,
    room: u64,
) -> Result<StagedFile, StageError> {
    let mut writer = staging.create(slot, staging.reserve(room)?).await?;
    for piece in data.chunks(piece) {
        writer.write(piece).await?;
    }
    writer.finish_with(Stamp::default()).await
}

/// Stages `data`.
pub(crate) async fn stage(staging: &Staging, slot: u64, data: &[u8]) -> Result<StagedFile, StageError> {
    stage_in_pieces(staging, slot, data, usize::MAX, data.len() as u64).await
}

/// All of a stream, or its error.
pub(crate) async fn collect<E>(mut stream: impl Stream<Item = Result<Bytes, E>> + Unpin) -> Result<Vec<u8>, E> {
    let mut all = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        assert!((1..=crate::BLOCK_BYTES).contains(&chunk.len()), "a chunk is at most a block, and never empty");
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

/// All of a staged file.
pub(crate) async fn read_all(staging: &Staging, slot: u64) -> Result<Vec<u8>, ReadError> {
    let reader = staging.open(slot).await?;
    collect(reader.read(0..reader.bytes())).await
}

/// Lets everything run that can run.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The slots of the files, in ascending order.
pub(crate) async fn file_slots(staging: &Staging) -> Vec<u64> {
    let mut slots = Vec::new();
    staging.each_file(|slot| slots.push(slot)).await.unwrap();
    slots.sort_unstable();
    slots
}

/// The number of files on the drive, and of their bytes.
pub(crate) async fn files(drive: &MemoryDrive) -> (usize, u64) {
    let space = drive.space().await.unwrap();
    (drive.list().await.unwrap().len(), space.capacity_bytes - space.free_bytes)
}
