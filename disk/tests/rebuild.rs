//! Stacks that are regenerated from the others, and read back.

#![allow(clippy::unwrap_used)]

use disk::stack::{
    Blob, Header, Lost, Policy, Provenance, StackError, StackOutcome, StackWriter, copy, look, rebuild, stack_bytes,
    stack_name, verify, verify_stack,
};
use disk::{BLOCK_BYTES, Drive, FileName, MemoryDrive, RackUuid};
use model::{BlobId, ClassId, Code, DriveId, GroupId, Rng};
use proptest::prelude::*;
use std::sync::Arc;

/// Many stripes, runs and batches in few bytes.
const SMALL: Code = Code { data: 3, parity: 2, fragment_bytes: 4096 };
const PELICAN: Code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };
/// Payload of a full run of `SMALL`.
const RUN: u64 = 960 * 3 * 4096;

const PROVENANCE: Provenance =
    Provenance { sequence: 42, run: 7, written_ms: 1_700_000_000_000, group: GroupId(3), class: ClassId(1) };

/// A blob on its drives, and one drive more to rebuild upon.
struct Rig {
    blob: Blob,
    memory: Vec<Arc<MemoryDrive>>,
    spare: Arc<MemoryDrive>,
    payload_crc64: u64,
}

impl Rig {
    async fn new(code: Code, payload_bytes: u64) -> Self {
        let capacity = stack_bytes(code, payload_bytes) + (1 << 20);
        let drive = || Arc::new(MemoryDrive::new(capacity));
        let memory: Vec<_> = (0..code.stacks()).map(|_| drive()).collect();
        let blob = Blob { rack: RackUuid([5; 16]), id: BlobId::numbered(77), code, payload_bytes };
        // A test may rebuild every stack upon it.
        let spare = Arc::new(MemoryDrive::new(capacity * code.stacks() as u64));
        let mut rig = Self { blob, memory, spare, payload_crc64: 0 };
        let drives: Vec<_> = (0..code.stacks()).map(|at| (DriveId(at as u32), rig.drive(at))).collect();
        let mut writer = StackWriter::create(blob, PROVENANCE, &drives).await.result.unwrap();
        let mut rng = Rng::new(payload_bytes);
        let payload: Vec<u8> = (0..payload_bytes).map(|_| rng.next_u64() as u8).collect();
        for piece in payload.chunks(100_000) {
            writer.write(piece).await.unwrap();
        }
        rig.payload_crc64 = writer.finish().await.result.unwrap().payload_crc64;
        rig
    }

    fn drive(&self, at: usize) -> Arc<dyn Drive> {
        Arc::clone(&self.memory[at]) as Arc<dyn Drive>
    }

    fn target(&self) -> Arc<dyn Drive> {
        Arc::clone(&self.spare) as Arc<dyn Drive>
    }

    fn name(&self, index: usize) -> FileName {
        stack_name(self.blob.id, index as u8)
    }

    fn contents(&self, index: usize) -> Vec<u8> {
        self.memory[index].contents(&self.name(index)).unwrap()
    }

    /// The drives once the stack is on the spare one, which has number 99.
    fn homes(&self, index: usize) -> Vec<DriveId> {
        let home = |at: usize| DriveId(if at == index { 99 } else { at as u32 });
        (0..self.memory.len()).map(home).collect()
    }

    fn lost(&self, index: usize) -> Lost {
        Lost { index: index as u8, drives: self.homes(index), target: self.target(), replaces: true, beside: false }
    }

    async fn copy(&self, index: usize) -> (Result<(), StackError>, Vec<StackOutcome>) {
        let report = copy(self.blob, self.drive(index), self.lost(index)).await;
        (report.result.map(|written| assert_eq!(written.payload_crc64, self.payload_crc64)), report.outcomes)
    }

    async fn rebuild(&self, index: usize, policy: Policy) -> (Result<(), StackError>, Vec<StackOutcome>) {
        let others = (0..self.memory.len()).filter(|at| *at != index).map(|at| (at as u8, self.drive(at)));
        let report = rebuild(self.blob, others.collect(), policy, self.lost(index)).await;
        (report.result.map(|written| assert_eq!(written.payload_crc64, self.payload_crc64)), report.outcomes)
    }

    /// The rebuilt stack is the lost one, but for the drives in its header, whose checksum pages and footer name.
    fn is_the_lost_one(&self, index: usize) {
        let (lost, new) = (self.contents(index), self.spare.contents(&self.name(index)).unwrap());
        assert!(unbound(&new) == unbound(&lost), "stack {index}");
        let header = Header::decode(&new[..BLOCK_BYTES]).unwrap();
        let (index, drives) = (index as u8, self.homes(index));
        assert_eq!(header, Header { blob: self.blob, index, provenance: PROVENANCE, drives });
    }
}

/// A stack behind its header, without what its pages and its footer say of that.
fn unbound(stack: &[u8]) -> Vec<u8> {
    let mut bytes = stack[BLOCK_BYTES..].to_vec();
    for block in bytes.chunks_mut(BLOCK_BYTES) {
        let header_crc = match &block[..8] {
            b"LARDSUMS" => 60..64,
            b"LARDFOOT" => 68..72,
            _ => continue,
        };
        block[header_crc].fill(0);
        block[BLOCK_BYTES - 4..].fill(0);
    }
    bytes
}

#[tokio::test]
async fn every_stack_can_be_regenerated_byte_for_byte() {
    for (code, bytes) in
        [(SMALL, 1), (SMALL, 4096), (SMALL, 3 * 4096 + 1), (SMALL, RUN), (SMALL, 2 * RUN + 12_345), (PELICAN, 40 << 20)]
    {
        let rig = Rig::new(code, bytes).await;
        for index in 0..code.stacks() {
            for policy in [Policy::All, Policy::K] {
                let (result, outcomes) = rig.rebuild(index, policy).await;
                result.unwrap();
                assert!(outcomes.iter().all(|outcome| matches!(outcome, StackOutcome::Fine | StackOutcome::Unused)));
                rig.is_the_lost_one(index);
                let outcome = verify_stack(rig.blob, index as u8, &rig.target(), rig.payload_crc64).await;
                assert_eq!(outcome, StackOutcome::Fine);
            }
        }
    }
}

#[tokio::test]
async fn a_copy_is_the_stack_itself_whatever_became_of_the_others() {
    for (code, bytes) in
        [(SMALL, 1), (SMALL, 4096), (SMALL, 3 * 4096 + 1), (SMALL, RUN), (SMALL, 2 * RUN + 12_345), (PELICAN, 40 << 20)]
    {
        let rig = Rig::new(code, bytes).await;
        for index in 0..code.stacks() {
            (0..code.stacks()).for_each(|at| rig.memory[at].set_dead(at != index));
            let (result, outcomes) = rig.copy(index).await;
            assert_eq!((result, outcomes), (Ok(()), vec![StackOutcome::Fine; 2]));
            rig.is_the_lost_one(index);
            let outcome = verify_stack(rig.blob, index as u8, &rig.target(), rig.payload_crc64).await;
            assert_eq!(outcome, StackOutcome::Fine);
        }
    }
}

#[tokio::test]
async fn what_is_rotten_or_gone_is_not_copied_and_leaves_no_file() {
    let rig = Rig::new(SMALL, 2 * RUN).await;
    for (index, offset) in [(0, 9_000), (4, 1 << 20), (2, 100)] {
        rig.memory[index].flip_bit(&rig.name(index), offset, 1);
        let (result, outcomes) = rig.copy(index).await;
        assert!(result.is_err() && outcomes.len() == 2, "{result:?}");
        assert_eq!((outcomes[0].clone(), rig.spare.contents(&rig.name(index))), (StackOutcome::StackBad, None));
        assert!(matches!(outcomes[1], StackOutcome::Fine | StackOutcome::Unused), "it is not the target's fault");
    }
    rig.memory[1].set_dead(true);
    assert!(rig.copy(1).await.0.is_err());
    rig.spare.set_capacity(1 << 20);
    let (result, outcomes) = rig.copy(3).await;
    assert!(result.is_err() && outcomes[0] == StackOutcome::Fine && outcomes[1] != StackOutcome::Fine);
    assert!(rig.spare.contents(&rig.name(3)).is_none());
}

#[tokio::test]
async fn a_blob_with_a_rebuilt_stack_verifies_as_a_whole() {
    let rig = Rig::new(SMALL, RUN + 99).await;
    rig.rebuild(4, Policy::K).await.0.unwrap();
    let drives: Vec<_> = (0..5).map(|at| if at == 4 { rig.target() } else { rig.drive(at) }).collect();
    assert_eq!(verify(rig.blob, &drives, rig.payload_crc64).await.result, Ok(()));
}

#[tokio::test]
async fn what_an_earlier_attempt_left_gives_way() {
    let rig = Rig::new(SMALL, 100_000).await;
    rig.rebuild(1, Policy::All).await.0.unwrap();
    rig.spare.flip_bit(&rig.name(1), 9_000, 1);
    rig.rebuild(1, Policy::All).await.0.unwrap();
    rig.is_the_lost_one(1);
}

/// Its writer may have ended before the sync.
#[tokio::test]
async fn what_is_found_in_its_place_is_durable_from_then_on() {
    let rig = Rig::new(SMALL, 100_000).await;
    let (name, bytes) = (rig.name(1), rig.contents(1));
    rig.spare.create(&name, bytes.len() as u64).await.unwrap();
    rig.spare.write_at(&name, 0, disk::Buffer::copy_of(&bytes)).await.unwrap();
    let report = look(rig.blob, 1, &rig.target()).await;
    assert_eq!(report.result.map(|found| found.payload_crc64), Ok(rig.payload_crc64));
    assert_eq!(report.outcomes, vec![StackOutcome::Fine; 2]);
    rig.spare.crash();
    assert!(rig.spare.contents(&name) == Some(bytes), "it is still there");
}

#[tokio::test]
async fn a_file_of_another_blob_in_the_place_of_the_new_stack_is_left_alone() {
    let rig = Rig::new(SMALL, 100_000).await;
    let name = rig.name(1);
    let foreign = Header {
        blob: Blob { id: BlobId::new(77, 5), ..rig.blob },
        index: 1,
        provenance: PROVENANCE,
        drives: rig.homes(1),
    };
    let mut block = disk::Buffer::zeroed(BLOCK_BYTES);
    foreign.encode(&mut block);
    rig.spare.create(&name, 100_000).await.unwrap();
    rig.spare.write_at(&name, 0, block).await.unwrap();
    let before = rig.spare.contents(&name);
    let (result, outcomes) = rig.rebuild(1, Policy::All).await;
    assert_eq!((result, outcomes.last()), (Err(StackError::WriteFailed), Some(&StackOutcome::StackBad)));
    assert_eq!(rig.spare.contents(&name), before);
}

#[tokio::test]
async fn what_cannot_be_rebuilt_leaves_no_file() {
    let rig = Rig::new(SMALL, 100_000).await;
    for at in [1, 2, 3] {
        rig.memory[at].set_dead(true);
    }
    let (result, outcomes) = rig.rebuild(0, Policy::All).await;
    assert!(matches!(result, Err(StackError::TooFewStacks { need: 3, good: 1 })), "{result:?}");
    assert_eq!(outcomes.last(), Some(&StackOutcome::Unused), "the target was not asked");
    for at in [1, 2, 3] {
        rig.memory[at].set_dead(false);
        rig.memory[at].flip_bit(&rig.name(at), 9_000, 1);
    }
    let (result, outcomes) = rig.rebuild(0, Policy::All).await;
    assert!(matches!(result, Err(StackError::TooFewStacks { .. } | StackError::DataLost { .. })), "{result:?}");
    assert_eq!(outcomes.last(), Some(&StackOutcome::Fine), "it is not the target's fault");
    assert!(rig.spare.contents(&rig.name(0)).is_none());
}

#[tokio::test]
async fn a_target_that_is_full_or_fails_is_told_and_left_without_the_file() {
    let rig = Rig::new(SMALL, RUN).await;
    rig.spare.set_capacity(1 << 20);
    let (result, outcomes) = rig.rebuild(2, Policy::All).await;
    assert_eq!((result, outcomes.last()), (Err(StackError::WriteFailed), Some(&StackOutcome::Full)));
    rig.spare.set_capacity(1 << 30);
    for call in 1..10 {
        rig.spare.fail_call(call);
        let (result, outcomes) = rig.rebuild(2, Policy::All).await;
        assert_eq!(result, Err(StackError::WriteFailed), "call {call}");
        assert!(matches!(outcomes.last(), Some(StackOutcome::Failed(_))), "{outcomes:?}");
        assert!(rig.spare.contents(&rig.name(2)).is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn bits_that_rot_on_up_to_r_less_one_survivors_do_no_harm(
        size in 1..3 * RUN / 2,
        index in 0_usize..5,
        rotten in 0_usize..4,
        places in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        k_only: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new(SMALL, size).await;
            let rotten = (0..5).filter(|at| *at != index).nth(rotten).unwrap();
            let bytes = stack_bytes(SMALL, size) as usize;
            for at in &places {
                rig.memory[rotten].flip_bit(&rig.name(rotten), at.index(bytes) as u64, 0x10);
            }
            rig.rebuild(index, if k_only { Policy::K } else { Policy::All }).await.0.unwrap();
            rig.is_the_lost_one(index);
        });
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_stack_is_found_when_it_is_read_back(
        size in 1..3 * RUN / 2,
        at in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new(SMALL, size).await;
            let at = at.index(stack_bytes(SMALL, size) as usize) as u64;
            rig.memory[3].flip_bit(&rig.name(3), at, 0x10);
            let outcome = verify_stack(rig.blob, 3, &rig.drive(3), rig.payload_crc64).await;
            // The headers' drives are the one thing that is not compared, but their block has a checksum.
            assert_eq!(outcome, StackOutcome::StackBad, "byte {at}");
        });
    }
}
