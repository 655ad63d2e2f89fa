//! Reading ahead: whose room it takes, when its entries go, and how they are counted.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::purpose::AheadCounts;
use crate::testing::{collect, run};
use disk::MemoryDrive;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn spool_of(blocks: u64) -> (Spool, Arc<AheadCounts>) {
    (Spool::new(Arc::new(MemoryDrive::new(1 << 30)), blocks * BLOCK), Arc::default())
}

fn blob(number: u64) -> BlobId {
    BlobId::numbered(number)
}

/// Brings a block of blob `number` because a client asked for it.
async fn ask(spool: &Spool, number: u64) -> bool {
    bring(spool, number, Purpose::Asked { wanted_bytes: BLOCK }).await
}

/// Reads a block of blob `number` ahead; half of it is wanted.
async fn ahead(spool: &Spool, counts: &Arc<AheadCounts>, number: u64) -> bool {
    bring(spool, number, Purpose::Ahead { wanted_bytes: BLOCK / 2, counts: Arc::clone(counts) }).await
}

async fn bring(spool: &Spool, number: u64, purpose: Purpose) -> bool {
    let Ok(mut writer) = spool.reserve_for(blob(number), 0..BLOCK, purpose).await else { return false };
    writer.append(&vec![7; BLOCK_BYTES]).await.unwrap();
    writer.finish().await.unwrap();
    true
}

async fn take(spool: &Spool, number: u64, bytes: u64) {
    let reader = spool.find(blob(number), 0).unwrap();
    assert_eq!(collect(reader.read(0..bytes)).await.unwrap().len() as u64, bytes);
}

fn here(spool: &Spool) -> Vec<u64> {
    (0..20).filter(|number| spool.holds(blob(*number), 0)).collect()
}

#[test]
fn what_was_taken_goes_first_then_what_was_read_ahead_then_what_was_asked_for() {
    run(async {
        let (spool, counts) = spool_of(4);
        assert!(ask(&spool, 1).await && ahead(&spool, &counts, 2).await);
        assert!(ask(&spool, 3).await && ask(&spool, 4).await);
        take(&spool, 3, BLOCK).await;
        assert!(ask(&spool, 5).await);
        assert_eq!(here(&spool), [1, 2, 4, 5], "3 was taken");
        assert!(ask(&spool, 6).await);
        assert_eq!(here(&spool), [1, 4, 5, 6], "nobody asked for 2");
        assert!(ask(&spool, 7).await);
        assert_eq!(here(&spool), [4, 5, 6, 7], "1 is the oldest");
    });
}

#[test]
fn reading_ahead_takes_room_from_nobody_who_is_to_come_back() {
    run(async {
        let (spool, counts) = spool_of(3);
        assert!(ask(&spool, 1).await && ask(&spool, 2).await && ahead(&spool, &counts, 3).await);
        assert_eq!((spool.usage().ahead_room_bytes, spool.usage().ahead_unread_bytes), (0, BLOCK));
        assert!(!ahead(&spool, &counts, 4).await, "there is no room");
        assert_eq!(here(&spool), [1, 2, 3]);
        take(&spool, 2, BLOCK).await;
        assert_eq!(spool.usage().ahead_room_bytes, BLOCK);
        assert!(ahead(&spool, &counts, 4).await);
        assert_eq!(here(&spool), [1, 3, 4]);
        tokio::time::sleep(Duration::from_mins(11)).await;
        assert_eq!(spool.usage().ahead_room_bytes, 3 * BLOCK, "nobody has come back");
        assert_eq!(spool.usage().ahead_unread_bytes, 0);
        assert!(ahead(&spool, &counts, 5).await);
        assert_eq!(here(&spool), [3, 4, 5]);
    });
}

#[test]
fn an_entry_that_is_read_stays_and_counts_once_it_is_released() {
    run(async {
        let (spool, counts) = spool_of(1);
        assert!(ahead(&spool, &counts, 1).await);
        let reader = spool.find(blob(1), 0).unwrap();
        assert!(reader.is_ahead() && !ask(&spool, 2).await);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!ahead(&spool, &counts, 2).await, "it is held");
        collect(reader.read(0..BLOCK)).await.unwrap();
        drop(reader);
        assert!(ahead(&spool, &counts, 2).await);
        assert_eq!(here(&spool), [2]);
        assert_eq!(counts.get(), AheadBytes { read_bytes: 2 * BLOCK, used_bytes: BLOCK / 2, wasted_bytes: 0 });
    });
}

#[test]
fn what_became_of_it_is_counted_once() {
    run(async {
        let (spool, counts) = spool_of(2);
        assert!(ahead(&spool, &counts, 1).await && ahead(&spool, &counts, 2).await);
        let quarter = BLOCK / 4;
        take(&spool, 1, quarter).await;
        let first = AheadBytes { read_bytes: 2 * BLOCK, used_bytes: quarter, wasted_bytes: 0 };
        assert_eq!((counts.get(), spool.usage().ahead), (first, first));
        assert_eq!(spool.usage().ahead_unread_bytes, 2 * BLOCK, "half of what was wanted of it was taken");
        take(&spool, 1, quarter).await;
        assert_eq!(spool.usage().ahead_unread_bytes, BLOCK);
        take(&spool, 1, BLOCK).await;
        assert_eq!(counts.get().used_bytes, BLOCK / 2, "no more than was wanted");
        assert!(ask(&spool, 3).await && ask(&spool, 4).await);
        let last = AheadBytes { read_bytes: 2 * BLOCK, used_bytes: BLOCK / 2, wasted_bytes: BLOCK / 2 };
        assert_eq!((counts.get(), spool.usage().ahead), (last, last));
    });
}

#[test]
fn what_came_to_nothing_is_neither_read_nor_wasted() {
    run(async {
        let (spool, counts) = spool_of(2);
        let purpose = Purpose::Ahead { wanted_bytes: BLOCK, counts: Arc::clone(&counts) };
        let writer = spool.reserve_for(blob(1), 0..BLOCK, purpose).await.unwrap();
        assert_eq!(spool.usage().ahead_unread_bytes, BLOCK, "it takes room as it comes");
        writer.fail("its group sleeps");
        assert_eq!((counts.get(), spool.usage().ahead_unread_bytes), (AheadBytes::default(), 0));
    });
}
