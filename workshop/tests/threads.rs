//! Many tasks on several threads at once: nothing is lost, nothing is mixed up, nothing leaks.
#![allow(clippy::unwrap_used)]

use disk::{Drive, MemoryDrive};
use futures::stream::StreamExt;
use model::{BlobId, Rng};
use std::sync::Arc;
use workshop::{BLOCK_BYTES, ReserveError, Spool, Staging, Stamp};

const TASKS: u64 = 16;
const ROUNDS: u64 = 30;

fn sample(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 97) >> 13) as u8).collect()
}

/// Stages files, and reads and frees each while it is read.
async fn stage_read_free(staging: Staging, task: u64) {
    let mut rng = Rng::new(task);
    for round in 0..ROUNDS {
        let (slot, bytes) = (task * ROUNDS + round, rng.below(3 * BLOCK_BYTES as u64));
        let data = sample(slot, bytes as usize);
        let Ok(reservation) = staging.reserve(bytes) else { continue };
        let mut writer = staging.create(slot, reservation).await.unwrap();
        writer.write(&data).await.unwrap();
        if rng.below(4) == 0 {
            continue;
        }
        writer.finish_with(Stamp::default()).await.unwrap();
        let reader = staging.open(slot).await.unwrap();
        let free = tokio::spawn({
            let staging = staging.clone();
            async move { staging.free(slot).await.unwrap() }
        });
        let read = reader.read(0..bytes).map(|chunk| chunk.unwrap().to_vec()).concat().await;
        assert!(read == data);
        free.await.unwrap();
    }
}

/// Reads ranges of a few blobs through the spool, recalls those that are missing, and waits while it is full.
async fn recall_and_read(spool: Spool, task: u64) {
    let mut rng = Rng::new(1000 + task);
    for _ in 0..ROUNDS {
        let blob = rng.below(6);
        let data = sample(blob, 2 * BLOCK_BYTES + 17);
        let mut changes = spool.changes();
        let reader = loop {
            if let Some(reader) = spool.find(BlobId::numbered(blob), 0) {
                break reader;
            }
            match spool.reserve(BlobId::numbered(blob), 0..data.len() as u64).await {
                Ok(mut writer) => {
                    for piece in data.chunks(100_000) {
                        writer.append(piece).await.unwrap();
                    }
                    writer.finish().await.unwrap();
                }
                Err(ReserveError::Full(_)) => changes.changed().await.unwrap(),
                Err(error) => panic!("{error}"),
            }
        };
        let start = rng.below(data.len() as u64);
        let read = reader.read(start..data.len() as u64).map(|chunk| chunk.unwrap().to_vec()).concat().await;
        assert!(read == data[start as usize..]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_a_workshop() {
    let drive = Arc::new(MemoryDrive::new(1 << 30));
    let staging = Staging::new(Arc::clone(&drive) as Arc<dyn Drive>, 16 << 20);
    let spool = Spool::new(Arc::clone(&drive) as Arc<dyn Drive>, 8 << 20);
    let tasks: Vec<_> = (0..TASKS)
        .flat_map(|task| {
            let staged = tokio::spawn(stage_read_free(staging.clone(), task));
            [staged, tokio::spawn(recall_and_read(spool.clone(), task))]
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // Abandoned files are removed by background tasks.
    for _ in 0..1000 {
        if staging.usage().staged_bytes + staging.usage().reserved_bytes == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!((staging.usage().staged_bytes, staging.usage().reserved_bytes), (0, 0));
    assert_eq!(spool.usage().idle_bytes, spool.usage().used_bytes);
    assert_eq!(drive.list().await.unwrap().len(), spool.usage().entries);
}
