//! Drives that hang: a call ends at its deadline, and other drives continue.

#![allow(clippy::unwrap_used)]

use disk::stack::{self, Blob, Policy, Provenance, StackOutcome, StackReader, StackWriter};
use disk::{
    Buffer, Clock, DeadlineDrive, Deadlines, Drive, DriveError, FileName, MemoryCall, MemoryDrive, RackUuid, TokioClock,
};
use model::{BlobId, ClassId, Code, DriveId, GroupId, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const HANG: Duration = Duration::from_secs(100);

const DEADLINES: Deadlines = Deadlines {
    read: Duration::from_secs(15),
    write: Duration::from_secs(30),
    sync: Duration::from_mins(1),
    spin_up: Duration::from_secs(41),
    mount: Duration::from_secs(42),
    unmount: Duration::from_secs(43),
    stop: Duration::from_secs(44),
};

fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

fn held(memory: &Arc<MemoryDrive>) -> Arc<DeadlineDrive> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Time::ZERO, 1));
    Arc::new(DeadlineDrive::new(Arc::clone(memory) as Arc<dyn Drive>, clock, DEADLINES))
}

async fn with_file() -> (Arc<MemoryDrive>, Arc<DeadlineDrive>) {
    let memory = Arc::new(MemoryDrive::new(1 << 20));
    memory.create(&name("a"), 8192).await.unwrap();
    let drive = held(&memory);
    (memory, drive)
}

fn is_silent<T>(answer: &Result<T, DriveError>) -> bool {
    matches!(answer, Err(DriveError::NoAnswer(_)))
}

/// Everything that a drive can be asked, and the deadline of each.
async fn ask(drive: &dyn Drive, what: usize) -> (Result<(), DriveError>, Duration) {
    let (a, b) = (name("a"), name("b"));
    match what {
        0 => (drive.create(&b, 4096).await, DEADLINES.write),
        1 => (drive.write_at(&a, 0, Buffer::zeroed(4096)).await.map(drop), DEADLINES.write),
        2 => (drive.read_at(&a, 0, Buffer::zeroed(4096)).await.map(drop), DEADLINES.read),
        3 => (drive.sync(&a).await, DEADLINES.sync),
        4 => (drive.remove(&a).await, DEADLINES.write),
        5 => (drive.len(&a).await.map(drop), DEADLINES.read),
        6 => (drive.list().await.map(drop), DEADLINES.read),
        7 => (drive.space().await.map(drop), DEADLINES.read),
        8 => (drive.spin_up().await, DEADLINES.spin_up),
        9 => (drive.mount().await.map(drop), DEADLINES.mount),
        10 => (drive.unmount().await, DEADLINES.unmount),
        _ => (drive.stop().await, DEADLINES.stop),
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_to_a_drive_that_hangs_ends_at_its_deadline() {
    for what in 0..12 {
        let (memory, drive) = with_file().await;
        memory.hang(|_| Some(HANG));
        let began = Instant::now();
        let (answer, deadline) = ask(&*drive, what).await;
        assert!(is_silent(&answer), "{what}: {answer:?}");
        assert_eq!(began.elapsed(), deadline, "{what}");
        assert_eq!(drive.overdue_requests(), 1);
        // Until it has answered it receives no more requests, and returns the error at once.
        for other in 0..12 {
            let (answer, _) = ask(&*drive, other).await;
            assert!(is_silent(&answer), "{what}, then {other}: {answer:?}");
        }
        assert_eq!(began.elapsed(), deadline, "{what}");
        memory.stop_hanging();
        tokio::time::sleep(HANG).await;
        assert_eq!(drive.overdue_requests(), 0);
        drive.list().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_passed_on_as_it_is() {
    let (memory, drive) = with_file().await;
    memory.hang(|_| Some(DEADLINES.read.saturating_sub(Duration::from_millis(1))));
    let read = drive.read_at(&name("a"), 0, Buffer::zeroed(4096)).await.unwrap();
    assert_eq!(read.len(), 4096);
    assert!(matches!(drive.len(&name("missing")).await, Err(DriveError::NotFound(_))));
    assert_eq!(drive.overdue_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_made_late_is_not_removed_before_it_is_made() {
    let (memory, drive) = with_file().await;
    memory.hang(|asked| matches!(asked, MemoryCall::Create(_)).then_some(HANG));
    assert!(is_silent(&drive.create(&name("late"), 4096).await));
    assert!(is_silent(&drive.remove(&name("late")).await), "it would find nothing, and count as done");
    tokio::time::sleep(HANG).await;
    assert_eq!(memory.len(&name("late")).await.unwrap(), 4096);
    drive.remove(&name("late")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_hangs_takes_a_bounded_number_of_requests_with_it() {
    let (memory, drive) = with_file().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reached);
    memory.hang(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(HANG)
    });
    let began = Instant::now();
    let file = name("a");
    let all = (0..32).map(|_| drive.read_at(&file, 0, Buffer::zeroed(4096)));
    let answers = futures::future::join_all(all).await;
    assert!(answers.iter().all(is_silent));
    assert_eq!(began.elapsed(), DEADLINES.read, "those that waited for a place waited no longer than the others");
    assert_eq!(reached.load(Ordering::Relaxed), disk::REQUESTS_MAX);
    assert_eq!(drive.overdue_requests(), disk::REQUESTS_MAX);
    tokio::time::sleep(HANG).await;
    assert_eq!(drive.overdue_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_leaves_the_count_right() {
    let (memory, drive) = with_file().await;
    memory.hang(|_| Some(HANG));
    let file = name("a");
    let given_up = tokio::time::timeout(Duration::from_secs(1), drive.read_at(&file, 0, Buffer::zeroed(4096))).await;
    assert!(given_up.is_err());
    tokio::time::sleep(DEADLINES.read).await;
    assert_eq!(drive.overdue_requests(), 1, "the caller is gone, and the drive owes an answer all the same");
    memory.stop_hanging();
    tokio::time::sleep(HANG).await;
    assert_eq!(drive.overdue_requests(), 0);
    drive.read_at(&name("a"), 0, Buffer::zeroed(4096)).await.unwrap();
}

/// A blob of several batches and runs on five drives; three of them are enough to read it.
const CODE: Code = Code { data: 3, parity: 2, fragment_bytes: 4096 };
const PAYLOAD_BYTES: u64 = 2000 * 3 * 4096 + 123;

struct Rig {
    memory: Vec<Arc<MemoryDrive>>,
    drives: Vec<Arc<dyn Drive>>,
}

const PROVENANCE: Provenance = Provenance { sequence: 1, run: 1, written_ms: 1, group: GroupId(0), class: ClassId(0) };

fn blob() -> Blob {
    Blob { rack: RackUuid([5; 16]), id: BlobId::numbered(77), code: CODE, payload_bytes: PAYLOAD_BYTES }
}

fn payload() -> Vec<u8> {
    (0..PAYLOAD_BYTES).map(|at| ((at * 31) >> 3) as u8).collect()
}

impl Rig {
    fn new() -> Self {
        let memory: Vec<_> = (0..CODE.stacks()).map(|_| Arc::new(MemoryDrive::new(1 << 26))).collect();
        let drives = memory.iter().map(|memory| held(memory) as Arc<dyn Drive>).collect();
        Self { memory, drives }
    }

    fn indexed(&self) -> Vec<(u8, Arc<dyn Drive>)> {
        (0..).zip(self.drives.iter().cloned()).collect()
    }

    async fn write(&self) -> (bool, Vec<StackOutcome>) {
        let drives: Vec<_> = (0..).map(DriveId).zip(self.drives.iter().cloned()).collect();
        let created = StackWriter::create(blob(), PROVENANCE, &drives).await;
        let Ok(mut writer) = created.result else { return (false, created.outcomes) };
        for bytes in payload().chunks(100_000) {
            if writer.write(bytes).await.is_err() {
                return (false, writer.abort().await);
            }
        }
        let report = writer.finish().await;
        (report.result.is_ok(), report.outcomes)
    }

    async fn written() -> Self {
        let rig = Self::new();
        assert!(rig.write().await.0);
        rig
    }

    /// Reads everything: the outcome of each stack, and the time it took.
    async fn read(&self, policy: Policy) -> (Vec<StackOutcome>, Duration) {
        let began = Instant::now();
        let mut reader = StackReader::open(blob(), self.indexed(), policy).await.result.unwrap();
        let mut got = Vec::new();
        reader.read(0..PAYLOAD_BYTES, &mut got).await.unwrap();
        assert!(got == payload());
        (reader.outcomes(), began.elapsed())
    }
}

/// True if this call belongs to the phase of a read with that name.
fn is_of_read(phase: &str, asked: &MemoryCall) -> bool {
    let pages = 4096 + 960 * 4096;
    match (phase, asked) {
        ("length", MemoryCall::Len(_)) | ("header", MemoryCall::Read(_, 0, _)) => true,
        ("footer", MemoryCall::Read(_, offset, _)) => *offset > 2000 * 4096,
        ("page", MemoryCall::Read(_, offset, _)) => *offset == pages,
        ("fragments", MemoryCall::Read(_, offset, _)) => *offset > 4096 && *offset < pages,
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_goes_on_without_a_drive_that_hangs_in_any_phase() {
    for policy in [Policy::All, Policy::K] {
        for phase in ["length", "footer", "header", "page", "fragments"] {
            let rig = Rig::written().await;
            rig.memory[1].hang(move |asked| is_of_read(phase, asked).then_some(HANG));
            let (outcomes, took) = rig.read(policy).await;
            assert_eq!(outcomes[1], StackOutcome::NoAnswer, "{phase}");
            assert!(outcomes.iter().all(|outcome| !matches!(outcome, StackOutcome::StackBad)), "{phase}: {outcomes:?}");
            assert_eq!(took, DEADLINES.read, "{phase}: one deadline, and nothing else takes time here");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_drives_may_hang_as_there_is_parity() {
    let rig = Rig::written().await;
    rig.memory[0].hang(|asked| is_of_read("footer", asked).then_some(HANG));
    rig.memory[2].hang(|asked| is_of_read("fragments", asked).then_some(HANG));
    let (outcomes, took) = rig.read(Policy::All).await;
    assert_eq!([&outcomes[0], &outcomes[2]], [&StackOutcome::NoAnswer; 2]);
    assert_eq!(took, 2 * DEADLINES.read);
}

#[tokio::test(start_paused = true)]
async fn when_too_many_hang_nothing_is_taken_for_lost() {
    let rig = Rig::written().await;
    for memory in &rig.memory[..3] {
        memory.hang(|asked| is_of_read("fragments", asked).then_some(HANG));
    }
    let mut reader = StackReader::open(blob(), rig.indexed(), Policy::All).await.result.unwrap();
    let error = reader.read(0..PAYLOAD_BYTES, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, stack::StackError::TooFewStacks { need: 3, good: 2 }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_drive_that_hangs_fails_in_time_in_any_phase() {
    for phase in ["create", "header", "fragments", "sync", "footer", "second sync"] {
        let rig = Rig::new();
        let syncs = AtomicUsize::new(0);
        rig.memory[4].hang(move |asked| {
            let hangs = match (phase, asked) {
                ("create", MemoryCall::Create(_)) | ("header", MemoryCall::Write(_, 0, _)) => true,
                ("fragments", MemoryCall::Write(_, offset, _)) => *offset >= 4096,
                ("footer", MemoryCall::Write(_, offset, _)) => *offset > 2000 * 4096,
                (_, MemoryCall::Sync(_)) => {
                    let before = syncs.fetch_add(1, Ordering::Relaxed);
                    phase == "sync" || (phase == "second sync" && before == 1)
                }
                _ => false,
            };
            hangs.then_some(HANG)
        });
        let began = Instant::now();
        let (done, outcomes) = rig.write().await;
        let deadline = if phase.ends_with("sync") { DEADLINES.sync } else { DEADLINES.write };
        assert!(!done, "{phase}");
        assert_eq!(outcomes[4], StackOutcome::NoAnswer, "{phase}");
        assert_eq!(began.elapsed(), deadline, "{phase}");
        let others = futures::future::join_all(rig.memory[..4].iter().map(|memory| memory.list())).await;
        assert!(others.into_iter().all(|files| files.unwrap().is_empty()), "{phase}: nothing is left on the others");
        // The rest on the hanging drive is removed when it answers again.
        tokio::time::sleep(HANG).await;
        rig.memory[4].stop_hanging();
        assert_eq!(stack::remove(blob().rack, blob().id, &rig.indexed()).await, vec![StackOutcome::Fine; 5]);
        assert!(rig.memory[4].list().await.unwrap().is_empty(), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn removing_reading_back_and_rebuilding_end_in_time() {
    let rig = Rig::written().await;
    let verified = async |rig: &Rig| {
        let began = Instant::now();
        let report = stack::verify(blob(), &rig.drives, 0).await;
        (report.outcomes, began.elapsed())
    };
    rig.memory[3].hang(|asked| is_of_read("fragments", asked).then_some(HANG));
    let (outcomes, took) = verified(&rig).await;
    assert_eq!((&outcomes[3], took), (&StackOutcome::NoAnswer, DEADLINES.read));

    tokio::time::sleep(HANG).await;
    let spare = Arc::new(MemoryDrive::new(1 << 26));
    let lost = || {
        let target = held(&spare) as Arc<dyn Drive>;
        stack::Lost { index: 0, drives: (0..5).map(DriveId).collect(), target, replaces: true, beside: false }
    };
    let began = Instant::now();
    let report = stack::rebuild(blob(), rig.indexed().split_off(1), Policy::All, lost()).await;
    assert!(report.result.is_ok(), "it goes on with any k: {report:?}");
    assert_eq!(began.elapsed(), DEADLINES.read);
    let file = stack::stack_name(blob().id, 0);
    assert_eq!(spare.contents(&file), rig.memory[0].contents(&file).map(|whole| with_header_of(&spare, &file, whole)));

    tokio::time::sleep(HANG).await;
    rig.memory[3].stop_hanging();
    spare.hang(|asked| matches!(asked, MemoryCall::Write(_, offset, _) if *offset > 0).then_some(HANG));
    let began = Instant::now();
    let report = stack::rebuild(blob(), rig.indexed().split_off(1), Policy::All, lost()).await;
    assert_eq!(report.outcomes.last(), Some(&StackOutcome::NoAnswer));
    assert_eq!(began.elapsed(), DEADLINES.write);

    rig.memory[2].hang(|asked| matches!(asked, MemoryCall::Remove(_)).then_some(HANG));
    let began = Instant::now();
    let outcomes = stack::remove(blob().rack, blob().id, &rig.indexed()).await;
    assert_eq!((&outcomes[2], began.elapsed()), (&StackOutcome::NoAnswer, DEADLINES.write));
}

/// A rebuilt stack is the lost one, but for its header.
fn with_header_of(drive: &MemoryDrive, file: &FileName, mut whole: Vec<u8>) -> Vec<u8> {
    whole[..4096].copy_from_slice(&drive.contents(file).unwrap()[..4096]);
    whole
}
