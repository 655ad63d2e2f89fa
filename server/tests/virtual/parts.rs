//! Uploads in parts, as the server keeps them: from the workshop to the rack and back.

use crate::site::{BUCKET, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, content};
use bytes::Bytes;
use catalog::{
    Bucket, Checksum, ChecksumKind, ChosenPart, Object, Place, PutCondition, Upload, UploadListRequest, VersionId,
};
use futures::future::join_all;
use s3::store::{Completion, ObjectStore, PartId, ServiceError};
use std::time::Duration;
use tokio::time::Instant;
use workshop::Checksummer;

/// An upload of the object with number `serial` at its key.
pub struct OpenUpload {
    pub key: String,
    pub version: VersionId,
    pub serial: u64,
    pub lengths: Vec<u64>,
}

impl OpenUpload {
    fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }
}

fn checksum(bytes: &[u8]) -> Checksum {
    Checksummer::of(ChecksumKind::Crc64Nvme, bytes)
}

impl Larder {
    pub async fn begin(&self, key: &str, serial: u64, lengths: Vec<u64>) -> Result<OpenUpload, ServiceError> {
        let upload = Upload::plain(ChecksumKind::Crc64Nvme);
        let version = self.service.create_upload(BUCKET, key, upload).await?;
        Ok(OpenUpload { key: key.into(), version, serial, lengths })
    }

    /// Puts part `number` of `upload`.
    pub async fn put_part(&self, upload: &OpenUpload, number: u32) -> Result<(), ServiceError> {
        let before = &upload.lengths[..number as usize - 1];
        let (start, bytes) = (before.iter().sum::<u64>() as usize, upload.lengths[before.len()]);
        let whole = Bytes::from(content(&upload.key, upload.serial, upload.bytes()));
        let (key, version) = (&upload.key, upload.version);
        let mut sink = self.service.begin_part(BUCKET, key, PartId { upload: version, number }, bytes).await?;
        let part = whole.slice(start..start + bytes as usize);
        sink.write(part.clone()).await?;
        sink.commit(format!("p{number}"), vec![checksum(&part)]).await.map(drop)
    }

    pub async fn complete(&self, upload: &OpenUpload) -> Result<(), ServiceError> {
        let chosen = |number: u32| ChosenPart { number, etag: format!("p{number}") };
        let object = Object {
            version: upload.version,
            bytes: upload.bytes(),
            parts: upload.lengths.iter().copied().collect(),
            etag: format!("{}-{}", upload.serial, upload.bytes()),
            checksums: vec![checksum(&content(&upload.key, upload.serial, upload.bytes()))],
            ..Object::default()
        };
        let parts = (1..=upload.lengths.len() as u32).map(chosen).collect();
        let completion = Completion { object, parts, condition: PutCondition::None };
        self.service.complete_upload(BUCKET, &upload.key, completion).await
    }

    pub async fn put_in_parts(&self, key: &str, serial: u64, lengths: &[u64]) {
        let upload = self.begin(key, serial, lengths.to_vec()).await.unwrap();
        for number in (1..=lengths.len() as u32).rev() {
            self.put_part(&upload, number).await.unwrap();
        }
        self.complete(&upload).await.unwrap();
    }
}

const LENGTHS: [u64; 6] = [3 * MIB, 3 * MIB, 7, 0, 2 * MIB + 1, 100];

#[test]
fn an_object_of_parts_is_read_whole_and_in_ranges_warm_and_cold() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        larder.put_in_parts("o", 3, &LENGTHS).await;
        larder.put("neighbour", 1, 10 * KIB).await.unwrap();
        let end: u64 = LENGTHS.iter().sum();
        let joint = 3 * MIB;
        let ranges = [0..1, joint - 1..joint + 1, 2 * joint - 5..2 * joint + 9, end - 101..end, 5..end, joint..joint];
        for place in ["workshop", "rack"] {
            assert_eq!(larder.place("o").await == Place::Parts, place == "workshop");
            assert_eq!(larder.get("o").await.unwrap(), 3, "{place}");
            for range in ranges.clone() {
                assert_eq!(larder.get_range("o", Some(range)).await.unwrap(), 3, "{place}");
            }
            larder.audit(&facts).await;
            larder.settle().await;
        }
        assert_eq!(facts.staged_files(), 0, "the parts' files are gone");
        larder.delete("o").await;
        larder.audit(&facts).await;
    });
}

#[test]
fn parts_of_open_uploads_take_room_never_move_and_give_it_back() {
    let mut site = Site::nas8();
    site.workshop_bytes = 22 * MIB;
    let facts = site.facts();
    site.run(async |larder| {
        let upload = larder.begin("o", 1, vec![4 * MIB; 4]).await.unwrap();
        for number in 1..=4 {
            larder.put_part(&upload, number).await.unwrap();
        }
        let refused = larder.put("p", 1, 8 * MIB).await;
        assert!(matches!(refused, Err(ServiceError::SlowDown { .. })), "the workshop is full of parts");
        let mut watch = larder.service.stale_watch(HOUR).await.unwrap();
        assert_eq!(larder.service.abort_stale(&mut watch, Duration::ZERO).await.unwrap(), 0);
        tokio::time::sleep(2 * HOUR).await;
        assert_eq!((facts.staged_files(), larder.starts()), (4, 0), "they never migrate");
        larder.audit(&facts).await;
        assert_eq!(larder.service.abort_stale(&mut watch, HOUR / 2).await.unwrap(), 0);
        assert_eq!(larder.service.abort_stale(&mut watch, HOUR).await.unwrap(), 1);
        larder.files_are_removed().await;
        assert_eq!(facts.staged_files(), 0);
        larder.put("p", 1, 8 * MIB).await.unwrap();
        assert!(matches!(larder.put_part(&upload, 1).await, Err(ServiceError::NoSuchUpload)));
        larder.audit(&facts).await;
    });
}

#[test]
fn of_completions_aborts_and_parts_at_once_one_wins_and_no_file_is_left() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        for round in 0..20_u64 {
            let key = format!("k{round}");
            let upload = larder.begin(&key, round, vec![100 * KIB, 50 * KIB]).await.unwrap();
            larder.put_part(&upload, 1).await.unwrap();
            larder.put_part(&upload, 2).await.unwrap();
            let completions = join_all((0..3).map(|_| larder.complete(&upload)));
            let parts = join_all([1, 2, 1].map(|number| larder.put_part(&upload, number)));
            let abort = async {
                if round % 2 == 0 {
                    tokio::task::yield_now().await;
                    let _ = larder.service.abort_upload(BUCKET, &key, upload.version).await;
                }
            };
            let (completions, _, ()) = tokio::join!(completions, parts, abort);
            let won = completions.iter().filter(|done| done.is_ok()).count();
            assert!(won <= 1 && (won == 1 || round % 2 == 0), "{completions:?}");
            assert!(completions.iter().all(|done| matches!(done, Ok(()) | Err(ServiceError::NoSuchUpload))));
            assert_eq!(larder.get(&key).await.is_ok(), won == 1);
            larder.audit(&facts).await;
        }
    });
}

#[test]
fn parts_of_open_uploads_have_a_share_of_the_workshop_and_leave_the_rest_to_others() {
    let mut site = Site::nas8();
    site.workshop_bytes = 8 * MIB;
    site.run(async |larder| {
        let upload = larder.begin("parts", 1, vec![MIB; 7]).await.unwrap();
        for number in 1..=6 {
            larder.put_part(&upload, number).await.unwrap();
        }
    });
    site.run(async |larder| {
        let left_open = larder.begin("parts", 2, vec![MIB; 7]).await.unwrap();
        let refused = larder.put_part(&left_open, 1).await;
        assert!(
            matches!(&refused, Err(ServiceError::SlowDown { reason, .. }) if reason.contains("abort")),
            "{refused:?}"
        );
        // Their bytes do not speed up migration, nor do they delay the bytes that can move.
        let usage = larder.ask(engine::Rack::staging).await;
        assert!(usage.staged_bytes < MIB && usage.capacity_bytes <= 2 * MIB, "{usage:?}");
        for serial in 0..8 {
            larder.put("other", serial, MIB).await.unwrap();
            let moved = async || matches!(larder.place("other").await, Place::Stored { .. });
            larder.until("moved", HOUR, moved).await;
        }
        let request = UploadListRequest { max_uploads: 10, ..UploadListRequest::default() };
        for (key, upload) in larder.service.list_uploads(BUCKET, request).await.unwrap().uploads {
            larder.service.abort_upload(BUCKET, &key, upload.version).await.unwrap();
        }
        larder.files_are_removed().await;
        assert_eq!(larder.context.counters.open_parts.bytes(), 0);
        let whole = larder.begin("parts", 3, vec![MIB; 5]).await.unwrap();
        for number in [1, 2, 3, 4, 5, 1] {
            larder.put_part(&whole, number).await.unwrap();
        }
        assert_eq!(larder.context.counters.open_parts.bytes(), 5 * MIB, "the last of a number counts");
        larder.complete(&whole).await.unwrap();
        assert_eq!(larder.context.counters.open_parts.bytes(), 0, "and none of an object");
    });
}

#[test]
fn what_is_open_is_counted_until_that_succeeds_once_a_completion_was_not_answered() {
    let mut site = Site::nas8();
    let (facts, faults) = (site.facts(), site.store_faults.clone());
    site.run(async |larder| {
        let upload = larder.begin("o", 1, vec![MIB; 2]).await.unwrap();
        for number in 1..=2 {
            larder.put_part(&upload, number).await.unwrap();
        }
        faults.break_at_next_commit();
        let completed = larder.complete(&upload).await;
        assert!(matches!(completed, Err(ServiceError::Unavailable { .. })), "{completed:?}");
        tokio::time::sleep(HOUR).await;
        assert_eq!(larder.context.counters.open_parts.bytes(), 2 * MIB, "nobody knows better");
        faults.repair();
        tokio::time::sleep(2 * MINUTE).await;
        assert_eq!(larder.context.counters.open_parts.bytes(), 0, "it is an object");
        larder.put("small", 1, KIB).await.unwrap();
        larder.settle().await;
        assert_eq!((larder.get("o").await.unwrap(), larder.get("small").await.unwrap()), (1, 1));
        larder.audit(&facts).await;
    });
    assert_eq!(facts.staged_files(), 0, "all of it has moved");
}

#[test]
fn an_upload_is_stale_some_time_after_its_last_part() {
    Site::nas8().run(async |larder| {
        let begun = Instant::now();
        let mut watch = larder.service.stale_watch(HOUR / 2).await.unwrap();
        let mut looked = async || larder.service.abort_stale(&mut watch, begun.elapsed()).await.unwrap();
        let upload = larder.begin("slow", 1, vec![KIB, KIB]).await.unwrap();
        for number in 1..=2 {
            for _ in 0..3 {
                tokio::time::sleep(HOUR / 6).await;
                assert_eq!(looked().await, 0, "part {number} comes in time");
            }
            larder.put_part(&upload, number).await.unwrap();
        }
        for _ in 0..2 {
            tokio::time::sleep(HOUR / 6).await;
            assert_eq!(looked().await, 0, "the last part has just come");
        }
        tokio::time::sleep(HOUR / 2).await;
        assert_eq!(looked().await, 1);
        assert!(matches!(larder.put_part(&upload, 1).await, Err(ServiceError::NoSuchUpload)));
    });
}

#[test]
fn a_wall_clock_that_is_ten_years_ahead_at_a_start_makes_no_upload_stale() {
    let mut site = Site::nas8();
    site.run(async |larder| {
        larder.begin("open", 1, vec![KIB]).await.unwrap();
        let mut watch = larder.service.stale_watch(HOUR).await.unwrap();
        assert_eq!(larder.service.abort_stale(&mut watch, HOUR * 3 / 4).await.unwrap(), 0);
    });
    site.set_wall_clock(10 * 365 * 24 * HOUR);
    site.run(async |larder| {
        let mut watch = larder.service.stale_watch(HOUR).await.unwrap();
        assert_eq!(larder.service.abort_stale(&mut watch, Duration::ZERO).await.unwrap(), 0);
        assert_eq!(larder.service.abort_stale(&mut watch, HOUR / 2).await.unwrap(), 0);
        let upload = larder.begin("young", 1, vec![KIB]).await.unwrap();
        assert_eq!(
            larder.service.abort_stale(&mut watch, HOUR).await.unwrap(),
            1,
            "the old one, an hour after the mark"
        );
        larder.put_part(&upload, 1).await.unwrap();
    });
}

#[test]
fn a_put_that_outlives_its_bucket_does_not_get_into_the_next_one_of_its_name() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let mine = larder.service.head_bucket(BUCKET).await.unwrap();
        let object = Object { bytes: 3, ..Object::default() };
        let mut sink = larder.service.begin_put(&mine, "k", object, PutCondition::None).await.unwrap();
        sink.write("abc".into()).await.unwrap();
        larder.service.delete_bucket(BUCKET).await.unwrap();
        tokio::time::sleep(SECOND).await;
        larder.service.create_bucket(Bucket::new(BUCKET, 0, server::users::ROOT)).await.unwrap();
        let committed = sink.commit("e".into(), Vec::new()).await;
        assert!(matches!(committed, Err(ServiceError::NoSuchBucket)), "{committed:?}");
        larder.files_are_removed().await;
        assert_eq!((facts.staged_files(), larder.keys().await.len()), (0, 0));
    });
}

#[test]
fn a_bucket_goes_with_the_uploads_into_it() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        for key in ["a", "b"] {
            let upload = larder.begin(key, 1, vec![KIB]).await.unwrap();
            larder.put_part(&upload, 1).await.unwrap();
        }
        larder.service.delete_bucket(BUCKET).await.unwrap();
        larder.files_are_removed().await;
        assert_eq!(facts.staged_files(), 0);
        let audit = larder.context.catalog.audit().await.unwrap();
        assert_eq!((audit.contradictions, audit.uploads), (0, 0));
    });
}

#[test]
fn a_reader_of_an_object_of_parts_finishes_though_it_is_overwritten_and_moved() {
    use futures::StreamExt;
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        larder.put_in_parts("o", 1, &LENGTHS).await;
        let mut body = larder.service.get(BUCKET, "o", None).await.unwrap();
        let first = body.bytes.next().await.unwrap().unwrap();
        larder.put("o", 2, KIB).await.unwrap();
        larder.settle_but_for_readers().await;
        let rest = futures::stream::once(async { Ok(first) }).chain(body.bytes);
        let body = s3::store::GetBody { object: body.object, bytes: rest.boxed() };
        assert_eq!(crate::site::read_out("o", body, None).await.unwrap(), 1);
        larder.settle().await;
        larder.audit(&facts).await;
    });
}
