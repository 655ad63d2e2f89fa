//! The plan of a repartition: the input it reads, where its partitions are to be stored, and the cost of each strategy.
//!
//! 1. The request is parsed: places, partitioner, filter, formats. Mistakes are reported before anything is done.
//! 2. The input is listed (`input.rs`).
//! 3. Some of it is sampled (`sample.rs`): the bytes that an input byte becomes on the drives (alpha), and in memory
//!    (expansion).
//! 4. Each partition gets a destination group: from the class that the target is pinned to, or from all classes that
//!    store input. Groups without room for their share are left out.
//! 5. The engine simulates the cost of each strategy; a strategy that would not fit on a group is not chosen.

use super::buffer::DestinationOf;
use super::checkpoint::FixedPlan;
use super::expected::ExpectedRecords;
use super::input::{Input, Placed, WantedInput, listed};
use super::memory::{Memory, Needs};
use super::places::{places, target_is_free};
use super::report::{self, Request, Sample};
use super::resume::Resume;
use super::sample::{Sampled, Sampling};
use crate::error::text;
use crate::processor::heavy;
use crate::world::{Context, WorldHandle};
use batch::{Format, Spec};
use catalog::VersionId;
use engine::PriorityClass;
use engine::repartition::{Alpha, Choice, Cost, Day, JobSpec, Part, Sizes, Terms};
use model::physics::ServerLoad;
use model::{ClassId, GroupId, RackSpec, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The seeks of a drive to read a stack: its end, and its beginning with what follows.
const READ_SEEKS: u32 = 2;
/// The seeks of a drive to write a stack: its name, its beginning with what follows, a sync, its end, and another sync.
const WRITE_SEEKS: u32 = 5;

/// Everything that a job needs to start.
#[derive(Debug)]
pub(super) struct Survey {
    /// The processing of the records.
    pub spec: Spec,
    /// The input, by the group on which it is read.
    pub inputs: BTreeMap<GroupId, Vec<Input>>,
    /// The parts of the classes, for the planner.
    pub parts: Vec<Part>,
    /// The destination groups of partitions, by number.
    pub destinations: Vec<GroupId>,
    /// The destination of each partition.
    pub destination_of: DestinationOf,
    /// The output to expect for each byte of input.
    pub alpha: Alpha,
    /// The costs of the hardware.
    pub terms: Terms,
    /// The sizes in which bytes are moved.
    pub sizes: Sizes,
    /// The job's memory, shared out.
    pub memory: Memory,
    /// Objects that are already gone.
    pub lost_objects: u64,
    /// The strategy to follow to the end, if it must not change.
    pub forced: Option<Choice>,
    /// The plan for the report.
    pub plan: report::Plan,
    /// The part of the plan that stays when the job resumes after a restart.
    pub fixed: FixedPlan,
    /// The checkpoint from which the job resumes.
    pub resume: Option<Resume>,
    /// Minimum time between two checkpoints.
    pub checkpoint_interval: Duration,
}

impl Survey {
    /// The job for the engine, with its strategies; simulates every candidate.
    pub fn job(&self, host_scale: u32) -> Result<JobSpec, String> {
        self.spec_without_strategies(host_scale).chosen(self.forced).ok_or_else(|| self.too_little())
    }

    fn spec_without_strategies(&self, host_scale: u32) -> JobSpec {
        let Memory { buffer_bytes, chunk_bytes, .. } = self.memory;
        JobSpec {
            parts: self.parts.clone(),
            memory_bytes: buffer_bytes,
            chunk_bytes,
            sizes: self.sizes,
            terms: self.terms,
            alpha: self.alpha,
            choices: Vec::new(),
            fixed: false,
            host_scale,
            offloaded: self.resume.as_ref().map(Resume::offloaded).unwrap_or_default(),
            checkpoint_interval: self.checkpoint_interval,
        }
    }

    fn too_little(&self) -> String {
        let Memory { buffer_bytes, chunk_bytes, .. } = self.memory;
        let (classes, least) = (self.parts.len(), JobSpec::least_memory_bytes(self.parts.len(), chunk_bytes));
        format!("{buffer_bytes} bytes of memory are too little for {classes} classes; give at least {least}")
    }
}

/// Surveys the input and the rack for `request`. Only reads; changes nothing.
///
/// # Errors
/// The mistake in the request, in words; `None` if the world has ended.
pub(super) async fn survey(
    context: &Context,
    world: &WorldHandle,
    spec: &RackSpec,
    (request, figures): (&Request, Figures),
    resume: Option<Resume>,
) -> Result<Survey, Option<String>> {
    let (from, to) = places(request)?;
    removes_nothing_else(request)?;
    let below = match &resume {
        Some(resume) => resume.checkpoint.plan.input_below,
        None => context.catalog.next_version_id().await.map_err(|error| error.to_string())?,
    };
    let wanted = WantedInput { below, read: resume.as_ref().map(Resume::versions) };
    let mut found = listed(&context.catalog, request, wanted).await?;
    if let Some(resume) = &resume {
        found.format = Some(resume.checkpoint.plan.format.parse().map_err(text)?);
    }
    target_is_free(&context.catalog, &from, &to).await?;
    let excluded = found.excluded.said();
    let records = records_of(request, found.format.ok_or_else(|| String::from("there is no input"))?)?;
    let partitions = records.partition_count().map_err(text)?;
    let placed = found.placed();
    let look = world.ask(RackRoom::of).await.ok_or(None)?;
    let pinned = (context.pin_of)(&to.bucket, &to.prefix);
    let (spec, request) = (spec.clone(), request.clone());
    let sampled = (None, None);
    let mut surveying = Surveying {
        excluded,
        spec,
        request,
        records,
        partitions,
        placed,
        room: look,
        pinned,
        sampled,
        input_below: below,
        resume,
        host_scale: context.clock.scale(),
    };
    surveying.sample(context, world, figures).await?;
    Ok(heavy(move || surveying.survey()).await?)
}

/// Where the figures of a plan come from, except those in the request.
#[derive(Clone, Debug)]
pub(super) enum Figures {
    /// Assumptions about the format.
    Assume,
    /// A sample, taken by reads of this class; its findings about records are errors.
    Sample(PriorityClass),
    /// The same, but findings are left to the job, which reads all of the input.
    SampleIfItGoes(PriorityClass),
    /// A sample that was taken before.
    Known(Sample),
}

/// Refuses to remove input if columns or records of it are left out of the output.
fn removes_nothing_else(request: &Request) -> Result<(), String> {
    if request.remove_input && (request.columns.is_some() || request.filter.is_some()) {
        let left_out = if request.columns.is_some() { "columns" } else { "records" };
        return Err(format!(
            "removing the input would lose the {left_out} that are left out; leave --remove-input out, and remove the \
             input yourself once the output is right"
        ));
    }
    Ok(())
}

/// The format of the records, and their processing.
fn records_of(request: &Request, format: Format) -> Result<Spec, String> {
    let partitions = usize::try_from(request.partitions.unwrap_or(0)).unwrap_or(usize::MAX);
    Ok(Spec {
        format,
        by: request.by.parse().map_err(text)?,
        partitions,
        columns: request.columns.clone(),
        filter: request.filter.as_deref().map(str::parse).transpose().map_err(text)?,
        output: format,
    })
}

/// The rack's free room, and its settings that matter for a plan.
#[derive(Debug)]
struct RackRoom {
    classes: Vec<Vec<GroupId>>,
    /// Payload bytes for which each group has room.
    free: Vec<u64>,
    /// True if written data is read back.
    reads_back: bool,
    /// The expected time of a switch, alone and beside other classes' work.
    switches: [Duration; 2],
    /// Drives in a group.
    drives: usize,
    /// Starts that each drive has per day for background work.
    starts_per_day: u32,
    /// The time between two checkpoints of a job.
    checkpoint_interval: Duration,
    /// The elapsed part of today, and the starts of the drives of each group so far.
    today: Day,
}

impl RackRoom {
    fn of(rack: &engine::Rack, now: Time) -> Self {
        let code = rack.spec().code;
        let starts = |group: &engine::layout::Group| {
            group.drives.iter().map(|drive| rack.starts_today(*drive, now).0).max().unwrap_or(0)
        };
        let free = |group: &engine::layout::Group| {
            let all: u64 = group.drives.iter().map(|drive| rack.placement().free_bytes(*drive)).sum();
            // Drives that share a disk have its room only once.
            all.min(rack.placement().free_total()) / u64::from(code.data + code.parity) * u64::from(code.data)
        };
        Self {
            classes: rack.layout().classes.clone(),
            free: rack.layout().groups.iter().map(free).collect(),
            reads_back: rack.policy().write_read_back,
            switches: [ServerLoad::Idle, ServerLoad::Busy].map(|load| rack.switch_estimate(load).total()),
            drives: rack.layout().groups.iter().map(|group| group.drives.len()).max().unwrap_or(0),
            starts_per_day: rack.policy().starts_per_day,
            checkpoint_interval: rack.policy().checkpoint_interval,
            today: Day {
                gone: now.since(Time::start_of_day(now.day())),
                starts: rack.layout().groups.iter().map(starts).collect(),
            },
        }
    }

    fn class_of(&self, group: GroupId) -> ClassId {
        let class = self.classes.iter().position(|groups| groups.contains(&group));
        ClassId(class.expect("a group is of a class") as u32)
    }
}

/// The facts on which the choice of a strategy depends.
struct Surveying {
    /// The report of excluded input.
    excluded: Option<String>,
    spec: RackSpec,
    request: Request,
    records: Spec,
    partitions: usize,
    placed: Placed,
    room: RackRoom,
    pinned: Option<ClassId>,
    sampled: Sampled,
    /// Versions from this one on are not part of the input.
    input_below: VersionId,
    /// The checkpoint from which the job resumes.
    resume: Option<Resume>,
    /// Modelled seconds per second of the host.
    host_scale: u32,
}

impl Surveying {
    /// Takes a sample of the input, if one is wanted.
    async fn sample(&mut self, context: &Context, world: &WorldHandle, figures: Figures) -> Result<(), String> {
        let (priority, strict) = match figures {
            Figures::Assume => return Ok(()),
            Figures::Known(sample) => {
                self.sampled.0 = Some(sample);
                return Ok(());
            }
            Figures::Sample(priority) => (priority, true),
            Figures::SampleIfItGoes(priority) => (priority, false),
        };
        let memory = self.needs(self.classes().len().max(1)).share()?;
        let sampling = Sampling {
            context,
            world,
            priority,
            bucket: &self.request.from.bucket,
            spec: &self.records,
            decoder_bytes: memory.decoder_bytes(self.records.format),
            by_group: &self.placed.by_group,
            workshop: &self.placed.workshop,
        };
        self.sampled = match sampling.take().await {
            Err(refusal) if strict => return Err(refusal),
            sampled => sampled.unwrap_or_default(),
        };
        Ok(())
    }

    /// The classes that take part; may be empty while all input is in the workshop.
    fn classes(&self) -> BTreeSet<ClassId> {
        let groups = self.placed.by_group.keys();
        let before = self.resume.iter().flat_map(|resume| &resume.checkpoint.plan.classes).map(|(class, _)| *class);
        groups.map(|group| self.room.class_of(*group)).chain(self.pinned).chain(before).collect()
    }

    fn survey(mut self) -> Result<Survey, String> {
        let input_bytes = self.bytes();
        let expected = self.expected();
        let alpha = expected.alpha.value;
        let output_bytes = alpha.output_of(input_bytes);
        let destinations = self.destinations(output_bytes)?;
        let workshop_bytes = self.placed.workshop.iter().map(|input| input.bytes).sum();
        self.assign_workshop(destinations[0]);
        let value = matches!(self.records.by, batch::By::Value { .. });
        let destination_of = if value {
            DestinationOf::InTurn { destinations: destinations.len() }
        } else {
            DestinationOf::Spread { partitions: self.partitions, destinations: destinations.len() }
        };
        let parts = self.parts(&destinations, destination_of);
        let in_parts: u64 = parts.iter().flat_map(|part| &part.input_bytes).sum();
        assert_eq!(in_parts, input_bytes, "each byte of the input is read in one class");
        let terms = self.terms(&expected, parts.len());
        let memory = self.needs(parts.len()).share()?;
        let sizes = Sizes {
            object_bytes: memory.object_bytes,
            batch_bytes: expected.batch_bytes(&memory),
            together_bytes: self.placed.together_bytes(),
        };
        let plan = report::Plan {
            objects: self.objects(),
            input_bytes,
            workshop_bytes,
            output_bytes,
            warnings: self.excluded.take().into_iter().chain(self.sampled.1.take()).collect(),
            starts_per_day: terms.starts_per_day,
            rated_starts: self.spec.profile.rated_starts,
            partitions: self.partitions as u64,
            classes: parts.iter().map(class_plan).collect(),
            memory_bytes_most: memory.most_bytes,
            column_bytes_most: memory.column_bytes,
            ..expected.as_plan()
        };
        let inputs = std::mem::take(&mut self.placed.by_group);
        let (spec, forced) = (self.records.clone(), None);
        let mut survey = Survey {
            lost_objects: self.placed.lost,
            spec,
            inputs,
            parts,
            destinations,
            destination_of,
            alpha,
            terms,
            sizes,
            memory,
            forced,
            plan,
            fixed: FixedPlan::default(),
            resume: None,
            checkpoint_interval: self.room.checkpoint_interval,
        };
        if let Some(resume) = self.resume.take() {
            is_of_use(&resume, &survey)?;
            survey.forced = resume.checkpoint.plan.forced;
            survey.resume = Some(resume);
        } else {
            self.choose(&mut survey)?;
        }
        survey.fixed = self.fixed(&survey);
        Ok(survey)
    }

    /// The part of the plan that stays when the job resumes after a restart.
    fn fixed(&self, survey: &Survey) -> FixedPlan {
        FixedPlan {
            input_below: self.input_below,
            format: self.records.format.to_string(),
            classes: survey.parts.iter().map(|part| (part.class, part.groups.clone())).collect(),
            destinations: survey.destinations.clone(),
            chunk_bytes: survey.memory.chunk_bytes,
            forced: survey.forced,
            sample: self.sampled.0.clone(),
        }
    }

    /// The expectations about the records.
    fn expected(&self) -> ExpectedRecords {
        ExpectedRecords::of(&self.request, self.records.format, self.sampled.0.as_ref(), self.host_scale)
    }

    /// The hardware costs of a job in this number of classes.
    fn terms(&self, expected: &ExpectedRecords, classes: usize) -> Terms {
        let reads_back = self.room.reads_back;
        Terms {
            // Classes that work at the same time mount while others transfer.
            switch: self.room.switches[usize::from(classes > 1)],
            starts_per_day: self.room.starts_per_day,
            expansion: expected.expansion.value,
            processor: expected.processor.value,
            read_seeks: READ_SEEKS,
            write_seeks: WRITE_SEEKS + if reads_back { READ_SEEKS } else { 0 },
            ..Terms::of(&self.spec, reads_back)
        }
    }

    fn bytes(&self) -> u64 {
        let all = self.placed.by_group.values().flatten().chain(&self.placed.workshop);
        all.map(|input| input.bytes).sum()
    }

    /// The destination groups of partitions, sorted. They must have room for their share; those with the most room are
    /// taken, from each class in turn.
    fn destinations(&self, output_bytes: u64) -> Result<Vec<GroupId>, String> {
        if let Some(resume) = &self.resume {
            return Ok(resume.checkpoint.plan.destinations.clone());
        }
        let classes: BTreeSet<ClassId> = match self.pinned {
            Some(class) => [class].into(),
            None => self.placed.by_group.keys().map(|group| self.room.class_of(*group)).collect(),
        };
        let classes: Vec<ClassId> = if classes.is_empty() {
            // No input is in the rack yet: any class may be the target, so use the one with the most room.
            let room =
                |class: &usize| -> u64 { self.groups_of(*class).map(|group| self.room.free[group.index()]).sum() };
            let most = (0..self.room.classes.len()).max_by_key(room);
            most.map(|class| ClassId(class as u32)).into_iter().collect()
        } else {
            classes.into_iter().collect()
        };
        let candidates = in_turn(classes.iter().map(|class| {
            let mut groups: Vec<GroupId> = self.groups_of(class.index()).collect();
            groups.sort_by_key(|group| (Reverse(self.room.free[group.index()]), *group));
            groups
        }));
        let mut count = candidates.len().min(self.partitions.max(1));
        while count > 0 {
            let share =
                (u128::from(output_bytes) * self.partitions.div_ceil(count) as u128).div_ceil(self.partitions as u128);
            let has_room = |group: &&GroupId| u128::from(self.room.free[group.index()]) >= share;
            let mut found: Vec<GroupId> = candidates.iter().filter(has_room).take(count).copied().collect();
            if found.len() == count {
                found.sort_unstable();
                return Ok(found);
            }
            count = found.len();
        }
        Err(format!(
            "no group has room for its share of the output of {output_bytes} bytes; remove objects, pin the target \
             prefix to a class with room, or give --alpha if the output is smaller"
        ))
    }

    fn groups_of(&self, class: usize) -> impl Iterator<Item = GroupId> {
        self.room.classes.get(class).into_iter().flatten().copied()
    }

    /// Assigns input in the workshop to the group with most of the input.
    fn assign_workshop(&mut self, fallback: GroupId) {
        let workshop = std::mem::take(&mut self.placed.workshop);
        if workshop.is_empty() {
            return;
        }
        let bytes = |inputs: &Vec<Input>| inputs.iter().map(|input| input.bytes).sum::<u64>();
        let most = self.placed.by_group.iter().max_by_key(|(_, inputs)| bytes(inputs)).map(|(group, _)| *group);
        self.placed.by_group.entry(most.unwrap_or(fallback)).or_default().extend(workshop);
    }

    fn parts(&self, destinations: &[GroupId], destination_of: DestinationOf) -> Vec<Part> {
        let mut weights: BTreeMap<GroupId, u64> = BTreeMap::new();
        for partition in 0..self.partitions {
            *weights.entry(destinations[destination_of.destination(partition)]).or_default() += 1;
        }
        let mut by_class: BTreeMap<ClassId, BTreeSet<GroupId>> = BTreeMap::new();
        for group in destinations.iter().chain(self.placed.by_group.keys()) {
            by_class.entry(self.room.class_of(*group)).or_default().insert(*group);
        }
        for (class, groups) in self.resume.iter().flat_map(|resume| &resume.checkpoint.plan.classes) {
            by_class.entry(*class).or_default().extend(groups);
        }
        let part = |(class, groups): (ClassId, BTreeSet<GroupId>)| {
            let bytes = |group: &GroupId| {
                self.placed.by_group.get(group).map_or(0, |inputs| inputs.iter().map(|input| input.bytes).sum())
            };
            Part {
                class,
                input_bytes: groups.iter().map(bytes).collect(),
                shares: groups.iter().map(|group| weights.get(group).copied().unwrap_or(0)).collect(),
                groups: groups.into_iter().collect(),
            }
        };
        by_class.into_iter().map(part).collect()
    }

    /// The needs among which memory is shared out.
    fn needs(&self, classes: usize) -> Needs {
        Needs {
            given_bytes: self.request.memory_bytes,
            object_bytes: self.request.object_bytes,
            format: self.records.format,
            classes,
            code: self.spec.code,
            inputs: self.objects(),
            key_bytes: self.placed.key_bytes,
        }
    }

    /// Objects of the input. Those in the workshop are assigned to groups by now.
    fn objects(&self) -> u64 {
        self.placed.by_group.values().map(|inputs| inputs.len() as u64).sum()
    }

    /// Simulates the cost of each strategy and chooses one.
    fn choose(&self, survey: &mut Survey) -> Result<(), String> {
        let asked = self.request.strategy.as_deref().map(|name| strategy(name, survey)).transpose()?;
        if !survey.spec_without_strategies(1).has_memory() {
            return Err(survey.too_little());
        }
        let groups = survey.parts.iter().map(|part| part.groups.len()).max().unwrap_or(1);
        let mut costs = Vec::new();
        for choice in Choice::candidates(&survey.terms, survey.memory.buffer_bytes, groups) {
            let (forecast, seconds) = self.forecast(survey, choice);
            costs.push((choice, seconds, forecast.fits));
            survey.plan.forecasts.push(forecast);
        }
        let fitting = costs.iter().filter(|(_, _, fits)| *fits);
        let cheapest = fitting.clone().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(choice, _, _)| *choice);
        let all_fit = fitting.count() == costs.len();
        let chosen = match asked {
            Some(asked) => {
                let fits = costs.iter().any(|(choice, _, fits)| same(*choice, asked) && *fits);
                fits.then_some(asked)
            }
            None => cheapest,
        };
        let Some(chosen) = chosen else {
            let least = survey.plan.forecasts.iter().map(|forecast| forecast.peak_extra_bytes).min().unwrap_or(0);
            return Err(format!(
                "there is not enough room: a group would have to store at least {least} bytes more than it does; \
                 remove objects, or keep fewer columns or records"
            ));
        };
        survey.plan.chosen = chosen.to_string();
        // Without a forced strategy the planner may change to any other, so all must fit.
        survey.forced = asked.or((!all_fit).then_some(chosen));
        Ok(())
    }

    /// The forecast of a strategy, and its time in seconds; the job must have enough memory for it.
    fn forecast(&self, survey: &Survey, choice: Choice) -> (report::Forecast, f64) {
        let mut forecast = report::Forecast { strategy: choice.to_string(), fits: true, ..Default::default() };
        let (mut slowest, mut in_all, mut switching, mut energy_mj) = (0.0_f64, 0.0_f64, 0.0, 0.0);
        let weights: u64 = survey.parts.iter().flat_map(|part| &part.shares).sum();
        let today = |part: &Part| {
            let starts = part.groups.iter().map(|group| self.room.today.starts[group.index()]).collect();
            Day { starts, ..self.room.today }
        };
        let days: Vec<Day> = survey.parts.iter().map(today).collect();
        let costs = survey.spec_without_strategies(1).dry_run(choice, &days).unwrap_or_default();
        for (part, cost) in survey.parts.iter().zip(costs) {
            slowest = slowest.max(cost.time.as_secs_f64());
            in_all = in_all.max(cost.total().as_secs_f64());
            forecast.starts_per_drive = forecast.starts_per_drive.max(cost.starts);
            switching += cost.switching.as_secs_f64();
            energy_mj += self.energy_mj(&cost);
            forecast.switches += cost.switches;
            forecast.bytes_read += cost.bytes_read;
            forecast.bytes_written += cost.bytes_written;
            forecast.bytes_offloaded += cost.bytes_offloaded;
            for (group, weight) in part.groups.iter().zip(&part.shares) {
                let output = u128::from(survey.plan.output_bytes) * u128::from(*weight) / u128::from(weights.max(1));
                let extra = output as u64 + cost.peak_offloaded_bytes;
                forecast.peak_extra_bytes = forecast.peak_extra_bytes.max(extra);
                forecast.fits &= extra <= self.room.free[group.index()];
            }
        }
        forecast.hours = slowest / 3600.0;
        forecast.hours_with_budget = in_all / 3600.0;
        forecast.switching_hours = switching / 3600.0;
        forecast.kwh = energy_mj / 3.6e9;
        (forecast, in_all)
    }

    /// The energy that a group's drives draw beyond standby in a run, in millijoules.
    fn energy_mj(&self, cost: &Cost) -> f64 {
        let profile = &self.spec.profile;
        let watts = &profile.watts;
        let drives = self.room.drives as f64;
        let standby = f64::from(watts.standby_mw);
        let spinning = (f64::from(watts.active_mw) - standby).max(0.0) * cost.time.as_secs_f64();
        let starting = (f64::from(watts.spin_up_mw) - f64::from(watts.active_mw)).max(0.0)
            * profile.spin_up.mean().as_secs_f64()
            * cost.switches as f64;
        drives * (spinning + starting)
    }
}

/// Refuses a checkpoint that no longer fits the input or the memory. The job then restarts, so that a change affects
/// all of its output or none of it.
fn is_of_use(resume: &Resume, survey: &Survey) -> Result<(), String> {
    if survey.memory.chunk_bytes != resume.checkpoint.plan.chunk_bytes {
        return Err("its memory is now shared out differently".into());
    }
    let open = resume.open();
    let found = survey.inputs.values().flatten().filter(|input| open.contains_key(&input.version)).count();
    if found == open.len() { Ok(()) } else { Err("an object that was partly read is gone".into()) }
}

/// The first of each list, the second of each, and so on.
fn in_turn<T: Copy>(lists: impl Iterator<Item = Vec<T>>) -> Vec<T> {
    let lists: Vec<Vec<T>> = lists.collect();
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| lists.iter().filter_map(move |list| list.get(at).copied())).collect()
}

fn class_plan(part: &Part) -> report::ClassPlan {
    report::ClassPlan {
        class: part.class.0,
        groups: part.groups.iter().map(|group| group.0).collect(),
        input_bytes: part.input_bytes.iter().sum(),
    }
}

/// The strategy with this name.
fn strategy(name: &str, survey: &Survey) -> Result<Choice, String> {
    let groups = survey.parts.iter().map(|part| part.groups.len()).max().unwrap_or(1);
    let candidates = Choice::candidates(&survey.terms, survey.memory.buffer_bytes, groups);
    let plain = |choice: &Choice| choice.to_string().split('(').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = name.to_ascii_lowercase();
    candidates.into_iter().find(|choice| plain(choice) == wanted).ok_or_else(|| {
        format!("there is no strategy `{name}`; write one of baseline, buffpack, offpack, fillpack and tourpack")
    })
}

/// True if both choices are the same strategy.
fn same(a: Choice, b: Choice) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}
