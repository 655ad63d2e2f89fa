//! One load in one system: the clients, the devices, and between them the decisions of `engine::staging`.

use super::flash::{Flash, Piece};
use super::platter::Platter;
use super::{FlashCounts, FlashSpec, Load, PAGE_BYTES, PlatterSpec, Request, SECTOR_BYTES};
use crate::Histogram;
use crate::agenda::Agenda;
use crate::world::{StagedQuery, StagedVersion, Staging};
use engine::staging::Migrator;
use engine::staging::pacing::{Admission, Pacer, PacingPolicy};
use engine::thermometer::Thermometer;
use engine::{Action, MigrationPolicy, MoveOrder, PinnedTo};
use model::{OpId, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// The effect of moves on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Clients wait until the move has ended, as in the paper (section IV-C).
    Blocking {
        /// The block size of moves, in bytes (section IV-E).
        block_bytes: u64,
    },
    /// Clients wait for one block at most, and writes are slowed before they are stopped.
    Paced {
        /// The block size of moves, in bytes.
        block_bytes: u64,
    },
}

/// SOHO's data management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Above this share (in thousandths) data moves even if clients wait.
    pub critical_permille: u32,
    /// Above this share it moves while no client waits. At most the critical threshold.
    pub regular_permille: u32,
    /// The share at which a move from above the critical threshold ends.
    pub drained_permille: u32,
    /// The effect of moves on clients.
    pub moves: Moves,
}

/// A system of section IV-B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A disk alone.
    Disk,
    /// Flash alone.
    Flash,
    /// A flash workshop in front of a warehouse on a disk.
    Soho(Staged),
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct SohoRun {
    /// The system.
    pub system: System,
    /// Its flash.
    pub flash: FlashSpec,
    /// Its disk.
    pub disk: PlatterSpec,
    /// The cost of a request before it reaches a device.
    pub overhead: Duration,
    /// The number of concurrent requests of clients.
    pub depth: u32,
    /// True if the workshop records data that was read through, which moves first.
    pub records_reads: bool,
    /// Written bytes are counted per span of this length.
    pub bucket: Duration,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct SohoOutcome {
    /// The time until the last answer.
    pub took: Duration,
    /// The response times of reads, from the time of sending.
    pub reads: Histogram,
    /// The response times of writes.
    pub writes: Histogram,
    /// The number of moves; a move lasts from the first listing to the last block.
    pub moves: u64,
    /// Moved bytes.
    pub moved_bytes: u64,
    /// The total time of moves.
    pub moving: Duration,
    /// Reads whose data was in the warehouse.
    pub warehouse_reads: u64,
    /// The internal work of flash, in addition to requests.
    pub flash: FlashCounts,
    /// Bytes written in each span of the run.
    pub written_bytes: Vec<u64>,
}

impl SohoOutcome {
    /// The mean response time of all requests, in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        all.mean_s().unwrap_or(f64::NAN) * 1e3
    }
}

#[derive(Debug)]
enum Event {
    /// The earliest time of a request has come.
    Sent(Request),
    /// A request reaches its device; with the time of sending.
    Arrived(Request, Time),
    /// A request has waited for its admission.
    Admitted(Request, Time),
    /// A request is answered.
    Answered(Request, Time),
    /// A block is copied; with the time of its beginning, and its bytes.
    Copied(Time, u64),
    /// A move may be due.
    Due,
}

/// A pack in progress.
#[derive(Debug)]
struct Pack {
    op: OpId,
    versions: Vec<u64>,
    /// The pages that are not copied yet.
    pieces: VecDeque<Piece>,
    left_bytes: u64,
    /// The place on the disk for the remaining pages.
    sector: u64,
}

struct Store<'a> {
    run: &'a SohoRun,
    load: &'a Load,
    now: Time,
    agenda: Agenda<Event>,
    /// The next request of the clients.
    next: usize,
    answered: usize,
    flash: Flash,
    disk: Platter,
    /// The first sector of each datum on the disk.
    sectors: Vec<Option<u64>>,
    next_sector: u64,
    workshop: Option<Workshop>,
    outcome: SohoOutcome,
}

/// The workshop: the staged data, with its migrator and pacer.
struct Workshop {
    moves: Moves,
    staging: Staging,
    migrator: Migrator,
    pacer: Pacer,
    packs: VecDeque<(OpId, Vec<u64>)>,
    pack: Option<Pack>,
    is_copying: bool,
    /// The time of the next planned look.
    due: Time,
    /// Requests that wait for the end of a move, or for space.
    waiting: Vec<(Request, Time)>,
    moving_since: Option<Time>,
}

/// The time without requests after which a workshop is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The share of time for blocks beside clients at the critical threshold, in thousandths.
const BUSY_PERMILLE: u32 = 100;
/// The size of packs, which a scan of the workshop fills with data in key order.
const PACK_BYTES: u64 = 64 << 20;
/// The interval between checks of the thresholds.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

impl Workshop {
    fn new(staged: Staged, capacity_bytes: u64) -> Self {
        let Staged { critical_permille, regular_permille, drained_permille, moves } = staged;
        let (Moves::Blocking { block_bytes } | Moves::Paced { block_bytes }) = moves;
        let policy = MigrationPolicy {
            due_age: None,
            min_age: Duration::ZERO,
            min_bytes: 0,
            regular_permille,
            critical_permille,
            drained_permille: Some(drained_permille),
            order: MoveOrder::Processed,
            pack_bytes: PACK_BYTES,
            pack_members: u32::MAX,
            linger: Duration::ZERO,
            window: 2,
            scan_interval: SCAN_INTERVAL,
            thermometer: Thermometer::none(),
            due_with_checks: false,
        };
        let (idle_after, busy_permille) = (IDLE_AFTER, BUSY_PERMILLE);
        let pacing = PacingPolicy { block_bytes, idle_after, busy_permille, critical_permille, awaits_idle: true };
        Self {
            moves,
            staging: Staging::new(capacity_bytes),
            migrator: Migrator::new(policy),
            pacer: Pacer::new(pacing),
            packs: VecDeque::new(),
            pack: None,
            is_copying: false,
            due: Time::MAX,
            waiting: Vec::new(),
            moving_since: None,
        }
    }

    /// The wait of a request; `None` until something has moved.
    fn admits(&self, is_read: bool, bytes: u64) -> Option<Duration> {
        match self.moves {
            Moves::Blocking { .. } => (!self.migrator.is_moving()).then_some(Duration::ZERO),
            Moves::Paced { .. } if is_read => Some(Duration::ZERO),
            Moves::Paced { .. } => match self.pacer.admission(self.staging.usage(), bytes) {
                Admission::After(delay) => Some(delay),
                Admission::Stopped => None,
            },
        }
    }

    /// Lets the migrator decide after data was staged, read or moved; lists and composes for it.
    fn look(&mut self, now: Time) {
        self.migrator.usage = self.staging.usage();
        let mut actions = Vec::new();
        let is_idle = self.pacer.is_idle(now);
        self.migrator.poll(now, || !is_idle, &mut actions);
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::ListStaged {
                        attempt,
                        older_than,
                        order,
                        coldest_bytes,
                        hot_bytes,
                        min_bytes,
                        limit,
                        restart,
                    } => {
                        let query =
                            StagedQuery { older_than, order, coldest_bytes, hot_bytes, min_bytes, limit, restart };
                        let (entries, more) = self.staging.page(now, &Thermometer::none(), query);
                        self.migrator.page(now, attempt, (&entries, more), &mut actions);
                    }
                    Action::Compose { op, versions, .. } => {
                        self.staging.compose(op, versions.clone());
                        self.packs.push_back((op, versions));
                    }
                    other => unreachable!("a migrator lists and composes: {other:?}"),
                }
            }
        }
    }

    /// The time when the next block may be copied.
    fn next_block(&self, now: Time) -> Time {
        match self.moves {
            Moves::Blocking { .. } => now,
            Moves::Paced { .. } => self.pacer.next_block(now, self.staging.usage()),
        }
    }
}

/// Puts `load` into the system of `run`; the run ends with the last answer.
pub fn run(run: &SohoRun, load: &Load) -> SohoOutcome {
    let mut store = Store::new(run, load);
    for _ in 0..run.depth {
        store.send();
    }
    while store.answered < load.requests.len() {
        store.step();
    }
    store.ended()
}

/// The time in which all data of `load` moves from the workshop to the warehouse, without any requests.
pub fn move_all(run: &SohoRun, load: &Load) -> Duration {
    let mut store = Store::new(run, load);
    let Some(workshop) = &mut store.workshop else { panic!("data moves out of a workshop") };
    for (datum, pages) in (0..).zip(&load.pages) {
        store.now = store.now.max(store.flash.write(Time::ZERO, datum, *pages));
        workshop.staging.stage(u64::from(datum), version(Time::ZERO, *pages));
    }
    let begin = store.now;
    store.look();
    while store.outcome.moved_bytes < load.written_bytes() {
        store.step();
    }
    store.now.since(begin)
}

fn version(since: Time, pages: u32) -> StagedVersion {
    StagedVersion { bytes: u64::from(pages) * PAGE_BYTES, since, pin: PinnedTo::Anywhere, is_processed: false }
}

impl<'a> Store<'a> {
    fn new(run: &'a SohoRun, load: &'a Load) -> Self {
        assert!(run.depth > 0, "somebody sends something");
        let workshop = match run.system {
            System::Soho(staged) => Some(Workshop::new(staged, run.flash.capacity_bytes())),
            System::Disk | System::Flash => None,
        };
        Self {
            run,
            load,
            now: Time::ZERO,
            agenda: Agenda::default(),
            next: 0,
            answered: 0,
            flash: Flash::new(run.flash),
            disk: Platter::new(run.disk),
            sectors: vec![None; load.pages.len()],
            next_sector: 0,
            workshop,
            outcome: SohoOutcome::default(),
        }
    }

    fn step(&mut self) {
        let Some((now, event)) = self.agenda.pop() else { panic!("a request that waits, waits for something") };
        self.now = now;
        match event {
            Event::Sent(request) => self.sent(request),
            Event::Arrived(request, sent) => self.arrived(request, sent),
            Event::Admitted(request, sent) => self.serve(request, sent),
            Event::Answered(request, sent) => self.is_answered(request, sent),
            Event::Copied(began, bytes) => self.copied(began, bytes),
            Event::Due => {
                if let Some(workshop) = &mut self.workshop {
                    workshop.due = Time::MAX;
                }
                self.look();
            }
        }
    }

    /// Sends the next request at its time.
    fn send(&mut self) {
        let Some(request) = self.load.requests.get(self.next).copied() else { return };
        self.next += 1;
        if request.at > self.now { self.agenda.plan(request.at, Event::Sent(request)) } else { self.sent(request) }
    }

    fn sent(&mut self, request: Request) {
        if let Some(workshop) = &mut self.workshop {
            workshop.pacer.client_came(self.now);
        }
        self.agenda.plan(self.now + self.run.overhead, Event::Arrived(request, self.now));
    }

    fn arrived(&mut self, request: Request, sent: Time) {
        let bytes = self.bytes(request.datum);
        let Some(workshop) = &mut self.workshop else { return self.serve(request, sent) };
        match workshop.admits(request.is_read, bytes) {
            Some(Duration::ZERO) => self.serve(request, sent),
            Some(delay) => self.agenda.plan(self.now + delay, Event::Admitted(request, sent)),
            None => workshop.waiting.push((request, sent)),
        }
    }

    fn bytes(&self, datum: u32) -> u64 {
        u64::from(self.load.pages[datum as usize]) * PAGE_BYTES
    }

    fn serve(&mut self, request: Request, sent: Time) {
        let (datum, bytes) = (request.datum, self.bytes(request.datum));
        let index = datum as usize;
        let end = match (self.run.system, request.is_read) {
            (System::Disk, false) => {
                let sector = self.allocate(bytes);
                self.sectors[index] = Some(sector);
                self.disk.serve(self.now, sector, bytes)
            }
            (System::Flash | System::Soho(_), false) => self.flash.write(self.now, datum, self.load.pages[index]),
            (_, true) => match self.sectors[index] {
                Some(sector) => {
                    self.outcome.warehouse_reads += u64::from(self.workshop.is_some());
                    self.disk.serve(self.now, sector, bytes)
                }
                None => self.flash.read(self.now, datum),
            },
        };
        self.agenda.plan(end, Event::Answered(request, sent));
    }

    /// Allocates a place on the disk for this number of bytes.
    fn allocate(&mut self, bytes: u64) -> u64 {
        let sectors = bytes / SECTOR_BYTES;
        if self.load.is_scattered {
            // Each datum has its own place, in an irregular order: the golden ratio leaves no two close to each other.
            let places = self.run.disk.capacity_bytes() / SECTOR_BYTES - 2 * (1 << 20);
            let turns = self.next_sector.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.next_sector += 1;
            return ((u128::from(turns) * u128::from(places)) >> 64) as u64;
        }
        let sector = self.next_sector;
        self.next_sector += sectors;
        sector
    }

    fn is_answered(&mut self, request: Request, sent: Time) {
        let took = self.now.since(sent);
        self.answered += 1;
        if request.is_read {
            self.outcome.reads.add(took);
        } else {
            self.outcome.writes.add(took);
            let span = (self.now.as_nanos() / self.run.bucket.as_nanos() as u64) as usize;
            let spans = self.outcome.written_bytes.len().max(span + 1);
            self.outcome.written_bytes.resize(spans, 0);
            self.outcome.written_bytes[span] += self.bytes(request.datum);
        }
        if let Some(workshop) = &mut self.workshop {
            workshop.pacer.client_left(self.now);
            let number = u64::from(request.datum);
            if !request.is_read {
                workshop.staging.stage(number, version(self.now, self.load.pages[request.datum as usize]));
            } else if self.run.records_reads {
                workshop.staging.processed(number);
            }
            self.look();
        }
        self.send();
    }

    /// Lets the migrator decide, continues moves, and admits requests that need not wait any longer.
    fn look(&mut self) {
        let Some(workshop) = &mut self.workshop else { return };
        workshop.look(self.now);
        match (workshop.migrator.is_moving(), workshop.moving_since) {
            (true, None) => {
                workshop.moving_since = Some(self.now);
                self.outcome.moves += 1;
            }
            (false, Some(since)) => {
                workshop.moving_since = None;
                self.outcome.moving += self.now.since(since);
            }
            _ => {}
        }
        self.copy();
        self.admit_waiting();
        self.plan_look();
    }

    fn admit_waiting(&mut self) {
        let Some(workshop) = &mut self.workshop else { return };
        for (request, sent) in std::mem::take(&mut workshop.waiting) {
            self.arrived(request, sent);
        }
    }

    fn plan_look(&mut self) {
        let Some(workshop) = &mut self.workshop else { return };
        let block =
            if workshop.pack.is_some() && !workshop.is_copying { workshop.next_block(self.now) } else { Time::MAX };
        let at = block.min(workshop.migrator.deadline()).max(self.now + Duration::from_nanos(1));
        if at < workshop.due && at < Time::MAX {
            workshop.due = at;
            self.agenda.plan(at, Event::Due);
        }
    }

    /// Copies the next block, if any, if it may be copied now.
    fn copy(&mut self) {
        let Some(workshop) = &mut self.workshop else { return };
        if workshop.is_copying {
            return;
        }
        if workshop.pack.is_none()
            && let Some((op, versions)) = workshop.packs.pop_front()
        {
            let pieces = |number: &u64| self.flash.pieces(*number as u32).to_vec();
            let pieces: VecDeque<Piece> = versions.iter().flat_map(pieces).collect();
            let left_bytes = pieces.iter().map(|piece| u64::from(piece.pages) * PAGE_BYTES).sum();
            workshop.pack = Some(Pack { op, versions, pieces, left_bytes, sector: self.next_sector });
            self.next_sector += left_bytes / SECTOR_BYTES;
        }
        let at = workshop.next_block(self.now);
        let Some(pack) = workshop.pack.as_mut().filter(|_| at <= self.now) else { return };
        let bytes = pack.left_bytes.min(workshop.pacer.block_bytes());
        let sector = pack.sector;
        pack.left_bytes -= bytes;
        pack.sector += bytes / SECTOR_BYTES;
        let block = first_pages(&mut pack.pieces, (bytes / PAGE_BYTES) as u32);
        workshop.is_copying = true;
        let read = self.flash.read_pieces(self.now + self.run.overhead, &block);
        let end = self.disk.serve(read, sector, bytes);
        self.agenda.plan(end, Event::Copied(self.now, bytes));
    }

    fn copied(&mut self, began: Time, bytes: u64) {
        let Some(workshop) = &mut self.workshop else { unreachable!("blocks are a workshop's") };
        workshop.is_copying = false;
        workshop.pacer.copied(self.now, began, bytes);
        self.outcome.moved_bytes += bytes;
        if let Some(pack) = workshop.pack.take_if(|pack| pack.left_bytes == 0) {
            // From the last version, at whose end the pack ends.
            let mut sector = pack.sector;
            for number in pack.versions.iter().rev() {
                let index = *number as usize;
                sector -= u64::from(self.load.pages[index]) * PAGE_BYTES / SECTOR_BYTES;
                self.sectors[index] = Some(sector);
                self.flash.trim(*number as u32);
            }
            assert!(workshop.staging.migrated(pack.op), "what was composed is there");
            workshop.migrator.ended(self.now, pack.op, true);
        }
        self.look();
    }

    fn ended(mut self) -> SohoOutcome {
        if let Some(since) = self.workshop.as_ref().and_then(|workshop| workshop.moving_since) {
            self.outcome.moving += self.now.since(since);
        }
        self.outcome.took = self.now.since(Time::ZERO);
        self.outcome.flash = self.flash.counts;
        self.outcome
    }
}

/// Takes the first pages, this number of them.
fn first_pages(pieces: &mut VecDeque<Piece>, mut pages: u32) -> Vec<Piece> {
    let mut taken = Vec::new();
    while pages > 0 {
        let Some(first) = pieces.front_mut() else { unreachable!("a pack has as many pages as bytes") };
        let count = first.pages.min(pages);
        taken.push(Piece { pages: count, ..*first });
        (first.page, first.pages) = (first.page + count, first.pages - count);
        pages -= count;
        if first.pages == 0 {
            pieces.pop_front();
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soho::Application;

    /// The devices of Table I, with a 64th of the flash.
    fn small(system: System) -> SohoRun {
        let us = Duration::from_micros;
        SohoRun {
            system,
            flash: FlashSpec {
                packages: 1,
                units: 4,
                unit_blocks: 512,
                block_pages: 64,
                page_read: us(20),
                page_write: us(200),
                block_erase: us(2_000),
                byte_ps: 25_000,
            },
            disk: PlatterSpec {
                sectors: 286_749_479,
                cylinders: 48_624,
                surfaces: 8,
                rotation: us(5_990),
                head_switch: us(165),
                shortest_seek: us(400),
                average_seek: us(4_700),
                is_buffered: false,
            },
            overhead: us(100),
            depth: 1,
            records_reads: true,
            bucket: Duration::from_secs(10),
        }
    }

    const BLOCK: u64 = 400 << 10;

    fn soho(critical_permille: u32, moves: Moves) -> System {
        let (regular_permille, drained_permille) = match moves {
            Moves::Blocking { .. } => (critical_permille, 0),
            Moves::Paced { .. } => (critical_permille.min(300), critical_permille.min(300)),
        };
        System::Soho(Staged { critical_permille, regular_permille, drained_permille, moves })
    }

    fn gia() -> Load {
        Application::Gia.load(1, 64, (1, 1))
    }

    #[test]
    fn every_request_is_answered_and_what_moved_is_read_from_the_warehouse() {
        let load = gia();
        let reads = load.requests.iter().filter(|request| request.is_read).count() as u64;
        for moves in [Moves::Blocking { block_bytes: BLOCK }, Moves::Paced { block_bytes: BLOCK }] {
            let made = run(&small(soho(200, moves)), &load);
            assert_eq!((made.reads.count(), made.writes.count()), (reads, load.pages.len() as u64));
            assert_eq!(made.written_bytes.iter().sum::<u64>(), load.written_bytes());
            assert!(made.moves > 0 && made.moved_bytes > 0 && made.moved_bytes <= load.written_bytes(), "{made:?}");
        }
    }

    #[test]
    fn a_blocked_request_waits_for_a_move_and_a_paced_one_for_a_block() {
        let load = gia();
        let longest = |moves| {
            let made = run(&small(soho(200, moves)), &load);
            made.writes.max_s().unwrap_or(0.0).max(made.reads.max_s().unwrap_or(0.0))
        };
        let blocked = longest(Moves::Blocking { block_bytes: BLOCK });
        let paced = longest(Moves::Paced { block_bytes: BLOCK });
        assert!(blocked > 2.0, "a fifth of half a gigabyte, at the disk's rate: {blocked} s");
        assert!(paced < 0.1, "{paced} s");
    }

    #[test]
    fn a_workshop_that_is_too_small_for_a_spike_slows_and_never_overflows() {
        let load = Application::Gia.load(1, 16, (1, 1));
        let made = run(&small(soho(800, Moves::Paced { block_bytes: BLOCK })), &load);
        assert_eq!(made.writes.count(), load.pages.len() as u64);
        assert!(made.writes.max_s().unwrap_or(0.0) <= 1.1, "{:?}", made.writes.max_s());
    }

    /// The last written data is read first: by age alone, the unread data moves.
    #[test]
    fn processed_data_moves_before_what_is_still_to_be_read() {
        let mut load = Load::written(1, 400 << 20);
        let written = load.pages.len() as u32;
        let later = |datum, seconds| Request { at: Time::from_secs(seconds), datum, is_read: true };
        load.requests.extend((written / 2..written).map(|datum| later(datum, 0)));
        load.requests.extend((0..written / 2).map(|datum| later(datum, 200)));
        let far = |records_reads| {
            let paced = soho(1000, Moves::Paced { block_bytes: BLOCK });
            let System::Soho(staged) = paced else { unreachable!() };
            // Half of the written data may stay; the rest moves while no client waits, after the first reads.
            let staged = Staged { regular_permille: 400, drained_permille: 400, ..staged };
            run(&SohoRun { records_reads, ..small(System::Soho(staged)) }, &load).warehouse_reads
        };
        assert!(far(true) < far(false) / 2, "{} against {}", far(true), far(false));
    }

    #[test]
    fn without_a_move_soho_is_its_flash() {
        let load = gia();
        let flash = run(&small(System::Flash), &load);
        let made = run(&small(soho(1000, Moves::Blocking { block_bytes: BLOCK })), &load);
        assert_eq!((made.moves, made.took, made.mean_ms().to_bits()), (0, flash.took, flash.mean_ms().to_bits()));
    }

    #[test]
    fn larger_blocks_move_faster_and_all_of_the_data() {
        let load = Load::written(1, 64 << 20);
        let [small_blocks, large] = [4 << 10, BLOCK]
            .map(|block_bytes| move_all(&small(soho(1, Moves::Blocking { block_bytes })), &load).as_secs_f64());
        assert!(small_blocks > 5.0 * large, "{small_blocks} {large}");
    }

    #[test]
    fn the_same_parameters_give_the_same_outcome() {
        let again = || {
            let made = run(&small(soho(400, Moves::Paced { block_bytes: BLOCK })), &gia());
            (made.took, made.moves, made.moved_bytes, made.mean_ms().to_bits())
        };
        assert_eq!(again(), again());
    }
}
