//! Power control against recorded answers of disks, bridges and emulators, and against commands of an operator's.
#![allow(clippy::unwrap_used, clippy::unnecessary_wraps)] // answers are wrapped as a `Replay` takes them

use super::trial::{TrialError, TrialReport, TrialTimes};
use super::*;
use crate::scsi::{Command, Recorded, Replay};
use parking_lot::Mutex;
use proptest::prelude::*;

/// libata's answer to a pass-through with CK_COND: count, status, error.
fn registers(count: u8, status: u8, error: u8) -> Recorded {
    let sense = [0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, error, 0, count, 0, 0, 0, 0, 0, 0, 0x40, status];
    Ok(Reply::check(&sense))
}

fn check(key: u8, asc: u8, ascq: u8) -> Recorded {
    Ok(Reply::check_fixed(key, asc, ascq))
}

/// The data of an answer to REQUEST SENSE.
fn state(key: u8, asc: u8, ascq: u8) -> Recorded {
    Ok(Reply::good(&Reply::check_fixed(key, asc, ascq).sense))
}

fn good() -> Recorded {
    Ok(Reply::default())
}

fn ata(answer: Recorded) -> PowerMode {
    let replay =
        Replay::default().with(Command::ata_check_power_mode(), [answer]).with(Command::test_unit_ready(), [good()]);
    AtaPower::new(replay).mode()
}

fn scsi(sense: impl IntoIterator<Item = Recorded>, ready: Recorded) -> (PowerMode, Vec<Command>) {
    let replay = Replay::default().with(Command::request_sense(), sense).with(Command::test_unit_ready(), [ready]);
    (ScsiPower::new(&replay).mode(), replay.asked())
}

#[test]
fn an_ata_disk_says_what_its_platters_do() {
    for (count, mode) in [
        (0x00, PowerMode::Standby),
        (0x01, PowerMode::Standby),
        (0x80, PowerMode::Active),
        (0x82, PowerMode::Active),
        (0xff, PowerMode::Active),
        (0x55, PowerMode::Unknown(PowerError::UnnamedMode(0x55))),
    ] {
        assert_eq!(ata(registers(count, 0x50, 0)), mode, "{count:#x}");
    }
}

#[test]
fn an_answer_without_registers_says_nothing() {
    // A bridge that swallows the command: GOOD, and nothing else.
    assert_eq!(ata(good()), PowerMode::Unknown(PowerError::NoAtaStatus));
    // A translator that answers in fixed format, whose bytes mean different things to different translators.
    assert_eq!(ata(check(1, 0x00, 0x1d)), PowerMode::Unknown(PowerError::NoAtaStatus));
    // Descriptor format without the descriptor.
    let bare = Ok(Reply::check(&[0x72, 1, 0, 0x1d, 0, 0, 0, 0]));
    assert_eq!(ata(bare), PowerMode::Unknown(PowerError::NoAtaStatus));
}

#[test]
fn a_rejected_pass_through_is_never_standby() {
    let refused = |key, asc, ascq| PowerMode::Unknown(PowerError::Refused { key, asc, ascq });
    assert_eq!(ata(check(5, 0x20, 0)), refused(5, 0x20, 0));
    assert_eq!(ata(check(5, 0x24, 0)), refused(5, 0x24, 0));
    // The registers of a command that the disk aborted.
    assert_eq!(ata(registers(0, 0x51, 0x04)), PowerMode::Unknown(PowerError::Ata { status: 0x51, error: 0x04 }));
    // ABORTED COMMAND with registers that look well.
    let mut aborted = registers(0, 0x50, 0).unwrap();
    aborted.sense[1..4].copy_from_slice(&[0xb, 0, 0]);
    assert_eq!(ata(Ok(aborted)), refused(0xb, 0, 0));
    assert_eq!(ata(Err(TransportError::Unsupported)), PowerMode::Unknown(TransportError::Unsupported.into()));
    let busy = Reply { status: 0x08, ..Reply::default() };
    assert_eq!(ata(Ok(busy)), PowerMode::Unknown(PowerError::Status(0x08)));
}

#[test]
fn what_the_host_adapter_says_is_not_the_disks_word() {
    // Status and sense data are left over where the adapter failed.
    let failed = |host_status| Ok(Reply { host_status, ..registers(0, 0x50, 0).unwrap() });
    assert_eq!(ata(failed(HOST_TIME_OUT)), PowerMode::Unknown(PowerError::NoAnswer));
    assert_eq!(ata(failed(HOST_NO_CONNECT)), PowerMode::Unknown(TransportError::Gone.into()));
    assert_eq!(ata(failed(7)), PowerMode::Unknown(PowerError::HostAdapter(7)));
}

#[test]
fn an_ata_disk_that_becomes_ready_is_starting() {
    let replay = Replay::default()
        .with(Command::ata_check_power_mode(), [registers(0xff, 0x50, 0)])
        .with(Command::test_unit_ready(), [check(2, 4, 1), good()]);
    let control = AtaPower::new(&replay);
    assert_eq!((control.mode(), control.mode()), (PowerMode::Starting, PowerMode::Active));
    // One that is asleep is not asked: its translator might start it.
    let replay = Replay::default().with(Command::ata_check_power_mode(), [registers(0, 0x50, 0)]);
    assert_eq!(AtaPower::new(&replay).mode(), PowerMode::Standby);
    assert_eq!(replay.asked(), [Command::ata_check_power_mode()]);
}

#[test]
fn a_stop_counts_only_if_an_ata_disk_saw_it() {
    let stop = |answer| AtaPower::new(Replay::default().with(Command::ata_standby_immediate(), [answer])).stop();
    assert_eq!(stop(registers(0, 0x50, 0)), Ok(()));
    assert_eq!(stop(good()), Err(PowerError::NoAtaStatus));
    assert_eq!(stop(registers(0, 0x51, 0x04)), Err(PowerError::Ata { status: 0x51, error: 0x04 }));
}

#[test]
fn a_stopped_scsi_disk_is_known_without_a_command_that_fails() {
    // scsi_debug after a STOP: GOOD, with 2/04/02 in the data.
    let (mode, asked) = scsi([state(2, 4, 2)], check(2, 4, 2));
    assert_eq!((mode, asked), (PowerMode::Standby, vec![Command::request_sense()]));
    for ascq in [0x02, 0x04, 0x09, 0x0a] {
        let (mode, asked) = scsi([state(0, 0x5e, ascq)], good());
        assert_eq!((mode, asked), (PowerMode::Standby, vec![Command::request_sense()]));
    }
}

#[test]
fn a_scsi_disk_turns_only_if_it_is_ready() {
    assert_eq!(scsi([state(0, 0, 0)], good()).0, PowerMode::Active);
    assert_eq!(scsi([state(0, 0x5e, 0x05)], good()).0, PowerMode::Active);
    // A unit whose REQUEST SENSE says nothing of its state.
    assert_eq!(scsi([state(0, 0, 0)], check(2, 4, 2)).0, PowerMode::Standby);
    assert_eq!(scsi([state(0, 0, 0)], check(2, 4, 1)).0, PowerMode::Starting);
    assert_eq!(scsi([state(2, 4, 0x1c)], good()).0, PowerMode::Starting);
    let refused = PowerError::Refused { key: 2, asc: 0x3a, ascq: 0 };
    assert_eq!(scsi([state(0, 0, 0)], check(2, 0x3a, 0)).0, PowerMode::Unknown(refused));
    assert_eq!(
        scsi([state(0, 0x5e, 0x00)], good()).0,
        PowerMode::Unknown(PowerError::Refused { key: 0, asc: 0x5e, ascq: 0 })
    );
    // Data that are no sense data.
    assert!(matches!(scsi([Ok(Reply::good(&[]))], good()).0, PowerMode::Unknown(_)));
}

#[test]
fn events_are_passed_over_and_not_for_ever() {
    assert!(matches!(scsi([check(6, 0x29, 0)], good()).0, PowerMode::Unknown(_)), "REQUEST SENSE itself failed");
    assert_eq!(scsi([state(6, 0x29, 0), state(2, 4, 2)], good()).0, PowerMode::Standby);
    assert_eq!(scsi([state(6, 0x29, 0)], good()).0, PowerMode::Unknown(PowerError::KeepsReporting));
    let replay = Replay::default().with(Command::stop(), [check(6, 0x29, 0), good()]);
    assert_eq!(ScsiPower::new(&replay).stop(), Ok(()));
    let replay = Replay::default().with(Command::start(), [check(6, 0x29, 0)]);
    assert_eq!(ScsiPower::new(&replay).start(), Err(PowerError::KeepsReporting));
}

/// A disk that takes this number of queries to stop and to start, or does not obey.
struct Slow {
    stop_polls: u32,
    start_polls: u32,
    state: Mutex<(bool, u32)>,
    obeys: bool,
    wakes_after: Option<u32>,
}

impl Slow {
    fn new(stop_polls: u32, start_polls: u32) -> Self {
        Self { stop_polls, start_polls, state: Mutex::new((true, u32::MAX)), obeys: true, wakes_after: None }
    }
}

impl PowerControl for Slow {
    fn mode(&self) -> PowerMode {
        let (turning, polls) = &mut *self.state.lock();
        *polls = polls.saturating_add(1);
        match (*turning, *polls) {
            (true, polls) if polls > self.start_polls => PowerMode::Active,
            (true, _) => PowerMode::Starting,
            (false, polls) if polls <= self.stop_polls => PowerMode::Active,
            (false, polls) if self.wakes_after.is_some_and(|at| polls > at) => PowerMode::Active,
            (false, _) => PowerMode::Standby,
        }
    }

    fn start(&self) -> Result<(), PowerError> {
        *self.state.lock() = (true, 0);
        Ok(())
    }

    fn stop(&self) -> Result<(), PowerError> {
        if self.obeys {
            *self.state.lock() = (false, 0);
        }
        Ok(())
    }
}

fn tried(control: &dyn PowerControl) -> Result<TrialReport, TrialError> {
    trial::run(control, TrialTimes::default(), &mut |_| {})
}

#[test]
fn a_trial_measures_a_slow_start() {
    let report = tried(&Slow::new(4, 60)).unwrap();
    assert_eq!(report, TrialReport { stop: Duration::from_secs(1), start: Duration::from_secs(15) });
    assert_eq!(tried(&Slow::new(4, 1_000_000)), Err(TrialError::StartIgnored(Duration::from_mins(2))));
}

#[test]
fn a_trial_finds_disks_that_do_not_obey() {
    let mut disk = Slow::new(0, 0);
    disk.wakes_after = Some(1);
    assert_eq!(tried(&disk), Err(TrialError::WokeUp(Duration::from_secs(10))));
    disk.obeys = false;
    assert_eq!(tried(&disk), Err(TrialError::StopIgnored(Duration::from_secs(30))));
    // QEMU's ide-hd, and bridges that answer for a sleeping disk: STANDBY IMMEDIATE succeeds, and the mode is FFh.
    let replay = || {
        Replay::default()
            .with(Command::ata_standby_immediate(), [registers(0, 0x50, 0)])
            .with(Command::test_unit_ready(), [good()])
    };
    let emulated = replay().with(Command::ata_check_power_mode(), [registers(0xff, 0x50, 0)]);
    assert_eq!(tried(&AtaPower::new(emulated)), Err(TrialError::StopIgnored(Duration::from_secs(30))));
    let swallows = Replay::default().with(Command::ata_standby_immediate(), [good()]);
    let error = PowerError::NoAtaStatus;
    assert_eq!(tried(&AtaPower::new(swallows)), Err(TrialError::Command { action: "stop", error }));
    let mute = replay().with(Command::ata_check_power_mode(), [good()]);
    let error = PowerError::NoAtaStatus;
    assert_eq!(tried(&AtaPower::new(mute)), Err(TrialError::Unknown { action: "stop", error }));
}

/// Power control by this script, with its actions as `$1`.
fn script(text: &str, timeout: Duration) -> CommandPower {
    let argv = ["/bin/sh", "-c", text, "relay"].map(str::to_owned).to_vec();
    CommandPower::new(argv, "/dev/disk/by-id/wwn-0x5000", timeout)
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn a_command_answers_with_a_word() {
    for (word, mode) in
        [("standby", PowerMode::Standby), ("starting now", PowerMode::Starting), ("active", PowerMode::Active)]
    {
        assert_eq!(script(&format!("echo {word}"), LONG).mode(), mode);
    }
    for word in ["", "off", "Active"] {
        let error = PowerError::CommandAnswer { command: "/bin/sh".into(), answer: word.into() };
        assert_eq!(script(&format!("echo {word}"), LONG).mode(), PowerMode::Unknown(error));
    }
}

#[test]
fn a_command_is_given_action_and_disk() {
    let control = script("test \"$1 $2\" = 'stop /dev/disk/by-id/wwn-0x5000'", LONG);
    assert_eq!(control.stop(), Ok(()));
    assert!(matches!(control.start(), Err(PowerError::CommandFailed { .. })));
}

#[test]
fn a_command_that_fails_is_quoted() {
    let Err(error) = script("echo first >&2; echo the slot is empty >&2; exit 3", LONG).start() else {
        panic!("it failed")
    };
    assert_eq!(error.to_string(), "the power command /bin/sh failed (exit status: 3): the slot is empty");
    let missing = CommandPower::new(vec!["/nonexistent/relay".into()], "sdb", LONG);
    assert!(matches!(missing.mode(), PowerMode::Unknown(PowerError::CommandNotRun { .. })));
}

#[test]
fn a_command_that_hangs_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let text = format!("sleep 600 & echo $! $$ > {}; wait", pids.display());
    let timeout = Duration::from_secs(1);
    let error = PowerError::CommandTimeout { command: "/bin/sh".into(), timeout };
    assert_eq!(script(&text, timeout).stop(), Err(error));
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2);
    for pid in pids.split_whitespace() {
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A killed process ends when it gets a processor.
        let has_ended = || state().is_empty() || state().contains(") Z ");
        let mut looks = (0..500).map(|_| std::thread::sleep(Duration::from_millis(10)));
        assert!(looks.any(|()| has_ended()), "process {pid} is still there: {}", state());
    }
}

#[test]
fn output_without_end_neither_fills_memory_nor_outlives_the_timeout() {
    let timeout = Duration::from_millis(300);
    let error = PowerError::CommandTimeout { command: "/bin/sh".into(), timeout };
    assert_eq!(script("exec yes", timeout).mode(), PowerMode::Unknown(error));
    // The word is there, and a descendant keeps the pipe open.
    assert_eq!(script("echo active; sleep 5 &", LONG).mode(), PowerMode::Active);
    let long = script("head -c 1000000 /dev/zero | tr '\\0' x", LONG).mode();
    let PowerMode::Unknown(PowerError::CommandAnswer { answer, .. }) = long else { panic!("{long:?}") };
    assert_eq!(answer.len(), COMMAND_OUTPUT_BYTES);
}

proptest! {
    /// For any answer of a disk, a bridge or an adapter: no panic, and "standby" only with proof.
    #[test]
    fn arbitrary_answers_are_never_taken_for_standby(
        status in prop_oneof![Just(0u8), Just(2), any::<u8>()],
        host_status in prop_oneof![4 => Just(0u16), 1 => any::<u16>()],
        sense in prop::collection::vec(any::<u8>(), 0..40),
        data in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let reply = Reply { status, host_status, sense, data };
        let all = || Replay::default()
            .with(Command::ata_check_power_mode(), [Ok(reply.clone())])
            .with(Command::request_sense(), [Ok(reply.clone())])
            .with(Command::test_unit_ready(), [Ok(reply.clone())]);
        let proof = Sense::decode(&reply.sense);
        if AtaPower::new(all()).mode() == PowerMode::Standby {
            prop_assert!(host_status == 0 && status == 2 && proof.is_some_and(|sense| sense.ata.is_some()));
        }
        if ScsiPower::new(all()).mode() == PowerMode::Standby {
            let stopped = |sense: Sense| sense.is(2, 4, 2) || (sense.key, sense.asc) == (0, 0x5e);
            prop_assert!(host_status == 0 && Sense::decode(&reply.data).is_some_and(stopped));
        }
    }
}
