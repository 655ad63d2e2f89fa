//! Tests of the spool: growing, failing, evicting, and never more than its capacity.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::recall::SpoolError;
use crate::testing::{collect, files, run, sample, settle};
use disk::FileName;
use disk::MemoryDrive;
use futures::FutureExt;
use futures::stream::StreamExt;
use proptest::prelude::*;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;
const BLOB: BlobId = BlobId::numbered(7);

fn spool(capacity_bytes: u64) -> (Arc<MemoryDrive>, Spool) {
    let drive = Arc::new(MemoryDrive::new(1 << 30));
    (Arc::clone(&drive), Spool::new(drive, capacity_bytes))
}

/// Payload bytes `range` of `blob`.
fn payload(blob: BlobId, range: Range<u64>) -> Vec<u8> {
    sample(blob.number, range.end as usize)[range.start as usize..].to_vec()
}

async fn recall(spool: &Spool, blob: BlobId, range: Range<u64>) -> Result<(), ReserveError> {
    let mut writer = spool.reserve(blob, range.clone()).await?;
    writer.append(&payload(blob, range)).await.unwrap();
    writer.finish().await.unwrap();
    Ok(())
}

async fn read_all(reader: &SpoolReader) -> Result<Vec<u8>, SpoolError> {
    collect(reader.read(reader.range())).await
}

#[test]
fn segments_cover_a_range_once_and_in_order() {
    assert_eq!(segments(5..25, 10).collect::<Vec<_>>(), [5..15, 15..25]);
    assert_eq!(segments(5..26, 10).collect::<Vec<_>>(), [5..15, 15..25, 25..26]);
    assert_eq!(segments(5..5, 10).count(), 0);
    assert_eq!(segments(9..u64::MAX, u64::MAX - 9).collect::<Vec<_>>(), vec![Range { start: 9, end: u64::MAX }]);
    let (_, spool) = spool(100 * BLOCK);
    assert_eq!(spool.segment_bytes(), 12 * BLOCK);
}

#[test]
fn what_is_not_there_is_not_found() {
    run(async {
        let (_, spool) = spool(100 * BLOCK);
        recall(&spool, BLOB, 100..200).await.unwrap();
        recall(&spool, BLOB, 150..400).await.unwrap();
        for (blob, offset) in [(BLOB, 99), (BLOB, 400), (BlobId::numbered(6), 150), (BlobId::numbered(8), 150)] {
            assert!(spool.find(blob, offset).is_none());
        }
        let reader = spool.find(BLOB, 160).unwrap();
        assert_eq!(reader.range(), 150..400, "the entry that goes on longest");
        assert!(reader.is_complete());
        assert_eq!(spool.find(BLOB, 149).unwrap().range(), 100..200);
        for range in [149..160, 150..401] {
            assert!(matches!(collect(reader.read(range)).await, Err(SpoolError::OutOfRange(_))));
        }
    });
}

#[test]
fn readers_follow_a_recall_as_it_grows_and_never_slow_it() {
    run(async {
        let (_, spool) = spool(1000 * BLOCK);
        let range = 3 * BLOCK + 7..200 * BLOCK + 5;
        let mut writer = spool.reserve(BLOB, range.clone()).await.unwrap();
        let data = payload(BLOB, range.clone());
        let mut readers = Vec::new();
        for (pause_ms, from) in [(0, range.start), (1, 50 * BLOCK), (50, 100 * BLOCK + 1)] {
            let reader = spool.find(BLOB, from).unwrap();
            let (expected, end) = (payload(BLOB, from..range.end), range.end);
            readers.push(tokio::spawn(async move {
                let stream = reader.read(from..end).then(move |chunk| async move {
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    chunk
                });
                assert!(collect(stream.boxed()).await.unwrap() == expected);
            }));
        }
        let begun = tokio::time::Instant::now();
        for piece in data.chunks(1000) {
            writer.append(piece).await.unwrap();
        }
        writer.finish().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "the writer waited for no reader");
        for reader in readers {
            reader.await.unwrap();
        }
        assert_eq!(spool.usage().idle_bytes, spool.usage().used_bytes);
    });
}

#[test]
fn a_failed_recall_gives_what_it_had_and_then_its_reason() {
    run(async {
        let (drive, spool) = spool(1000 * BLOCK);
        let mut writer = spool.reserve(BLOB, 0..10 * BLOCK).await.unwrap();
        writer.append(&payload(BLOB, 0..5 * BLOCK)).await.unwrap();
        settle().await;
        let reader = spool.find(BLOB, 0).unwrap();
        writer.fail("the tray vanished");
        assert!(spool.find(BLOB, 0).is_none(), "a failed recall is not found");
        assert!(collect(reader.read(0..5 * BLOCK)).await.unwrap() == payload(BLOB, 0..5 * BLOCK));
        match read_all(&reader).await {
            Err(SpoolError::Failed(reason)) => assert_eq!(&*reason, "the tray vanished"),
            other => panic!("{other:?}"),
        }
        drop(reader);
        settle().await;
        assert_eq!((files(&drive).await, spool.usage().used_bytes), ((0, 0), 0));
    });
}

#[test]
fn a_writer_that_is_dropped_or_wrong_in_length_fails_its_recall() {
    run(async {
        let (drive, spool) = spool(1000 * BLOCK);
        let writer = spool.reserve(BLOB, 0..10).await.unwrap();
        let reader = spool.find(BLOB, 0).unwrap();
        drop(writer);
        assert!(matches!(read_all(&reader).await, Err(SpoolError::Failed(_))));
        let mut writer = spool.reserve(BLOB, 0..10).await.unwrap();
        assert!(matches!(writer.append(&[0; 11]).await, Err(SpoolError::WrongLength { .. })));
        writer.append(&[0; 9]).await.unwrap();
        assert!(matches!(writer.finish().await, Err(SpoolError::WrongLength { written_bytes: 9, entry_bytes: 10 })));
        assert!(spool.reserve(BLOB, 0..BLOCK).now_or_never().is_none());
        drop(reader);
        settle().await;
        assert_eq!((files(&drive).await, spool.usage().used_bytes), ((0, 0), 0));
    });
}

#[test]
fn a_damaged_block_is_noticed_and_the_entry_given_up() {
    run(async {
        let (drive, spool) = spool(1000 * BLOCK);
        recall(&spool, BLOB, 5..5 + 3 * BLOCK).await.unwrap();
        let name = drive.list().await.unwrap().remove(0);
        drive.flip_bit(&name, BLOCK, 1);
        let reader = spool.find(BLOB, 5).unwrap();
        assert_eq!(collect(reader.read(5..5 + BLOCK)).await.unwrap(), payload(BLOB, 5..5 + BLOCK));
        assert!(matches!(read_all(&reader).await, Err(SpoolError::Damaged { block: 1, .. })));
        assert!(spool.find(BLOB, 5).is_none());
        drop(reader);
        settle().await;
        assert_eq!((files(&drive).await, spool.usage().used_bytes), ((0, 0), 0));
    });
}

#[test]
fn the_least_recently_used_goes_first_and_what_is_read_stays() {
    run(async {
        let (_, spool) = spool(4 * BLOCK);
        for blob in 1..=4 {
            recall(&spool, BlobId::numbered(blob), 0..BLOCK).await.unwrap();
        }
        drop(spool.find(BlobId::numbered(1), 0).unwrap());
        let read = spool.find(BlobId::numbered(2), 0).unwrap();
        recall(&spool, BlobId::numbered(5), 0..2 * BLOCK).await.unwrap();
        let there: Vec<u64> = (1..=5).filter(|blob| spool.find(BlobId::numbered(*blob), 0).is_some()).collect();
        assert_eq!(there, [1, 2, 5], "3 and 4 were used longest ago");
        assert!(read_all(&read).await.unwrap() == payload(BlobId::numbered(2), 0..BLOCK));
    });
}

#[test]
fn what_does_not_fit_evicts_nothing_and_is_told_when_there_is_room() {
    run(async {
        let (_, spool) = spool(4 * BLOCK);
        recall(&spool, BlobId::numbered(1), 0..BLOCK).await.unwrap();
        let growing = spool.reserve(BlobId::numbered(2), 0..2 * BLOCK).await.unwrap();
        match spool.reserve(BlobId::numbered(3), 0..3 * BLOCK).await {
            Err(ReserveError::Full(full)) => assert!(full.retry_after.is_some() && full.free_bytes == 2 * BLOCK),
            _ => panic!("there is no room for three"),
        }
        assert!(spool.find(BlobId::numbered(1), 0).is_some(), "nothing was evicted in vain");
        match spool.reserve(BlobId::numbered(3), 0..5 * BLOCK).await {
            Err(ReserveError::Full(full)) => assert_eq!(full.retry_after, None),
            _ => panic!("that never fits"),
        }
        assert!(matches!(spool.reserve(BlobId::numbered(3), 0..u64::MAX).await, Err(ReserveError::Full(_))));
        settle().await;
        let mut changes = spool.changes();
        assert!(changes.changed().now_or_never().is_none());
        growing.fail("enough");
        while spool.reserve(BlobId::numbered(3), 0..3 * BLOCK).await.is_err() {
            changes.changed().await.unwrap();
        }
    });
}

#[test]
fn whichever_call_fails_nothing_leaks() {
    run(async {
        for call in 1..40 {
            let (drive, spool) = spool(16 * BLOCK);
            recall(&spool, BlobId::numbered(1), 0..16 * BLOCK).await.unwrap();
            drive.fail_call(call);
            let worked = match spool.reserve(BLOB, 0..13 * BLOCK + 1).await {
                Err(_) => false,
                Ok(mut writer) => {
                    writer.append(&payload(BLOB, 0..13 * BLOCK + 1)).await.is_ok() && writer.finish().await.is_ok()
                }
            };
            settle().await;
            assert_eq!(worked, call > 16, "a removal, a creation, and 14 writes");
            if !worked {
                // A removal that failed is retried with the next reservation.
                drop(spool.reserve(BLOB, 0..1).await.unwrap());
                settle().await;
                assert_eq!((files(&drive).await, spool.usage().used_bytes), ((0, 0), 0), "after call {call}");
            }
        }
    });
}

#[test]
fn where_no_file_can_be_removed_what_was_not_made_takes_no_room() {
    run(async {
        let (drive, spool) = spool(16 * BLOCK);
        recall(&spool, BlobId::numbered(1), 0..16 * BLOCK).await.unwrap();
        drive.set_dead(true);
        for _ in 0..2 {
            assert!(matches!(spool.reserve(BLOB, 0..13 * BLOCK).await, Err(ReserveError::Drive(_))));
            settle().await;
            assert_eq!(spool.usage().used_bytes, 16 * BLOCK, "the file that could not be removed, and no other");
        }
        drive.set_dead(false);
        recall(&spool, BLOB, 0..13 * BLOCK).await.unwrap();
    });
}

#[test]
fn a_full_disk_is_full_and_leaks_nothing() {
    run(async {
        let (drive, spool) = spool(16 * BLOCK);
        drive.set_capacity(BLOCK);
        assert!(matches!(spool.reserve(BLOB, 0..2 * BLOCK).await, Err(ReserveError::Full(_))));
        settle().await;
        assert_eq!((files(&drive).await, spool.usage().used_bytes), ((0, 0), 0));
    });
}

#[test]
fn a_wipe_takes_what_an_earlier_process_left_and_nothing_else() {
    run(async {
        let (drive, spool) = spool(16 * BLOCK);
        recall(&spool, BLOB, 0..BLOCK).await.unwrap();
        let other = FileName::new("s-0000000000000001").unwrap();
        drive.create(&other, 1).await.unwrap();
        let spool = Spool::new(Arc::clone(&drive) as Arc<dyn Drive>, 16 * BLOCK);
        assert_eq!(spool.wipe().await.unwrap(), 1);
        assert_eq!(drive.list().await.unwrap(), [other]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_happens_the_drive_never_holds_more_than_the_capacity(
        steps in proptest::collection::vec((0u8..7, 0u64..4, 0u64..4 * BLOCK, 1u64..4 * BLOCK), 1..80)
    ) {
        run(async {
            let capacity_bytes = 8 * BLOCK;
            let (drive, spool) = spool(capacity_bytes);
            let (mut writers, mut readers) = (Vec::new(), Vec::new());
            for (what, blob, start, bytes) in steps {
                let (range, at) = (start..start + bytes, (start % 5) as usize);
                match what {
                    0 => drop(recall(&spool, BlobId::numbered(blob), range).await),
                    1 => {
                        let reserved = spool.reserve(BlobId::numbered(blob), range).await;
                        writers.extend(reserved.ok().map(|writer| (blob, writer)));
                    }
                    2 | 3 => readers.extend(spool.find(BlobId::numbered(blob), start).map(|reader| (blob, reader))),
                    4 if at < writers.len() => {
                        let (blob, mut writer) = writers.remove(at);
                        writer.append(&payload(BlobId::numbered(blob), writer.range())).await.unwrap();
                        writer.finish().await.unwrap();
                    }
                    5 if at < writers.len() => drop(writers.remove(at)),
                    6 if at < readers.len() => drop(readers.remove(at)),
                    _ => {}
                }
                let on_drive = files(&drive).await.1;
                assert!(on_drive <= capacity_bytes);
                for (blob, reader) in readers.iter().filter(|(_, reader)| reader.is_complete()) {
                    assert!(read_all(reader).await.unwrap() == payload(BlobId::numbered(*blob), reader.range()));
                }
                settle().await;
                let usage = spool.usage();
                assert!(usage.used_bytes <= capacity_bytes && usage.idle_bytes <= usage.used_bytes);
                assert_eq!(usage.entries, drive.list().await.unwrap().len());
            }
            drop((writers, readers));
            settle().await;
            assert_eq!(spool.usage().used_bytes, spool.usage().idle_bytes);
        });
    }
}
