//! The loop: one event after the other.

use super::device::{Access, Device};
use super::objects::Objects;
use super::placement::{Map, Osd};
use super::{ClusterOutcome, ClusterRun, Course, Interval, REPLICAS};
use crate::agenda::Agenda;
use crate::meter::Meter;
use core::time::Duration;
use engine::spin_down::SpinDownManager;
use model::{DriveId, Rng, Time, transfer_time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The drive number in an OSD's own manager, which has one drive.
pub(super) const COLD: DriveId = DriveId(0);

/// The work that a part belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A read of a thread, with its attempt number.
    Read { thread: u32, attempt: u32 },
    /// A write; the first replica passes it on to the others.
    Write { thread: u32, attempt: u32, first: bool },
    /// Reading an object that is copied to another OSD.
    Push { group: u32 },
    /// Writing the object there.
    Take { group: u32 },
    /// Scrubbing a copy of the object with this index in its group.
    Scrub { group: u32, index: u32 },
}

/// The next need of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Read the object's record.
    Record,
    /// Read or write the object.
    Object,
    /// Write the object to the cold drive.
    Migrate,
    /// Commit.
    Commit,
}

/// One OSD's part of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub work: Work,
    pub osd: Osd,
    /// The position of the replica, in the order of its group.
    pub position: usize,
    pub object: u32,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A thread sends its next request.
    Issue(u32),
    /// A thread sends its request again, unless a later attempt exists.
    Resend(u32, u32),
    /// A part arrives at its OSD.
    Arrive(Part),
    /// The processors are done with a part.
    Processed(Part),
    /// A drive has served an access.
    Served(usize),
    /// A drive is at speed.
    Started(usize),
    /// A replica of a write is stored on its drive.
    Ack(u32, u32),
    /// A thread receives its answer.
    Reply(u32, u32),
    Tick,
    Interval,
    Fail,
    Out,
    /// A recovering group copies its next object.
    Recover(u32),
    End,
}

/// A daemon.
pub(super) struct Daemon {
    pub host: usize,
    pub hot: usize,
    pub cold: Option<usize>,
    pub manager: Option<SpinDownManager>,
    pub is_alive: bool,
    /// Groups on this OSD that are still to be recovered.
    pub reserved: u32,
    pub busy: Busy,
}

/// An OSD's activities; it scrubs, sends and receives for one group each at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    pub scrubs: bool,
    pub sends: bool,
    pub takes: bool,
}

/// A placement group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub osds: [Osd; REPLICAS],
    pub objects: Vec<u32>,
    /// The position of the missing replica.
    pub lost: Option<usize>,
    /// The OSD that receives the lost replica's objects.
    pub target: Option<Osd>,
    pub answers_from: Time,
    /// The objects of its recovery or scrub: those done or in progress, those in progress, all.
    pub next: usize,
    pub under_way: usize,
    pub end: usize,
}

impl Group {
    /// The positions that are present, including that of an OSD that is being filled.
    pub fn holders(&self) -> impl Iterator<Item = (usize, Osd)> + '_ {
        let held = move |position| match (self.lost == Some(position), self.target) {
            (true, target) => target.map(|target| (position, target)),
            (false, _) => Some((position, self.osds[position])),
        };
        (0..REPLICAS).filter_map(held)
    }

    /// The position that answers reads: the first complete one.
    pub fn primary(&self) -> usize {
        usize::from(self.lost == Some(0))
    }
}

/// A request of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thread {
    pub attempt: u32,
    pub issued: Time,
    pub object: u32,
    pub is_write: bool,
    pub at_work: bool,
    /// Outstanding acknowledgements of replicas.
    pub waits_for: u32,
    /// Requests sent so far.
    pub sent: u64,
}

/// The processors of a host: the time at which each becomes free.
struct Cores(BinaryHeap<Reverse<Time>>);

impl Cores {
    fn serve(&mut self, now: Time, takes: Duration) -> Time {
        let Some(Reverse(free)) = self.0.pop() else { panic!("a host has a processor") };
        let end = free.max(now) + takes;
        self.0.push(Reverse(end));
        end
    }
}

pub(super) struct Cluster {
    pub run: ClusterRun,
    pub now: Time,
    pub agenda: Agenda<Event>,
    pub map: Map,
    pub daemons: Vec<Daemon>,
    pub groups: Vec<Group>,
    pub objects: Objects,
    devices: Vec<Device<Part>>,
    /// The OSD of each cold drive.
    cold_of: Vec<Option<Osd>>,
    was_woken: Vec<bool>,
    cores: Vec<Cores>,
    pub threads: Vec<Thread>,
    meter: Meter,
    interval_meter: Meter,
    pub interval: Interval,
    in_system: u64,
    load_ns: u128,
    load_since: Time,
    pub to_recover: Vec<u32>,
    pub to_scrub: Vec<u32>,
    pub out: ClusterOutcome,
}

/// Executes a run.
pub fn run(run: &ClusterRun) -> ClusterOutcome {
    let mut cluster = Cluster::new(run.clone());
    cluster.begin();
    while let Some((when, event)) = cluster.agenda.pop() {
        cluster.now = when;
        if matches!(event, Event::End) {
            break;
        }
        cluster.happens(event);
    }
    cluster.end()
}

impl Cluster {
    fn new(run: ClusterRun) -> Self {
        assert!(run.cold_osds * 2 <= run.drives && run.groups > 0, "an OSD has a drive, a cold one two");
        let (mut daemons, mut cold_of, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for host in 0..run.hosts as usize {
            let first = daemons.len();
            for number in 0..run.drives - run.cold_osds {
                let hot = cold_of.len();
                let cold = (number < run.cold_osds).then_some(hot + 1);
                let manager = cold.map(|_| SpinDownManager::new(run.node, 1, Time::ZERO));
                cold_of.push(None);
                cold_of.extend(cold.map(|_| Some(daemons.len())));
                daemons.push(Daemon { host, hot, cold, manager, is_alive: true, reserved: 0, busy: Busy::default() });
            }
            hosts.push((first..daemons.len()).collect());
        }
        let device =
            |(number, cold): (usize, &Option<Osd>)| Device::new(run.device, cold.is_some(), run.seed, number as u64);
        let devices: Vec<Device<Part>> = cold_of.iter().enumerate().map(device).collect();
        let mut meter = Meter::new(devices.len(), 0);
        for (number, device) in devices.iter().enumerate() {
            meter.set(Time::ZERO, DriveId(number as u32), device.draw_mw());
        }
        let cores = || Cores((0..run.cores.cores).map(|_| Reverse(Time::ZERO)).collect());
        Self {
            now: Time::ZERO,
            agenda: Agenda::default(),
            map: Map::new(hosts, run.seed),
            groups: vec![Group::default(); run.groups as usize],
            objects: Objects::new(run.objects, run.seed),
            was_woken: vec![false; devices.len()],
            cores: (0..run.hosts).map(|_| cores()).collect(),
            threads: vec![Thread::default(); run.clients.threads as usize],
            interval_meter: meter.clone(),
            meter,
            interval: Interval::default(),
            in_system: 0,
            load_ns: 0,
            load_since: Time::ZERO,
            to_recover: Vec::new(),
            to_scrub: Vec::new(),
            out: ClusterOutcome::default(),
            daemons,
            devices,
            cold_of,
            run,
        }
    }

    fn begin(&mut self) {
        for daemon in &mut self.daemons {
            daemon.manager.iter_mut().for_each(|manager| manager.found_asleep(COLD));
        }
        for number in 0..self.groups.len() {
            self.groups[number].osds = self.map.replicas(number);
        }
        for object in 0..self.objects.count() {
            let group = self.group_of(object);
            self.groups[group].objects.push(object);
        }
        self.migrate_before_the_run();
        for thread in 0..self.run.clients.threads {
            let at = self.due(thread, 0);
            self.agenda.plan(at, Event::Issue(thread));
        }
        self.agenda.plan(Time::ZERO + self.run.tick, Event::Tick);
        self.agenda.plan(Time::ZERO + self.run.interval, Event::Interval);
        match self.run.course {
            Course::Normal(span) => self.agenda.plan(Time::ZERO + span, Event::End),
            Course::Failure(failure) => {
                self.agenda.plan(Time::ZERO + failure.at, Event::Fail);
                self.agenda.plan(Time::ZERO + failure.at + self.run.node.down_out_interval, Event::Out);
                self.agenda.plan(Time::ZERO + failure.longest, Event::End);
            }
            Course::Scrub => self.begin_scrubs(),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Issue(thread) => self.issue(thread),
            Event::Resend(thread, attempt) if self.threads[thread as usize].attempt == attempt => self.send(thread),
            Event::Arrive(part) => self.arrived(part),
            Event::Processed(part) => self.processed(part),
            Event::Served(device) => self.served(device),
            Event::Started(device) => self.started(device),
            Event::Ack(thread, attempt) => self.acknowledged(thread, attempt),
            Event::Reply(thread, attempt) => self.replied(thread, attempt),
            Event::Tick => self.tick(),
            Event::Interval => self.interval_ends(),
            Event::Fail => self.fail(),
            Event::Out => self.out(),
            Event::Recover(group) => self.recover_next(group),
            Event::Resend(..) | Event::End => {}
        }
    }

    fn end(mut self) -> ClusterOutcome {
        self.in_system_changes(0);
        self.out.span = self.now.since(Time::ZERO);
        self.out.draw_mw = self.meter.mean_mw(self.now);
        self.out.load = self.load_ns as f64 / self.now.as_nanos().max(1) as f64 / f64::from(self.run.hosts);
        self.out.woken = self.was_woken.iter().filter(|woken| **woken).count() as u64;
        self.out
    }

    /// The placement group of an object.
    pub fn group_of(&self, object: u32) -> usize {
        Rng::new(u64::from(object)).below(self.groups.len() as u64) as usize
    }

    /// The time that this number of bytes takes between two machines.
    pub fn way(&self, bytes: u64) -> Duration {
        self.run.message + transfer_time(bytes, self.run.network_bytes_s)
    }

    fn in_system_changes(&mut self, by: i64) {
        self.load_ns += u128::from(self.in_system) * u128::from(self.now.nanos_since(self.load_since));
        self.load_since = self.now;
        let Some(in_system) = self.in_system.checked_add_signed(by) else { panic!("more has left than came") };
        self.in_system = in_system;
    }

    fn arrived(&mut self, part: Part) {
        let cores = &self.run.cores;
        let takes = match part.work {
            Work::Read { .. } | Work::Write { .. } => cores.request,
            Work::Push { .. } | Work::Take { .. } | Work::Scrub { .. } => cores.background,
        };
        let host = self.daemons[part.osd].host;
        let end = self.cores[host].serve(self.now, takes);
        self.in_system_changes(1);
        self.agenda.plan(end, Event::Processed(part));
    }

    fn processed(&mut self, part: Part) {
        self.in_system_changes(-1);
        if !self.daemons[part.osd].is_alive {
            return; // the client sends it again
        }
        match part.work {
            Work::Read { .. } => self.begin_read(part),
            Work::Write { .. } => self.begin_write(part),
            Work::Push { .. } => self.ask(Part { stage: Stage::Record, ..part }),
            Work::Take { .. } | Work::Scrub { .. } => self.ask(Part { stage: Stage::Object, ..part }),
        }
    }

    /// Asks the drive that the part's stage concerns.
    pub fn ask(&mut self, part: Part) {
        let daemon = &self.daemons[part.osd];
        let is_on_cold = match part.stage {
            Stage::Record | Stage::Commit => false,
            Stage::Migrate => true,
            // Written data is new, and is stored hot.
            Stage::Object => {
                !matches!(part.work, Work::Write { .. } | Work::Take { .. })
                    && self.objects.is_cold(part.object, part.position)
            }
        };
        let number = if is_on_cold { daemon.cold.expect("a cold copy has a cold drive") } else { daemon.hot };
        if is_on_cold {
            self.out.cold_accesses += 1;
            self.wake(number);
        }
        let bytes = self.objects.bytes(part.object);
        let device = &mut self.devices[number];
        let before = device.load();
        let takes = match part.stage {
            Stage::Record => device.ask(Access::Record(part)),
            Stage::Object | Stage::Migrate => device.ask(Access::Object(part, bytes)),
            Stage::Commit => device.ask_commit(part),
        };
        let grown = device.load() - before;
        if let Some(takes) = takes {
            self.agenda.plan(self.now + takes, Event::Served(number));
        }
        self.in_system_changes(grown.cast_signed());
    }

    fn wake(&mut self, number: usize) {
        let Some(osd) = self.cold_of[number] else { panic!("only cold drives sleep") };
        if !self.devices[number].is_asleep() {
            return;
        }
        let ready = self.now + self.devices[number].start();
        if let Some(manager) = &mut self.daemons[osd].manager {
            manager.started(COLD, self.now, ready);
        }
        self.out.starts += 1;
        self.was_woken[number] = true;
        self.agenda.plan(ready, Event::Started(number));
        self.draws(number);
    }

    fn started(&mut self, number: usize) {
        self.devices[number].started();
        self.draws(number);
        if let Some(takes) = self.devices[number].next() {
            self.agenda.plan(self.now + takes, Event::Served(number));
        }
    }

    /// The power draw of a drive has changed.
    fn draws(&mut self, number: usize) {
        let (drive, draw_mw) = (DriveId(number as u32), self.devices[number].draw_mw());
        self.meter.set(self.now, drive, draw_mw);
        self.interval_meter.set(self.now, drive, draw_mw);
    }

    fn served(&mut self, number: usize) {
        let (one, batch) = self.devices[number].served();
        if let Some(takes) = self.devices[number].next() {
            self.agenda.plan(self.now + takes, Event::Served(number));
        }
        self.in_system_changes(-1);
        if let Some(osd) = self.cold_of[number]
            && let Some(manager) = &mut self.daemons[osd].manager
        {
            manager.used(COLD, self.now);
        }
        for part in one.into_iter().chain(batch) {
            self.stage_ended(part);
        }
    }

    fn stage_ended(&mut self, part: Part) {
        if !self.daemons[part.osd].is_alive {
            return;
        }
        match (part.work, part.stage) {
            (Work::Read { .. } | Work::Push { .. }, Stage::Record) => self.ask(Part { stage: Stage::Object, ..part }),
            (Work::Read { thread, attempt }, _) => {
                let way = self.way(self.objects.bytes(part.object));
                self.agenda.plan(self.now + way, Event::Reply(thread, attempt));
            }
            (Work::Write { .. } | Work::Take { .. }, Stage::Object) => self.ask(Part { stage: Stage::Commit, ..part }),
            (Work::Write { thread, attempt, first }, _) => {
                let way = if first { Duration::ZERO } else { self.run.message };
                self.agenda.plan(self.now + way, Event::Ack(thread, attempt));
            }
            (Work::Push { group }, _) => self.pushed(group, part),
            (Work::Take { group }, _) => self.taken(group),
            (Work::Scrub { group, index }, _) => self.scrub_stage_ended(group, index, part),
        }
    }

    /// True if `bytes` more fit onto the cold drive of `osd`; then they are reserved.
    pub fn takes_cold(&mut self, osd: Osd, bytes: u64) -> bool {
        let Some(cold) = self.daemons[osd].cold else { return false };
        let device = &mut self.devices[cold];
        let fits = device.used_bytes + bytes <= self.run.device.capacity_bytes;
        device.used_bytes += if fits { bytes } else { 0 };
        fits
    }

    fn tick(&mut self) {
        let mut all_asleep = true;
        for osd in 0..self.daemons.len() {
            let daemon = &mut self.daemons[osd];
            let (Some(cold), Some(manager)) = (daemon.cold, &mut daemon.manager) else { continue };
            if daemon.is_alive && self.devices[cold].is_idle() && manager.stops(COLD, self.now) {
                self.devices[cold].stop();
                self.draws(cold);
            }
            all_asleep &= self.devices[cold].is_asleep();
        }
        if all_asleep && self.out.recovered.is_some() && self.out.asleep.is_none() {
            self.out.asleep = Some(self.now);
            self.agenda.plan(self.now + self.run.interval * 6, Event::End);
        }
        self.agenda.plan(self.now + self.run.tick, Event::Tick);
    }

    fn interval_ends(&mut self) {
        self.interval.draw_mw = self.interval_meter.mean_mw(self.now);
        self.interval_meter.restart(self.now);
        self.out.intervals.push(std::mem::take(&mut self.interval));
        self.agenda.plan(self.now + self.run.interval, Event::Interval);
    }
}
