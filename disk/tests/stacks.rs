//! Blobs written to drives and read back, with any events on the drives in between.

#![allow(clippy::unwrap_used)]

use disk::stack::{
    Blob, Flaw, Footer, Header, Inspection, Policy, Provenance, Report, StackError, StackOutcome, StackReader,
    StackWriter, Written, inspect, inspect_deeply, remove, scrub, stack_bytes, stack_name, verify,
};
use disk::{DirectoryDrive, Drive, IoMode, MemoryCall, MemoryDrive, REQUEST_BYTES, RackUuid};
use model::{BlobId, ClassId, Code, DriveId, GroupId, Rng};
use proptest::prelude::*;
use std::sync::Arc;

/// The pathetically small code that most tests use: many stripes, runs and batches in few bytes.
const SMALL: Code = Code { data: 3, parity: 2, fragment_bytes: 4096 };
const PELICAN: Code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };
/// Payload of a full stripe of `SMALL`, and of a full run of them.
const STRIPE: u64 = 3 * 4096;
const RUN: u64 = 960 * STRIPE;

const PROVENANCE: Provenance =
    Provenance { sequence: 42, run: 7, written_ms: 1_700_000_000_000, group: GroupId(3), class: ClassId(1) };

/// The most that the buffers of a transfer may ever hold.
fn buffer_bound(code: Code) -> usize {
    2 * code.stacks() * REQUEST_BYTES.max(code.fragment_bytes as usize + 4096)
}

fn blob(code: Code, payload_bytes: u64) -> Blob {
    Blob { rack: RackUuid([5; 16]), id: BlobId::numbered(77), code, payload_bytes }
}

/// The payload of a test: a function of the offset, so that no copy is needed to know what is right.
fn payload(range: std::ops::Range<u64>) -> Vec<u8> {
    let words = range.start / 8..range.end.div_ceil(8);
    let bytes: Vec<u8> = words.flat_map(|word| Rng::new(word).next_u64().to_le_bytes()).collect();
    let skipped = (range.start % 8) as usize;
    bytes[skipped..skipped + (range.end - range.start) as usize].to_vec()
}

struct Rig {
    blob: Blob,
    memory: Vec<Arc<MemoryDrive>>,
}

impl Rig {
    fn new(code: Code, payload_bytes: u64) -> Self {
        let capacity = stack_bytes(code, payload_bytes) + (1 << 20);
        let memory = (0..code.stacks()).map(|_| Arc::new(MemoryDrive::new(capacity))).collect();
        Self { blob: blob(code, payload_bytes), memory }
    }

    fn drives(&self) -> Vec<Arc<dyn Drive>> {
        self.memory.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect()
    }

    fn numbered(&self) -> Vec<(DriveId, Arc<dyn Drive>)> {
        self.drives().into_iter().enumerate().map(|(i, drive)| (DriveId(i as u32 + 100), drive)).collect()
    }

    fn indexed(&self) -> Vec<(u8, Arc<dyn Drive>)> {
        self.drives().into_iter().enumerate().map(|(i, drive)| (i as u8, drive)).collect()
    }

    async fn write(&self) -> Written {
        write(self.blob, &self.numbered(), 100_000).await.result.unwrap()
    }

    async fn written(code: Code, payload_bytes: u64) -> Self {
        let rig = Self::new(code, payload_bytes);
        rig.write().await;
        rig
    }

    async fn open(&self, policy: Policy) -> Report<StackReader> {
        StackReader::open(self.blob, self.indexed(), policy).await
    }

    async fn read(
        &self,
        policy: Policy,
        range: std::ops::Range<u64>,
    ) -> (Result<Vec<u8>, StackError>, Vec<StackOutcome>) {
        let opened = self.open(policy).await;
        let mut reader = match opened.result {
            Ok(reader) => reader,
            Err(error) => return (Err(error), opened.outcomes),
        };
        let mut sink = Vec::new();
        let result = reader.read(range.clone(), &mut sink).await;
        assert!(payload(range).starts_with(&sink), "whatever is given out is right");
        let bound = buffer_bound(self.blob.code);
        assert!(reader.peak_buffer_bytes() <= bound, "{} of {bound}", reader.peak_buffer_bytes());
        (result.map(|()| sink), reader.outcomes())
    }

    async fn reads_right(&self, policy: Policy) -> Vec<StackOutcome> {
        let (read, outcomes) = self.read(policy, 0..self.blob.payload_bytes).await;
        assert!(read.unwrap() == payload(0..self.blob.payload_bytes));
        outcomes
    }

    fn flip(&self, stack: usize, offset: u64) {
        self.memory[stack].flip_bit(&stack_name(self.blob.id, stack as u8), offset, 0x10);
    }

    /// Makes the fragments of these stripes of the first run unreadable, each by a bad sector.
    fn spoil(&self, stack: usize, stripes: std::ops::Range<u64>) {
        let name = stack_name(self.blob.id, stack as u8);
        stripes.for_each(|stripe| self.memory[stack].make_unreadable(&name, 4096 + stripe * 4096 + 70, 512));
    }

    fn lose(&self, stack: usize) {
        assert!(self.memory[stack].lose_file(&stack_name(self.blob.id, stack as u8)));
    }
}

async fn write(blob: Blob, drives: &[(DriveId, Arc<dyn Drive>)], piece: usize) -> Report<Written> {
    let created = StackWriter::create(blob, PROVENANCE, drives).await;
    let mut writer = match created.result {
        Ok(writer) => writer,
        Err(error) => return Report { result: Err(error), outcomes: created.outcomes },
    };
    for bytes in payload(0..blob.payload_bytes).chunks(piece) {
        if let Err(error) = writer.write(bytes).await {
            return Report { result: Err(error), outcomes: writer.abort().await };
        }
    }
    let bound = buffer_bound(blob.code);
    assert!(writer.peak_buffer_bytes() <= bound, "{} of {bound}", writer.peak_buffer_bytes());
    writer.finish().await
}

fn bad(outcomes: &[StackOutcome]) -> Vec<usize> {
    outcomes.iter().enumerate().filter(|(_, outcome)| **outcome == StackOutcome::StackBad).map(|(i, _)| i).collect()
}

#[tokio::test]
async fn payloads_of_every_size_around_every_boundary_come_back() {
    let around = |size: u64| [size - 1, size, size + 1];
    let sizes = [4096, STRIPE, 255 * STRIPE, 256 * STRIPE, RUN, RUN + STRIPE, 2 * RUN].map(around);
    for size in sizes.into_iter().flatten().chain([1, 2, 100_000]) {
        let rig = Rig::new(SMALL, size);
        let written = rig.write().await;
        let contents = rig.memory[0].contents(&stack_name(rig.blob.id, 0)).unwrap();
        assert_eq!(contents.len() as u64, stack_bytes(SMALL, size), "size {size}");
        assert_eq!(written.stack_bytes, stack_bytes(SMALL, size));
        assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
        let with_k = rig.reads_right(Policy::K).await;
        assert_eq!(with_k[..3], [StackOutcome::Fine, StackOutcome::Fine, StackOutcome::Fine]);
        assert_eq!(with_k[3..], [StackOutcome::Unused, StackOutcome::Unused]);
        verify(rig.blob, &rig.drives(), written.payload_crc64).await.result.unwrap();
    }
}

#[tokio::test]
async fn other_codes_work_as_well() {
    for (data, parity, fragment_bytes) in [(1, 0, 4096), (1, 1, 4096), (4, 0, 8192), (2, 1, 2 << 20), (15, 3, 131_072)]
    {
        let code = Code { data, parity, fragment_bytes };
        for size in [1, code.stripe_bytes() + 1, 3 * code.stripe_bytes()] {
            let rig = Rig::new(code, size);
            let written = write(rig.blob, &rig.numbered(), 1 << 20).await.result.unwrap();
            verify(rig.blob, &rig.drives(), written.payload_crc64).await.result.unwrap();
            for lost in 0..usize::from(parity) {
                rig.lose(lost);
            }
            rig.reads_right(Policy::K).await;
        }
    }
}

#[tokio::test]
async fn a_directory_keeps_stacks_in_both_modes() {
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let drives: Vec<(DriveId, Arc<dyn Drive>)> = (0..5)
            .map(|i| {
                let path = root.path().join(format!("d{i}"));
                std::fs::create_dir(&path).unwrap();
                (DriveId(i), Arc::new(DirectoryDrive::open(path).unwrap().with_mode(mode)) as Arc<dyn Drive>)
            })
            .collect();
        let blob = blob(SMALL, RUN + 12_345);
        let written = write(blob, &drives, 1 << 16).await.result.unwrap();
        let plain: Vec<_> = drives.iter().map(|(_, drive)| Arc::clone(drive)).collect();
        verify(blob, &plain, written.payload_crc64).await.result.unwrap();
        let indexed: Vec<_> = plain.iter().enumerate().map(|(i, drive)| (i as u8, Arc::clone(drive))).collect();
        assert_eq!(remove(blob.rack, blob.id, &indexed).await, vec![StackOutcome::Fine; 5]);
        assert_eq!(remove(blob.rack, blob.id, &indexed).await, vec![StackOutcome::Fine; 5], "what is gone is removed");
    }
}

#[tokio::test]
async fn bad_fragments_are_rebuilt_and_repaired_in_place() {
    let rig = Rig::written(SMALL, 600 * STRIPE).await;
    let before: Vec<_> = (0..5).map(|i| rig.memory[i].contents(&stack_name(rig.blob.id, i as u8))).collect();
    // Two bad fragments in one stripe, one data and one parity; and two of one batch on one stack.
    for (stack, stripe) in [(0, 7), (4, 7), (1, 300), (1, 301)] {
        rig.flip(stack, 4096 + stripe * 4096 + 1000);
    }
    let repaired = |fragments| StackOutcome::Repaired { fragments };
    let outcomes = rig.reads_right(Policy::All).await;
    assert_eq!(outcomes, [repaired(1), repaired(2), StackOutcome::Fine, StackOutcome::Fine, repaired(1)]);
    let after: Vec<_> = (0..5).map(|i| rig.memory[i].contents(&stack_name(rig.blob.id, i as u8))).collect();
    assert!(before == after, "the stacks are what they were");
    assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
}

#[tokio::test]
async fn a_read_of_k_stacks_calls_on_others_only_where_it_must() {
    let rig = Rig::written(SMALL, 600 * STRIPE).await;
    rig.flip(2, 4096 + 300 * 4096);
    let outcomes = rig.reads_right(Policy::K).await;
    assert_eq!(outcomes[2], StackOutcome::Repaired { fragments: 1 });
    assert_eq!(outcomes[3..], [StackOutcome::Fine, StackOutcome::Unused]);
    rig.lose(0);
    rig.memory[1].set_dead(true);
    let outcomes = rig.reads_right(Policy::K).await;
    assert_eq!(outcomes[0], StackOutcome::StackBad);
    assert!(matches!(outcomes[1], StackOutcome::Failed(_)));
}

#[tokio::test]
async fn a_bad_sector_costs_a_fragment_and_not_the_stack() {
    let rig = Rig::written(SMALL, 600 * STRIPE).await;
    rig.memory[1].make_unreadable(&stack_name(rig.blob.id, 1), 4096 + 40 * 4096, 512);
    assert_eq!(rig.read(Policy::All, 0..100 * STRIPE).await.1[1], StackOutcome::Repaired { fragments: 1 });
    assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5], "the rewritten sector reads again");
}

#[tokio::test]
async fn a_bad_sector_at_an_end_costs_the_stack_and_not_the_drive() {
    let end = stack_bytes(SMALL, 20 * STRIPE);
    for offset in [386, end - 4096 + 20, end - 8192 + 70] {
        for policy in [Policy::All, Policy::K] {
            let rig = Rig::written(SMALL, 20 * STRIPE).await;
            rig.memory[1].make_unreadable(&stack_name(rig.blob.id, 1), offset, 512);
            assert_eq!(rig.reads_right(policy).await[1], StackOutcome::StackBad, "byte {offset}");
            rig.memory[1].set_dead(true);
            assert!(matches!(rig.reads_right(policy).await[1], StackOutcome::Failed(_)), "byte {offset}");
        }
    }
}

#[tokio::test]
async fn one_block_that_can_be_read_shows_that_the_drive_is_well() {
    let end = stack_bytes(SMALL, STRIPE);
    assert_eq!(end, 4 * 4096, "header, fragment, checksum page and footer");
    for good in (0..end).step_by(4096) {
        let rig = Rig::written(SMALL, STRIPE).await;
        let name = stack_name(rig.blob.id, 1);
        rig.memory[1].make_unreadable(&name, 0, end);
        assert!(matches!(rig.reads_right(Policy::All).await[1], StackOutcome::Failed(_)), "nothing answers");
        let rig = Rig::written(SMALL, STRIPE).await;
        rig.memory[1].make_unreadable(&name, 0, good);
        rig.memory[1].make_unreadable(&name, good + 4096, end - good - 4096);
        assert_eq!(rig.reads_right(Policy::All).await[1], StackOutcome::StackBad, "byte {good} is read");
    }
}

#[tokio::test]
async fn fragments_that_cannot_be_read_are_repaired_also_if_nothing_else_was_asked_for() {
    for stripes in [1, 2, 20] {
        let rig = Rig::written(SMALL, stripes * STRIPE).await;
        rig.spoil(1, 0..stripes);
        let drives: Vec<_> = rig.drives().into_iter().map(Some).collect();
        let found = scrub(rig.blob, &drives, 0..rig.blob.payload_bytes).await;
        assert_eq!(found.outcomes[1], StackOutcome::Repaired { fragments: stripes as u32 }, "{stripes} stripes");
        assert!(found.flaws.is_empty() && found.payload.is_ok(), "{:?}, {:?}", found.flaws, found.payload);
        assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5], "{stripes} stripes");
    }
}

#[tokio::test]
async fn a_stack_of_which_a_request_fails_still_has_the_rest() {
    let rig = Rig::written(SMALL, 600 * STRIPE).await;
    // All of the first request to stack 1; and of a later stripe as many others as may be bad.
    rig.spoil(1, 0..300);
    (2..4).for_each(|stack| rig.flip(stack, 4096 + 500 * 4096));
    for policy in [Policy::K, Policy::All] {
        rig.reads_right(policy).await;
    }
    assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
}

#[tokio::test]
async fn a_drive_that_dies_while_it_is_read_is_no_fault_of_its_stack() {
    for stripes in [1, 20] {
        let rig = Rig::written(SMALL, stripes * STRIPE).await;
        let mut reader = rig.open(Policy::All).await.result.unwrap();
        rig.memory[1].make_unreadable(&stack_name(rig.blob.id, 1), 0, stack_bytes(SMALL, stripes * STRIPE));
        let mut sink = Vec::new();
        reader.read(0..rig.blob.payload_bytes, &mut sink).await.unwrap();
        assert!(matches!(reader.outcomes()[1], StackOutcome::Failed(_)), "{:?}", reader.outcomes());
        assert!(sink == payload(0..rig.blob.payload_bytes));
    }
}

#[tokio::test]
async fn a_fragment_in_the_wrong_place_is_bad() {
    let rig = Rig::written(SMALL, 20 * STRIPE).await;
    // A drive that wrote stripe 3's sector over stripe 9's: the bytes are good, but not these.
    let name = stack_name(rig.blob.id, 0);
    let contents = rig.memory[0].contents(&name).unwrap();
    let misplaced = disk::Buffer::copy_of(&contents[4096 * 4..4096 * 5]);
    rig.memory[0].write_at(&name, 4096 * 10, misplaced).await.unwrap();
    assert_eq!(rig.reads_right(Policy::All).await[0], StackOutcome::Repaired { fragments: 1 });
}

#[tokio::test]
async fn stacks_of_another_blob_rack_or_place_are_not_taken_for_ours() {
    let rig = Rig::written(SMALL, 10 * STRIPE).await;
    let name = stack_name(rig.blob.id, 0);
    let other = Blob { rack: RackUuid([6; 16]), ..rig.blob };
    let report = StackReader::open(other, rig.indexed(), Policy::All).await;
    assert_eq!(report.outcomes, vec![StackOutcome::StackBad; 5]);
    assert!(matches!(report.result, Err(StackError::DataLost { .. })));
    // Stack 1 copied over stack 0.
    let contents = rig.memory[1].contents(&stack_name(rig.blob.id, 1)).unwrap();
    rig.memory[0].write_at(&name, 0, disk::Buffer::copy_of(&contents)).await.unwrap();
    assert_eq!(bad(&rig.reads_right(Policy::All).await), [0]);
}

#[tokio::test]
async fn damage_to_header_footer_or_page_makes_a_stack_bad_and_the_blob_stays_readable() {
    let size = RUN + 100;
    let end = stack_bytes(SMALL, size);
    for offset in [3, end - 4096 + 20, end - 8192 + 70, 4096 + 960 * 4096 + 5] {
        let rig = Rig::written(SMALL, size).await;
        rig.flip(1, offset);
        assert_eq!(bad(&rig.reads_right(Policy::All).await), [1], "offset {offset}");
        assert_eq!(bad(&rig.reads_right(Policy::K).await), [1], "offset {offset}");
    }
}

#[tokio::test]
async fn one_fault_too_many_is_said_aloud() {
    let rig = Rig::written(SMALL, 20 * STRIPE).await;
    for stack in 0..3 {
        rig.flip(stack, 4096 + 12 * 4096);
    }
    for policy in [Policy::All, Policy::K] {
        let (read, _) = rig.read(policy, 0..rig.blob.payload_bytes).await;
        assert_eq!(read, Err(StackError::DataLost { blob: BlobId::numbered(77), stripe: 12, bad: vec![0, 1, 2] }));
    }
}

#[tokio::test]
async fn drives_that_are_away_are_no_lost_data() {
    let rig = Rig::written(SMALL, 20 * STRIPE).await;
    let few = rig.indexed().into_iter().skip(3).collect();
    let report = StackReader::open(rig.blob, few, Policy::All).await;
    assert_eq!(report.result.err(), Some(StackError::TooFewStacks { need: 3, good: 2 }));
    for drive in &rig.memory[..3] {
        drive.set_dead(true);
    }
    assert_eq!(rig.open(Policy::K).await.result.err(), Some(StackError::TooFewStacks { need: 3, good: 2 }));
}

#[tokio::test]
async fn a_range_touches_only_the_stripes_it_lies_in() {
    let rig = Rig::written(SMALL, 2 * RUN).await;
    let mut reader = rig.open(Policy::K).await.result.unwrap();
    rig.memory.iter().for_each(|drive| drive.record_calls());
    let range = 10 * STRIPE + 5..12 * STRIPE - 5;
    let mut sink = Vec::new();
    reader.read(range.clone(), &mut sink).await.unwrap();
    assert!(sink == payload(range));
    for (index, drive) in rig.memory.iter().enumerate() {
        let name = stack_name(rig.blob.id, index as u8);
        let (page, fragments) = (4096 + 960 * 4096, 4096 + 10 * 4096);
        let expected = vec![MemoryCall::Read(name.clone(), page, 4096), MemoryCall::Read(name, fragments, 2 * 4096)];
        assert_eq!(drive.recorded_calls(), if index < 3 { expected } else { vec![] });
    }
}

#[tokio::test]
async fn requests_are_the_whole_fragments_of_a_mebibyte_and_follow_each_other_without_a_gap() {
    let rig = Rig::written(PELICAN, 33 << 20).await;
    let mut reader = rig.open(Policy::All).await.result.unwrap();
    rig.memory[2].record_calls();
    reader.read(0..rig.blob.payload_bytes, &mut Vec::new()).await.unwrap();
    let calls = rig.memory[2].recorded_calls();
    let mut at = 4096;
    for (i, call) in calls.iter().enumerate() {
        let MemoryCall::Read(_, offset, bytes) = call else { panic!("{call:?}") };
        assert_eq!(*offset, at);
        // Seven fragments of 128 KiB: with a checksum page beside them an eighth would be beyond the mebibyte.
        assert!(*bytes == 7 << 17 || i + 1 == calls.len());
        at += bytes;
    }
    assert_eq!(at + 8192, stack_bytes(PELICAN, rig.blob.payload_bytes));
}

#[tokio::test]
async fn a_write_that_fails_anywhere_says_where_and_leaves_nothing_behind() {
    let size = RUN + 50_000;
    // Calls on a drive: create, header, batches, sync, footer, sync.
    for call in 1..20 {
        let rig = Rig::new(SMALL, size);
        rig.memory[3].record_calls();
        rig.memory[3].fail_call(call);
        let report = write(rig.blob, &rig.numbered(), 70_000).await;
        if report.result.is_ok() {
            assert!(call > 8, "call {call} failed unnoticed");
            return;
        }
        assert_eq!(report.result, Err(StackError::WriteFailed));
        for (stack, outcome) in report.outcomes.iter().enumerate() {
            let failed = matches!(outcome, StackOutcome::Failed(_));
            assert_eq!(failed, stack == 3, "call {call}: {outcome:?}");
        }
        for drive in &rig.memory {
            assert!(drive.list().await.unwrap().is_empty(), "call {call}");
        }
    }
    panic!("the write never went through");
}

#[tokio::test]
async fn a_full_drive_is_reported_as_full() {
    let rig = Rig::new(SMALL, 100 * STRIPE);
    rig.memory[1].set_capacity(stack_bytes(SMALL, 100 * STRIPE) - 1);
    let report = write(rig.blob, &rig.numbered(), 4096).await;
    assert_eq!(report.result, Err(StackError::WriteFailed));
    let fine = StackOutcome::Fine;
    assert_eq!(report.outcomes, [fine.clone(), StackOutcome::Full, fine.clone(), fine.clone(), fine]);
    assert!(rig.memory[0].list().await.unwrap().is_empty());
}

#[tokio::test]
async fn more_or_fewer_bytes_than_announced_are_refused() {
    let rig = Rig::new(SMALL, 1000);
    let mut writer = StackWriter::create(rig.blob, PROVENANCE, &rig.numbered()).await.result.unwrap();
    writer.write(&[0; 999]).await.unwrap();
    assert_eq!(writer.write(&[0; 2]).await, Err(StackError::WrongLength { announced: 1000, got: 1001 }));
    let report = writer.finish().await;
    assert_eq!(report.result, Err(StackError::WrongLength { announced: 1000, got: 999 }));
    assert!(rig.memory[0].list().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_crash_leaves_is_recognised_as_incomplete_stays_in_place_and_can_be_removed() {
    for seed in 0..20 {
        let rng = &mut Rng::new(seed);
        let rig = Rig::new(SMALL, 700 * STRIPE);
        let mut writer = StackWriter::create(rig.blob, PROVENANCE, &rig.numbered()).await.result.unwrap();
        let bytes = payload(0..rng.between(1, 700 * STRIPE));
        writer.write(&bytes).await.unwrap();
        drop(writer);
        tokio::task::yield_now().await;
        rig.memory.iter().for_each(|drive| drive.crash_torn(rng));
        let report = rig.open(Policy::All).await;
        assert_eq!(bad(&report.outcomes), [0, 1, 2, 3, 4], "seed {seed}");
        // Ids are drawn once, so a file with this one was not made by this writer.
        let again = write(rig.blob, &rig.numbered(), 4096).await;
        let left = join_lists(&rig).await;
        assert!(left.len() < 5 || again.result == Err(StackError::WriteFailed), "seed {seed}");
        assert_eq!(remove(rig.blob.rack, rig.blob.id, &rig.indexed()).await, vec![StackOutcome::Fine; 5]);
        assert!(join_lists(&rig).await.is_empty(), "seed {seed}");
        rig.write().await;
        assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
    }
}

/// All files on all drives.
async fn join_lists(rig: &Rig) -> Vec<disk::FileName> {
    let mut names = Vec::new();
    for drive in &rig.memory {
        names.extend(drive.list().await.unwrap());
    }
    names
}

#[tokio::test]
async fn only_the_very_blob_is_removed_whatever_bears_its_name() {
    let rig = Rig::written(SMALL, 10 * STRIPE).await;
    let names: Vec<_> = (0..5).map(|index| stack_name(rig.blob.id, index)).collect();
    let header = |blob: Blob, index: u8| {
        let mut block = disk::Buffer::zeroed(4096);
        Header { blob, index, provenance: PROVENANCE, drives: (0..5).map(DriveId).collect() }.encode(&mut block);
        block
    };
    let end = stack_bytes(SMALL, 10 * STRIPE);
    let footer = |blob: Blob, index: u8| {
        let mut block = disk::Buffer::zeroed(4096);
        Footer { blob, index, payload_crc64: 1, header_crc: 2 }.encode(&mut block);
        block
    };
    let (elsewhere, other) =
        (Blob { rack: RackUuid([6; 16]), ..rig.blob }, Blob { id: BlobId::new(77, 9), ..rig.blob });
    // Another rack's by its header alone, another stack's by its header and its footer: those two stay.
    rig.memory[0].write_at(&names[0], 0, header(elsewhere, 0)).await.unwrap();
    rig.memory[1].write_at(&names[1], 0, header(other, 1)).await.unwrap();
    rig.memory[1].write_at(&names[1], end - 4096, footer(other, 1)).await.unwrap();
    // A header that went astray, and one that cannot be read: the footer says whose it is.
    rig.memory[2].write_at(&names[2], 0, header(rig.blob, 4)).await.unwrap();
    rig.flip(3, 20);
    assert_eq!(remove(rig.blob.rack, rig.blob.id, &rig.indexed()).await, vec![StackOutcome::Fine; 5]);
    for (index, drive) in rig.memory.iter().enumerate() {
        assert_eq!(drive.contents(&names[index]).is_some(), index < 2, "stack {index}");
    }
}

#[tokio::test]
async fn a_block_that_cannot_be_read_is_none_that_was_never_written() {
    let rig = Rig::written(SMALL, 10 * STRIPE).await;
    let names: Vec<_> = (0..5).map(|index| stack_name(rig.blob.id, index)).collect();
    let end = stack_bytes(SMALL, 10 * STRIPE);
    // Another rack's files: of the first only the page before the footer can be read, of the second nothing.
    let elsewhere = Rig { blob: Blob { rack: RackUuid([6; 16]), ..rig.blob }, ..Rig::new(SMALL, 10 * STRIPE) };
    elsewhere.write().await;
    for index in [0, 1] {
        let bytes = elsewhere.memory[index].contents(&names[index]).unwrap();
        rig.memory[index].write_at(&names[index], 0, disk::Buffer::copy_of(&bytes)).await.unwrap();
    }
    // The next two are ours, and the same can be read of them. The last was never complete, and has a bad sector.
    rig.memory[4].write_at(&names[4], end - 8192, disk::Buffer::zeroed(8192)).await.unwrap();
    for (index, name) in names.iter().enumerate() {
        rig.memory[index].make_unreadable(name, 0, 4096);
        if index < 4 {
            rig.memory[index].make_unreadable(name, end - 4096, 4096);
        }
    }
    for index in [1, 3] {
        rig.memory[index].make_unreadable(&names[index], end - 8192, 4096);
    }
    let removed = remove(rig.blob.rack, rig.blob.id, &rig.indexed()).await;
    let are_unknown = [false, true, false, true, false];
    for (index, drive) in rig.memory.iter().enumerate() {
        assert_eq!(matches!(removed[index], StackOutcome::Failed(_)), are_unknown[index], "{removed:?}");
        assert_eq!(drive.contents(&names[index]).is_some(), ![2, 4].contains(&index), "stack {index}");
    }
}

#[tokio::test]
async fn header_pages_and_footer_that_were_not_written_together_are_told_apart() {
    let size = RUN + 100;
    let rig = Rig::written(SMALL, size).await;
    let other = Rig::new(SMALL, size);
    let elsewhere = Provenance { sequence: 43, ..PROVENANCE };
    let mut writer = StackWriter::create(other.blob, elsewhere, &other.numbered()).await.result.unwrap();
    writer.write(&payload(0..size)).await.unwrap();
    writer.finish().await.result.unwrap();
    let end = stack_bytes(SMALL, size);
    let blocks = [0, 4096 + 960 * 4096, end - 8192, end - 4096];
    for (index, at) in blocks.into_iter().enumerate() {
        let name = stack_name(rig.blob.id, index as u8);
        let foreign = other.memory[index].contents(&name).unwrap()[at as usize..][..4096].to_vec();
        rig.memory[index].write_at(&name, at, disk::Buffer::copy_of(&foreign)).await.unwrap();
    }
    let found = rig.inspected(false).await;
    assert!(matches!(found.flaws[..], [(0, Flaw::Unbound), (2, Flaw::Page), (3, Flaw::Unbound)]), "{found:?}");
    let found = rig.inspected(true).await;
    assert!(found.flaws.iter().any(|(index, flaw)| *index == 1 && matches!(flaw, Flaw::Fragments(_))), "{found:?}");
}

#[tokio::test]
async fn what_was_reported_as_written_survives_a_crash() {
    let rig = Rig::written(SMALL, 700 * STRIPE).await;
    rig.memory.iter().for_each(|drive| drive.crash());
    assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
}

#[tokio::test]
async fn a_complete_stack_is_never_overwritten() {
    let rig = Rig::written(SMALL, 10 * STRIPE).await;
    let again = write(rig.blob, &rig.numbered(), 4096).await;
    assert_eq!(again.result, Err(StackError::WriteFailed));
    assert_eq!(again.outcomes, vec![StackOutcome::StackBad; 5]);
    assert_eq!(rig.reads_right(Policy::All).await, vec![StackOutcome::Fine; 5]);
}

#[tokio::test]
async fn verification_finds_a_single_flipped_bit_and_leaves_it() {
    let rig = Rig::new(SMALL, 50 * STRIPE);
    let written = rig.write().await;
    let wrong = verify(rig.blob, &rig.drives(), written.payload_crc64 ^ 1).await;
    assert!(matches!(wrong.result, Err(StackError::WrongPayload { .. })));
    rig.flip(4, 4096 * 20);
    for _ in 0..2 {
        let report = verify(rig.blob, &rig.drives(), written.payload_crc64).await;
        assert_eq!(report.result, Err(StackError::Unsound));
        assert_eq!(bad(&report.outcomes), [4]);
    }
}

impl Rig {
    async fn inspected(&self, deep: bool) -> Inspection {
        let drives: Vec<_> = self.drives().into_iter().map(Some).collect();
        if deep { inspect_deeply(self.blob, &drives, &mut Vec::new()).await } else { inspect(self.blob, &drives).await }
    }
}

#[tokio::test]
async fn an_inspection_names_what_is_wrong_with_each_stack() {
    let rig = Rig::written(SMALL, RUN + 5 * STRIPE + 1).await;
    for deep in [false, true] {
        let found = rig.inspected(deep).await;
        assert!(found.flaws.is_empty() && found.payload.is_ok(), "{found:?}");
    }
    let footer_at = stack_bytes(SMALL, rig.blob.payload_bytes) - 4096;
    rig.flip(3, 4096 + 7);
    let found = rig.inspected(true).await;
    assert!(matches!(found.flaws[..], [(3, Flaw::Fragments(1))]), "{found:?}");
    rig.lose(0);
    rig.flip(1, footer_at + 40);
    let found = rig.inspected(false).await;
    assert!(matches!(found.flaws[..], [(0, Flaw::Drive(_)), (1, Flaw::Footer(_))]), "{found:?}");
    assert_eq!(found.payload, Ok(()), "three are enough");
    let found = rig.inspected(true).await;
    assert!(matches!(found.flaws[..], [(0, Flaw::Drive(_)), (1, Flaw::Footer(_))]), "{found:?}");
    let lost = StackError::DataLost { blob: rig.blob.id, stripe: 0, bad: vec![0, 1, 3] };
    assert_eq!(found.payload, Err(lost), "two fragments of stripe 0 are left");
    rig.lose(2);
    let found = rig.inspected(true).await;
    assert_eq!(found.payload, Err(StackError::TooFewStacks { need: 3, good: 2 }));
}

#[tokio::test]
async fn an_inspection_finds_parity_that_is_whole_and_wrong() {
    let rig = Rig::written(SMALL, 40 * STRIPE).await;
    // The stack of another payload of the same length, with matching checksums: only the code can show it.
    let other = Rig::new(SMALL, 40 * STRIPE);
    let bytes = vec![7; 40 * STRIPE as usize];
    let mut writer = StackWriter::create(other.blob, PROVENANCE, &other.numbered()).await.result.unwrap();
    writer.write(&bytes).await.unwrap();
    writer.finish().await.result.unwrap();
    let name = stack_name(rig.blob.id, 4);
    let mut foreign = other.memory[4].contents(&name).unwrap();
    let own = rig.memory[4].contents(&name).unwrap();
    let footer = own.len() - 4096;
    foreign[footer..].copy_from_slice(&own[footer..]);
    rig.lose(4);
    rig.memory[4].create(&name, own.len() as u64).await.unwrap();
    rig.memory[4].write_at(&name, 0, disk::Buffer::copy_of(&foreign)).await.unwrap();
    let found = rig.inspected(false).await;
    assert!(found.flaws.is_empty(), "{found:?}");
    let found = rig.inspected(true).await;
    assert!(matches!(found.flaws[..], [(4, Flaw::Parity { stripe: 0 })]), "{found:?}");
    assert_eq!(found.payload, Ok(()));
}

#[tokio::test]
async fn an_aborted_write_leaves_what_has_come_into_the_place_of_its_stack() {
    let rig = Rig::new(SMALL, 50 * STRIPE);
    let writer = StackWriter::create(rig.blob, PROVENANCE, &rig.numbered()).await.result.unwrap();
    // The drive was away, and what is there now is another rack's, under the same name.
    let theirs = Rig::new(SMALL, 50 * STRIPE);
    let theirs = Rig { blob: Blob { rack: RackUuid([6; 16]), ..theirs.blob }, ..theirs };
    theirs.write().await;
    let name = stack_name(rig.blob.id, 1);
    let foreign = theirs.memory[1].contents(&name).unwrap();
    rig.lose(1);
    rig.memory[1].create(&name, foreign.len() as u64).await.unwrap();
    rig.memory[1].write_at(&name, 0, disk::Buffer::copy_of(&foreign)).await.unwrap();
    writer.abort().await;
    assert_eq!(rig.memory[1].contents(&name), Some(foreign));
    assert_eq!(rig.memory[0].contents(&stack_name(rig.blob.id, 0)), None, "its own are gone");
}

#[tokio::test]
async fn nobody_waits_for_a_sink_that_is_gone() {
    struct Gone;
    impl disk::stack::PayloadSink for Gone {
        fn take<'a>(&'a mut self, _: &'a [u8]) -> futures::future::BoxFuture<'a, Result<(), disk::stack::SinkClosed>> {
            Box::pin(std::future::ready(Err(disk::stack::SinkClosed)))
        }
    }
    let rig = Rig::written(SMALL, 50 * STRIPE).await;
    let mut reader = rig.open(Policy::All).await.result.unwrap();
    assert_eq!(reader.read(0..100, &mut Gone).await, Err(StackError::SinkClosed));
}

/// An event that may happen to a drive.
#[derive(Clone, Debug)]
enum Fault {
    Lost,
    Dead,
    /// Flipped bits, at these places of the stack.
    Bits(Vec<prop::sample::Index>),
    Corrupted(prop::sample::Index),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Lost),
        Just(Fault::Dead),
        prop::collection::vec(any::<prop::sample::Index>(), 1..20).prop_map(Fault::Bits),
        any::<prop::sample::Index>().prop_map(Fault::Corrupted),
    ]
}

impl Rig {
    fn suffer(&self, stack: usize, fault: &Fault) {
        let bytes = stack_bytes(self.blob.code, self.blob.payload_bytes);
        match fault {
            Fault::Lost => self.lose(stack),
            Fault::Dead => self.memory[stack].set_dead(true),
            Fault::Bits(places) => places.iter().for_each(|at| self.flip(stack, at.index(bytes as usize) as u64)),
            Fault::Corrupted(at) => {
                let name = stack_name(self.blob.id, stack as u8);
                self.memory[stack].make_unreadable(&name, at.index(bytes as usize) as u64, 1);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_r_faulty_stacks_leave_every_byte_readable_and_more_never_give_a_wrong_one(
        size in 1..3 * RUN / 2,
        faults in prop::collection::vec((0_usize..5, fault()), 0..4),
        k_only: bool,
        from: prop::sample::Index,
        to: prop::sample::Index,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::written(SMALL, size).await;
            let mut faulty: Vec<usize> = faults.iter().map(|(stack, _)| *stack).collect();
            faulty.sort_unstable();
            faulty.dedup();
            for stack in &faulty {
                let (_, fault) = faults.iter().find(|(at, _)| at == stack).unwrap();
                rig.suffer(*stack, fault);
            }
            let policy = if k_only { Policy::K } else { Policy::All };
            let (a, b) = (from.index(size as usize) as u64, to.index(size as usize) as u64 + 1);
            // `read` itself asserts that all delivered bytes are right.
            let (read, _) = rig.read(policy, a.min(b - 1)..b.max(a)).await;
            if faulty.len() <= 2 {
                assert!(read.unwrap() == payload(a.min(b - 1)..b.max(a)));
            }
        });
    }
}
