//! What a repartition would read, where its partitions would lie, and what each strategy would cost.
//!
//! 1. The request is read: places, partitioner, filter, formats; whatever is wrong with it is said before anything is
//!    done.
//! 2. The input is listed: versions and where they lie, sorted by group, blob and offset.
//! 3. Each partition gets a home, a group: of the class that the target is pinned to, or of all classes in which input
//!    lies. Groups without room for their share are left out.
//! 4. Each strategy is rehearsed by the planner that will follow it; what would not fit on a group is not chosen.
//!
//! Memory: [`Input`] for each object, and a page of the listing.

use super::buffer::HomeOf;
use super::memory::{Memory, Needs};
use super::reader::heavy;
use super::report::{self, Place, Request};
use crate::world::{Means, WorldHandle};
use batch::{Format, Spec};
use catalog::{Catalog, CatalogError, HIDDEN_BUCKET, ListRequest, Object, VersionId};
use engine::repartition::{Alpha, Books, Choice, Cost, Day, Expected, Job, Part, Terms};
use model::{BlobId, ClassId, GroupId, RackSpec, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects that are listed at once.
const PAGE: usize = 1_000;
/// The longest key of an object, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 1_024;
/// What a prefix leaves of that for the names of partitions and objects, at least.
const NAME_BYTES: usize = 64;

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
pub(super) enum SurveyError {
    /// The server is about to end.
    #[error("the server is stopping")]
    Closing,
    /// What is wrong with what was asked, for people.
    #[error("{0}")]
    Refused(String),
}

impl From<String> for SurveyError {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

/// An object of the input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Input {
    /// The blob it lies in; [`BlobId::NONE`] if it is in the workshop.
    blob: BlobId,
    /// Where in the blob it begins.
    offset: u64,
    /// Its number.
    pub version: VersionId,
    /// Its length.
    pub bytes: u64,
    /// Its key, in the bucket that the job reads.
    pub key: Arc<str>,
}

impl Input {
    /// Where in its blob the objects end that lie together, from this one on over those that follow, about `bytes` in
    /// all.
    pub fn together<'a>(&self, behind: impl Iterator<Item = &'a Self>, bytes: u64) -> u64 {
        let mut end = self.offset + self.bytes;
        let most = end.saturating_add(bytes);
        for next in behind {
            if next.blob != self.blob || next.offset != end || end >= most {
                break;
            }
            end += next.bytes;
        }
        end
    }
}

/// An object that was read: its version, and its key.
pub(super) type ReadInput = (VersionId, Arc<str>);

/// Everything that a job is begun with.
#[derive(Debug)]
pub(super) struct Survey {
    /// The bucket of the input.
    pub bucket: String,
    /// What is to be done with records.
    pub spec: Spec,
    /// The input, by the group it is to be read on.
    pub inputs: BTreeMap<GroupId, Vec<Input>>,
    /// The classes' parts, for the planner.
    pub parts: Vec<Part>,
    /// The homes of partitions, by number.
    pub homes: Vec<GroupId>,
    /// Which partition has which home.
    pub home_of: HomeOf,
    /// What the planner expects of memory for each byte of input.
    pub alpha: Alpha,
    /// What the hardware costs.
    pub terms: Terms,
    /// What may be taken of memory, and for what.
    pub memory: Memory,
    /// Objects that are gone already.
    pub lost_objects: u64,
    /// The strategy to follow to the end, if it may not be changed.
    pub forced: Option<Choice>,
    /// What is told of all this.
    pub plan: report::Plan,
}

impl Survey {
    /// A job's mind.
    pub fn job(&self) -> Result<Job, String> {
        let Self { parts, memory: Memory { buffer_bytes, grain_bytes, .. }, terms, alpha, forced, .. } = self;
        Job::new(parts, *buffer_bytes, *grain_bytes, *terms, *alpha, *forced).ok_or_else(|| self.too_little())
    }

    fn too_little(&self) -> String {
        let Memory { buffer_bytes, grain_bytes, .. } = self.memory;
        let (classes, least) = (self.parts.len(), Job::least_memory_bytes(self.parts.len(), grain_bytes));
        format!("{buffer_bytes} bytes of memory are too little for {classes} classes; give at least {least}")
    }
}

/// Surveys what `request` asks for. Reads the catalog, and changes nothing.
///
/// # Errors
/// [`SurveyError`].
pub(super) async fn survey(
    means: &Means,
    world: &WorldHandle,
    spec: &RackSpec,
    request: &Request,
) -> Result<Survey, SurveyError> {
    let (from, to) = places(request)?;
    removes_nothing_else(request)?;
    let found = listed(&means.catalog, request).await?;
    target_is_free(&means.catalog, &from, &to).await?;
    let records = records_of(request, found.format.ok_or_else(|| String::from("there is no input"))?)?;
    let partitions = records.partition_count().map_err(text)?;
    let placed = found.placed();
    let look = world.ask(Room::of).await.ok_or(SurveyError::Closing)?;
    let pinned = (means.pin_of)(&to.bucket, &to.prefix);
    let (spec, request) = (spec.clone(), request.clone());
    let surveying = Surveying { spec, request, records, partitions, placed, room: look, pinned };
    Ok(heavy(move || surveying.survey()).await?)
}

/// What is left out of the output must not go with the input.
fn removes_nothing_else(request: &Request) -> Result<(), String> {
    if request.remove_input && (request.columns.is_some() || request.filter.is_some()) {
        let left_out = if request.columns.is_some() { "columns" } else { "records" };
        return Err(format!(
            "removing the input would lose the {left_out} that are left out; do not ask for --remove-input, and remove \
             the input yourself when the output is as you want it"
        ));
    }
    Ok(())
}

/// The places of a request, each prefix ending with a slash unless it is that of a bucket as a whole.
pub(super) fn places(request: &Request) -> Result<(Place, Place), String> {
    let to = directory(&request.to);
    for bucket in [&request.from.bucket, &to.bucket] {
        if bucket.starts_with('.') || *bucket == HIDDEN_BUCKET {
            return Err(format!("there is no bucket `{bucket}`"));
        }
    }
    let most = KEY_BYTES_MAX - NAME_BYTES;
    if to.prefix.len() > most {
        let bytes = to.prefix.len();
        return Err(format!(
            "the prefix to write to has {bytes} bytes, and {most} at most leave room for names below it"
        ));
    }
    Ok((request.from.clone(), to))
}

fn directory(place: &Place) -> Place {
    let slash = if place.prefix.is_empty() || place.prefix.ends_with('/') { "" } else { "/" };
    Place { bucket: place.bucket.clone(), prefix: format!("{}{slash}", place.prefix) }
}

/// Finds the objects below `from`, or the one that has that very key, and where they lie.
async fn listed(catalog: &Catalog, request: &Request) -> Result<Found, String> {
    let from = &request.from;
    let no_bucket = |error| match error {
        CatalogError::NoSuchBucket => format!("there is no bucket `{}` to read from", from.bucket),
        error => error.to_string(),
    };
    let mut found =
        Found { format: request.format.as_deref().map(str::parse).transpose().map_err(text)?, ..Found::default() };
    if !from.prefix.is_empty() && !from.prefix.ends_with('/') {
        match catalog.head_object(&from.bucket, &from.prefix).await {
            Ok(object) => {
                found.take(catalog, from, vec![(from.prefix.clone(), object)]).await?;
                return Ok(found);
            }
            Err(CatalogError::NoSuchKey) => {}
            Err(error) => return Err(no_bucket(error)),
        }
    }
    let prefix = directory(from).prefix;
    let mut start_after = None;
    loop {
        let request = ListRequest { prefix: prefix.clone(), start_after, max_keys: PAGE, delimiter: None };
        let page = catalog.list_objects(&from.bucket, &request).await.map_err(no_bucket)?;
        start_after = page.objects.last().map(|(key, _)| key.clone());
        found.take(catalog, from, page.objects).await?;
        if !page.truncated {
            break;
        }
    }
    if found.format.is_none() || found.placed.is_empty() {
        return Err(format!("there are no objects below s3://{}/{prefix}", from.bucket));
    }
    Ok(found)
}

/// Refuses input that is known not to be readable: no group wakes for a job that could not come to its end.
async fn none_is_quarantined(catalog: &Catalog, versions: &[VersionId]) -> Result<(), String> {
    let quarantined = catalog.are_unreadable(versions).await.map_err(text)?;
    let Some(first) = versions.iter().zip(quarantined).find(|(_, quarantined)| *quarantined) else { return Ok(()) };
    let Some(found) = catalog.unreadable_of(*first.0).await.map_err(text)? else { return Ok(()) };
    let catalog::Unreadable { bucket, key, reason, .. } = found;
    Err(format!("s3://{bucket}/{key} is in quarantine: {reason}; write it again, or delete it"))
}

/// Refuses a target that is part of the input, or holds something already.
pub(super) async fn target_is_free(catalog: &Catalog, from: &Place, to: &Place) -> Result<(), String> {
    let source = directory(from).prefix;
    let overlaps = to.prefix.starts_with(&source) || source.starts_with(&to.prefix);
    if from.bucket == to.bucket && overlaps {
        return Err(format!("{to} overlaps with the input {from}; write to another prefix"));
    }
    let request = ListRequest { prefix: to.prefix.clone(), max_keys: 1, ..ListRequest::default() };
    let found = catalog.list_objects(&to.bucket, &request).await.map_err(|error| match error {
        CatalogError::NoSuchBucket => format!("there is no bucket `{}` to write to; make it first", to.bucket),
        error => error.to_string(),
    })?;
    match found.objects.first() {
        Some((key, _)) => Err(format!(
            "{to} holds objects already, such as s3://{}/{key}; write to another prefix, or remove them",
            to.bucket
        )),
        None => Ok(()),
    }
}

/// What the records are, and what is to be done with them.
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

/// The input, as far as it is listed.
#[derive(Debug, Default)]
struct Found {
    /// What it is: said by the user, or by its names.
    format: Option<Format>,
    /// The first object whose name said so.
    named: Option<String>,
    placed: Placed,
    groups: BTreeMap<BlobId, Option<GroupId>>,
}

/// The input by group; what lies in the workshop is under no group.
#[derive(Debug, Default)]
struct Placed {
    by_group: BTreeMap<GroupId, Vec<Input>>,
    workshop: Vec<Input>,
    /// Objects that were deleted or overwritten since they were listed.
    lost: u64,
    /// The length of all keys.
    key_bytes: u64,
}

impl Placed {
    fn is_empty(&self) -> bool {
        self.by_group.is_empty() && self.workshop.is_empty()
    }
}

impl Found {
    /// Takes a page of the listing.
    async fn take(&mut self, catalog: &Catalog, from: &Place, page: Vec<(String, Object)>) -> Result<(), String> {
        let mut listed = Vec::with_capacity(page.len());
        // What has no bytes has no records; some clients put such objects in the place of directories.
        for (key, object) in page.into_iter().filter(|(_, object)| object.bytes > 0) {
            self.is_of_one_format(&from.bucket, &key)?;
            listed.push((key, object.version));
        }
        let versions: Vec<_> = listed.iter().map(|(_, version)| *version).collect();
        none_is_quarantined(catalog, &versions).await?;
        self.place(catalog, &from.bucket, listed).await.map_err(text)
    }

    /// Learns from the name of an object what it is, unless that was said.
    fn is_of_one_format(&mut self, bucket: &str, key: &str) -> Result<(), String> {
        if self.format.is_some() && self.named.is_none() {
            return Ok(());
        }
        let Some(format) = Format::of_key(key) else {
            return Err(format!(
                "the name of s3://{bucket}/{key} does not tell what it is; say so with --format, or leave it out of \
                 the prefix"
            ));
        };
        let first = *self.format.get_or_insert(format);
        let name = self.named.get_or_insert_with(|| key.to_owned());
        if first != format {
            return Err(format!("{name} is {first} and {key} is {format}; partition them apart, or say --format"));
        }
        Ok(())
    }

    async fn place(
        &mut self,
        catalog: &Catalog,
        bucket: &str,
        listed: Vec<(String, VersionId)>,
    ) -> Result<(), CatalogError> {
        let Self { placed, groups, .. } = self;
        let at: Vec<_> = listed.iter().map(|(key, _)| (bucket, key.as_str())).collect();
        let found = catalog.placed_objects(&at).await?;
        for ((key, version), found) in listed.iter().zip(found) {
            let Some(found) = found.filter(|found| found.object.version == *version) else {
                placed.lost += 1;
                continue;
            };
            let (blob, offset) = match found.place {
                catalog::Place::Stored { blob, offset } => (blob, offset),
                catalog::Place::Staged { .. } | catalog::Place::Parts => (BlobId::NONE, 0),
            };
            let group = match groups.get(&blob) {
                Some(group) => *group,
                None if blob == BlobId::NONE => None,
                None => *groups.entry(blob).or_insert(catalog.blob(blob).await?.map(|blob| blob.group)),
            };
            placed.key_bytes += key.len() as u64;
            let (version, bytes, key) = (*version, found.object.bytes, Arc::from(key.as_str()));
            let input = Input { blob, offset, version, bytes, key };
            match group {
                Some(group) => placed.by_group.entry(group).or_default().push(input),
                None => placed.workshop.push(input),
            }
        }
        Ok(())
    }

    /// All of it, in the order in which it lies.
    fn placed(mut self) -> Placed {
        for inputs in self.placed.by_group.values_mut() {
            inputs.sort_unstable();
            inputs.shrink_to_fit();
        }
        self.placed
    }
}

/// What the rack has room for.
#[derive(Debug)]
struct Room {
    classes: Vec<Vec<GroupId>>,
    /// Payload bytes that each group can still take.
    free: Vec<u64>,
    /// Whether what is written is read back.
    reads_back: bool,
    /// Drives in a group.
    drives: usize,
    /// Starts that a drive has on a day for work that nobody waits for.
    starts_per_day: u32,
    /// How much of the day is gone, and how often the drives of each group were started on it.
    today: Day,
}

impl Room {
    fn of(rack: &engine::Rack, now: Time) -> Self {
        let code = rack.spec().code;
        let starts = |group: &engine::layout::Group| {
            group.drives.iter().map(|drive| rack.starts_today(*drive, now).0).max().unwrap_or(0)
        };
        let free = |group: &engine::layout::Group| {
            let all: u64 = group.drives.iter().map(|drive| rack.drive_free_bytes(*drive)).sum();
            // A disk that drives share has its room once.
            all.min(rack.free_bytes()) / u64::from(code.data + code.parity) * u64::from(code.data)
        };
        Self {
            classes: rack.layout().classes.clone(),
            free: rack.layout().groups.iter().map(free).collect(),
            reads_back: rack.policy().write_read_back,
            drives: rack.layout().groups.iter().map(|group| group.drives.len()).max().unwrap_or(0),
            starts_per_day: rack.policy().starts_per_day,
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

/// What is known before the choice.
struct Surveying {
    spec: RackSpec,
    request: Request,
    records: Spec,
    partitions: usize,
    placed: Placed,
    room: Room,
    pinned: Option<ClassId>,
}

impl Surveying {
    fn survey(mut self) -> Result<Survey, String> {
        let input_bytes = self.bytes();
        let homes = self.homes(input_bytes)?;
        let workshop_bytes = self.placed.workshop.iter().map(|input| input.bytes).sum();
        self.assign_workshop(homes[0]);
        let value = matches!(self.records.by, batch::By::Value { .. });
        let home_of = if value {
            HomeOf::InTurn { homes: homes.len() }
        } else {
            HomeOf::Spread { partitions: self.partitions, homes: homes.len() }
        };
        let parts = self.parts(&homes, home_of);
        let alpha = expansion(self.records.format);
        let terms = self.terms();
        let memory = self.needs(parts.len()).share()?;
        let plan = report::Plan {
            objects: self.objects(),
            input_bytes,
            workshop_bytes,
            format: self.records.format.to_string(),
            starts_per_day: self.room.starts_per_day,
            partitions: self.partitions as u64,
            classes: parts.iter().map(class_plan).collect(),
            memory_bytes_most: memory.most_bytes,
            column_bytes_most: memory.column_bytes,
            ..report::Plan::default()
        };
        let inputs = std::mem::take(&mut self.placed.by_group);
        let (spec, forced) = (self.records.clone(), None);
        let mut survey = Survey {
            bucket: self.request.from.bucket.clone(),
            lost_objects: self.placed.lost,
            spec,
            inputs,
            parts,
            homes,
            home_of,
            alpha,
            terms,
            memory,
            forced,
            plan,
        };
        self.choose(&mut survey)?;
        Ok(survey)
    }

    fn bytes(&self) -> u64 {
        let all = self.placed.by_group.values().flatten().chain(&self.placed.workshop);
        all.map(|input| input.bytes).sum()
    }

    /// The groups that partitions shall lie in, in order: those with room for their share, and of these those with most
    /// of it, from each class in turn.
    fn homes(&self, input_bytes: u64) -> Result<Vec<GroupId>, String> {
        let classes: BTreeSet<ClassId> = match self.pinned {
            Some(class) => [class].into(),
            None => self.placed.by_group.keys().map(|group| self.room.class_of(*group)).collect(),
        };
        let classes: Vec<ClassId> = if classes.is_empty() {
            // Nothing of it is in the rack yet: the class with most room is as good as any.
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
                (u128::from(input_bytes) * self.partitions.div_ceil(count) as u128).div_ceil(self.partitions as u128);
            let has_room = |group: &&GroupId| u128::from(self.room.free[group.index()]) >= share;
            let mut homes: Vec<GroupId> = candidates.iter().filter(has_room).take(count).copied().collect();
            if homes.len() == count {
                homes.sort_unstable();
                return Ok(homes);
            }
            count = homes.len();
        }
        Err(format!(
            "no group has room for its share of the output of {input_bytes} bytes; remove something, or pin the target \
             prefix to a class with room"
        ))
    }

    fn groups_of(&self, class: usize) -> impl Iterator<Item = GroupId> {
        self.room.classes.get(class).into_iter().flatten().copied()
    }

    /// What lies in the workshop is read along with what lies in the group that has most of the input.
    fn assign_workshop(&mut self, home: GroupId) {
        let workshop = std::mem::take(&mut self.placed.workshop);
        if workshop.is_empty() {
            return;
        }
        let bytes = |inputs: &Vec<Input>| inputs.iter().map(|input| input.bytes).sum::<u64>();
        let most = self.placed.by_group.iter().max_by_key(|(_, inputs)| bytes(inputs)).map(|(group, _)| *group);
        self.placed.by_group.entry(most.unwrap_or(home)).or_default().extend(workshop);
    }

    fn parts(&self, homes: &[GroupId], home_of: HomeOf) -> Vec<Part> {
        let mut weights: BTreeMap<GroupId, u64> = BTreeMap::new();
        for partition in 0..self.partitions {
            *weights.entry(homes[home_of.home(partition)]).or_default() += 1;
        }
        let mut by_class: BTreeMap<ClassId, BTreeSet<GroupId>> = BTreeMap::new();
        for group in homes.iter().chain(self.placed.by_group.keys()) {
            by_class.entry(self.room.class_of(*group)).or_default().insert(*group);
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

    fn terms(&self) -> Terms {
        let profile = &self.spec.profile;
        let payload = profile.bytes_per_s.saturating_mul(u64::from(self.spec.code.data)).max(1);
        let write_bytes_per_s = if self.room.reads_back { (payload / 2).max(1) } else { payload };
        let switch = profile.wake_estimate() + profile.rest_estimate();
        let starts_per_day = self.room.starts_per_day;
        Terms { switch, seek: profile.seek, read_bytes_per_s: payload, write_bytes_per_s, starts_per_day }
    }

    /// What memory is shared out for.
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

    /// Objects of the input. What lies in the workshop is under some group by now.
    fn objects(&self) -> u64 {
        self.placed.by_group.values().map(|inputs| inputs.len() as u64).sum()
    }

    /// Rehearses the strategies and chooses one.
    fn choose(&self, survey: &mut Survey) -> Result<(), String> {
        let asked = self.request.strategy.as_deref().map(|name| strategy(name, survey)).transpose()?;
        let Memory { buffer_bytes, grain_bytes, .. } = survey.memory;
        if buffer_bytes < Job::least_memory_bytes(survey.parts.len(), grain_bytes) {
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
                "there is not enough room: a group would have to take {least} bytes at least beside what it holds; \
                 remove something, or keep fewer columns or records"
            ));
        };
        survey.plan.chosen = chosen.to_string();
        // Left to itself the planner may change to another strategy, which must fit as well.
        survey.forced = asked.or((!all_fit).then_some(chosen));
        Ok(())
    }

    fn forecast(&self, survey: &Survey, choice: Choice) -> (report::Forecast, f64) {
        let mut forecast = report::Forecast { strategy: choice.to_string(), fits: true, ..Default::default() };
        let (mut slowest, mut in_all, mut switching, mut energy_mj) = (0.0_f64, 0.0_f64, 0.0, 0.0);
        let weights: u64 = survey.parts.iter().flat_map(|part| &part.shares).sum();
        for part in &survey.parts {
            let share = u128::from(survey.memory.buffer_bytes) / survey.parts.len() as u128;
            let books = Books::new(part.input_bytes.clone(), (share as u64).max(1), survey.alpha);
            let shares = if part.shares.iter().all(|share| *share == 0) {
                vec![1; part.shares.len()]
            } else {
                part.shares.clone()
            };
            let starts = part.groups.iter().map(|group| self.room.today.starts[group.index()]).collect();
            let today = Day { starts, ..self.room.today };
            let expected = Expected { alpha: survey.alpha, shares };
            let cost = choice.rehearse_on(&today, &books, &survey.terms, &expected);
            slowest = slowest.max(cost.time.as_secs_f64());
            in_all = in_all.max(cost.total().as_secs_f64());
            forecast.starts_per_drive = forecast.starts_per_drive.max(cost.starts);
            switching += cost.switching.as_secs_f64();
            energy_mj += self.energy_mj(&cost);
            forecast.switches += cost.switches;
            forecast.bytes_read += cost.bytes_read;
            forecast.bytes_written += cost.bytes_written;
            for (group, weight) in part.groups.iter().zip(&part.shares) {
                let home = u128::from(survey.plan.input_bytes) * u128::from(*weight) / u128::from(weights.max(1));
                let extra = home as u64 + cost.peak_offloaded_bytes;
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

    /// What a group's drives draw beyond standby over a run, in millijoules.
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

/// What a byte of an object takes in memory, before any was read: Parquet is compressed.
fn expansion(format: Format) -> Alpha {
    match format {
        Format::Parquet => Alpha { output: 3, input: 1 },
        Format::Fixed { .. } => Alpha::ONE,
        Format::Csv | Format::Ndjson | Format::Lines => Alpha { output: 11, input: 10 },
    }
}

/// The strategy of that name.
fn strategy(name: &str, survey: &Survey) -> Result<Choice, String> {
    let groups = survey.parts.iter().map(|part| part.groups.len()).max().unwrap_or(1);
    let candidates = Choice::candidates(&survey.terms, survey.memory.buffer_bytes, groups);
    let plain = |choice: &Choice| choice.to_string().split('(').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = name.to_ascii_lowercase();
    candidates
        .into_iter()
        .find(|choice| plain(choice) == wanted)
        .ok_or_else(|| format!("there is no strategy `{name}`; there are baseline, buffpack, offpack and tourpack"))
}

/// Whether two choices are of one strategy.
fn same(a: Choice, b: Choice) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn text(error: impl ToString) -> String {
    error.to_string()
}
