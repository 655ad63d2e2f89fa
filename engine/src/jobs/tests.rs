//! Each decision about jobs, in a rack with a world controlled by the test: drives execute commands at once, transfers
//! end on request, and steps end with the result that the test chooses.

#![allow(clippy::unwrap_used)]

use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{DriveOutcome, DriveReport, DriveResult, Event, Loss, Request, Work};
use crate::job_protocol::{BlockReason, JobAction, JobClass, JobEnd, JobEvent, JobId, StepResult};
use crate::policy::{PinnedTo, PriorityClass, RackPolicy};
use crate::rack::Rack;
use crate::repartition::{Alpha, Choice, JobSpec, Offloaded, Order, Part};
use crate::testing::quiet_policy;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId, Time};

const JOB: JobId = JobId(7);
const OTHER: JobId = JobId(8);
const CLASS: ClassId = ClassId(0);
const OF: JobClass = JobClass { job: JOB, class: CLASS };
const DAY: Duration = Duration::from_hours(24);

/// A box of eight: two groups of four in one class, k = 2, r = 1.
struct World {
    rack: Rack,
    now: Time,
    next_op: u64,
    groups: Vec<GroupId>,
    /// Transfers that were begun and have not ended.
    moving: Vec<(OpId, Attempt, usize)>,
    /// The step in hand, as it was ordered.
    step: Option<(Attempt, Order)>,
    steps: u32,
    ended: Vec<(JobId, JobEnd)>,
    plans: Vec<JobId>,
    finished: Vec<(OpId, Outcome)>,
    checkpoint_interval: Duration,
    offloaded: Vec<Offloaded>,
    /// A checkpoint that is to be answered.
    checkpoint: Option<Attempt>,
}

impl World {
    fn new() -> Self {
        Self::with(quiet_policy(), 0)
    }

    /// A rack with drives that were started this number of times today.
    fn with(policy: RackPolicy, starts: u32) -> Self {
        let spec = model::text::parse(include_str!("../../../racks/nas8.toml"), "nas8.toml").unwrap();
        let layout = crate::layout::synthesise(&spec).unwrap();
        let groups = layout.classes[CLASS.index()].clone();
        assert_eq!(groups.len(), 2, "two groups of one class");
        let mut world = Self {
            rack: Rack::new(spec.clone(), layout, policy, 1),
            now: Time::from_secs(1),
            next_op: 1,
            groups,
            moving: Vec::new(),
            step: None,
            steps: 0,
            ended: Vec::new(),
            plans: Vec::new(),
            finished: Vec::new(),
            checkpoint_interval: Duration::MAX,
            offloaded: Vec::new(),
            checkpoint: None,
        };
        for drive in &spec.drives {
            let (drive, capacity_bytes) = (drive.id, spec.capacity_bytes(drive.id));
            world.notify(Event::DriveReported(DriveReport {
                drive,
                capacity_bytes,
                used_bytes: 0,
                day: 0,
                starts,
                present: true,
                initialised: true,
            }));
        }
        world.notify(Event::Booted);
        world
    }

    fn notify(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.rack.apply(self.now, event, &mut actions);
            for action in actions {
                events.extend(self.obey(action));
            }
        }
    }

    fn obey(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::SpinUp { drive, attempt } => return Some(Event::SpunUp { drive, attempt }),
            Action::Mount { drive, attempt } => return Some(Event::Mounted { drive, attempt, free_bytes: 1 << 40 }),
            Action::Unmount { drive, attempt } => return Some(Event::Unmounted { drive, attempt }),
            Action::Stop { drive, attempt } => return Some(Event::Stopped { drive, attempt }),
            Action::Transfer { op, attempt, transfer } => {
                let drives = match transfer {
                    Transfer::Read { stacks, .. } => stacks.len(),
                    Transfer::Write { drives, .. } | Transfer::Verify { drives } => drives.len(),
                    other => panic!("{other:?} is not of a job"),
                };
                self.moving.push((op, attempt, drives));
            }
            Action::Rejected { op, reason } => self.finished.push((op, Outcome::Failed(reason))),
            Action::Finished { op, outcome } => self.finished.push((op, outcome)),
            Action::Job { job, action } => self.job_action(job, &action),
            Action::PersistStarts { .. } | Action::PersistInitialised { .. } | Action::ListOnDrive { .. } => {}
            other => panic!("{other:?} is not of a job"),
        }
        None
    }

    fn job_action(&mut self, job: JobId, action: &JobAction) {
        match *action {
            JobAction::Plan => self.plans.push(job),
            JobAction::Step { class, attempt, order, .. } => {
                assert_eq!((job, class, self.step), (JOB, CLASS, None), "one step in hand");
                self.step = Some((attempt, order));
                self.steps += 1;
            }
            JobAction::Checkpoint { attempt } => {
                assert_eq!((job, self.step, self.checkpoint), (JOB, None, None), "no step is in hand");
                self.checkpoint = Some(attempt);
            }
            JobAction::Ended { end } => {
                assert!(job != JOB || self.step.is_none(), "a job ends with no step in hand");
                self.ended.push((job, end));
            }
        }
    }

    fn job(&mut self, event: JobEvent) {
        self.notify(Event::Job { job: JOB, event });
    }

    /// The job is queued and planned: the same input on each of its groups.
    fn begin(&mut self, choice: Choice) {
        self.job(JobEvent::Queued);
        assert_eq!(self.plans, [JOB]);
        let part = Part { class: CLASS, groups: self.groups.clone(), input_bytes: vec![5_000; 2], shares: vec![1; 2] };
        let spec = JobSpec {
            offloaded: self.offloaded.clone(),
            checkpoint_interval: self.checkpoint_interval,
            ..JobSpec::plain(vec![part], 4_000, 1_000)
        };
        self.job(JobEvent::Planned(spec.chosen(Some(choice)).unwrap().into()));
    }

    fn order(&self) -> Order {
        self.step.expect("a step is in hand").1
    }

    fn end_step(&mut self, result: StepResult) {
        let (attempt, _) = self.step.take().expect("a step is in hand");
        self.job(JobEvent::StepEnded { class: CLASS, attempt, result });
    }

    fn new_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    fn drives(&self, group: GroupId) -> Vec<DriveId> {
        self.rack.layout().groups[group.index()].drives[..3].to_vec()
    }

    fn read(&mut self, priority: PriorityClass, group: GroupId) -> Request {
        let work = Work::Read { blob: BlobId::NONE, group, drives: self.drives(group).into(), bytes: 1_000 };
        Request { op: self.new_op(), priority, overtake_limit: None, work }
    }

    /// Submits the operation that the step in hand takes.
    fn submit_step(&mut self) -> OpId {
        let group = self.order().group().expect("something to do");
        let request = if self.order().writes() {
            let work = Work::Write { bytes: 1_000, stack_bytes: 500, pin: PinnedTo::Group(group), migration: false };
            Request { op: self.new_op(), priority: PriorityClass::Background, overtake_limit: None, work }
        } else {
            self.read(PriorityClass::Background, group)
        };
        let op = request.op;
        self.notify(Event::SubmittedForJob { of: OF, request: Box::new(request) });
        op
    }

    fn client_reads(&mut self, group: GroupId) -> OpId {
        let request = self.read(PriorityClass::Client, group);
        let op = request.op;
        self.notify(Event::Submitted(Box::new(request)));
        op
    }

    /// The transfer of `op` ends well, after a second.
    fn moved(&mut self, op: OpId) {
        self.pass(Duration::from_secs(1));
        let at = self.moving.iter().position(|(moving, ..)| *moving == op).expect("it moves");
        let (op, attempt, drives) = self.moving.remove(at);
        let fine = |drive| DriveOutcome { drive: DriveId(drive as u32), result: DriveResult::Fine };
        let outcomes = (0..drives).map(fine).collect();
        self.notify(Event::TransferEnded { op, attempt, done: true, outcomes });
    }

    fn moves(&self, op: OpId) -> bool {
        self.moving.iter().any(|(moving, ..)| *moving == op)
    }

    fn outcome(&self, op: OpId) -> Option<&Outcome> {
        self.finished.iter().find(|(finished, _)| *finished == op).map(|(_, outcome)| outcome)
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.notify(Event::DeadlineReached);
    }

    /// Time passes until the rack wants to be woken.
    fn pass_to_deadline(&mut self) {
        let deadline = self.rack.next_deadline();
        assert!(deadline < Time::MAX, "it waits for a moment");
        self.now = self.now.max(deadline);
        self.notify(Event::DeadlineReached);
    }

    /// Two of the four drives of a group go away, or come back.
    fn lose(&mut self, group: GroupId, lost: bool) {
        for drive in self.drives(group).into_iter().take(2) {
            let event = if lost { Event::DriveLost { drive, loss: Loss::Died } } else { Event::DriveBack { drive } };
            self.notify(event);
        }
    }

    /// The job's whole input is read and its output delivered by hand.
    fn run_to_the_end(&mut self) {
        for _ in 0..1_000 {
            let Some((_, order)) = self.step else { break };
            let op = self.submit_step();
            while self.moves(op) {
                self.moved(op);
            }
            self.end_step(match order {
                Order::Read { bytes, .. } => self.came_of(bytes.min(1_000)),
                Order::Deliver { bytes, .. } | Order::Offload { bytes, .. } => StepResult::Written { bytes },
                Order::Refill { bytes, .. } => StepResult::Refilled { bytes },
                other => panic!("{other:?} is no step"),
            });
        }
    }

    /// Half of what was read is for each group.
    fn came_of(&self, bytes: u64) -> StepResult {
        let output = vec![(self.groups[0], bytes / 2), (self.groups[1], bytes - bytes / 2)];
        StepResult::Read { input_bytes: bytes, lost_bytes: 0, output }
    }
}

#[test]
fn a_job_is_planned_worked_on_and_done() {
    for choice in
        [Choice::Buffpack, Choice::Offpack, Choice::Fillpack, Choice::Baseline, Choice::Tourpack { window: 1 }]
    {
        let mut world = World::new();
        world.begin(choice);
        world.run_to_the_end();
        assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
        let planner = world.rack.job_planner(JOB).expect("known until it is closed");
        let accounting = planner.accounting(CLASS);
        assert_eq!(accounting.delivered(0) + accounting.delivered(1), 10_000);
        let times = world.rack.job_times(JOB);
        assert!(times.reading >= Duration::from_secs(10) && times.writing > Duration::ZERO, "{times:?}");
        assert_eq!(times.verifying, times.writing, "each write took a second, and as long to be read back");
        assert_eq!(times.waiting, Duration::ZERO);
        world.job(JobEvent::Closed);
        assert!(world.rack.job_planner(JOB).is_none());
    }
}

#[test]
fn a_full_queue_is_waited_for_however_long_it_takes() {
    let mut policy = quiet_policy();
    policy.scheduler.queue_depth = 1;
    let mut world = World::with(policy, 0);
    world.begin(Choice::Buffpack);
    let (here, other) = (world.groups[0], world.groups[1]);
    let client = world.client_reads(here);
    assert!(world.moves(client));
    let first = world.read(PriorityClass::Background, other);
    world.notify(Event::Submitted(Box::new(first)));
    let (mut waited, began) = (0, world.now);
    while world.now.since(began) < 2 * DAY && waited < 10_000 {
        let op = world.submit_step();
        assert_eq!(world.outcome(op), Some(&Outcome::Failed(Rejection::QueueFull)));
        world.end_step(StepResult::Refused);
        assert_eq!((world.step, world.rack.job_blocked(JOB)), (None, None), "parked, and nobody's business");
        let before = world.now;
        world.pass_to_deadline();
        let pause = world.now.since(before);
        assert!((Duration::from_millis(20)..=Duration::from_secs(1)).contains(&pause), "{pause:?}");
        waited += 1;
    }
    assert!(waited > 9_000 && world.ended.is_empty(), "it is not given up");
    world.moved(client);
    world.finished.clear();
    let op = world.submit_step();
    assert_ne!(world.outcome(op), Some(&Outcome::Failed(Rejection::QueueFull)));
}

#[test]
fn drives_that_are_away_are_waited_for_until_they_are_back() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let group = world.order().group().unwrap();
    world.lose(group, true);
    for _ in 0..100 {
        let op = world.submit_step();
        assert_eq!(world.outcome(op), Some(&Outcome::Failed(Rejection::TooManyDrivesAway)));
        world.end_step(StepResult::Refused);
        assert_eq!(world.rack.job_blocked(JOB), Some((CLASS, BlockReason::Drives)));
        assert_eq!(world.step, None);
        while world.step.is_none() {
            world.pass_to_deadline();
        }
    }
    assert!(world.now.since(Time::ZERO) > Duration::from_mins(90), "with pauses of a minute");
    world.lose(group, false);
    world.run_to_the_end();
    assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
    assert_eq!(world.rack.job_blocked(JOB), None);
    assert!(world.rack.job_times(JOB).waiting > Duration::from_mins(90));
}

#[test]
fn drives_that_do_not_come_back_within_a_day_end_the_job() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    world.lose(world.order().group().unwrap(), true);
    let began = world.now;
    while world.ended.is_empty() {
        world.submit_step();
        world.end_step(StepResult::Refused);
        while world.step.is_none() && world.ended.is_empty() {
            world.pass_to_deadline();
        }
    }
    let end = JobEnd::GaveUp { class: CLASS, reason: BlockReason::Drives };
    assert_eq!(world.ended, [(JOB, end)]);
    let waited = world.now.since(began);
    assert!((DAY..DAY + Duration::from_mins(2)).contains(&waited), "{waited:?}");
}

#[test]
fn room_is_waited_for_ten_minutes_and_progress_begins_the_wait_anew() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let wait = |world: &mut World, span: Duration| {
        let began = world.now;
        while world.ended.is_empty() && world.now.since(began) < span {
            world.end_step(StepResult::NoRoom);
            while world.step.is_none() && world.ended.is_empty() {
                world.pass_to_deadline();
            }
        }
        world.now.since(began)
    };
    wait(&mut world, Duration::from_mins(8));
    assert_eq!(world.rack.job_blocked(JOB), Some((CLASS, BlockReason::Room)));
    let some = world.came_of(1_000);
    world.end_step(some);
    assert_eq!(world.rack.job_blocked(JOB), None);
    wait(&mut world, Duration::from_mins(8));
    assert!(world.ended.is_empty());
    wait(&mut world, Duration::from_mins(8));
    assert_eq!(world.ended, [(JOB, JobEnd::GaveUp { class: CLASS, reason: BlockReason::Room })]);
}

#[test]
fn starts_that_are_used_up_are_waited_for_until_the_next_day() {
    let mut world = World::with(quiet_policy(), 10);
    world.begin(Choice::Buffpack);
    let op = world.submit_step();
    assert_eq!(world.outcome(op), Some(&Outcome::Failed(Rejection::StartBudgetSpent)));
    world.end_step(StepResult::Refused);
    assert_eq!(world.rack.job_blocked(JOB), Some((CLASS, BlockReason::Starts)));
    assert_eq!(world.rack.next_deadline(), Time::start_of_day(1));
    world.pass(Duration::from_hours(20));
    assert_eq!(world.step, None);
    world.pass_to_deadline();
    let op = world.submit_step();
    assert!(world.moves(op), "the next day has come");
}

#[test]
fn a_client_that_wakes_a_group_ends_the_wait_for_starts() {
    let mut world = World::with(quiet_policy(), 10);
    world.begin(Choice::Buffpack);
    let group = world.order().group().unwrap();
    world.submit_step();
    world.end_step(StepResult::Refused);
    assert_eq!(world.step, None);
    let other = world.groups[usize::from(world.groups[0] == group)];
    let client = world.client_reads(other);
    assert!(world.moves(client), "clients may start drives beyond the budget");
    assert_eq!(world.order().group(), Some(other), "there is something to do, and its drives turn");
    let op = world.submit_step();
    world.moved(client);
    assert!(world.moves(op));
}

#[test]
fn a_pause_withdraws_what_is_queued_and_lets_end_what_is_in_service() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let op = world.submit_step();
    assert!(world.moves(op));
    world.job(JobEvent::Paused);
    assert_eq!(world.outcome(op), None, "it is in service");
    world.moved(op);
    let some = world.came_of(1_000);
    world.end_step(some);
    assert_eq!(world.rack.job_planner(JOB).unwrap().accounting(CLASS).input_left(), 9_000, "what was read counts");
    assert_eq!((world.step, world.rack.next_deadline()), (None, Time::MAX), "and nothing else is begun");
    world.job(JobEvent::Resumed);
    let busy = world.client_reads(world.order().group().unwrap());
    assert!(world.moves(busy), "its group is still awake");
    let queued = world.submit_step();
    assert!(world.outcome(queued).is_none() && !world.moves(queued));
    world.job(JobEvent::Paused);
    assert_eq!(world.outcome(queued), Some(&Outcome::Cancelled));
    let late = world.submit_step();
    assert_eq!(world.outcome(late), Some(&Outcome::Cancelled), "what is submitted later is withdrawn as well");
    world.moved(busy);
    world.end_step(StepResult::Refused);
    assert_eq!((world.step, world.rack.next_deadline()), (None, Time::MAX));
    world.job(JobEvent::Resumed);
    world.run_to_the_end();
    assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
}

#[test]
fn a_cancelled_job_ends_when_its_write_has_ended() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    while !world.order().writes() {
        let Order::Read { bytes, .. } = world.order() else { panic!("something is read first") };
        let some = world.came_of(bytes.min(1_000));
        world.end_step(some);
    }
    let op = world.submit_step();
    assert!(world.moves(op));
    world.job(JobEvent::Cancelled);
    assert!(world.ended.is_empty() && world.outcome(op).is_none(), "nothing is committed behind a rollback");
    while world.moves(op) {
        world.moved(op);
    }
    let Order::Deliver { bytes, .. } = world.order() else { panic!("it delivers") };
    world.end_step(StepResult::Written { bytes });
    assert_eq!(world.ended, [(JOB, JobEnd::Cancelled)]);
    assert_eq!(world.step, None);
}

#[test]
fn a_group_that_a_client_woke_is_used_and_what_waits_for_another_is_withdrawn() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let wanted = world.order().group().unwrap();
    let other = world.groups[usize::from(world.groups[0] == wanted)];
    let client = world.client_reads(other);
    assert!(world.moves(client));
    let op = world.submit_step();
    assert_eq!(world.outcome(op), Some(&Outcome::Cancelled), "there is something to do on the group that is awake");
    let wakes = world.rack.stats().group_wakes;
    world.end_step(StepResult::Refused);
    assert_eq!(world.order().group(), Some(other), "at once, and there");
    let op = world.submit_step();
    world.moved(client);
    assert!(world.moves(op));
    assert_eq!(world.rack.stats().group_wakes, wakes, "the ride is free");
    assert_eq!(world.rack.job_times(JOB).waiting, Duration::ZERO);
}

#[test]
fn input_that_is_lost_becomes_nothing_and_says_nothing_about_alpha() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let output = vec![(world.groups[0], 500), (world.groups[1], 500)];
    world.end_step(StepResult::Read { input_bytes: 1_000, lost_bytes: 3_000, output });
    let accounting = world.rack.job_planner(JOB).unwrap().accounting(CLASS);
    assert_eq!(accounting.input_left(), 6_000);
    let Alpha { output, input } = accounting.alpha();
    assert_eq!(output, input, "what was lost is not counted as read");
    world.run_to_the_end();
    assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
    let accounting = world.rack.job_planner(JOB).unwrap().accounting(CLASS);
    assert_eq!(accounting.delivered(0) + accounting.delivered(1), 7_000);
}

#[test]
fn what_does_not_pass_ends_the_job_at_once() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    world.end_step(StepResult::Failed);
    assert_eq!(world.ended, [(JOB, JobEnd::Failed { class: CLASS })]);
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    for drive in world.drives(world.order().group().unwrap()) {
        world.notify(Event::DriveLost { drive, loss: Loss::Died });
        world.notify(Event::DriveFailed { drive, pulled: true });
    }
    let op = world.submit_step();
    assert_eq!(world.outcome(op), Some(&Outcome::Failed(Rejection::DataLost)));
    world.end_step(StepResult::Refused);
    assert_eq!(world.ended, [(JOB, JobEnd::Failed { class: CLASS })]);
}

#[test]
fn closing_ends_every_job_once_no_step_is_in_hand() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    world.notify(Event::Job { job: OTHER, event: JobEvent::Queued });
    let op = world.submit_step();
    world.notify(Event::Closing);
    assert_eq!(world.ended, [(OTHER, JobEnd::Closing)], "the other one is at work");
    world.moved(op);
    let some = world.came_of(1_000);
    world.end_step(some);
    assert_eq!(world.ended, [(OTHER, JobEnd::Closing), (JOB, JobEnd::Closing)]);
    assert_eq!(world.step, None);
}

#[test]
fn one_job_works_at_a_time_and_a_pause_before_the_turn_loses_it() {
    let third = JobId(9);
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    for job in [OTHER, third] {
        world.notify(Event::Job { job, event: JobEvent::Queued });
    }
    world.notify(Event::Job { job: OTHER, event: JobEvent::Paused });
    world.run_to_the_end();
    assert_eq!((world.ended.as_slice(), world.plans.as_slice()), (&[(JOB, JobEnd::Done)][..], &[JOB][..]));
    world.job(JobEvent::Closed);
    assert_eq!(world.plans, [JOB, third], "the turn comes when the first is tidied up, and to whoever waits");
    world.notify(Event::Job { job: OTHER, event: JobEvent::Resumed });
    world.notify(Event::Job { job: third, event: JobEvent::Cancelled });
    assert_eq!(world.ended.last(), Some(&(third, JobEnd::Cancelled)), "before it was planned");
    world.notify(Event::Job { job: third, event: JobEvent::Closed });
    assert_eq!(world.plans, [JOB, third, OTHER]);
}

#[test]
fn a_job_cancelled_before_its_turn_holds_up_nobody() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    world.notify(Event::Job { job: OTHER, event: JobEvent::Queued });
    world.notify(Event::Job { job: OTHER, event: JobEvent::Cancelled });
    assert_eq!(world.ended, [(OTHER, JobEnd::Cancelled)]);
    world.notify(Event::Job { job: OTHER, event: JobEvent::Closed });
    world.run_to_the_end();
    assert_eq!(world.ended.last(), Some(&(JOB, JobEnd::Done)));
}

#[test]
fn late_and_repeated_facts_do_no_harm() {
    let mut world = World::new();
    world.begin(Choice::Buffpack);
    let (attempt, _) = world.step.unwrap();
    world.job(JobEvent::Queued);
    world.job(JobEvent::Resumed);
    let some = world.came_of(1_000);
    world.end_step(some.clone());
    let left = world.rack.job_planner(JOB).unwrap().accounting(CLASS).input_left();
    world.job(JobEvent::StepEnded { class: CLASS, attempt, result: some });
    world.job(JobEvent::StepEnded { class: ClassId(99), attempt, result: StepResult::Failed });
    world.notify(Event::Job { job: OTHER, event: JobEvent::Cancelled });
    world.notify(Event::Job { job: OTHER, event: JobEvent::Closed });
    assert_eq!(world.rack.job_planner(JOB).unwrap().accounting(CLASS).input_left(), left);
    world.run_to_the_end();
    assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
    let stray = world.read(PriorityClass::Background, world.groups[0]);
    let op = stray.op;
    world.notify(Event::SubmittedForJob { of: JobClass { job: OTHER, class: CLASS }, request: Box::new(stray) });
    assert_eq!(world.outcome(op), Some(&Outcome::Cancelled), "of a job that nobody knows");
}

/// A job that has read some input, and whose checkpoint is due.
fn due(choice: Choice) -> World {
    let mut world = World { checkpoint_interval: Duration::from_mins(10), ..World::new() };
    world.begin(choice);
    assert!(matches!(world.order(), Order::Read { .. }));
    world.pass(Duration::from_mins(20));
    let output = vec![(world.groups[0], 500), (world.groups[1], 500)];
    world.end_step(StepResult::Read { input_bytes: 1_000, lost_bytes: 0, output });
    world
}

#[test]
fn a_checkpoint_is_taken_once_it_is_due_and_nothing_is_buffered() {
    for (choice, written) in [(Choice::Buffpack, 2), (Choice::Offpack, 2), (Choice::Tourpack { window: 1 }, 2)] {
        let mut world = due(choice);
        let mut writes = 0;
        while world.checkpoint.is_none() {
            let (Order::Deliver { bytes, .. } | Order::Offload { bytes, .. }) = world.order() else {
                panic!("{choice}: {:?} empties no buffer", world.order());
            };
            world.end_step(StepResult::Written { bytes });
            writes += 1;
        }
        assert_eq!((writes, world.step), (written, None), "{choice}: nothing is done while it is taken");
        let attempt = world.checkpoint.take().unwrap();
        world.job(JobEvent::CheckpointEnded { attempt: Attempt(attempt.0 + 1), done: true });
        assert_eq!(world.step, None, "{choice}: that was the answer to another question");
        world.job(JobEvent::CheckpointEnded { attempt, done: true });
        assert!(matches!(world.order(), Order::Read { .. }), "{choice}: {:?}", world.order());
        world.run_to_the_end();
        assert_eq!((world.ended.as_slice(), world.checkpoint), (&[(JOB, JobEnd::Done)][..], None), "{choice}");
    }
}

#[test]
fn a_checkpoint_without_room_for_it_is_put_off_and_ends_no_job() {
    let mut world = due(Choice::Offpack);
    assert!(world.order().writes());
    world.end_step(StepResult::NoRoom);
    world.pass(Duration::from_mins(1));
    assert!(matches!(world.order(), Order::Read { .. }), "it goes on with what there is to read");
    world.run_to_the_end();
    assert_eq!((world.ended.as_slice(), world.checkpoint), (&[(JOB, JobEnd::Done)][..], None));
}

#[test]
fn a_job_that_is_cancelled_while_a_checkpoint_is_taken_ends_after_it() {
    let mut world = due(Choice::Offpack);
    while let Some((_, Order::Deliver { bytes, .. } | Order::Offload { bytes, .. })) = world.step {
        world.end_step(StepResult::Written { bytes });
    }
    world.job(JobEvent::Cancelled);
    assert!(world.ended.is_empty(), "nothing is made durable behind a rollback");
    let attempt = world.checkpoint.take().unwrap();
    world.job(JobEvent::CheckpointEnded { attempt, done: false });
    assert_eq!(world.ended, [(JOB, JobEnd::Cancelled)]);
}

#[test]
fn what_lies_offloaded_already_is_brought_home() {
    for choice in [Choice::Baseline, Choice::Buffpack, Choice::Offpack, Choice::Tourpack { window: 1 }] {
        let mut world = World::new();
        world.offloaded = vec![Offloaded { on: world.groups[0], target: world.groups[1], bytes: 2_500, pieces: 3 }];
        world.begin(choice);
        world.run_to_the_end();
        assert_eq!(world.ended, [(JOB, JobEnd::Done)], "{choice}");
        let accounting = world.rack.job_planner(JOB).unwrap().accounting(CLASS);
        assert_eq!(accounting.delivered(0) + accounting.delivered(1), 12_500, "{choice}");
    }
}

#[test]
fn the_baseline_takes_a_checkpoint_when_its_buffer_is_empty_by_itself() {
    let mut world = due(Choice::Baseline);
    while world.checkpoint.is_none() {
        let Some((_, order)) = world.step else { panic!("it goes on until its buffer is empty") };
        assert!(!matches!(order, Order::Offload { .. }), "it never offloads");
        world.end_step(match order {
            Order::Read { bytes, .. } => world.came_of(bytes.min(1_000)),
            Order::Deliver { bytes, .. } => StepResult::Written { bytes },
            other => panic!("{other:?} is not the baseline's"),
        });
    }
    let accounting = world.rack.job_planner(JOB).unwrap().accounting(CLASS);
    assert!(accounting.input_left() > 0 && accounting.delivered(0) > 1_000, "a buffer was filled and flushed");
    let attempt = world.checkpoint.take().unwrap();
    world.job(JobEvent::CheckpointEnded { attempt, done: true });
    world.run_to_the_end();
    assert_eq!(world.ended, [(JOB, JobEnd::Done)]);
}

#[test]
fn time_that_a_job_waits_brings_no_checkpoint_nearer() {
    let mut world = World { checkpoint_interval: Duration::from_mins(10), ..World::new() };
    world.begin(Choice::Offpack);
    // The job is blocked for longer than the interval.
    for _ in 0..9 {
        world.end_step(StepResult::NoRoom);
        world.pass(Duration::from_mins(1));
    }
    let waited = world.rack.job_times(JOB).waiting;
    world.end_step(world.came_of(1_000));
    world.pass(Duration::from_mins(9) + Duration::from_secs(30));
    world.end_step(world.came_of(1_000));
    assert!(waited > Duration::from_mins(2), "{waited:?}");
    assert!(matches!(world.order(), Order::Read { .. }), "it has not worked for ten minutes: {:?}", world.order());
    world.pass(waited + Duration::from_mins(1));
    world.end_step(world.came_of(1_000));
    assert!(world.order().writes(), "now it has: {:?}", world.order());
}

#[test]
fn a_read_that_is_worth_no_wake_is_refused_while_its_group_sleeps_and_ends_when_that_goes_to_sleep() {
    let mut world = World::new();
    let [one, two] = [world.groups[0], world.groups[1]];
    let ask = |world: &mut World| {
        let request = world.read(PriorityClass::Background, one);
        let op = request.op;
        world.notify(Event::SubmittedWhileAwake(Box::new(request)));
        op
    };
    let asleep = Outcome::Failed(Rejection::Asleep);
    let refused = ask(&mut world);
    assert_eq!(world.outcome(refused), Some(&asleep), "nobody else wants the group");
    let client = world.client_reads(one);
    world.moved(client);
    let served = ask(&mut world);
    world.moved(served);
    assert_eq!(world.outcome(served), Some(&Outcome::Read));
    let many: Vec<OpId> = (0..400).map(|_| ask(&mut world)).collect();
    let client = world.client_reads(two);
    for _ in 0..1_000 {
        let Some((next, ..)) = world.moving.first().copied() else { break };
        world.moved(next);
    }
    assert_eq!(world.outcome(client), Some(&Outcome::Read));
    let ended = many.iter().filter(|op| world.outcome(**op) == Some(&asleep)).count();
    let read = many.iter().filter(|op| world.outcome(**op) == Some(&Outcome::Read)).count();
    assert!(ended > 0 && ended + read == many.len(), "{ended} ended, {read} served");
    let [clients, _, background] = world.rack.stats().group_wakes;
    assert_eq!((clients, background), (2, 0));
}
