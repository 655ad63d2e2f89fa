//! One operation at a time through a class: admission, service, retry, end; and what is reclaimed on the way.
//!
//! - A read is served by the members that are ready, if they hold at least k of its stacks. A failed read is tried
//!   again with the drives that did not fail; what every drive answered badly is lost, and is said so loudly.
//! - A write is placed when it is admitted, so that space is reserved while it waits. It is written, read back, and
//!   only then reported; what fails is placed anew, elsewhere. Not so where what it is made of cannot be read: the
//!   write ends, and what is left of a migration's pack is composed anew.
//! - Doomed blobs of a group are removed while it is awake, after the work that is queued for it and before it sleeps.
//!   Whoever waits for another group waits no longer for that than a quantum; the rest goes at the next wake.

use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{DoomedBlob, DriveOutcome, DriveResult, Request, Work};
use crate::fair::Pick;
use crate::policy::{IdleTimeout, Lane, PinnedTo, Weighing};
use crate::rack::{ClassPhase, DrivePhase, InService, Op, Rack};
use crate::rebuild::without;
use crate::reorder::Queued;
use crate::view::GroupState;
use alloc::vec::Vec;
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId, Time, transfer_time};

/// How often an operation is tried before it is given up.
pub(crate) const TRIES_MAX: u32 = 3;

/// Blobs of one page of doomed ones that are rescued; the others wait for the next wake. A rescue reads and stages what
/// lives in a blob, and the workshop must not be filled by many at once.
const RESCUES_PER_PAGE: usize = 2;

/// Doomed blobs asked for at once.
const DOOMED_PAGE_BLOBS: u32 = 64;

impl Rack {
    pub(crate) fn submitted(&mut self, now: Time, request: Request, actions: &mut Vec<Action>) {
        if !self.is_new(&request) {
            return;
        }
        if self.closing {
            self.reject(now, &request, Rejection::Closing, actions);
            return;
        }
        match self.admit(now, &request) {
            Ok((group, drives)) => self.enqueue(now, request, group, drives, actions),
            Err(reason) => {
                if reason == Rejection::NoRoom {
                    self.note_unplaced(&request);
                    self.visit_for_room(now, &request, actions);
                }
                self.reject(now, &request, reason, actions);
            }
        }
    }

    /// Whether the request is told for the first time: the world numbers its operations upwards, and a migration write
    /// is awaited until it has come to its end.
    fn is_new(&mut self, request: &Request) -> bool {
        if self.ops.contains_key(&request.op) {
            return false;
        }
        match request.work {
            Work::Write { migration: true, .. } => self.migrator.awaits(request.op),
            Work::Visit { .. } => true,
            _ => {
                let new = request.op > self.last_op;
                self.last_op = self.last_op.max(request.op);
                new
            }
        }
    }

    /// Where the operation will be served, and for a write on which drives.
    fn admit(&mut self, now: Time, request: &Request) -> Result<(GroupId, Vec<DriveId>), Rejection> {
        match &request.work {
            Work::Read { group, drives, .. } => {
                self.known(*group, drives)?;
                self.enough_left(drives)?;
                Ok((*group, Vec::new()))
            }
            Work::Delete { group, drives, .. } => self.known(*group, drives).map(|()| (*group, Vec::new())),
            Work::Visit { group } => self.known(*group, &[]).map(|()| (*group, Vec::new())),
            Work::Rebuild { .. } => Err(Rejection::Malformed), // nobody but the engine asks for one
            Work::Write { bytes, stack_bytes, pin, .. } => {
                let (bytes, stack_bytes, pin) = (*bytes, *stack_bytes, *pin);
                self.known_pin(pin)?;
                let mut spent = self.without_starts(request.lane, now);
                spent.retain(|group| pin.allows(*group, self.class_of(*group)));
                let place = self.place_where_composed(request.op, stack_bytes, bytes, pin, &spent);
                place.or_else(|| self.place(stack_bytes, bytes, pin, &spent)).ok_or_else(|| match pin {
                    _ if !spent.is_empty() => Rejection::StartBudgetSpent,
                    // Nobody else is asked, and nothing has to be removed: the drives have to come back.
                    PinnedTo::Group(group) if self.placement.has_room_away(group, stack_bytes) => {
                        Rejection::TooManyDrivesAway
                    }
                    _ => Rejection::NoRoom,
                })
            }
        }
    }

    /// Groups that sleep and may not be woken for `lane` any more today.
    fn without_starts(&self, lane: Lane, now: Time) -> Vec<GroupId> {
        let groups = (0..self.layout.groups.len()).map(|group| GroupId(group as u32));
        groups
            .filter(|group| self.group_state(*group) == GroupState::Asleep && !self.may_start(*group, lane, now))
            .collect()
    }

    fn known(&self, group: GroupId, drives: &[DriveId]) -> Result<(), Rejection> {
        let known = group.index() < self.layout.groups.len()
            && self.owns(self.class_of(group))
            && drives.iter().all(|drive| drive.index() < self.drives.len());
        if known { Ok(()) } else { Err(Rejection::Malformed) }
    }

    fn known_pin(&self, pin: PinnedTo) -> Result<(), Rejection> {
        match pin {
            PinnedTo::Class(class) if class.index() >= self.classes.len() => Err(Rejection::Malformed),
            PinnedTo::Group(group) => self.known(group, &[]),
            PinnedTo::Anywhere | PinnedTo::Class(_) => Ok(()),
        }
    }

    pub(crate) fn is_away(&self, drive: DriveId) -> bool {
        matches!(self.drives[drive.index()].phase, DrivePhase::Away(_))
    }

    fn place(
        &mut self,
        stack_bytes: u64,
        bytes: u64,
        pin: PinnedTo,
        excluded: &[GroupId],
    ) -> Option<(GroupId, Vec<DriveId>)> {
        let mut excluded = excluded.to_vec();
        let foreign = (0..self.layout.groups.len()).map(|g| GroupId(g as u32));
        excluded.extend(foreign.filter(|group| !self.owns(self.class_of(*group))));
        self.placement.choose(stack_bytes, bytes, pin, &self.policy.group_choice, &excluded, &mut self.rng)
    }

    /// Where a write goes that was composed anew while its group was awake: there, if that still may be.
    fn place_where_composed(
        &mut self,
        op: OpId,
        stack_bytes: u64,
        bytes: u64,
        pin: PinnedTo,
        excluded: &[GroupId],
    ) -> Option<(GroupId, Vec<DriveId>)> {
        let wanted = self.migrator.group_of(op).filter(|group| !excluded.contains(group))?;
        let others = (0..self.layout.groups.len()).map(|group| GroupId(group as u32)).filter(|group| *group != wanted);
        let others: Vec<GroupId> = others.collect();
        self.place(stack_bytes, bytes, pin, &others)
    }

    /// A write found no room: the group where most can be given back is visited, so that there is some the next time.
    fn visit_for_room(&mut self, now: Time, request: &Request, actions: &mut Vec<Action>) {
        let Work::Write { pin, .. } = request.work else { return };
        self.visit_most_doomed(now, pin, actions);
    }

    /// Visits the group that `pin` allows where most can be given back, if anything can.
    pub(crate) fn visit_most_doomed(&mut self, now: Time, pin: PinnedTo, actions: &mut Vec<Action>) {
        let hopeful = |group: &GroupId| self.doomed[group.index()].saturating_sub(self.stuck[group.index()]);
        let most = (0..self.layout.groups.len())
            .map(|group| GroupId(group as u32))
            .filter(|group| hopeful(group) > 0 && self.owns(self.class_of(*group)))
            .filter(|group| pin.allows(*group, self.class_of(*group)))
            .max_by_key(hopeful);
        if let Some(group) = most {
            self.visit(now, group, actions);
        }
    }

    fn enqueue(
        &mut self,
        now: Time,
        request: Request,
        group: GroupId,
        drives: Vec<DriveId>,
        actions: &mut Vec<Action>,
    ) {
        let class = self.class_of(group);
        let weight = self.weight(&request.work);
        let queued = Queued {
            op: request.op,
            group,
            weight,
            overtake_limit: request.overtake_limit.unwrap_or(self.policy.scheduler.overtake_limit),
            due: match self.policy.scheduler.wait_limit {
                Some(limit) if request.lane == Lane::Client => now + limit,
                _ => Time::MAX,
            },
        };
        if self.classes[class.index()].queues.push(request.lane, queued).is_err() {
            self.release_space(&request.work, &drives);
            self.reject(now, &request, Rejection::QueueFull, actions);
            return;
        }
        self.ops.insert(request.op, Op::new(request, weight, class, group, drives));
    }

    pub(crate) fn weight(&self, work: &Work) -> u64 {
        let bytes = work.transfer_bytes();
        match self.policy.scheduler.weighing {
            Weighing::Operations => 1,
            Weighing::Bytes => bytes,
            Weighing::Time => self.transfer_estimate(bytes).as_millis() as u64,
        }
    }

    /// How long payload bytes take over k drives at the profile's rate, after one seek.
    pub(crate) fn transfer_estimate(&self, bytes: u64) -> core::time::Duration {
        let each = bytes.div_ceil(u64::from(self.spec.code.data));
        self.spec.profile.seek + transfer_time(each, self.spec.profile.bytes_per_s)
    }

    pub(crate) fn release_space(&mut self, work: &Work, drives: &[DriveId]) {
        if let Work::Write { stack_bytes, .. } = work
            && !drives.is_empty()
        {
            self.placement.release(drives, *stack_bytes);
        }
    }

    pub(crate) fn cancelled(&mut self, now: Time, op: OpId, actions: &mut Vec<Action>) {
        let Some(known) = self.ops.get(&op) else {
            self.migrator.ended(now, op, true); // a pack that came to nothing
            return;
        };
        let class = known.class;
        if self.classes[class.index()].queues.remove(op).is_none() {
            return; // in service, or its group is waking for it
        }
        if let Some(known) = self.ops.get(&op).cloned() {
            self.release_space(&known.request.work, &known.drives);
        }
        self.finish(now, op, Outcome::Cancelled, actions);
    }

    /// The pending operation may not wake its group any more today. There is no switch, and so nobody is charged for
    /// one.
    pub(crate) fn give_up_for_budget(&mut self, class: ClassId, now: Time, actions: &mut Vec<Action>) {
        let state = &mut self.classes[class.index()];
        state.switch = None;
        let Some(Pick { op, .. }) = state.pending.take() else { return };
        if let Some(known) = self.ops.get(&op).cloned() {
            self.release_space(&known.request.work, &known.drives);
        }
        self.finish(now, op, Outcome::Failed(Rejection::StartBudgetSpent), actions);
    }

    /// A ready group: serve the next operation, or reclaim, or let the group go.
    pub(crate) fn serve(
        &mut self,
        class: ClassId,
        group: GroupId,
        idle_since: Option<Time>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> bool {
        let state = &mut self.classes[class.index()];
        if state.in_service.is_some() {
            return false;
        }
        if self.closing {
            self.rest(class, group, now, actions);
            return true;
        }
        if self.anticipates(class, group, now) {
            return false;
        }
        let state = &mut self.classes[class.index()];
        if state.pending.is_none() {
            state.pending = state.queues.next(now, Some(group));
            state.picked_at = now;
        }
        match state.pending.as_ref().map(|pick| (pick.group, pick.lane)) {
            Some((wanted, lane)) if wanted == group => {
                if self.wake_returned(class, group, lane, now) || self.recover(class, group, now, actions) {
                    return true;
                }
                let state = &mut self.classes[class.index()];
                let pick = state.pending.take();
                self.set_idle(class, group, None);
                pick.is_some_and(|pick| self.start(&pick, now, actions))
            }
            Some((wanted, lane)) if !self.may_start(wanted, lane, now) => {
                self.give_up_for_budget(class, now, actions);
                true
            }
            Some((_, lane)) => {
                let long_enough = now + self.policy.scheduler.quantum;
                let gives_way = *self.classes[class.index()].reclaim.gives_way.get_or_insert(long_enough);
                if now < gives_way && self.reclaim_next(class, group, now, actions) {
                    return false;
                }
                self.classes[class.index()].switch.get_or_insert((now, lane));
                self.rest(class, group, now, actions);
                true
            }
            None => self.idle(class, group, idle_since, now, actions),
        }
    }

    /// Whether the class stays with `group` a little, although others wait, since who was served last may come again.
    fn anticipates(&mut self, class: ClassId, group: GroupId, now: Time) -> bool {
        let until = self.classes[class.index()].served_until + self.policy.scheduler.anticipation;
        let until = until.min(self.classes[class.index()].queues.first_due());
        let state = &mut self.classes[class.index()];
        let others_wait = state.pending.is_none() && !state.queues.is_empty();
        let anticipates = others_wait && now < until && state.queues.may_be_waited_for(now, group);
        state.anticipates_until = anticipates.then_some(until);
        anticipates
    }

    fn set_idle(&mut self, class: ClassId, group: GroupId, idle_since: Option<Time>) {
        self.classes[class.index()].phase = ClassPhase::Awake { group, idle_since };
    }

    fn idle(
        &mut self,
        class: ClassId,
        group: GroupId,
        idle_since: Option<Time>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.reclaim_next(class, group, now, actions) {
            return false;
        }
        let since = idle_since.unwrap_or(now);
        self.set_idle(class, group, Some(since));
        match self.policy.idle_timeout {
            IdleTimeout::After(timeout) if now >= since + timeout => {
                self.rest(class, group, now, actions);
                true
            }
            _ => false,
        }
    }

    /// Puts the picked operation into service. True if it ended at once, so that another can be picked.
    fn start(&mut self, pick: &Pick, now: Time, actions: &mut Vec<Action>) -> bool {
        let Some(op) = self.ops.get(&pick.op) else { return true };
        match op.request.work {
            Work::Read { blob, ref drives, .. } => {
                let stacks = self.ready_stacks(drives);
                self.start_read(pick, blob, stacks, now, actions)
            }
            Work::Write { .. } => self.start_write(pick, now, actions),
            Work::Rebuild { .. } => self.start_rebuild(pick, now, actions),
            Work::Delete { blob, ref drives, .. } => {
                let stacks = self.ready_stacks(drives);
                self.begin_transfer(pick.op, pick.lane, Transfer::Delete { blob, stacks }, now, actions);
                false
            }
            Work::Visit { group } => {
                // A group that was awake already has not been asked for what was doomed since.
                self.begin_reclaim(op.class, group, actions);
                self.finish(now, pick.op, Outcome::Deleted, actions);
                true
            }
        }
    }

    fn start_read(
        &mut self,
        pick: &Pick,
        blob: BlobId,
        stacks: Vec<(u8, DriveId)>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> bool {
        let need = self.spec.code.data;
        if stacks.len() < usize::from(need) {
            let reason = self.why_too_few(pick.op);
            self.finish(now, pick.op, Outcome::Failed(reason), actions);
            return true;
        }
        let transfer = Transfer::Read { blob, stacks, need, policy: self.policy.read_policy };
        self.begin_transfer(pick.op, pick.lane, transfer, now, actions);
        false
    }

    /// What it means that fewer than k stacks of a read or a rebuild are ready.
    pub(crate) fn why_too_few(&self, op: OpId) -> Rejection {
        let left = match self.ops.get(&op).map(|op| &op.request.work) {
            Some(Work::Read { drives, .. }) => self.enough_left(drives),
            Some(Work::Rebuild { drives, lost, .. }) => self.enough_left(&without(drives, usize::from(*lost))),
            _ => return Rejection::Malformed,
        };
        left.err().unwrap_or(Rejection::TooManyDrivesAway)
    }

    /// Index and drive of the stacks whose drives can be read and written now.
    pub(crate) fn ready_stacks(&self, drives: &[DriveId]) -> Vec<(u8, DriveId)> {
        let ready =
            |drive: &DriveId| self.drives.get(drive.index()).is_some_and(|state| state.phase == DrivePhase::Ready);
        let mut stacks = Vec::with_capacity(drives.len());
        stacks.extend(drives.iter().enumerate().filter(|(_, drive)| ready(drive)).map(|(i, d)| (i as u8, *d)));
        stacks
    }

    fn start_write(&mut self, pick: &Pick, now: Time, actions: &mut Vec<Action>) -> bool {
        let Some(op) = self.ops.get(&pick.op) else { return true };
        let (group, drives) = (op.group, op.drives.clone());
        if drives.iter().any(|drive| self.drives[drive.index()].phase != DrivePhase::Ready) {
            self.place_anew(pick.op, now, actions);
            return true;
        }
        self.begin_transfer(pick.op, pick.lane, Transfer::Write { group, drives }, now, actions);
        false
    }

    pub(crate) fn begin_transfer(
        &mut self,
        op: OpId,
        lane: Lane,
        transfer: Transfer,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let attempt = self.serve_next(op, lane, now);
        actions.push(Action::Transfer { op, attempt, transfer });
    }

    /// Puts `op` into service for what it asks the world for next; answers the number of that.
    pub(crate) fn serve_next(&mut self, op: OpId, lane: Lane, now: Time) -> Attempt {
        let Some(state) = self.ops.get_mut(&op) else { panic!("{op} is put into service, and is not known") };
        state.attempt = Attempt(state.attempt.0.wrapping_add(1));
        let class = &mut self.classes[state.class.index()];
        assert!(class.in_service.is_none_or(|service| service.op == op), "one operation in service per class");
        class.in_service = Some(InService { op, lane, since: now });
        state.attempt
    }

    /// The class is free again; the time since it was asked last is charged.
    pub(crate) fn leave_service(&mut self, now: Time, class: ClassId, service: InService) {
        let class = &mut self.classes[class.index()];
        class.queues.charge_transfer(service.lane, now.since(service.since));
        class.in_service = None;
        class.served_until = now;
    }

    pub(crate) fn transfer_ended(
        &mut self,
        now: Time,
        op: OpId,
        attempt: Attempt,
        done: bool,
        outcomes: &[DriveOutcome],
        actions: &mut Vec<Action>,
    ) {
        let Some(service) = self.transfer_over(now, op, attempt, outcomes) else { return };
        let Some(state) = self.ops.get(&op) else { return };
        match state.request.work {
            Work::Read { bytes, .. } => self.read_ended(now, service, bytes, done, outcomes, actions),
            Work::Write { .. } => self.write_ended(now, service, done, actions),
            Work::Delete { group, ref drives, ref lost, stack_bytes, bytes, .. } => {
                if done {
                    let held = |drive: &&DriveId| self.drives[drive.index()].failed || !lost.contains(drive);
                    let drives: Vec<DriveId> = drives.iter().filter(held).copied().collect();
                    self.blob_removed(group, &drives, stack_bytes, bytes);
                    self.finish(now, op, Outcome::Deleted, actions);
                } else {
                    self.finish(now, op, Outcome::Failed(Rejection::WriteFailed), actions);
                }
            }
            Work::Rebuild { .. } => self.rebuild_moved(now, service, done, outcomes, actions),
            Work::Visit { .. } => {}
        }
    }

    /// The transfer that `op` was in service for is over: the class is free, and each drive is believed to be as it
    /// fared. `None` if the answer is late.
    fn transfer_over(&mut self, now: Time, op: OpId, attempt: Attempt, outcomes: &[DriveOutcome]) -> Option<InService> {
        let state = self.ops.get(&op).filter(|state| state.attempt == attempt && !state.moving)?;
        let class = state.class;
        let service = self.classes[class.index()].in_service.filter(|service| service.op == op)?;
        self.leave_service(now, class, service);
        self.note_job_service(now, service);
        for outcome in outcomes {
            match outcome.result {
                DriveResult::Failed => self.note_drive_error(outcome.drive, now),
                DriveResult::MissedDeadline => self.transfer_missed_deadline(outcome.drive, now),
                DriveResult::Full => self.placement.set_free(outcome.drive, 0),
                _ => {}
            }
        }
        Some(service)
    }

    /// What a write is made of cannot be read, which no other group would change. What can be read is composed anew and
    /// goes to the same group, which is awake, if it has room.
    pub(crate) fn source_unreadable(
        &mut self,
        now: Time,
        op: OpId,
        attempt: Attempt,
        versions: &[u64],
        outcomes: &[DriveOutcome],
        actions: &mut Vec<Action>,
    ) {
        if self.transfer_over(now, op, attempt, outcomes).is_none() {
            return;
        }
        let Some(state) = self.ops.get(&op).cloned() else { return };
        self.release_space(&state.request.work, &state.drives);
        if let Work::Write { pin, .. } = state.request.work
            && !versions.is_empty()
            && !self.closing
            && let Some(next) = self.migrator.recompose(op, state.group)
        {
            actions.push(Action::Recompose { op: next, of: op, pin });
        }
        self.finish(now, op, Outcome::Failed(Rejection::SourceUnreadable), actions);
    }

    fn read_ended(
        &mut self,
        now: Time,
        service: InService,
        bytes: u64,
        done: bool,
        outcomes: &[DriveOutcome],
        actions: &mut Vec<Action>,
    ) {
        if done {
            self.stats.read_bytes += bytes;
            self.finish(now, service.op, Outcome::Read, actions);
            return;
        }
        let failed = outcomes.iter().filter(|outcome| outcome.result.may_do_better()).count();
        let tries = self.ops.get_mut(&service.op).map_or(TRIES_MAX, |state| {
            state.tries += 1;
            state.tries
        });
        // Lost is only what every stack was asked for and answered; a drive that is away may bring back what is
        // missing.
        let gone = self.ops.get(&service.op).map_or(0, |op| self.failed_of(&op.request.work));
        let all_asked = outcomes.len() + gone == self.spec.code.stacks();
        if failed == 0 && all_asked {
            self.finish(now, service.op, Outcome::Failed(Rejection::DataLost), actions);
        } else if failed == 0 || tries >= TRIES_MAX {
            self.finish(now, service.op, Outcome::Failed(Rejection::TooManyDrivesAway), actions);
        } else {
            self.retry_read(now, service, actions);
        }
    }

    /// How many of the stacks that are to be read are on drives that failed for good.
    fn failed_of(&self, work: &Work) -> usize {
        let Work::Read { drives, .. } = work else { return 0 };
        drives.iter().filter(|drive| self.drives[drive.index()].failed).count()
    }

    fn retry_read(&mut self, now: Time, service: InService, actions: &mut Vec<Action>) {
        let Some(op) = self.ops.get(&service.op) else { return };
        let Work::Read { blob, ref drives, .. } = op.request.work else { return };
        let stacks = self.ready_stacks(drives);
        let pick = Pick { op: service.op, lane: service.lane, group: op.group, weight: op.weight, ride_along: false };
        self.start_read(&pick, blob, stacks, now, actions);
    }

    fn write_ended(&mut self, now: Time, service: InService, done: bool, actions: &mut Vec<Action>) {
        let Some(op) = self.ops.get_mut(&service.op) else { return };
        if !done {
            self.place_anew(service.op, now, actions);
            return;
        }
        let (group, drives) = (op.group, op.drives.clone());
        if self.policy.write_read_back && !core::mem::replace(&mut op.verifying, true) {
            self.begin_transfer(service.op, service.lane, Transfer::Verify { drives }, now, actions);
            return;
        }
        let Work::Write { bytes, stack_bytes, migration, .. } = op.request.work else { return };
        self.placement.settle(&drives, stack_bytes, stack_bytes);
        self.rebuild_written(&drives, now);
        self.stats.written_bytes += bytes;
        self.stats.migrated_bytes += if migration { bytes } else { 0 };
        self.finish(now, service.op, Outcome::Written { group, drives }, actions);
    }

    /// A write could not be done where it was placed: its space is given back and it is placed and queued again, in
    /// another group; or, if it is pinned to this one, on those of its drives that are there and have room now.
    fn place_anew(&mut self, op: OpId, now: Time, actions: &mut Vec<Action>) {
        let Some(mut state) = self.ops.remove(&op) else { return };
        let Work::Write { bytes, stack_bytes, pin, .. } = state.request.work else { return };
        self.release_space(&state.request.work, &state.drives);
        if !matches!(pin, PinnedTo::Group(_)) {
            state.excluded.push(state.group);
        }
        state.tries += 1;
        let again = !self.closing && state.tries < TRIES_MAX;
        let place = if again { self.place(stack_bytes, bytes, pin, &state.excluded) } else { None };
        let Some((group, drives)) = place else {
            self.ops.insert(op, state);
            let reason = if self.closing { Rejection::Closing } else { Rejection::WriteFailed };
            self.finish(now, op, Outcome::Failed(reason), actions);
            return;
        };
        let (excluded, tries, attempt) = (state.excluded, state.tries, state.attempt);
        self.enqueue(now, state.request, group, drives, actions);
        if let Some(state) = self.ops.get_mut(&op) {
            (state.excluded, state.tries, state.attempt) = (excluded, tries, attempt);
        }
    }

    /// On a group that is ready: ask for what is to be reclaimed there, unless that is under way.
    pub(crate) fn begin_reclaim(&mut self, class: ClassId, group: GroupId, actions: &mut Vec<Action>) {
        let reclaim = &self.classes[class.index()].reclaim;
        let under_way = reclaim.awaiting.is_some() || reclaim.more || !reclaim.blobs.is_empty();
        if self.doomed[group.index()] > 0 && !under_way {
            self.ask_for_doomed(class, group, true, actions);
        }
    }

    fn ask_for_doomed(&mut self, class: ClassId, group: GroupId, restart: bool, actions: &mut Vec<Action>) {
        let attempt = Attempt(self.own_op().0 as u32);
        let reclaim = &mut self.classes[class.index()].reclaim;
        reclaim.awaiting = Some(attempt);
        if restart {
            (reclaim.believed, reclaim.shown) = (self.doomed[group.index()], 0);
            self.stuck[group.index()] = 0;
        }
        actions.push(Action::ListDoomed { group, attempt, limit: DOOMED_PAGE_BLOBS, restart });
    }

    /// The class whose awake group waits for this page of its doomed blobs; `None` if the page is late.
    fn awaits_doomed(&self, group: GroupId, attempt: Attempt) -> Option<ClassId> {
        let class = self.layout.groups.get(group.index())?.class;
        let state = &self.classes[class.index()];
        let awake = matches!(state.phase, ClassPhase::Awake { group: g, .. } if g == group);
        (awake && state.reclaim.awaiting == Some(attempt)).then_some(class)
    }

    pub(crate) fn doomed_page(
        &mut self,
        group: GroupId,
        attempt: Attempt,
        blobs: Vec<DoomedBlob>,
        held_bytes: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(class) = self.awaits_doomed(group, attempt) else { return };
        let shown: u64 = blobs.iter().map(|blob| blob.doomed_bytes).sum();
        let (part, whole): (Vec<_>, Vec<_>) = blobs.into_iter().partition(|blob| blob.living);
        let permille = u64::from(self.policy.rescue_permille);
        let worth_it = |blob: &&DoomedBlob| blob.readable && blob.doomed_bytes * 1000 >= blob.bytes * permille;
        let may_rescue = !self.migrator.is_critical();
        let stays = part.iter().filter(|blob| !may_rescue || !worth_it(blob)).map(|blob| blob.doomed_bytes);
        self.stuck[group.index()] += stays.sum::<u64>();
        if may_rescue {
            let rescued = part.iter().filter(worth_it).take(RESCUES_PER_PAGE);
            actions.extend(rescued.map(|blob| Action::Rescue { blob: blob.blob }));
        }
        let reclaim = &mut self.classes[class.index()].reclaim;
        reclaim.shown += shown + held_bytes;
        reclaim.blobs.extend(whole);
    }

    /// What the pages have shown replaces what was believed; what was doomed since the listing began is added.
    pub(crate) fn doomed_page_end(&mut self, group: GroupId, attempt: Attempt, more: bool) {
        let Some(class) = self.awaits_doomed(group, attempt) else { return };
        let reclaim = &mut self.classes[class.index()].reclaim;
        reclaim.awaiting = None;
        reclaim.more = more;
        if !more {
            let doomed = &mut self.doomed[group.index()];
            *doomed = doomed.saturating_sub(reclaim.believed) + reclaim.shown;
        }
    }

    /// Goes on with reclaiming on the awake group. True while there is something to wait for.
    fn reclaim_next(&mut self, class: ClassId, group: GroupId, now: Time, actions: &mut Vec<Action>) -> bool {
        if self.classes[class.index()].reclaim.awaiting.is_some() {
            return true;
        }
        while let Some(blob) = self.classes[class.index()].reclaim.blobs.pop_front() {
            // What cannot be removed as a whole waits: forgotten now, it would lie on the missing drive for ever. From
            // a drive that failed for good nothing is removed.
            let stacks = self.ready_stacks(&blob.drives);
            let failed = blob.drives.iter().filter(|drive| self.drives[drive.index()].failed).count();
            if stacks.len() + failed == blob.drives.len() {
                self.remove_blob(class, group, &blob, stacks, now, actions);
                return true;
            }
            self.stuck[group.index()] += blob.doomed_bytes;
        }
        if core::mem::take(&mut self.classes[class.index()].reclaim.more) {
            self.ask_for_doomed(class, group, false, actions);
            return true;
        }
        false
    }

    fn remove_blob(
        &mut self,
        class: ClassId,
        group: GroupId,
        doomed: &DoomedBlob,
        stacks: Vec<(u8, DriveId)>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let op = self.own_op();
        let blob = doomed.blob;
        let work = Work::Delete {
            blob,
            group,
            drives: doomed.drives.clone(),
            lost: doomed.lost.clone(),
            stack_bytes: doomed.stack_bytes,
            bytes: doomed.doomed_bytes,
        };
        let request = Request { op, lane: Lane::Background, overtake_limit: None, work };
        self.ops.insert(op, Op::new(request, 0, class, group, Vec::new()));
        self.begin_transfer(op, Lane::Background, Transfer::Delete { blob, stacks }, now, actions);
    }

    /// Stacks on `drives`, and with them a blob, are gone.
    fn blob_removed(&mut self, group: GroupId, drives: &[DriveId], stack_bytes: u64, bytes: u64) {
        for drive in drives {
            self.placement.freed(*drive, stack_bytes);
        }
        let doomed = &mut self.doomed[group.index()];
        *doomed = doomed.saturating_sub(bytes);
        // A listing under way may have more pages: what is gone is neither believed nor shown any more.
        let class = self.class_of(group);
        let reclaim = &mut self.classes[class.index()].reclaim;
        reclaim.believed = reclaim.believed.saturating_sub(bytes);
        reclaim.shown = reclaim.shown.saturating_sub(bytes);
        self.stats.reclaimed_bytes += bytes;
    }
}
