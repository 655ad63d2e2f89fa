//! The workshop as it is used: on a directory, with blocks of their real size, from several threads at once.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use catalog::{Acl, Object, PartLengths, VersionId};
use disk::{DirectoryDrive, Drive};
use futures::stream::{Stream, StreamExt};
use model::BlobId;
use std::sync::Arc;
use workshop::{
    BLOCK_BYTES, MemberAttributes, PACK_FOOTER_BYTES, PackMember, PackPlan, PackSource, Sealed, Spool, Staging, Stamp,
    charged_for, decode_footer, decode_index, segments,
};

fn sample(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 97) >> 13) as u8).collect()
}

async fn collect<E: std::fmt::Debug>(mut stream: impl Stream<Item = Result<Bytes, E>> + Unpin) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = stream.next().await {
        all.extend_from_slice(&chunk.unwrap());
    }
    all
}

async fn stage(staging: Staging, slot: u64, bytes: usize) -> PackMember {
    let mut writer = staging.create(slot, staging.reserve(bytes as u64).unwrap()).await.unwrap();
    for piece in sample(slot, bytes).chunks(70_000) {
        writer.write(piece).await.unwrap();
    }
    writer.finish_with(Stamp::default()).await.unwrap();
    let object = Object {
        version: VersionId(slot),
        bytes: bytes as u64,
        etag: "e".into(),
        modified_ms: 0,
        created_ms: 0,
        headers: Vec::new(),
        metadata: Vec::new(),
        checksums: Vec::new(),
        acl: Acl::Private,
        tags: Vec::new(),
        parts: PartLengths::default(),
    };
    let attributes = MemberAttributes::default();
    PackMember { bucket: "b".into(), key: format!("{slot:04}"), object, attributes, slots: vec![slot] }
}

/// Yields the pack into the spool, in segments, as a recall of it would be.
async fn recall(mut source: PackSource, spool: Spool, payload_bytes: u64) -> Sealed {
    let mut left_over = Bytes::new();
    for range in segments(0..payload_bytes, spool.segment_bytes()) {
        let mut missing = range.end - range.start;
        let mut writer = spool.reserve(BlobId::numbered(1), range).await.unwrap();
        while missing > 0 {
            if left_over.is_empty() {
                left_over = source.next().await.unwrap().unwrap();
            }
            let now = left_over.split_to(left_over.len().min(missing as usize));
            writer.append(&now).await.unwrap();
            missing -= now.len() as u64;
        }
        writer.finish().await.unwrap();
    }
    assert!(source.next().await.unwrap().is_none());
    source.sealed().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_staged_packed_and_recalled_on_a_real_directory() {
    let directory = tempfile::tempdir().unwrap();
    let drive: Arc<dyn Drive> = Arc::new(DirectoryDrive::open(directory.path()).unwrap());
    let staging = Staging::new(Arc::clone(&drive), 128 << 20);
    let spool = Spool::new(Arc::clone(&drive), 64 << 20);
    let lengths = [0, 1, 4096, 15_000, 17_000, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 3, 100_000];
    let stagings =
        (0..64).map(|slot| tokio::spawn(stage(staging.clone(), slot, lengths[slot as usize % lengths.len()])));
    let mut members = Vec::new();
    for staged in stagings {
        members.push(staged.await.unwrap());
    }
    members.truncate(16);
    let pack = Arc::new(PackPlan::new(members).unwrap().hold(&staging).unwrap());
    let payload_bytes = pack.plan().payload_bytes();
    let sealed = recall(PackSource::new(Arc::clone(&pack)), spool.clone(), payload_bytes).await;

    let mut payload = Vec::new();
    while (payload.len() as u64) < payload_bytes {
        let reader = spool.find(BlobId::numbered(1), payload.len() as u64).unwrap();
        payload.extend(collect(reader.read(reader.range())).await);
    }
    assert_eq!((payload.len() as u64, crc_fast::crc64_nvme(&payload)), (sealed.payload_bytes, sealed.checksum));
    let footer = decode_footer(&payload[payload.len() - PACK_FOOTER_BYTES..]).unwrap();
    let index = &payload[footer.index_offset as usize..payload.len() - PACK_FOOTER_BYTES];
    for (slot, entry) in decode_index(&footer, index).unwrap().iter().enumerate() {
        let bytes = &payload[entry.offset as usize..][..entry.object.bytes as usize];
        assert!(bytes == sample(slot as u64, lengths[slot % lengths.len()]));
    }

    // After a restart: the files that the catalog knows stay, and all others are found and freed.
    drop((pack, staging, spool));
    let (staging, spool) = (Staging::new(Arc::clone(&drive), 128 << 20), Spool::new(Arc::clone(&drive), 64 << 20));
    assert!(spool.wipe().await.unwrap() >= 1);
    staging.count_known((0..64).step_by(2).map(|slot| charged_for(lengths[slot % lengths.len()] as u64)).sum());
    let mut unknown = Vec::new();
    staging.each_file(|slot| unknown.extend((slot % 2 == 1).then_some(slot))).await.unwrap();
    assert_eq!(unknown.len(), 32);
    for slot in &unknown {
        assert!(staging.count_unknown((*slot).into()).await.unwrap().is_some());
    }
    staging.free_all(&unknown.into_iter().map(Into::into).collect::<Vec<_>>()).await.unwrap();
    for slot in (0..64).step_by(2) {
        let reader = staging.open(slot).await.unwrap();
        assert!(collect(reader.read(0..reader.bytes())).await == sample(slot, lengths[slot as usize % lengths.len()]));
        drop(reader);
        staging.free(slot).await.unwrap();
    }
    assert_eq!(staging.usage().staged_bytes, 0);
    assert!(drive.list().await.unwrap().is_empty());
}
