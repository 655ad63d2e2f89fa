//! One run of a job: its orders as operations of the rack, one at a time, with clients beside them.
//!
//! An order waits in the background lane for its group; the rack's scheduler wakes it. If a client's group awakes
//! before, the operation is withdrawn where there is something to do on that group, and the job is asked again: a free
//! ride. Without a limit on operations an order is one of them: so 100 TB take no more events than they take visits.

use super::{CLASS, Repartition, RepartitionError};
use crate::chance::exponential;
use crate::measure::Clients;
use crate::world::{Ended, Setting, World};
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::repartition::{Choice, Deal, Job, Order, Part};
use engine::{ClassPhase, Lane, Outcome, PinnedTo, Rack, Rejection, Work};
use model::{BlobId, DriveId, GroupId, OpId, Rng, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What one run took.
pub(super) struct Taken {
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
    /// The job as it begins: it knows how the input lies, and expects output to fall to all groups alike.
    pub(super) fn job(&self, groups: &[GroupId]) -> Result<Job, RepartitionError> {
        let terms = self.terms();
        let part = Part {
            class: CLASS,
            groups: groups.to_vec(),
            input_bytes: self.input_bytes(groups.len()),
            shares: vec![1; groups.len()],
        };
        let forced = self.method.forced(&terms, self.memory_bytes, groups.len());
        // A byte of input is the smallest piece that a fluid has.
        let byte_becomes = self.alpha.output.div_ceil(self.alpha.input.max(1));
        let grain_bytes = self.memory_bytes.div_ceil(1_000).max(byte_becomes);
        let job = Job::new(&[part], self.memory_bytes, grain_bytes, terms, self.alpha, forced);
        job.ok_or(RepartitionError::Nothing)
    }
}

/// Runs one seed of a job in a rack of this layout.
pub(super) fn run(what: &Repartition, layout: &Layout, seed: u64) -> Result<Taken, RepartitionError> {
    let judge = Some(TraceCheck::new(&what.rack, layout, &what.policy));
    let rack = Rack::new(what.rack.clone(), layout.clone(), what.policy.clone(), seed);
    let setting = Setting { judge, network: Some(what.network), ..Setting::default() };
    let groups = layout.classes[CLASS.index()].clone();
    let stacks = what.rack.code.stacks();
    let rng = |thing: &[u8; 8]| Rng::for_thing(seed, u64::from_le_bytes(*thing));
    let mut run = Run {
        job: what.job(&groups)?,
        deal: Deal::new(&what.expected(groups.len())),
        drives: groups.iter().map(|group| layout.groups[group.index()].drives[..stacks].to_vec()).collect(),
        world: World::with(rack, seed, setting),
        next_read: Time::MAX,
        arrivals: rng(b"arrivals"),
        keys: rng(b"keys    "),
        clients: Clients::default(),
        runs: BTreeMap::new(),
        at: None,
        free_rides: 0,
        moved: [0, 0],
        peak_offloaded_bytes: 0,
        ended: None,
        what,
        groups,
    };
    run.plan_next_read(Time::ZERO);
    run.go()?;
    Ok(run.taken())
}

/// How an operation of the job ended.
enum Fared {
    Done,
    /// It was withdrawn, because this group is awake.
    Withdrawn,
    /// It has to wait for the next day: the drives may not start any more on this one.
    Tomorrow,
}

struct Run<'a> {
    what: &'a Repartition,
    job: Job,
    deal: Deal,
    world: World,
    groups: Vec<GroupId>,
    /// Where a blob of each group lies.
    drives: Vec<Vec<DriveId>>,
    /// When the next client comes.
    next_read: Time,
    arrivals: Rng,
    keys: Rng,
    clients: Clients,
    /// The blobs of each run that lies offloaded: on which group, for whom; what is left to be read of each.
    runs: BTreeMap<(GroupId, GroupId), VecDeque<(BlobId, u64)>>,
    /// The group of the last order that was carried out.
    at: Option<GroupId>,
    free_rides: u64,
    /// Bytes that the job has read and written.
    moved: [u64; 2],
    peak_offloaded_bytes: u64,
    /// How the job's last operation ended.
    ended: Option<Ended>,
}

impl Run<'_> {
    fn go(&mut self) -> Result<(), RepartitionError> {
        loop {
            let awake = self.awake();
            self.job.awake(CLASS, awake);
            let order = self.job.next(CLASS);
            let Some(on) = order.group() else { break };
            // Somebody else woke the group that it goes on with.
            self.free_rides += u64::from(awake == Some(on) && self.at.is_some_and(|at| at != on));
            self.carry_out(order)?;
        }
        self.assert_home();
        Ok(())
    }

    /// The group of the class that is ready.
    fn awake(&self) -> Option<GroupId> {
        match self.world.rack.class_view(CLASS).phase {
            ClassPhase::Awake { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Carries out an order, or a part of it: one operation, or as many as a refill has pieces.
    fn carry_out(&mut self, order: Order) -> Result<(), RepartitionError> {
        let mut moved = 0;
        loop {
            let (work, bytes) = self.work(order, moved);
            let op = self.world.ask(Lane::Background, work);
            let fared = self.wait_for(op)?;
            if matches!(fared, Fared::Done) {
                self.at = order.group();
                moved += bytes;
                if let Order::Refill { on, target, bytes: whole } = order {
                    self.doom_run((on, target), bytes);
                    if moved < whole {
                        continue;
                    }
                }
            }
            match fared {
                _ if moved > 0 => self.done(order, moved),
                Fared::Tomorrow => self.job.withdrawn(CLASS, None),
                Fared::Done | Fared::Withdrawn => {
                    let awake = self.awake();
                    self.job.withdrawn(CLASS, awake);
                }
            }
            if matches!(fared, Fared::Tomorrow) {
                self.pass_until(Time::start_of_day(self.world.now().day() + 1));
            }
            return Ok(());
        }
    }

    /// The next operation of an order, of which so much is moved, and how many bytes it moves.
    fn work(&self, order: Order, moved: u64) -> (Work, u64) {
        let most = self.what.operation_bytes.unwrap_or(u64::MAX);
        match order {
            Order::Read { group, bytes } => {
                // What the planner takes alpha for may be more than it is, by what rounding makes.
                let fits = self.deal.input_for(self.job.room_bytes(CLASS));
                self.read(group, bytes.min(fits).min(most))
            }
            // The pieces of a run lie between those of others: each is read by itself.
            Order::Refill { on, target, bytes } => {
                let run = self.runs.get(&(on, target));
                let piece = run.and_then(|run| run.front()).map_or(u64::MAX, |(_, left)| *left);
                self.read(on, (bytes - moved).min(piece).min(most))
            }
            Order::BringHome { group, bytes } => self.write(group, bytes.min(most)),
            Order::Offload { on, bytes, .. } => self.write(on, bytes.min(most)),
            Order::Wait | Order::Done => unreachable!("there is nothing to do"),
        }
    }

    fn read(&self, group: GroupId, bytes: u64) -> (Work, u64) {
        let at = self.number(group);
        // Of what is read its group and its drives matter, and not its name.
        (Work::Read { blob: BlobId::NONE, group, drives: self.drives[at].clone(), bytes }, bytes)
    }

    fn write(&self, group: GroupId, bytes: u64) -> (Work, u64) {
        let stack_bytes = bytes.div_ceil(u64::from(self.what.rack.code.data));
        (Work::Write { bytes, stack_bytes, pin: PinnedTo::Group(group), migration: false }, bytes)
    }

    fn number(&self, group: GroupId) -> usize {
        self.groups.iter().position(|known| *known == group).unwrap_or(0)
    }

    /// So many bytes of an order are moved: the job is told what came of it.
    fn done(&mut self, order: Order, bytes: u64) {
        match order {
            Order::Read { .. } => {
                let output: Vec<(GroupId, u64)> =
                    self.groups.iter().copied().zip(self.deal.deal(bytes).iter().copied()).collect();
                self.job.was_read(CLASS, bytes, &output);
            }
            Order::BringHome { .. } => self.job.was_brought_home(CLASS, bytes),
            Order::Offload { on, target, .. } => {
                self.job.was_offloaded(CLASS, bytes);
                let blob = BlobId::numbered(self.world.next_blob().number - 1);
                self.runs.entry((on, target)).or_default().push_back((blob, bytes));
                let lies = self.job.books(CLASS).offloaded_on(self.number(on));
                self.peak_offloaded_bytes = self.peak_offloaded_bytes.max(lies);
            }
            Order::Refill { .. } => self.job.was_refilled(CLASS, bytes),
            Order::Wait | Order::Done => {}
        }
        let writes = matches!(order, Order::BringHome { .. } | Order::Offload { .. });
        self.moved[usize::from(writes)] += bytes;
    }

    /// So much of a run was read back: blobs of which nothing is left are doomed, and removed while their group is
    /// awake.
    fn doom_run(&mut self, run: (GroupId, GroupId), mut bytes: u64) {
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
    }

    /// Lets time pass until the operation has ended, or is withdrawn.
    fn wait_for(&mut self, op: OpId) -> Result<Fared, RepartitionError> {
        let mut seen = None;
        loop {
            self.take_ended(op);
            if let Some(ended) = self.ended.take() {
                return self.fared(&ended.outcome);
            }
            let awake = self.awake();
            let news = awake != seen;
            seen = awake;
            if news && self.job.awake(CLASS, awake) {
                // In vain if it is in service, or its group is waking already.
                self.world.cancel(op);
            } else {
                self.pass_some();
            }
        }
    }

    fn fared(&self, outcome: &Outcome) -> Result<Fared, RepartitionError> {
        match outcome {
            Outcome::Read | Outcome::Written { .. } => Ok(Fared::Done),
            Outcome::Cancelled => Ok(Fared::Withdrawn),
            Outcome::Failed(Rejection::StartBudgetSpent) => Ok(Fared::Tomorrow),
            Outcome::Failed(reason) => Err(RepartitionError::Refused(*reason, self.world.now().since(Time::ZERO))),
            Outcome::Deleted | Outcome::Rebuilt => unreachable!("the job neither deletes nor rebuilds"),
        }
    }

    fn take_ended(&mut self, op: OpId) {
        for ended in self.world.take_ended() {
            match ended.lane {
                Lane::Client => self.clients.ended(&ended),
                _ if ended.op == op => self.ended = Some(ended),
                _ => {}
            }
        }
    }

    /// Lets the next thing happen, which may be a client.
    fn pass_some(&mut self) {
        if self.world.step_until(self.next_read) {
            return;
        }
        assert!(self.next_read != Time::MAX, "every operation is answered");
        self.world.run_until(self.next_read);
        self.client_reads();
    }

    fn pass_until(&mut self, until: Time) {
        while self.next_read <= until {
            self.world.run_until(self.next_read);
            self.client_reads();
        }
        self.world.run_until(until);
    }

    fn client_reads(&mut self) {
        let Some(reads) = self.what.reads else { return };
        let at = self.keys.below(self.groups.len() as u64) as usize;
        self.world.read_at(BlobId::NONE, self.groups[at], self.drives[at].clone(), reads.bytes);
        self.plan_next_read(self.next_read);
    }

    fn plan_next_read(&mut self, after: Time) {
        let Some(reads) = self.what.reads else { return };
        let mean_ns = u64::try_from(reads.mean_gap.as_nanos()).unwrap_or(u64::MAX);
        self.next_read = after + Duration::from_nanos(exponential(mean_ns, &mut self.arrivals).max(1));
    }

    /// Everything is home that came out of the input, and nothing else.
    fn assert_home(&self) {
        let books = self.job.books(CLASS);
        assert!(books.done(), "a job ended before everything was home");
        let home: u64 = (0..self.groups.len()).map(|group| books.home(group)).sum();
        assert_eq!(home, self.what.alpha.output_of(self.what.data_bytes), "what came out is home");
        let [read, written] = self.moved;
        assert_eq!(read - self.what.data_bytes, written - home, "what was offloaded was read back");
    }

    fn taken(mut self) -> Taken {
        let stats = self.world.rack.stats();
        let wakes = |lane: Lane| stats.group_wakes[Lane::ALL.iter().position(|known| *known == lane).unwrap_or(0)];
        Taken {
            strategy: self.job.choice(CLASS),
            changes: self.job.changes(),
            time: self.world.now().since(Time::ZERO),
            switching: stats.switching,
            switches: wakes(Lane::Background),
            client_wakes: wakes(Lane::Client),
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
