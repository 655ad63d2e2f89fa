//! The interpreter of one rotation: executes the decisions of `engine::shift` with files and threads.
//!
//! It runs in the writer's step. Long work is started on a drive's thread or as a task, and its end arrives as a
//! message.

use crate::drive::{Drive, Spare, Turn};
use crate::driver::{Driver, Handle};
use crate::log::{LogHeader, Previous, RECORDS_OFFSET};
use crate::lost::{Loss, LostPart};
use crate::manifest::Entry;
use crate::medium::{File, is_full};
use crate::merging;
use crate::names::{FileId, Name};
use crate::queue::Message;
use crate::record::Sequence;
use crate::shared::{CycleShared, Shared};
use crate::shelf::read::Shelf;
use crate::status::{CycleStatus, DriveStatus};
use crate::table::{Index, LogTable};
use crate::transform::{Progress, Transform, remove};
use crate::view::View;
use engine::shift::{LogId, PoolDrive, Shift, ShiftAction, ShiftEvent, TransformOutcome};
use model::sabotage::{Sabotage, is_on};
use model::{Attempt, Time};
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A dead log longer than this multiple of `log_bytes` is removed, and not kept for the next one.
const SPARE_LOGS_MAX: u64 = 2;

/// Time without appends after which the log on duty counts as idle.
const STILL: Duration = Duration::from_secs(1);
/// The pause after a try to make a rotation level, as a multiple of the time that the try took.
const TRY_PAUSE: u32 = 20;
/// The longest such pause: there may be room again long before.
const TRY_PAUSE_MAX: Duration = Duration::from_hours(1);

/// Creates the file of a log, durably: in the room of `spare`, if given. The new name is durable before the header
/// overwrites that of the dead log, so a file with a dead log's name is always dead.
fn create_log(drive: &Drive, header: LogHeader, spare: Option<Spare>) -> io::Result<Arc<dyn File>> {
    let name = Name::Log(header.identity.file).to_string();
    let (file, room): (Arc<dyn File>, u64) = match spare {
        Some(Spare { file, medium, .. }) => {
            drive.directory.rename(&Name::Log(file).to_string(), &name)?;
            let room = medium.bytes()?;
            (medium, room)
        }
        None => (drive.directory.create(&name)?.into(), 0),
    };
    drive.sync_names()?;
    drive.append(file.as_ref(), &LogHeader { room, ..header }.encode(), 0)?;
    Ok(file)
}

/// The log on duty.
pub(crate) struct OpenLog {
    pub(crate) log: LogId,
    pub(crate) drive: PoolDrive,
    pub(crate) table: Arc<LogTable>,
    /// Its length; all of it is durable.
    pub(crate) bytes: u64,
    /// The bytes that count towards its size.
    charged: u64,
}

/// A transformation that is under way.
struct Running {
    log: LogId,
    attempt: Attempt,
    drives: (PoolDrive, PoolDrive),
    progress: Arc<Progress>,
    /// Its number of steps when it was last checked, and the time since which it has made no other.
    seen: u64,
    seen_at: Time,
    task: Option<Handle>,
}

/// A rotation.
pub(crate) struct Cycle {
    number: usize,
    shared: Arc<Shared>,
    shift: Shift,
    /// By position; `None` for a missing drive.
    pub(crate) drives: Vec<Option<Arc<Drive>>>,
    pub(crate) open: Option<OpenLog>,
    /// The log before it.
    previous: Option<Previous>,
    tables: BTreeMap<LogId, Arc<LogTable>>,
    /// Logs that are already shelves, and are retained for a caller that has not caught up.
    retained: Vec<Arc<LogTable>>,
    running: Vec<Running>,
    /// Drives that are being started.
    waking: usize,
    /// The merging task, if there is anything to merge; and true if there is more since it started.
    merging: Option<Handle>,
    merge_again: bool,
    /// The turn at each drive.
    turns: Vec<Turn>,
    /// Time at which the log on duty last grew.
    appended_at: Time,
    /// Set if it lacks changes that the other rotation took: the time of the next attempt to make it level.
    behind: Option<Time>,
    /// Set while it is being made level: the first number of that.
    levels_from: Option<Sequence>,
    /// The first number of the batch that is being appended.
    appends_from: Option<Sequence>,
}

impl Cycle {
    pub(crate) fn new(number: usize, shared: Arc<Shared>, shift: Shift, drives: Vec<Option<Arc<Drive>>>) -> Self {
        Self {
            number,
            shared,
            shift,
            turns: vec![Turn::Free; drives.len()],
            drives,
            open: None,
            previous: None,
            tables: BTreeMap::new(),
            retained: Vec::new(),
            running: Vec::new(),
            waking: 0,
            merging: None,
            merge_again: false,
            appended_at: Time::ZERO,
            behind: None,
            levels_from: None,
            appends_from: None,
        }
    }

    /// True if it lacks changes that the other rotation has acknowledged; it then takes no new ones.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Notes that it lacks changes that the other rotation took.
    pub(crate) fn fall_behind(&mut self) {
        tracing::error!(cycle = self.number, "a rotation has no room, and falls behind the other one");
        self.behind = Some((self.shared.config.clock)() + STILL);
        self.set_behind(true);
    }

    /// True if it is time to try to make it level. A try that fails is followed by [`Self::stays_behind`].
    pub(crate) fn tries_to_catch_up(&self) -> bool {
        self.behind.is_some_and(|next| (self.shared.config.clock)() >= next) && self.lives()
    }

    /// A try to make it level, begun at `began`, has failed. Each try reads all that the rotation lacks, and the writer
    /// does nothing else meanwhile, so tries take a small part of its time.
    pub(crate) fn stays_behind(&mut self, began: Time) {
        let now = (self.shared.config.clock)();
        self.behind = Some(now + (now.since(began) * TRY_PAUSE).clamp(STILL, TRY_PAUSE_MAX));
    }

    /// Notes that it is level again.
    pub(crate) fn caught_up(&mut self) {
        tracing::info!(cycle = self.number, "a rotation has caught up with the other one");
        self.behind = None;
        self.set_behind(false);
    }

    fn set_behind(&self, behind: bool) {
        self.common().set_may_lag(behind);
        self.common().change(|view| View { behind, ..view.clone() });
        self.report();
    }

    /// The first number of making it level; `None` if it is not being made level.
    pub(crate) fn log_from(&self) -> Option<Sequence> {
        self.levels_from
    }

    /// A batch with numbers from `first` on is being appended; `None` ends that. A log that is opened meanwhile is for
    /// it.
    pub(crate) fn appends_from(&mut self, first: Option<Sequence>) {
        self.appends_from = first;
    }

    /// From now on it is made level, with numbers from `first` on; `None` ends that.
    pub(crate) fn levels_from(&mut self, first: Option<Sequence>) {
        self.levels_from = first;
    }

    /// A drive that accepts a shelf now; if all were full, one that may have room by now.
    pub(crate) fn drive_for_shelf(&self) -> Option<Arc<Drive>> {
        let is_there = |drive: &&Option<Arc<Drive>>| drive.as_ref().is_some_and(|drive| !drive.is_lost());
        let is_writable = |position: &usize| self.shift.is_writable(PoolDrive(*position as u32));
        let there = || self.drives.iter().enumerate().filter(|(_, drive)| is_there(drive));
        let writable = there().find(|(position, _)| is_writable(position));
        writable.or_else(|| there().next()).and_then(|(_, drive)| drive.clone())
    }

    fn common(&self) -> &CycleShared {
        &self.shared.cycles[self.number]
    }

    /// Takes over logs of an earlier run, oldest first, and starts. `previous` is the last of them. Logs that are
    /// already dead are only retained.
    pub(crate) fn boot(&mut self, logs: Vec<Arc<LogTable>>, dead: Vec<Arc<LogTable>>, previous: Option<Previous>) {
        self.previous = previous;
        let mut events = VecDeque::new();
        for (at, table) in logs.into_iter().enumerate() {
            let position =
                self.drives.iter().position(|drive| drive.as_ref().is_some_and(|d| d.uuid == table.drive.uuid));
            let Some(position) = position else { unreachable!("a log was read from a drive that is there") };
            let log = LogId(at as u64 + 1);
            self.tables.insert(log, table);
            events.push_back(ShiftEvent::Found { log, drive: PoolDrive(position as u32) });
        }
        self.retained = dead;
        for (position, drive) in self.drives.iter().enumerate() {
            let position = PoolDrive(position as u32);
            if drive.as_ref().is_some_and(|drive| !drive.directory.can_sleep()) {
                events.push_back(ShiftEvent::Uncontrolled(position));
            }
            if drive.as_ref().is_none_or(|drive| drive.is_lost()) {
                events.push_back(ShiftEvent::Lost(position));
            }
        }
        events.push_back(ShiftEvent::Booted);
        self.handle_all(events);
        self.consider_merging();
    }

    /// Handles an event and all its consequences.
    pub(crate) fn handle(&mut self, event: ShiftEvent) {
        self.handle_all(VecDeque::from([event]));
    }

    fn handle_all(&mut self, mut events: VecDeque<ShiftEvent>) {
        let (mut actions, mut is_lost) = (Vec::new(), false);
        self.used().for_each(|event| events.push_front(event));
        while let Some(event) = events.pop_front() {
            if let ShiftEvent::Lost(drive) = event {
                self.forget_drive(drive);
                is_lost = true;
            }
            self.shift.apply((self.shared.config.clock)(), event, &mut actions);
            for action in actions.drain(..) {
                self.execute(action, &mut events);
            }
            events.extend(self.give_turns());
        }
        if is_lost {
            self.consider_merging();
        }
        self.report();
    }

    /// The drives that background work has used since the last call. They are handled before anything else is decided;
    /// otherwise a working drive might be put to sleep.
    fn used(&self) -> impl Iterator<Item = ShiftEvent> {
        let there = self.drives.iter().enumerate().filter_map(|(position, drive)| Some((position, drive.as_ref()?)));
        let used = there.filter(|(_, drive)| drive.was_used());
        used.map(|(position, _)| ShiftEvent::Used(PoolDrive(position as u32)))
    }

    /// Lets background work use exactly the drives that have no stage. The drive on duty counts as one of them while
    /// nothing is appended. A drive whose piece of work does not end in time is lost.
    fn give_turns(&mut self) -> Vec<ShiftEvent> {
        let mut hung = Vec::new();
        for (position, drive) in self.drives.iter().enumerate() {
            let Some(drive) = drive.as_ref().filter(|drive| !drive.is_lost()) else { continue };
            let position = PoolDrive(position as u32);
            let is_still = self.is_still() && !self.shift.stages(position).transforms();
            let is_free = self.shift.is_free(position) || (is_still && self.shift.stages(position).logs);
            let turn = if is_free { Turn::Free } else { Turn::Taken };
            // Only for a change is it worth waiting for the current piece of work.
            if std::mem::replace(&mut self.turns[position.0 as usize], turn) != turn
                && !drive.set_turn(turn, self.shared.config.deadline)
            {
                hung.push(ShiftEvent::Lost(position));
            }
        }
        hung
    }

    /// Handles drives that readers have started: they sleep again after their idle time.
    pub(crate) fn handle_drives_woken_by_reads(&mut self) {
        for position in 0..self.drives.len() {
            if self.drives[position].as_ref().is_some_and(|drive| drive.was_roused()) {
                self.handle(ShiftEvent::Awoke(PoolDrive(position as u32)));
                self.remove_covered(self.shared.covered());
            }
        }
    }

    /// True if any drive sleeps.
    pub(crate) fn sleeps(&self) -> bool {
        (0..self.drives.len() as u32).any(|position| self.shift.is_asleep(PoolDrive(position)))
    }

    /// True if nothing has been appended for a while.
    fn is_still(&self) -> bool {
        (self.shared.config.clock)().since(self.appended_at) >= STILL
    }

    /// Time at which background work may start to use the drive on duty, if it has no turn there yet. A past time also
    /// counts; otherwise a merge that starts after it would wait for the next event.
    pub(crate) fn still_at(&self) -> Option<Time> {
        (self.merging.is_some() && self.keeps_one_for_logs()).then(|| self.appended_at + STILL)
    }

    /// True if background work has no turn at some drive that has only the log stage.
    fn keeps_one_for_logs(&self) -> bool {
        self.drives.iter().enumerate().any(|(position, drive)| {
            let stages = self.shift.stages(PoolDrive(position as u32));
            let is_there = drive.as_ref().is_some_and(|drive| !drive.is_lost());
            is_there && self.turns[position] == Turn::Taken && stages.logs && !stages.transforms()
        })
    }

    /// Starts to merge, if there is anything to merge.
    pub(crate) fn consider_merging(&mut self) {
        if self.merging.is_some() {
            self.merge_again = true;
            return;
        }
        let view = self.common().view();
        if (view.shelves.is_empty() && view.is_whole()) || self.shared.config.is_look {
            return;
        }
        let drives = self.drives.iter().enumerate().filter_map(|(position, drive)| {
            let writable = self.shift.is_writable(PoolDrive(position as u32));
            Some((Arc::clone(drive.as_ref()?), writable))
        });
        let (drives, shared, cycle) = (drives.collect::<Vec<_>>(), Arc::clone(&self.shared), self.number);
        let work = move || {
            merging::run(&shared, &shared.cycles[cycle], &drives);
            shared.queue.send(Message::Merged { cycle });
        };
        let task = self.shared.begin("intake-merge", work);
        self.merging = task.inspect_err(|error| tracing::warn!(%error, "no thread is free to merge shelves")).ok();
    }

    /// The merging task has ended. There may be room now.
    pub(crate) fn merged(&mut self) {
        self.merging = None;
        for position in (0..self.drives.len() as u32).map(PoolDrive) {
            let is_there = self.drives[position.0 as usize].as_ref().is_some_and(|drive| !drive.is_lost());
            if is_there && !self.shift.is_writable(position) {
                self.handle(ShiftEvent::Back(position));
            }
        }
        if std::mem::take(&mut self.merge_again) {
            self.consider_merging();
        }
        self.report();
    }

    fn execute(&mut self, action: ShiftAction, events: &mut VecDeque<ShiftEvent>) {
        match action {
            ShiftAction::OpenLog { log, drive } => {
                if let Err(error) = self.open_log(log, drive) {
                    events.push_back(self.write_failed(drive, &error));
                }
            }
            ShiftAction::Transform { log, from, to, attempt } => self.begin_transform(log, (from, to), attempt),
            ShiftAction::RemoveLog { log, drive } => {
                if self.remove_log(log) {
                    // There may be room now.
                    events.push_back(ShiftEvent::Back(drive));
                }
            }
            ShiftAction::LogLost { log, .. } => self.log_lost(log),
            ShiftAction::Admit(_) => {}
            ShiftAction::Wake(drive) => self.wake(drive),
            ShiftAction::Sleep(drive) => self.sleep(drive),
        }
    }

    fn drive(&self, drive: PoolDrive) -> io::Result<Arc<Drive>> {
        self.drives[drive.0 as usize].clone().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The event for a failed write.
    pub(crate) fn write_failed(&self, drive: PoolDrive, error: &io::Error) -> ShiftEvent {
        tracing::error!(drive = drive.0, cycle = self.number, %error, "a drive of the pool cannot be written");
        if !is_full(error) {
            return ShiftEvent::Lost(drive);
        }
        self.remove_spare(drive);
        ShiftEvent::Full(drive)
    }

    /// Releases the room of the drive's spare.
    fn remove_spare(&self, position: PoolDrive) {
        let Ok(drive) = self.drive(position) else { return };
        if let Some(file) = drive.drop_spare() {
            self.begin_remove(&drive, file);
        }
    }

    /// Makes the drive remove a dead log, without waiting for it.
    fn begin_remove(&self, drive: &Arc<Drive>, file: FileId) {
        let (shared, cycle) = (Arc::clone(&self.shared), self.number);
        drop(drive.begin(move |drive| {
            remove(&shared.cycles[cycle], drive, Name::Log(file));
            Ok(())
        }));
    }

    /// Keeps a dead log as room for the drive's next log, if it is useful for that.
    fn keep(&self, table: &Arc<LogTable>) -> bool {
        let bytes = table.index.read().bytes;
        let is_of_use = bytes > RECORDS_OFFSET && bytes <= SPARE_LOGS_MAX * self.shared.config.log_bytes;
        let readers = Arc::downgrade(table) as Weak<_>;
        let spare = || Spare { file: table.file, medium: Arc::clone(&table.medium), readers };
        is_of_use && !self.shared.config.is_look && !table.drive.is_lost() && table.drive.keep_spare(spare()).is_ok()
    }

    fn open_log(&mut self, log: LogId, position: PoolDrive) -> io::Result<()> {
        if let Some(open) = self.open.take() {
            self.previous = Some(Previous { file: open.table.file, bytes: open.bytes });
        }
        let drive = self.drive(position)?;
        let identity = self.shared.new_file(drive.uuid);
        let next = Sequence(self.shared.last.load(Ordering::Relaxed) + 1);
        let first = self.levels_from.or(self.appends_from).unwrap_or(next);
        let header = LogHeader { identity, first, previous: self.previous, room: 0 };
        let spare = drive.take_spare();
        let reused = spare.as_ref().map(|spare| spare.file);
        let create = drive.begin(move |drive| create_log(drive, header, spare));
        let medium = create.wait(self.shared.config.deadline)?;
        if let Some(reused) = reused {
            // No file has that name any more.
            self.common().undeleted.lock().remove(&reused);
        }
        let index = RwLock::new(Index { bytes: RECORDS_OFFSET, ..Index::default() });
        let table = Arc::new(LogTable { file: identity.file, drive, medium, first, index });
        if !is_on(Sabotage::ManifestWrittenLate) {
            self.name_log(&table, reused)?;
        }
        self.tables.insert(log, Arc::clone(&table));
        self.common().change(|view| {
            let mut view = view.clone();
            view.logs.push(Arc::clone(&table));
            view
        });
        self.open = Some(OpenLog { log, drive: position, table, bytes: RECORDS_OFFSET, charged: 0 });
        Ok(())
    }

    /// Names a new log in the manifest, and the previous log with its final length. The new log may be in the room of
    /// `reused`.
    fn name_log(&self, table: &Arc<LogTable>, reused: Option<FileId>) -> io::Result<()> {
        let left = self.common().view().logs.last().map(|left| Entry::of_log(left, true));
        let named = self.shared.note(|manifest| {
            manifest.extend(left.into_iter().collect());
            if let Some(reused) = reused {
                manifest.drop(reused);
            }
            manifest.name(Entry::of_log(table, false));
        });
        // It has no records. If the manifest may name it nevertheless, it stays; otherwise the next start treats it as
        // a draft if it still exists.
        named.inspect_err(|_| {
            if !self.shared.is_uncertain() {
                self.begin_remove(&table.drive, table.file);
            }
        })
    }

    /// The manifest entry of the log on duty.
    pub(crate) fn open_entry(&self, sealed: bool) -> Option<Entry> {
        self.open.as_ref().map(|open| Entry::of_log(&open.table, sealed))
    }

    /// Opens the log on duty if its file could not be created for lack of room.
    pub(crate) fn retry_open_log(&mut self) {
        if self.open.is_none()
            && let Some((log, drive)) = self.shift.on_duty()
            && let Err(error) = self.open_log(log, drive)
        {
            let event = self.write_failed(drive, &error);
            self.handle(event);
        }
    }

    /// Adds `bytes` to the log on duty, which count as `charged`. The caller then calls [`Self::appended`].
    pub(crate) fn grew(&mut self, bytes: u64, charged: u64) {
        let Some(open) = &mut self.open else { return };
        open.bytes += bytes;
        open.charged += charged;
        open.table.index.write().bytes = open.bytes;
    }

    /// Lets the rotation leave its log if that is now long enough.
    pub(crate) fn appended(&mut self) {
        let Some(open) = &self.open else { return };
        self.appended_at = (self.shared.config.clock)();
        let event = ShiftEvent::Appended { log: open.log, bytes: open.charged };
        self.handle(event);
    }

    fn begin_transform(&mut self, log: LogId, drives: (PoolDrive, PoolDrive), attempt: Attempt) {
        if self.shared.config.is_look {
            return;
        }
        let progress = Arc::new(Progress::default());
        let (seen, seen_at) = (u64::MAX, (self.shared.config.clock)());
        let mut running = Running { log, attempt, drives, progress: Arc::clone(&progress), seen, seen_at, task: None };
        let (shared, cycle) = (Arc::clone(&self.shared), self.number);
        let (table, to) = (self.tables.get(&log).cloned(), self.drive(drives.1));
        let work = move || {
            let outcome = match (table, to) {
                (Some(table), Ok(to)) => {
                    let cycle = &shared.cycles[cycle];
                    Transform { shared: &shared, cycle, table: &table, to: &to, progress: &progress }.run()
                }
                (None, _) => Err(TransformOutcome::SourceLost),
                (_, Err(_)) => Err(TransformOutcome::TargetLost),
            };
            let outcome = outcome.err().unwrap_or(TransformOutcome::Done);
            shared.queue.send(Message::Transformed { cycle, log, attempt, outcome });
        };
        match self.shared.begin("intake-shelf", work) {
            Ok(task) => running.task = Some(task),
            Err(error) => {
                tracing::error!(%error, "a log cannot be transformed, since no thread is free");
                let outcome = TransformOutcome::Failed;
                self.shared.queue.send(Message::Transformed { cycle, log, attempt, outcome });
            }
        }
        self.running.push(running);
    }

    pub(crate) fn transformed(&mut self, log: LogId, attempt: Attempt, outcome: TransformOutcome) {
        let Some(at) = self.running.iter().position(|running| (running.log, running.attempt) == (log, attempt)) else {
            return;
        };
        let running = self.running.swap_remove(at);
        match outcome {
            TransformOutcome::TargetLost => self.forget_drive(running.drives.1),
            TransformOutcome::TargetFull => self.remove_spare(running.drives.1),
            _ => {}
        }
        self.handle(ShiftEvent::TransformEnded { log, attempt, outcome });
        self.consider_merging();
    }

    /// Gives up transformations that have made no step by the deadline: the drive that they wait for is lost.
    pub(crate) fn look_for_hangs(&mut self) {
        if self.shared.config.driver == Driver::Caller {
            return; // a task that waits for its turn does not hang
        }
        let (now, mut hung) = ((self.shared.config.clock)(), Vec::new());
        for running in &mut self.running {
            let steps = running.progress.steps.load(Ordering::Relaxed);
            if steps != running.seen {
                (running.seen, running.seen_at) = (steps, now);
            } else if now.since(running.seen_at) >= self.shared.config.deadline {
                running.progress.abandoned.store(true, Ordering::Relaxed);
                let writes = running.progress.writes.load(Ordering::Relaxed);
                hung.push(if writes { running.drives.1 } else { running.drives.0 });
            }
        }
        self.running.retain(|running| !running.progress.abandoned.load(Ordering::Relaxed));
        for drive in hung {
            self.handle(ShiftEvent::Lost(drive));
        }
    }

    /// Ends the rotation: running work is given up, and starts again when the pool is next opened.
    pub(crate) fn end(&mut self) {
        for running in &self.running {
            running.progress.abandoned.store(true, Ordering::Relaxed);
        }
        for drive in self.drives.iter().flatten().filter(|drive| !drive.is_lost()) {
            // No further log will use its room, and the next start has less to read. No drive is started for this.
            if !drive.is_asleep()
                && let Some(file) = drive.drop_spare()
            {
                self.begin_remove(drive, file);
            }
            // After everything that was started on it.
            drive.set_turn(Turn::Ended, self.shared.config.deadline);
            drive.begin(|_| Ok(())).wait(self.shared.config.deadline).ok();
        }
        let works = self.drives.iter().flatten().all(|drive| !drive.is_lost());
        if let Some(task) = self.merging.take().filter(|_| works) {
            task.join("a merge");
        }
        for running in self.running.drain(..) {
            let drives = [running.drives.0, running.drives.1].map(|drive| self.drives[drive.0 as usize].as_ref());
            // A thread that waits for a hanging drive is left alone.
            let works = drives.iter().all(|drive| drive.is_some_and(|drive| !drive.is_lost()));
            if let Some(task) = running.task.filter(|_| works) {
                task.join("a transformation");
            }
        }
    }

    /// True if any work is running that will end with a message.
    pub(crate) fn is_busy(&self) -> bool {
        !self.running.is_empty() || self.waking > 0
    }

    /// Removes a dead log, or retains it; `false` if it has no file.
    fn remove_log(&mut self, log: LogId) -> bool {
        let Some(table) = self.tables.remove(&log) else { return false };
        if self.open.as_ref().is_some_and(|open| open.log == log) {
            self.open = None;
        }
        // An empty log was never transformed.
        self.common().change(|view| view.replaced(&[table.file], None));
        self.retained.push(table);
        self.remove_covered(self.shared.covered());
        true
    }

    /// Removes the dead logs that the caller knows completely; those on a sleeping drive once it is awake.
    pub(crate) fn remove_covered(&mut self, covered: Sequence) {
        let wanted = self.shared.retained();
        let is_known = |table: &Arc<LogTable>| {
            table.index.read().last <= covered && table.first > wanted && !table.drive.is_asleep()
        };
        let (mut gone, retained) = self.retained.drain(..).partition::<Vec<_>, _>(is_known);
        if is_on(Sabotage::RemovedBeforeManifest) {
            for table in &gone {
                self.begin_remove(&table.drive, table.file);
            }
        }
        self.retained = retained;
        let files: Vec<FileId> = gone.iter().map(|table| table.file).collect();
        if !files.is_empty()
            && let Err(error) = self.shared.note(|manifest| manifest.bury(&files))
        {
            tracing::warn!(%error, "dead logs are not removed");
            self.retained.append(&mut gone);
        }
        for table in gone {
            self.common().undeleted.lock().insert(table.file);
            if !self.keep(&table) {
                self.begin_remove(&table.drive, table.file);
            }
        }
    }

    /// Number of logs that are retained for a caller that has not caught up.
    pub(crate) fn retained(&self) -> usize {
        self.retained.len()
    }

    fn wake(&mut self, position: PoolDrive) {
        self.waking += 1;
        let (shared, cycle) = (Arc::clone(&self.shared), self.number);
        let wake = move |drive: &Drive| {
            let awake = drive.wake().inspect_err(|error| tracing::error!(%error, "a drive does not start"));
            shared.queue.send(Message::Awoke { cycle, drive: position, awake: awake.is_ok() });
            Ok(())
        };
        match self.drive(position) {
            Ok(drive) => drop(drive.begin(wake)),
            Err(_) => self.shared.queue.send(Message::Awoke { cycle: self.number, drive: position, awake: false }),
        }
    }

    pub(crate) fn awoke(&mut self, drive: PoolDrive, awake: bool) {
        self.waking -= 1;
        self.handle(if awake { ShiftEvent::Awoke(drive) } else { ShiftEvent::Lost(drive) });
        self.remove_covered(self.shared.covered());
    }

    fn sleep(&self, position: PoolDrive) {
        if let Ok(drive) = self.drive(position) {
            let warn = |error: &io::Error| tracing::warn!(%error, "a drive does not stop");
            drop(drive.begin(move |drive| drive.sleep().inspect_err(warn)));
        }
    }

    /// True if the pool has no other drive. If this drive fails, nothing more is written; but its content is nowhere
    /// else, so readers still ask it: a log that could not be synced can still be read.
    fn is_alone(&self) -> bool {
        self.shared.cycles.len() == 1 && self.drives.len() == 1
    }

    /// Sends no more requests to the drive, and drops its shelves from the view.
    fn forget_drive(&mut self, position: PoolDrive) {
        let Some(drive) = self.drives[position.0 as usize].clone() else { return };
        if self.common().view().missing && drive.is_lost() {
            return;
        }
        drive.set_lost();
        if self.is_alone() {
            return;
        }
        let view = self.common().view();
        let is_on_it = |shelf: &Arc<Shelf>| shelf.drive.uuid == drive.uuid;
        let mut lost = Vec::new();
        for shelf in view.shelves.iter().filter(|shelf| is_on_it(shelf)) {
            // Records that it hid may show again, even if it has no records.
            lost.push(Entry::of_shelf(shelf).lost_part());
            if let Some((first, last)) = shelf.keys().filter(|_| self.shared.cycles.len() == 1) {
                let keys = (first.to_vec(), last.to_vec(), shelf.records());
                self.shared.lose(Loss::Shelf { file: shelf.file, drive: drive.uuid, keys });
            }
        }
        self.common().change(|view| {
            let mut view = view.without(lost);
            view.missing = true;
            view.shelves.retain(|shelf| !is_on_it(shelf));
            view.settle();
            view
        });
    }

    /// Reports the changes that only this log held.
    fn log_lost(&mut self, log: LogId) {
        let Some(table) = self.tables.remove(&log) else { return };
        if self.open.as_ref().is_some_and(|open| open.log == log) {
            self.open = None;
        }
        let index = table.index.read();
        let ends = index.keys.first_key_value().zip(index.keys.last_key_value());
        let keys = ends.map(|((first, _), (last, _))| (first.to_vec(), last.to_vec()));
        // A log that is already a shelf loses nothing.
        let is_alive = self.common().view().logs.iter().any(|log| log.file == table.file);
        if self.is_alone() || !is_alive || index.last == Sequence(0) {
            return;
        }
        self.common().change(|view| {
            let lost = LostPart { keys: keys.filter(|_| index.masks.is_empty()), max: index.last };
            view.replaced(&[table.file], None).without([lost])
        });
        let others = self.shared.cycles.iter().enumerate().filter(|(number, _)| *number != self.number);
        let others: Vec<_> = others.map(|(_, cycle)| cycle.view()).collect();
        for (key, slot) in &index.keys {
            let sequence = slot.head.sequence;
            let is_elsewhere = others.iter().any(|view| view.is_whole() || view.holds(key, sequence));
            if !is_elsewhere {
                self.shared.lose(Loss::Version { key: key.to_vec(), sequence });
            }
        }
    }

    /// The number after the last log that has records.
    pub(crate) fn logs_end(&self) -> LogId {
        let last = self.tables.iter().rfind(|(_, table)| table.index.read().last > Sequence(0));
        LogId(last.map_or(0, |(log, _)| log.0 + 1))
    }

    /// True if logs with numbers below `end` are not shelves yet.
    pub(crate) fn has_logs_before(&self, end: LogId) -> bool {
        self.tables.range(..end).next().is_some()
    }

    /// True if any drive exists that has not failed.
    pub(crate) fn lives(&self) -> bool {
        self.drives.iter().flatten().any(|drive| !drive.is_lost())
    }

    /// The rotation's own state.
    pub(crate) fn shift(&self) -> &Shift {
        &self.shift
    }

    /// Updates the status.
    fn report(&self) {
        let view = self.common().view();
        let mut drives = Vec::new();
        for (position, drive) in self.drives.iter().enumerate() {
            let Some(drive) = drive else { continue };
            let position = PoolDrive(position as u32);
            let on_it = || view.shelves.iter().filter(|shelf| shelf.drive.uuid == drive.uuid);
            drives.push(DriveStatus {
                uuid: drive.uuid,
                place: drive.directory.place(),
                stages: self.shift.stages(position),
                asleep: self.shift.is_asleep(position),
                lost: drive.is_lost(),
                shelves: on_it().count(),
                shelf_bytes: on_it().map(|shelf| shelf.bytes).sum(),
                written: drive.written.load(Ordering::Relaxed),
                syncs: drive.syncs.load(Ordering::Relaxed),
            });
        }
        *self.common().status.lock() = CycleStatus {
            drives,
            alternation: self.shift.alternation(),
            stats: self.shift.stats(),
            backlog: self.shift.backlog(),
            retained: self.retained.len(),
            log_bytes: self.open.as_ref().map_or(0, |open| open.bytes),
            admits: self.shift.admits(),
            incomplete: !view.is_whole(),
        };
    }
}
