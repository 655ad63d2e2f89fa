//! Tests of staging: what is read is what was written, what is damaged is noticed, and nothing leaks.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::BLOCK_BYTES;
use crate::staged_format::blocks;
use crate::testing::{collect, file_slots, files, read_all, run, sample, settle, stage, stage_in_pieces, staging};
use disk::{FileName, MemoryCall, MemoryDrive};
use futures::FutureExt;
use futures::stream::StreamExt;
use model::Rng;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: usize = BLOCK_BYTES;

fn usage(staging: &Staging) -> (u64, u64) {
    let usage = staging.usage();
    (usage.staged_bytes, usage.reserved_bytes)
}

#[test]
fn many_files_are_freed_by_few_calls_and_none_is_asked_for_its_length() {
    run(async {
        let (drive, staging) = staging(1 << 30);
        let slots: Vec<u64> = (1..=2_500).collect();
        for &slot in &slots {
            stage(&staging, slot, b"small").await.unwrap();
        }
        let lengths = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&lengths);
        drive.hang(move |call| {
            count.fetch_add(u64::from(matches!(call, MemoryCall::Len(_))), Ordering::Relaxed);
            None
        });
        drive.record_calls();
        staging.free_all(&slots.iter().map(|&slot| slot.into()).collect::<Vec<_>>()).await.unwrap();
        let removed = MemoryCall::RemoveMany;
        assert_eq!(drive.recorded_calls(), [removed(1_024), removed(1_024), removed(452)]);
        assert_eq!(lengths.load(Ordering::Relaxed), 0);
        assert_eq!((staging.usage().staged_bytes, files(&drive).await.0), (0, 0));
    });
}

#[test]
fn what_could_not_be_removed_counts_until_it_is() {
    run(async {
        let (drive, staging) = staging(1 << 30);
        for slot in 1..=3 {
            stage(&staging, slot, b"small").await.unwrap();
        }
        let before = staging.usage();
        drive.fail_call(1);
        staging.free_all(&[1, 2].map(Into::into)).await.unwrap_err();
        assert_eq!(staging.usage(), before);
        staging.free(3).await.unwrap();
        assert_eq!((staging.usage().staged_bytes, files(&drive).await.0), (0, 0));
    });
}

#[test]
fn a_small_file_costs_a_create_a_write_a_sync_and_a_read() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        drive.record_calls();
        stage(&staging, 3, b"small").await.unwrap();
        let name = staged_name(3);
        let file_bytes = 5 + 4 + 128;
        let staged = [
            MemoryCall::Create(name.clone()),
            MemoryCall::Write(name.clone(), 0, file_bytes),
            MemoryCall::Sync(name.clone()),
        ];
        assert_eq!(drive.recorded_calls(), staged);
        assert_eq!(read_all(&staging, 3).await.unwrap(), b"small");
        assert_eq!(drive.recorded_calls(), [MemoryCall::Read(name, 0, file_bytes)]);
    });
}

#[test]
fn an_empty_file_is_a_file() {
    run(async {
        let (_, staging) = staging(1 << 20);
        assert_eq!(stage(&staging, 3, b"").await.unwrap().bytes, 0);
        assert_eq!(read_all(&staging, 3).await.unwrap(), b"");
    });
}

#[test]
fn tables_of_many_pages_are_written_and_read() {
    run(async {
        let (_, staging) = staging(1 << 26);
        // So long that opening it does not read the whole table.
        let data = sample(1, 700 * BLOCK + 17);
        for (slot, room) in [(1, data.len()), (2, data.len() + 90 * BLOCK)] {
            stage_in_pieces(&staging, slot, &data, 3 * BLOCK + 5, room as u64).await.unwrap();
            assert!(read_all(&staging, slot).await.unwrap() == data);
            let reader = staging.open(slot).await.unwrap();
            let middle = 333 * BLOCK as u64 - 1..334 * BLOCK as u64 + 1;
            let read = collect(reader.read(middle.clone())).await.unwrap();
            assert!(read == data[middle.start as usize..middle.end as usize]);
        }
    });
}

#[test]
fn reading_beyond_the_end_is_refused() {
    run(async {
        let (_, staging) = staging(1 << 20);
        stage(&staging, 1, b"four").await.unwrap();
        let reader = staging.open(1).await.unwrap();
        for range in [0..5, 5..5, Range { start: 2, end: 1 }] {
            assert!(matches!(collect(reader.read(range)).await, Err(ReadError::OutOfRange { slot: 1, bytes: 4 })));
        }
        assert_eq!(collect(reader.read(4..4)).await.unwrap(), b"");
        assert!(matches!(staging.open(2).await, Err(ReadError::NotFound { slot: 2 })));
    });
}

#[test]
fn what_was_not_reserved_is_refused_and_the_file_goes() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        let mut writer = staging.create(1, staging.reserve(3).unwrap()).await.unwrap();
        assert!(matches!(writer.write(b"four").await, Err(StageError::TooLong { reserved_bytes: 3 })));
        drop(writer);
        settle().await;
        assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)));
    });
}

#[test]
fn admission_counts_what_is_reserved_and_what_is_staged() {
    run(async {
        let (_, staging) = staging(8 * 4096);
        stage(&staging, 1, &[1; 5000]).await.unwrap();
        assert_eq!(usage(&staging), (2 * 4096, 0));
        let reservation = staging.reserve(6 * 4096 - 200).unwrap();
        assert_eq!(usage(&staging), (2 * 4096, 6 * 4096));
        let full = staging.reserve(1).err().unwrap();
        assert_eq!((full.wanted_bytes, full.free_bytes), (4096, 0));
        assert!(full.retry_after.is_some());
        drop(reservation);
        assert!(staging.reserve(1).is_ok());
        for never in [9 * 4096, u64::MAX] {
            assert_eq!(staging.reserve(never).err().unwrap().retry_after, None, "that will never fit");
        }
        staging.free(1).await.unwrap();
        assert_eq!(usage(&staging), (0, 0));
    });
}

#[test]
fn who_announces_much_and_sends_little_takes_little() {
    run(async {
        let (drive, staging) = staging(100 << 10);
        let first = staging.reserve_growing(90 << 10).unwrap();
        assert_eq!(usage(&staging), (0, 16 << 10));
        let mut idle = staging.create(1, first).await.unwrap();
        idle.write(&[1]).await.unwrap();
        assert_eq!(usage(&staging), (0, 16 << 10));
        let data = sample(2, 60 << 10);
        let mut writer = staging.create(2, staging.reserve_growing(60 << 10).unwrap()).await.unwrap();
        writer.write(&data[..20 << 10]).await.unwrap();
        assert_eq!(usage(&staging), (0, (16 << 10) + (40 << 10)), "as much again as has come");
        writer.write(&data[20 << 10..]).await.unwrap();
        writer.finish_with(Stamp::default()).await.unwrap();
        let all = charge((60 << 10) + 4 * 15 + 64);
        assert_eq!(usage(&staging), (all, 16 << 10));
        let reader = staging.open(2).await.unwrap();
        assert!(collect(reader.read(0..60 << 10)).await.unwrap() == data);
        // The rest of the room that the first one announced is taken by now.
        let refused = idle.write(&vec![1; 50 << 10]).await;
        assert!(matches!(refused, Err(StageError::Full(full)) if full.retry_after.is_some()));
        drop((idle, reader));
        settle().await;
        assert_eq!((usage(&staging), files(&drive).await.0), ((all, 0), 1));
        assert!(staging.reserve_growing(60 << 10).is_err(), "what surely has no room is refused at once");
        assert_eq!(staging.reserve_growing(101 << 10).err().unwrap().retry_after, None);
        assert!(staging.ever_fits(90 << 10).is_ok() && staging.ever_fits(101 << 10).is_err());
    });
}

#[test]
fn a_full_disk_is_full_and_leaks_nothing() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        drive.set_capacity(5000);
        assert!(matches!(stage(&staging, 1, &[0; 8000]).await, Err(StageError::Full(_))));
        settle().await;
        assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)));
    });
}

#[test]
fn whichever_call_fails_nothing_leaks() {
    run(async {
        let data = sample(1, 70 * BLOCK + 1);
        for call in 1.. {
            let (drive, staging) = staging(1 << 20);
            drive.fail_call(call);
            let staged = stage_in_pieces(&staging, 1, &data, 1000, data.len() as u64 + 9).await;
            settle().await;
            if staged.is_ok() {
                assert!(call > 70);
                break;
            }
            assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)), "after call {call}");
        }
    });
}

#[test]
fn a_removal_that_fails_is_tried_again() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        stage(&staging, 1, &[1; 100]).await.unwrap();
        drive.fail_call(1);
        assert!(staging.free(1).await.is_err());
        assert_eq!(usage(&staging), (4096, 0), "it counts as long as it is there");
        assert!(staging.open(1).await.is_err());
        staging.free(1).await.unwrap();
        assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)));
        staging.free(1).await.unwrap();
    });
}

#[test]
fn calls_that_are_given_up_half_way_leak_nothing() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        let reservation = staging.reserve(100).unwrap();
        assert!(staging.create(1, reservation).now_or_never().is_none());
        let mut writer = staging.create(2, staging.reserve(5 * BLOCK as u64).unwrap()).await.unwrap();
        assert!(writer.write(&[0; 4 * BLOCK]).now_or_never().is_none());
        assert!(writer.write(&[0; 4]).await.is_err(), "it is unknown how much of the last call was written");
        assert!(writer.finish_with(Stamp::default()).await.is_err());
        settle().await;
        assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)));
    });
}

#[test]
fn a_slot_in_use_is_not_created_again() {
    run(async {
        let (_, staging) = staging(1 << 20);
        stage(&staging, 1, b"first").await.unwrap();
        assert!(stage(&staging, 1, b"second").await.is_err());
        let _writer = staging.create(2, staging.reserve(1).unwrap()).await.unwrap();
        assert!(staging.create(2, staging.reserve(1).unwrap()).await.is_err());
        assert_eq!(read_all(&staging, 1).await.unwrap(), b"first");
        assert_eq!(usage(&staging), (4096, 4096));
    });
}

#[test]
fn a_reader_of_a_freed_file_finishes_and_then_the_file_goes() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        let data = sample(9, 3 * BLOCK);
        stage(&staging, 1, &data).await.unwrap();
        let reader = staging.open(1).await.unwrap();
        let mut stream = reader.read(0..data.len() as u64);
        assert!(stream.next().await.unwrap().unwrap() == data[..BLOCK]);
        staging.free(1).await.unwrap();
        assert!(matches!(staging.open(1).await, Err(ReadError::NotFound { slot: 1 })));
        drop(reader);
        settle().await;
        assert_eq!(collect(&mut stream).await.unwrap(), data[BLOCK..]);
        assert_eq!(files(&drive).await.0, 1);
        drop(stream);
        settle().await;
        assert_eq!((files(&drive).await, usage(&staging)), ((0, 0), (0, 0)));
        assert!(staging.slots.state.lock().slots.is_empty());
    });
}

#[test]
fn a_crash_keeps_finished_files_and_the_sweep_takes_the_others() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        for slot in 1..=4 {
            stage(&staging, slot, &sample(slot, 5000)).await.unwrap();
        }
        let mut unfinished = staging.create(5, staging.reserve(9000).unwrap()).await.unwrap();
        unfinished.write(&[5; 9000]).await.unwrap();
        drive.sync(&staged_name(5)).await.unwrap();
        let other = FileName::new("note").unwrap();
        drive.create(&other, 1).await.unwrap();
        drive.sync(&other).await.unwrap();
        drive.crash();
        let staging = Staging::new(Arc::clone(&drive) as Arc<dyn Drive>, 1 << 20);
        staging.count_known(3 * charged_for(5000));
        assert_eq!(usage(&staging), (3 * 8192, 0));
        assert_eq!(file_slots(&staging).await, [1, 2, 3, 4, 5]);
        let unknown = UnknownFile { at: 4.into(), charged_bytes: 8192, stamp: Some(Stamp::default()) };
        assert_eq!(staging.count_unknown(4.into()).await.unwrap(), Some(unknown));
        assert_eq!(staging.count_unknown(5.into()).await.unwrap(), None, "it was never finished");
        assert_eq!(usage(&staging), (4 * 8192, 0), "a finished file stays until it is freed");
        assert_eq!(staging.usage().found_bytes, 8192);
        staging.free(4).await.unwrap();
        assert_eq!(usage(&staging), (3 * 8192, 0));
        for slot in 1..=3 {
            assert!(read_all(&staging, slot).await.unwrap() == sample(slot, 5000));
        }
        assert_eq!(drive.list().await.unwrap().len(), 4);
        std::mem::forget(unfinished);
    });
}

#[test]
fn what_is_found_once_its_room_is_taken_keeps_others_out_until_it_is_gone() {
    run(async {
        let (drive, before) = staging(2 * 8192);
        stage(&before, 1, &sample(1, 5000)).await.unwrap();
        drive.crash();
        let staging = Staging::new(Arc::clone(&drive) as Arc<dyn Drive>, 2 * 8192);
        for slot in [2, 3] {
            stage(&staging, slot, &sample(slot, 5000)).await.unwrap();
        }
        staging.count_unknown(1.into()).await.unwrap().unwrap();
        let found = staging.usage();
        assert_eq!((found.staged_bytes - found.capacity_bytes, found.found_bytes), (8192, 8192));
        staging.free(2).await.unwrap();
        assert!(staging.reserve(5000).is_err(), "it is full again, and no more");
        staging.free(1).await.unwrap();
        stage(&staging, 4, &sample(4, 5000)).await.unwrap();
        assert!(staging.reserve(5000).is_err());
    });
}

#[test]
fn a_file_that_was_never_finished_cannot_be_opened() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        drive.create(&staged_name(1), 5000).await.unwrap();
        drive.create(&staged_name(2), 10).await.unwrap();
        assert!(matches!(staging.open(1).await, Err(ReadError::Unusable { slot: 1, .. })));
        assert!(matches!(staging.open(2).await, Err(ReadError::Unusable { slot: 2, .. })));
    });
}

#[test]
fn after_a_torn_crash_whatever_was_finished_is_whole() {
    run(async {
        for seed in 0..200 {
            let (drive, staging) = staging(1 << 20);
            drive.fail_call(1 + seed % 60);
            let mut finished = Vec::new();
            for slot in 0..6 {
                let data = sample(slot, 7 * BLOCK + 100 * slot as usize);
                if stage_in_pieces(&staging, slot, &data, 999, data.len() as u64).await.is_ok() {
                    finished.push(slot);
                }
            }
            drive.crash_torn(&mut Rng::new(seed));
            let staging = Staging::new(Arc::clone(&drive) as Arc<dyn Drive>, 1 << 20);
            let mut unknown = 0;
            for slot in file_slots(&staging).await {
                if !finished.contains(&slot) {
                    unknown += usize::from(staging.count_unknown(slot.into()).await.unwrap().is_some());
                }
            }
            // A torn footer cannot be distinguished from that of a file that was finished and rotted.
            assert_eq!(files(&drive).await.0, finished.len() + unknown);
            assert!(unknown <= 1);
            for slot in finished {
                let read = read_all(&staging, slot).await.unwrap();
                assert!(read == sample(slot, 7 * BLOCK + 100 * slot as usize));
            }
        }
    });
}

#[test]
fn a_block_of_another_file_or_of_an_earlier_one_of_its_slot_is_damage() {
    run(async {
        let drive = Arc::new(MemoryDrive::new(1 << 30));
        let nonces = Arc::new(AtomicU64::new(1));
        let drawn = Arc::clone(&nonces);
        let fresh = || Staging::new(Arc::clone(&drive) as Arc<dyn Drive>, 1 << 20);
        let staging = fresh().with_nonces(move || drawn.fetch_add(1, Ordering::Relaxed));
        let block_of = |slot| drive.contents(&staged_name(slot)).unwrap()[..BLOCK].to_vec();
        let paste = async |slot, block: &[u8]| {
            drive.write_at(&staged_name(slot), BLOCK as u64, disk::Buffer::copy_of(block)).await.unwrap();
        };
        for slot in [1, 2] {
            stage(&staging, slot, &vec![7; 2 * BLOCK]).await.unwrap();
            paste(slot, &block_of(slot)).await;
            assert!(read_all(&staging, slot).await.is_ok(), "the same bytes are right wherever they come from");
        }
        // The table of an earlier file of the slot, with the footer of this one, or vice versa.
        let before = drive.contents(&staged_name(1)).unwrap();
        staging.free(1).await.unwrap();
        stage(&staging, 1, &vec![7; 2 * BLOCK]).await.unwrap();
        let after = drive.contents(&staged_name(1)).unwrap();
        let table = 2 * BLOCK..2 * BLOCK + 8;
        assert_ne!(before[table.clone()], after[table], "the nonce is in every block's checksum");
    });
}

#[test]
fn a_file_is_read_only_for_the_version_that_it_was_staged_for() {
    run(async {
        let (_, staging) = staging(1 << 20);
        let mut writer = staging.create(1, staging.reserve(3).unwrap()).await.unwrap();
        writer.write(b"abc").await.unwrap();
        writer.finish_for(7, 0, "photos", "a").await.unwrap();
        let open = async || staging.open(1).await.unwrap();
        assert!(open().await.of_version(7, "photos", "a").is_ok());
        for (version, bucket, key) in [(8, "photos", "a"), (7, "photo", "sa"), (7, "photos", "b")] {
            let refused = open().await.of_version(version, bucket, key);
            assert!(matches!(refused, Err(ReadError::AnotherVersion { slot: 1 })), "{version} {bucket} {key}");
        }
    });
}

async fn damaged(drive: &MemoryDrive, staging: &Staging, at: u64) -> Result<Vec<u8>, ReadError> {
    drive.flip_bit(&staged_name(1), at, 4);
    let read = read_all(staging, 1).await;
    drive.flip_bit(&staged_name(1), at, 4);
    read
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_range_of_any_file_is_what_was_written(
        bytes in 0usize..90 * BLOCK,
        spare in prop_oneof![Just(0u64), 1..70 * BLOCK as u64],
        piece in 1usize..4 * BLOCK,
        cuts in proptest::collection::vec((0.0..1.0, 0.0..1.0), 8),
    ) {
        run(async {
            let (_, staging) = staging(1 << 22);
            let data = sample(bytes as u64, bytes);
            let staged = stage_in_pieces(&staging, 1, &data, piece, bytes as u64 + spare).await.unwrap();
            assert_eq!((staged.bytes, staged.charged_bytes), (bytes as u64, staging.usage().staged_bytes));
            let reader = staging.open(1).await.unwrap();
            for (one, other) in cuts {
                let (one, other) = ((one * bytes as f64) as usize, (other * bytes as f64) as usize);
                let (start, end) = (one.min(other), one.max(other));
                assert!(collect(reader.read(start as u64..end as u64)).await.unwrap() == data[start..end]);
            }
        });
    }

    #[test]
    fn damage_anywhere_is_noticed_and_named(bytes in 1usize..70 * BLOCK, place in 0.0..1.0) {
        run(async {
            let (drive, staging) = staging(1 << 20);
            let data = sample(7, bytes);
            stage(&staging, 1, &data).await.unwrap();
            let bytes = bytes as u64;
            let at = (place * bytes as f64) as u64;
            match damaged(&drive, &staging, at).await {
                Err(ReadError::Damaged { slot: 1, block }) => assert_eq!(block, at / BLOCK as u64),
                other => panic!("{other:?}"),
            }
            let behind = (place * (4 * blocks(bytes) + 64) as f64) as u64;
            assert!(matches!(
                damaged(&drive, &staging, bytes + behind).await,
                Err(ReadError::Unusable { slot: 1, .. })
            ));
            assert!(read_all(&staging, 1).await.unwrap() == data);
        });
    }

    #[test]
    fn whatever_happens_usage_is_what_lies_on_the_drive(
        steps in proptest::collection::vec((0u8..6, 0u64..6, 0usize..3 * BLOCK), 1..60)
    ) {
        run(async {
            let capacity_bytes = 8 * BLOCK as u64;
            let (drive, staging) = staging(capacity_bytes);
            let (mut writers, mut readers, mut next) = (Vec::new(), Vec::new(), 0);
            for (what, which, bytes) in steps {
                let slot = next - which.min(next);
                match what {
                    0 => {
                        if stage(&staging, next, &sample(next, bytes)).await.is_ok() { next += 1; }
                    }
                    1 => if let Ok(reservation) = staging.reserve(bytes as u64) {
                        writers.push(staging.create(next, reservation).await.unwrap());
                        next += 1;
                    },
                    2 => if let Ok(reader) = staging.open(slot).await { readers.push((slot, reader)); },
                    3 => staging.free(slot).await.unwrap(),
                    4 => drop((writers.len() > which as usize).then(|| writers.remove(which as usize))),
                    _ => drop((readers.len() > which as usize).then(|| readers.remove(which as usize))),
                }
                settle().await;
                let usage = staging.usage();
                assert!(usage.staged_bytes + usage.reserved_bytes <= capacity_bytes);
                let mut on_drive = 0;
                for name in drive.list().await.unwrap() { on_drive += charge(drive.len(&name).await.unwrap()); }
                assert_eq!(usage.staged_bytes + usage.reserved_bytes, on_drive);
                for (slot, reader) in &readers {
                    let read = collect(reader.read(0..reader.bytes())).await.unwrap();
                    assert!(read == sample(*slot, read.len()));
                }
            }
        });
    }
}
