//! One run of a job: the job's steps as operations of the rack, with clients beside them.
//!
//! The engine decides, here as in the server: it issues the steps, delays them while something blocks them, and
//! withdraws queued steps when a client wakes another group that has work for the job. A step is one operation, or
//! several if their size is limited: so 100 TB take only as many events as visits.

use super::asked::{CLASS, Repartition, RepartitionError};
use crate::chance::poisson_gap;
use crate::measure::Clients;
use crate::world::{Ended, Setting, World};
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::repartition::{Accounting, Apportion, Choice, JobPlanner, JobSpec, Order, Part, Sizes};
use engine::{
    ClassPhase, JobAction, JobClass, JobEnd, JobEvent, JobId, Outcome, PinnedTo, PriorityClass, Rack, Rejection,
    StepResult, Work,
};
use model::{Attempt, BlobId, DriveId, GroupId, OpId, Rng, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The only job.
const JOB: JobId = JobId(1);

/// Measurements of one run.
pub(super) struct Measurements {
    pub strategy: Choice,
    pub changes: u32,
    pub time: Duration,
    pub switching: Duration,
    pub switches: u64,
    pub client_wakes: u64,
    pub free_rides: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub peak_offloaded_bytes: u64,
    pub clients: Clients,
    pub events: u64,
    pub trace_hash: u64,
}

impl Repartition {
    /// The job at its beginning: the distribution of the input is known, and output is expected to be equal for all
    /// groups.
    pub(super) fn spec(&self, groups: &[GroupId]) -> Result<JobSpec, RepartitionError> {
        let terms = self.terms();
        let part = Part {
            class: CLASS,
            groups: groups.to_vec(),
            input_bytes: self.input_bytes(groups.len()),
            shares: vec![1; groups.len()],
        };
        let forced = self.method.forced(&terms, self.memory_bytes, groups.len());
        // A byte of input is the smallest piece of the fluid.
        let byte_becomes = self.alpha.output.div_ceil(self.alpha.input.max(1));
        let spec = JobSpec {
            parts: vec![part],
            memory_bytes: self.memory_bytes,
            chunk_bytes: self.memory_bytes.div_ceil(1_000).max(byte_becomes),
            sizes: Sizes::UNBOUNDED,
            terms,
            alpha: self.alpha,
            choices: Vec::new(),
            fixed: false,
            host_scale: 1,
            offloaded: Vec::new(),
            checkpoint_interval: Duration::MAX,
        };
        spec.chosen(forced).ok_or(RepartitionError::Nothing)
    }
}

/// Runs one seed of a job in a rack of this layout.
pub(super) fn run(what: &Repartition, layout: &Layout, seed: u64) -> Result<Measurements, RepartitionError> {
    let judge = Some(TraceCheck::new(&what.rack, layout, &what.policy));
    let rack = Rack::new(what.rack.clone(), layout.clone(), what.policy.clone(), seed);
    // The paper's T_sk is the time from one operation to the next, regardless of the number of head movements.
    let setting = Setting { judge, network: Some(what.network), one_seek: true, ..Setting::default() };
    let groups = layout.classes[CLASS.index()].clone();
    let stacks = what.rack.code.stacks();
    let rng = |thing: &[u8; 8]| Rng::for_thing(seed, u64::from_le_bytes(*thing));
    let mut run = JobRun {
        apportion: Apportion::new(&what.expected(groups.len())),
        drives: groups.iter().map(|group| layout.groups[group.index()].drives[..stacks].to_vec()).collect(),
        world: World::with(rack, seed, setting),
        next_read: Time::MAX,
        arrivals: rng(b"arrivals"),
        keys: rng(b"keys    "),
        clients: Clients::default(),
        runs: BTreeMap::new(),
        step: None,
        at: None,
        free_rides: 0,
        moved: [0, 0],
        peak_offloaded_bytes: 0,
        refused: None,
        end: None,
        what,
        groups,
    };
    run.plan_next_read(Time::ZERO);
    run.go()?;
    Ok(run.measurements())
}

/// A step in progress, with its current operation.
struct SimulatedStep {
    attempt: Attempt,
    order: Order,
    room_bytes: u64,
    /// Bytes moved so far.
    moved: u64,
    op: OpId,
    /// Bytes that `op` moves.
    op_bytes: u64,
}

struct JobRun<'a> {
    what: &'a Repartition,
    apportion: Apportion,
    world: World,
    groups: Vec<GroupId>,
    /// The drives of a blob in each group.
    drives: Vec<Vec<DriveId>>,
    /// The time of the next client's read.
    next_read: Time,
    arrivals: Rng,
    keys: Rng,
    clients: Clients,
    /// The blobs of each offloaded run, by the group that stores it and its destination, with the bytes of each blob
    /// that are still to be read.
    runs: BTreeMap<(GroupId, GroupId), VecDeque<(BlobId, u64)>>,
    step: Option<SimulatedStep>,
    /// The group of the last successful operation.
    at: Option<GroupId>,
    free_rides: u64,
    /// Bytes that the job has read and written.
    moved: [u64; 2],
    peak_offloaded_bytes: u64,
    /// The reason of the last refused operation.
    refused: Option<Rejection>,
    end: Option<JobEnd>,
}

impl JobRun<'_> {
    fn go(&mut self) -> Result<(), RepartitionError> {
        self.world.report_job(JOB, JobEvent::Queued);
        while self.end.is_none() {
            if let Some((_, action)) = self.world.take_job_action() {
                self.act(&action)?;
            } else if !self.take_ended() {
                self.pass_some();
            }
        }
        if self.end != Some(JobEnd::Done) {
            let reason = self.refused.unwrap_or(Rejection::Closing);
            return Err(RepartitionError::Refused(reason, self.world.now().since(Time::ZERO)));
        }
        self.assert_delivered();
        Ok(())
    }

    fn act(&mut self, action: &JobAction) -> Result<(), RepartitionError> {
        match *action {
            JobAction::Plan => {
                let spec = self.what.spec(&self.groups)?;
                self.world.report_job(JOB, JobEvent::Planned(Box::new(spec)));
            }
            JobAction::Step { attempt, order, room_bytes, .. } => {
                // Another operation woke the group with which the job continues.
                let free = self.awake() == order.group() && self.at.is_some() && self.at != order.group();
                self.free_rides += u64::from(free);
                let step = SimulatedStep { attempt, order, room_bytes, moved: 0, op: OpId(0), op_bytes: 0 };
                self.submit(step);
            }
            JobAction::Checkpoint { attempt } => {
                self.world.report_job(JOB, JobEvent::CheckpointEnded { attempt, done: true });
            }
            JobAction::Ended { end } => self.end = Some(end),
        }
        Ok(())
    }

    /// The group of the class that is ready.
    fn awake(&self) -> Option<GroupId> {
        match self.world.rack.class_view(CLASS).phase {
            ClassPhase::Awake { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Submits the next operation of a step.
    fn submit(&mut self, mut step: SimulatedStep) {
        assert!(self.step.is_none(), "a step is given out while another one is in hand");
        let (work, bytes) = self.work(&step);
        step.op_bytes = bytes;
        step.op = self.world.ask_for_job(JobClass { job: JOB, class: CLASS }, work);
        self.step = Some(step);
    }

    /// The next operation of a step, and the number of bytes that it moves.
    fn work(&self, step: &SimulatedStep) -> (Work, u64) {
        let most = self.what.operation_bytes.unwrap_or(u64::MAX);
        match step.order {
            Order::Read { group, bytes } => {
                // The planner's alpha may be above the true one, by rounding.
                let fits = self.apportion.input_for(step.room_bytes);
                self.read(group, bytes.min(fits).min(most))
            }
            // The pieces of a run are between those of other runs, so each piece is read separately.
            Order::Refill { on, target, bytes } => {
                let run = self.runs.get(&(on, target));
                let piece = run.and_then(|run| run.front()).map_or(u64::MAX, |(_, left)| *left);
                self.read(on, (bytes - step.moved).min(piece).min(most))
            }
            Order::Deliver { group, bytes } => self.write(group, bytes.min(most)),
            Order::Offload { on, bytes, .. } => self.write(on, bytes.min(most)),
            Order::Wait | Order::Done => unreachable!("that is no step"),
        }
    }

    fn read(&self, group: GroupId, bytes: u64) -> (Work, u64) {
        let at = self.number(group);
        // Only the group and the drives of a read matter, not its blob.
        (Work::Read { blob: BlobId::NONE, group, drives: self.drives[at].as_slice().into(), bytes }, bytes)
    }

    fn write(&self, group: GroupId, bytes: u64) -> (Work, u64) {
        let stack_bytes = bytes.div_ceil(u64::from(self.what.rack.code.data));
        (Work::Write { bytes, stack_bytes, pin: PinnedTo::Group(group), migration: false }, bytes)
    }

    fn number(&self, group: GroupId) -> usize {
        self.groups.iter().position(|known| *known == group).expect("a group of the class")
    }

    /// Collects operations that have ended; true if one of them was the job's.
    fn take_ended(&mut self) -> bool {
        let mut of_job = None;
        for ended in self.world.take_ended() {
            match ended.priority {
                PriorityClass::Client => self.clients.ended(&ended),
                _ if self.step.as_ref().is_some_and(|step| step.op == ended.op) => of_job = Some(ended),
                _ => {}
            }
        }
        let Some(ended) = of_job else { return false };
        let step = self.step.take().expect("it was its operation that ended");
        self.operation_ended(step, &ended);
        true
    }

    /// An operation of the step has ended. The step ends with it, unless more of a run is still to be read.
    fn operation_ended(&mut self, mut step: SimulatedStep, ended: &Ended) {
        match ended.outcome {
            Outcome::Read | Outcome::Written { .. } => {
                self.at = step.order.group();
                step.moved += step.op_bytes;
                if let Order::Refill { on, target, bytes } = step.order {
                    self.free_run((on, target), step.op_bytes);
                    assert!(step.moved <= bytes, "{} bytes are read back, of {bytes} that were asked for", step.moved);
                    if step.moved < bytes {
                        return self.submit(step);
                    }
                }
            }
            Outcome::Failed(reason) => self.refused = Some(reason),
            Outcome::Cancelled => {}
            Outcome::Deleted | Outcome::Rebuilt | Outcome::Scrubbed(_) | Outcome::Inspected => {
                unreachable!("the job reads and writes, and does nothing else")
            }
        }
        let result = self.result(&step);
        self.moved[usize::from(step.order.writes())] += step.moved;
        self.world.report_job(JOB, JobEvent::StepEnded { class: CLASS, attempt: step.attempt, result });
        if let (Order::Offload { on, .. }, Some(accounting)) = (step.order, self.accounting()) {
            self.peak_offloaded_bytes = self.peak_offloaded_bytes.max(accounting.offloaded_on(self.number(on)));
        }
    }

    /// The result of a step.
    fn result(&mut self, step: &SimulatedStep) -> StepResult {
        let bytes = step.moved;
        if bytes == 0 {
            return StepResult::Refused;
        }
        match step.order {
            Order::Read { .. } => {
                let output = self.apportion.output_of(bytes).iter().copied();
                let output = self.groups.iter().copied().zip(output).collect();
                StepResult::Read { input_bytes: bytes, lost_bytes: 0, output }
            }
            Order::Offload { on, target, .. } => {
                let blob = BlobId::numbered(self.world.next_blob().number - 1);
                self.runs.entry((on, target)).or_default().push_back((blob, bytes));
                StepResult::Written { bytes }
            }
            Order::Refill { .. } => StepResult::Refilled { bytes },
            Order::Deliver { .. } | Order::Wait | Order::Done => StepResult::Written { bytes },
        }
    }

    fn planner(&self) -> Option<&JobPlanner> {
        self.world.rack.job_planner(JOB)
    }

    fn accounting(&self) -> Option<&Accounting> {
        self.planner().map(|planner| planner.accounting(CLASS))
    }

    /// Counts `bytes` of a run as read back: blobs without remaining bytes are dead, and removed while their group is
    /// awake.
    fn free_run(&mut self, run: (GroupId, GroupId), mut bytes: u64) {
        let Some(blobs) = self.runs.get_mut(&run) else { return };
        while bytes > 0
            && let Some((blob, left)) = blobs.front_mut()
        {
            let part = bytes.min(*left);
            bytes -= part;
            *left -= part;
            if *left == 0 {
                self.world.mark_dead(*blob, u64::MAX);
                blobs.pop_front();
            }
        }
        assert!(bytes == 0, "{bytes} bytes were read back that never lay there");
    }

    /// Lets the next event happen, which may be a client's read.
    fn pass_some(&mut self) {
        if self.world.step_until(self.next_read) {
            return;
        }
        assert!(self.next_read != Time::MAX, "every operation is answered");
        self.world.run_until(self.next_read);
        self.client_reads();
    }

    fn client_reads(&mut self) {
        let Some(reads) = self.what.reads else { return };
        let at = self.keys.below(self.groups.len() as u64) as usize;
        self.world.read_at(BlobId::NONE, self.groups[at], self.drives[at].clone(), reads.bytes);
        self.plan_next_read(self.next_read);
    }

    fn plan_next_read(&mut self, after: Time) {
        let Some(reads) = self.what.reads else { return };
        self.next_read = after + poisson_gap(reads.mean_gap, &mut self.arrivals);
    }

    /// Asserts that exactly the output of the input is delivered.
    fn assert_delivered(&self) {
        let accounting = self.accounting().expect("a job that has ended is known until it is closed");
        assert!(accounting.done(), "a job ended before all output was delivered");
        let delivered: u64 = (0..self.groups.len()).map(|group| accounting.delivered(group)).sum();
        assert_eq!(delivered, self.what.alpha.output_of(self.what.data_bytes), "what came out is delivered");
        let [read, written] = self.moved;
        assert_eq!(read - self.what.data_bytes, written - delivered, "what was offloaded was read back");
    }

    fn measurements(mut self) -> Measurements {
        let stats = self.world.rack.stats();
        let wakes = |priority: PriorityClass| {
            stats.group_wakes[PriorityClass::ALL.iter().position(|known| *known == priority).unwrap_or(0)]
        };
        let time = self.world.now().since(Time::ZERO);
        assert!(stats.switching <= time, "a class waited for longer than there was time");
        let planner = self.planner().expect("a job that has ended is known until it is closed");
        Measurements {
            strategy: planner.choice(CLASS),
            changes: planner.changes(),
            time,
            switching: stats.switching,
            switches: wakes(PriorityClass::Background),
            client_wakes: wakes(PriorityClass::Client),
            free_rides: self.free_rides,
            bytes_read: self.moved[0],
            bytes_written: self.moved[1],
            peak_offloaded_bytes: self.peak_offloaded_bytes,
            clients: std::mem::take(&mut self.clients),
            events: self.world.counted().events,
            trace_hash: self.world.trace_hash(),
        }
    }
}
