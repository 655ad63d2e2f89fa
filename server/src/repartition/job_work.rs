//! The state that the classes of a job at work share: the buffer, the offloaded runs, and the figures of its report.
//!
//! Invariants: the buffer stays within the job's memory, asserted with every step. Records are in the buffer, in a run,
//! or delivered, and the checksum of the delivered records must be that of the records read. A run that a checkpoint
//! counts on exists until the next checkpoint.

use super::buffer::PartitionBuffer;
use super::checkpoint::{Checkpoint, FixedPlan, OpenInputs, Spent, VERSION};
use super::input::ReadInput;
use super::memory::Memory;
use super::plan::Survey;
use super::reader::{Limits, Records};
use super::report::{Outcome, Progress, Request};
use super::resume::Resume;
use super::writer::{OffloadedRun, WriteBatch, WriteTarget};
use crate::processor::heavy;
use crate::world::{Context, WorldHandle};
use batch::MultisetChecksum;
use catalog::{Blob, VersionId};
use engine::repartition::JobPlanner;
use engine::{JobClass, JobId, PriorityClass};
use model::{ClassId, GroupId, Time};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Minimum number of steps between two forecasts. The distance grows with the number of steps: a forecast simulates all
/// remaining work, and a job of millions of steps must not spend its time on that.
const FORECAST_EVERY: u64 = 16;
/// Divisor: between two forecasts are at least 1/`FORECAST_PART` of the steps so far.
const FORECAST_PART: u64 = 64;

/// See the head of this file.
pub(super) struct JobWork {
    pub context: Context,
    pub world: WorldHandle,
    pub job: JobId,
    pub request: Request,
    pub records: Arc<Records>,
    pub buffer: Mutex<PartitionBuffer>,
    pub memory: Memory,
    pub limits: Limits,
    /// Input objects that were open at the checkpoint from which the job resumes.
    pub open_at_first: OpenInputs,
    destinations: Vec<GroupId>,
    plan: FixedPlan,
    planned_objects: u64,
    began: Time,
    /// Time spent before the job resumed from a checkpoint.
    spent_before: Spent,
    /// Groups woken for the background, and for others, before the job began.
    wakes_before: [u64; 2],
    state: Mutex<JobFigures>,
}

/// The part that changes with every step.
#[derive(Default)]
struct JobFigures {
    /// By the group that stores them and their destination.
    runs: BTreeMap<(GroupId, GroupId), Vec<OffloadedRun>>,
    next_run: u64,
    /// The number of each partition's next object.
    numbers: BTreeMap<usize, u64>,
    progress: Progress,
    output: MultisetChecksum,
    read: Vec<ReadInput>,
    offloaded_in_all: u64,
    /// The serial number of the last checkpoint.
    serial: u64,
    /// Bytes of input read before the job resumed from a checkpoint.
    input_bytes_before: u64,
    /// Number of entries of `read` that the last checkpoint knows.
    read_at_checkpoint: usize,
    /// The number of the last run that the checkpoint may count on.
    run_at_checkpoint: u64,
    /// Runs that the checkpoint counts on and that were refilled since.
    refilled: Vec<OffloadedRun>,
    /// Why the last step of a class failed, for people.
    faults: BTreeMap<ClassId, String>,
    steps: u64,
    forecast: TimeLeft,
}

/// The remaining time, as of a certain step.
#[derive(Clone, Copy, Default)]
struct TimeLeft {
    left: Duration,
    /// The step at which it is simulated again.
    until: u64,
}

/// The result of a complete job: its report, and the input that was read.
pub(super) type Complete = (Outcome, Vec<ReadInput>);

impl JobWork {
    /// Starts a job with everything that `survey` found, or resumes it from the checkpoint in `survey`, which this
    /// takes.
    ///
    /// # Errors
    /// The reason for a failure, in words; `None` if the world has ended.
    pub async fn begin(
        context: &Context,
        world: &WorldHandle,
        job: JobId,
        request: &Request,
        survey: &mut Survey,
    ) -> Result<Self, Option<String>> {
        let memory = survey.memory;
        let records = Records::new(&request.from.bucket, survey.spec.clone());
        let first = JobFigures {
            progress: Progress { lost_objects: survey.lost_objects, ..Progress::default() },
            ..JobFigures::default()
        };
        let found = survey.plan.objects + survey.lost_objects;
        let (planned_objects, spent_before, open_at_first, state) = match survey.resume.take() {
            None => (found, Spent::default(), OpenInputs::new(), first),
            Some(resume) => {
                let at = &resume.checkpoint;
                if let (Some(known), Some(tally)) = (&at.records, at.read.checksum()) {
                    records.go_on_from(known, tally).map_err(|error| Some(error.to_string()))?;
                }
                // Objects that were put while the job began may have been found since.
                let planned_objects = at.planned_objects.max(at.inputs_read + survey.plan.objects);
                (
                    planned_objects,
                    at.spent,
                    resume.open(),
                    JobFigures::of(resume, planned_objects - survey.plan.objects),
                )
            }
        };
        let buffer = PartitionBuffer::new(survey.destinations.len(), survey.destination_of, memory.chunk_bytes);
        Ok(Self {
            job,
            records: Arc::new(records),
            open_at_first,
            plan: survey.fixed.clone(),
            spent_before,
            buffer: Mutex::new(buffer),
            limits: Limits {
                chunk_bytes: memory.chunk_bytes,
                decoder_bytes: memory.decoder_bytes(survey.spec.format),
                memory_bytes: request.memory_bytes,
            },
            memory,
            destinations: survey.destinations.clone(),
            planned_objects,
            began: context.clock.now(),
            wakes_before: wakes(world).await.ok_or(None)?,
            state: Mutex::new(state),
            context: context.clone(),
            world: world.clone(),
            request: request.clone(),
        })
    }

    /// A class of the job, for its operations.
    pub fn of(&self, class: ClassId) -> JobClass {
        JobClass { job: self.job, class }
    }

    /// The number of a destination group.
    pub fn destination_number(&self, group: GroupId) -> usize {
        let found = self.destinations.iter().position(|known| *known == group);
        found.expect("what is buffered has a destination")
    }

    /// The most that may be reported of one batch: a run is at most a chunk.
    fn reported_at_most(&self, target: WriteTarget) -> u64 {
        match target {
            WriteTarget::Deliver(_) => u64::MAX,
            WriteTarget::Offload { .. } => self.memory.chunk_bytes,
        }
    }

    /// The number of a partition's next object.
    pub fn number_of(&self, partition: usize) -> u64 {
        self.state.lock().numbers.get(&partition).copied().unwrap_or(0)
    }

    /// The number of the next run.
    pub fn next_run(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_run += 1;
        state.next_run
    }

    /// The target of the class's next write after `batch`, if that is certain.
    pub async fn target_behind(&self, class: ClassId, batch: &WriteBatch) -> Option<WriteTarget> {
        let number = self.destination_number(batch.target.destination());
        let most = self.reported_at_most(batch.target);
        let reported = self.buffer.lock().reportable(number, batch.taken_bytes(), most);
        let of = self.of(class);
        let order = self.world.ask(move |rack, _| rack.job_ahead(of, reported)).await.flatten();
        order.and_then(WriteTarget::of)
    }

    /// Records that input was read and its output buffered; returns the bytes to report, by destination.
    pub fn was_read(&self, done: &mut super::reader::Done) -> Vec<(GroupId, u64)> {
        let reported = self.buffer.lock().settle(std::mem::take(&mut done.unreported));
        let mut state = self.state.lock();
        let progress = &mut state.progress;
        progress.input_bytes += done.input_bytes + done.lost_bytes;
        progress.rows += done.rows;
        progress.lost_objects += done.lost_objects;
        state.read.append(&mut done.read);
        reported.iter().map(|(number, bytes)| (self.destinations[*number], *bytes)).collect()
    }

    /// Records that `bytes` buffered for the target's destination were written; returns the bytes to report.
    pub fn release(&self, target: WriteTarget, bytes: u64) -> u64 {
        let number = self.destination_number(target.destination());
        self.buffer.lock().release(number, bytes, self.reported_at_most(target))
    }

    /// Records that a batch was written and is no longer buffered; returns the bytes to report.
    pub fn was_written(&self, mut batch: WriteBatch, blob: Blob) -> u64 {
        let bytes = batch.taken_bytes();
        drop(std::mem::take(&mut batch.taken));
        let reported = self.release(batch.target, bytes);
        let mut state = self.state.lock();
        match batch.target {
            WriteTarget::Deliver(_) => {
                for partition in batch.partitions() {
                    *state.numbers.entry(partition).or_default() += 1;
                    state.progress.output_objects += 1;
                }
                state.progress.output_bytes += batch.object_bytes();
                state.output += batch.tally();
            }
            WriteTarget::Offload { on, target } => {
                assert!(reported > 0, "a run counts for something, or nobody would ask for it back");
                assert!(reported <= self.memory.chunk_bytes, "a run is no more than a chunk");
                state.offloaded_in_all += blob.payload_bytes;
                state.progress.offloaded_bytes += reported;
                state.runs.entry((on, target)).or_default().push(batch.as_run(blob, reported));
            }
        }
        reported
    }

    /// Takes a run of at most `most_bytes`.
    pub fn take_run(&self, on: GroupId, target: GroupId, most_bytes: u64) -> Option<OffloadedRun> {
        let mut state = self.state.lock();
        let runs = state.runs.entry((on, target)).or_default();
        let Some(fits) = runs.iter().position(|run| run.counted <= most_bytes) else {
            assert!(runs.is_empty(), "a run that lies on {on} for {target} is too long to be asked for");
            return None;
        };
        Some(runs.remove(fits))
    }

    /// Puts back a run that could not be read.
    pub fn put_back(&self, on: GroupId, target: GroupId, run: OffloadedRun) {
        self.state.lock().runs.entry((on, target)).or_default().push(run);
    }

    /// Records that a run is no longer offloaded. Returns it if it is to be removed now: the last checkpoint does not
    /// count on it.
    pub fn was_refilled(&self, run: OffloadedRun) -> Option<OffloadedRun> {
        let mut state = self.state.lock();
        assert!(state.progress.offloaded_bytes >= run.counted, "a run that is back was offloaded");
        state.progress.offloaded_bytes -= run.counted;
        if run.number > state.run_at_checkpoint {
            return Some(run);
        }
        state.refilled.push(run);
        None
    }

    /// The serial number and content of the job's next checkpoint, and the input that was read since the last one.
    /// `open` are the open objects of the input, with the checksum of their records that were split and not taken.
    ///
    /// # Errors
    /// Why no checkpoint can be taken, in words.
    pub fn state_of(
        &self,
        objects_below: VersionId,
        spent: Spent,
        (open, pending): (&OpenInputs, MultisetChecksum),
    ) -> Result<(u64, Checkpoint, Vec<ReadInput>), String> {
        if self.buffer.lock().held_bytes() > 0 {
            return Err("something is buffered".into());
        }
        let records = self.records.learned().map_err(|error| error.to_string())?;
        let read = self.records.tally() - pending;
        let state = self.state.lock();
        let runs = || state.runs.values().flatten();
        if read != state.output + runs().map(|run| run.tally).sum() {
            return Err("the records read differ from the records written and offloaded; please report this".into());
        }
        let checkpoint = Checkpoint {
            version: VERSION,
            objects_below,
            plan: self.plan.clone(),
            planned_objects: self.planned_objects,
            inputs_read: state.read.len() as u64,
            open: open.iter().map(|(version, records)| (*version, *records)).collect(),
            numbers: state.numbers.clone(),
            next_run: state.next_run,
            runs: runs().count() as u64,
            refilled: state.refilled.iter().map(|run| run.number).collect(),
            read: read.into(),
            written: state.output.into(),
            progress: state.progress.clone(),
            spent: Spent { offloaded_bytes: state.offloaded_in_all, ..spent },
            records,
        };
        Ok((state.serial + 1, checkpoint, state.read[state.read_at_checkpoint..].to_vec()))
    }

    /// Records that the checkpoint `serial` is durable, with `read` more objects of input. Returns the runs that can be
    /// removed now.
    pub fn was_saved(&self, serial: u64, read: usize) -> Vec<OffloadedRun> {
        let mut state = self.state.lock();
        assert_eq!(serial, state.serial + 1, "one checkpoint follows the other");
        (state.serial, state.progress.checkpoints) = (serial, serial);
        state.read_at_checkpoint += read;
        assert_eq!(state.read_at_checkpoint, state.read.len(), "nothing is read while a checkpoint is taken");
        state.run_at_checkpoint = state.next_run;
        std::mem::take(&mut state.refilled)
    }

    /// Time and switches that the job has taken so far, without the bytes offloaded; `None` if the world has ended.
    pub async fn spent(&self) -> Option<Spent> {
        let job = self.job;
        let look = move |rack: &engine::Rack, _| Some((rack.job_planner(job)?.changes(), rack.job_times(job)));
        let (changes, times) = self.world.ask(look).await.flatten()?;
        let (wakes, before) = (wakes(&self.world).await?, &self.spent_before);
        let since = |at: usize| before.wakes[at] + wakes[at] - self.wakes_before[at];
        Some(Spent {
            whole_s: before.whole_s + self.context.clock.now().since(self.began).as_secs_f64(),
            reading_s: before.reading_s + times.reading.as_secs_f64(),
            writing_s: before.writing_s + times.writing.as_secs_f64(),
            verifying_s: before.verifying_s + times.verifying.as_secs_f64(),
            switching_s: before.switching_s + times.switching.as_secs_f64(),
            waiting_s: before.waiting_s + times.waiting.as_secs_f64(),
            processing_s: before.processing_s + times.processing.as_secs_f64(),
            wakes: [since(0), since(1)],
            strategy_changes: before.strategy_changes + changes,
            offloaded_bytes: 0,
        })
    }

    /// Records why a step of a class failed.
    pub fn set_fault(&self, class: ClassId, fault: String) {
        self.state.lock().faults.insert(class, fault);
    }

    /// Why the last failed step of a class failed.
    pub fn fault(&self, class: ClassId) -> String {
        self.state.lock().faults.get(&class).cloned().unwrap_or_default()
    }

    /// Records the end of a step; the buffer is within its bounds.
    pub fn step_ended(&self) {
        let (held, peak) = {
            let buffer = self.buffer.lock();
            (buffer.held_bytes(), buffer.peak_bytes())
        };
        // An eighth is reserved for refilled runs.
        let most = self.memory.buffer_bytes + self.memory.buffer_bytes / 8;
        assert!(held <= most, "{held} bytes are buffered, and {} are allowed", self.memory.buffer_bytes);
        let mut state = self.state.lock();
        state.steps += 1;
        state.progress.buffered_bytes = held;
        state.progress.peak_buffered_bytes = peak;
    }

    /// The progress of the job, from the measurements here and the engine's state.
    pub async fn progress(&self) -> Progress {
        let job = self.job;
        let look = move |rack: &engine::Rack, _| Some((rack.job_planner(job)?.clone(), rack.job_blocked(job)));
        let Some((planner, blocked)) = self.world.ask(look).await.flatten() else {
            return self.state.lock().progress.clone();
        };
        let (strategy, left) = (strategies(&planner), self.left(planner).await);
        let mut progress = self.state.lock().progress.clone();
        progress.strategy = strategy;
        progress.waits = blocked.map(|(class, _)| self.fault(class)).unwrap_or_default();
        progress.left_s = self.context.clock.to_wall(left).as_secs_f64();
        let gone = self.spent_before.whole_s + self.context.clock.now().since(self.began).as_secs_f64();
        progress.done = gone / (gone + left.as_secs_f64()).max(f64::MIN_POSITIVE);
        progress
    }

    /// The remaining time, simulated again if there were enough steps since the last forecast.
    async fn left(&self, planner: JobPlanner) -> Duration {
        let (steps, forecast) = {
            let state = self.state.lock();
            (state.steps, state.forecast)
        };
        if steps < forecast.until {
            return forecast.left;
        }
        let left = heavy(move || planner.forecast().total()).await;
        self.state.lock().forecast = TimeLeft { left, until: steps + FORECAST_EVERY.max(steps / FORECAST_PART) };
        left
    }

    /// The report of the job and the input it read, once all output is delivered.
    ///
    /// # Errors
    /// Why the output is not as it should be; `None` if the world has ended.
    pub async fn complete(&self) -> Result<Complete, Option<String>> {
        let job = self.job;
        let look = move |rack: &engine::Rack, _| rack.job_planner(job).cloned();
        let planner = self.world.ask(look).await.flatten().ok_or(None)?;
        let spent = self.spent().await.ok_or(None)?;
        let mut state = self.state.lock();
        assert!(planner.done(), "the job is done, and not everything is delivered");
        let (buffered, runs) = (self.buffer.lock().held_bytes(), state.runs.values().flatten().count());
        if buffered > 0 || runs > 0 {
            return Err(Some(format!(
                "{buffered} bytes in the buffer and {runs} runs were not written; nothing is published. Please report \
                 this"
            )));
        }
        self.records.finish().map_err(|error| Some(error.to_string()))?;
        let (input, output) = (self.records.tally(), state.output);
        if input != output {
            return Err(Some(format!(
                "{} records were read and {} written, or they are not the same; nothing is published. Please report \
                 this",
                input.rows, output.rows
            )));
        }
        let (ended, planned) = (state.read.len() as u64 + state.progress.lost_objects, self.planned_objects);
        if ended != planned {
            return Err(Some(format!(
                "only {ended} objects of {planned} were read completely; nothing is published. Please report this"
            )));
        }
        let outcome = outcome(&state, strategies(&planner), &spent);
        Ok((outcome, std::mem::take(&mut state.read)))
    }
}

impl JobFigures {
    /// The figures of a job that resumes from a checkpoint. `not_found` objects of its input are not found any more:
    /// they were read, or are lost.
    fn of(resume: Resume, not_found: u64) -> Self {
        let Resume { serial, checkpoint, read, runs } = resume;
        let progress = Progress {
            buffered_bytes: 0,
            offloaded_bytes: runs.values().flatten().map(|run| run.counted).sum(),
            lost_objects: not_found - read.len() as u64,
            checkpoints: serial,
            ..checkpoint.progress
        };
        Self {
            runs,
            next_run: checkpoint.next_run,
            numbers: checkpoint.numbers,
            output: checkpoint.written.checksum().unwrap_or_default(),
            offloaded_in_all: checkpoint.spent.offloaded_bytes,
            serial,
            input_bytes_before: progress.input_bytes,
            read_at_checkpoint: read.len(),
            run_at_checkpoint: checkpoint.next_run,
            read,
            progress,
            ..Self::default()
        }
    }
}

fn outcome(state: &JobFigures, strategy: String, spent: &Spent) -> Outcome {
    let progress = &state.progress;
    Outcome {
        strategy,
        strategy_changes: spent.strategy_changes,
        hours: spent.whole_s / 3600.0,
        reading_hours: spent.reading_s / 3600.0,
        writing_hours: spent.writing_s / 3600.0,
        verifying_hours: spent.verifying_s / 3600.0,
        switching_hours: spent.switching_s / 3600.0,
        waiting_hours: spent.waiting_s / 3600.0,
        processing_hours: spent.processing_s / 3600.0,
        switches: spent.wakes[0],
        other_switches: spent.wakes[1],
        input_bytes: progress.input_bytes,
        input_bytes_before: state.input_bytes_before,
        offloaded_bytes: state.offloaded_in_all,
        output_bytes: progress.output_bytes,
        output_objects: progress.output_objects,
        input_objects: state.read.len() as u64,
        lost_objects: progress.lost_objects,
        checkpoints: state.serial,
        rows: state.output.rows,
        tally: format!("{:032x}", state.output.sum),
        peak_buffered_bytes: progress.peak_buffered_bytes,
    }
}

/// The strategies in use; several if the classes differ.
fn strategies(planner: &JobPlanner) -> String {
    let mut choices: Vec<String> = Vec::new();
    for class in planner.classes() {
        let choice = planner.choice(class).to_string();
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    choices.join(", ")
}

/// Groups woken for the background, and for others.
async fn wakes(world: &WorldHandle) -> Option<[u64; 2]> {
    let all = world.ask(|rack, _| rack.stats().group_wakes).await?;
    let mut wakes = [0; 2];
    for (priority, count) in PriorityClass::ALL.iter().zip(all) {
        wakes[usize::from(*priority != PriorityClass::Background)] += count;
    }
    Some(wakes)
}
