//! Healing: the last lives of a run, without faults. The operator does all that is necessary, all acknowledged data is
//! read, all work finishes, and records and media agree.

use crate::answers::{Answer, Clients};
use crate::journal::Rule;
use crate::kinds::FaultKind;
use crate::limits::{budgets_hold, close, no_fuse_tripped};
use crate::operator;
use crate::overlay::FileFaults;
use crate::plan::{Plan, Stream};
use crate::power::SETTLED;
use crate::reference::{At, Reference};
use crate::scrubs::living_blobs;
use crate::site::{BUCKET, Running, Site};
use crate::{absent, records, scrubs, storm, tags};
use catalog::{Catalog, PutCondition, RebuildTarget};
use disk::Drive;
use disk::stack::{self, Flaw, StackError, stack_name, stack_of};
use engine::scrub::ScrubView;
use engine::uploads::StaleWatch;
use engine::{Event, GroupState, Rack};
use model::{BlobId, ClassId, DriveId, GroupId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// Time limit for everything to finish; an idle server takes longer than this to fill a trace.
const END_MAX: Duration = Duration::from_hours(9 * 24);

/// A rack that stays full this long is emptied.
const FULL_FOR: Duration = Duration::from_hours(50);

/// The last lives of a run.
pub(crate) fn heal(site: &mut Site, reference: &Reference) {
    site.overlay.state().calm();
    site.judge.lock().faults_are_over();
    site.journal.note(|| "from here on there are no faults".to_owned());
    let plan = site.plan.clone();
    for again in [false, true] {
        let judge = Arc::clone(&site.judge);
        let ended = site.live(async |running| {
            Healing { running, reference, plan: &plan }.heal(again).await;
            let open = judge.lock().open_ops();
            running.journal.demand(open == 0, Rule::Live, || format!("{open} operations were never answered"));
        });
        reference.life_ended();
        if site.journal.is_over() {
            return;
        }
        site.journal.demand(ended == crate::site::Ended::Finished, Rule::Live, || format!("the last life: {ended:?}"));
    }
}

/// The faults pause, in runs with lulls. After the operator has replaced the dead drives, the same server reads
/// everything, although calls have failed in it.
pub(crate) async fn lull(running: &Running, reference: &Reference, plan: &Plan) {
    if !plan.lulls || !storm::pass(running) {
        return;
    }
    running.journal.note(|| "the faults pause, and everything is read".to_owned());
    let healing = Healing { running, reference, plan };
    healing.replace_what_failed(plan.policy.tries_given_up).await;
    healing.read_all().await;
    healing.replace_what_failed(false).await;
    healing.settle().await;
    healing.dead_bytes_are_known().await;
}

/// The life of a server with an older catalog: checks that it does no harm and reports nothing wrong.
pub(crate) async fn use_older(running: &Running, before: &Reference, plan: &Plan) {
    let healing = Healing { running, reference: before, plan };
    let clients = healing.clients();
    let mut rng = Stream::End { round: 77 }.of(plan.seed);
    for key in before.keys_of(BUCKET).into_iter().take(6) {
        let at = (BUCKET.to_owned(), key);
        match rng.below(3) {
            0 => _ = clients.get_retrying(&at, HOUR).await,
            1 => _ = clients.judged_put(&at, (rng.next_u64() >> 8, 9_000), PutCondition::None).await,
            _ => _ = clients.judged_delete(&at, PutCondition::None).await,
        }
    }
    tokio::time::sleep(HOUR * rng.below(4) as u32).await;
}

/// The moment at which records are compared with media.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Right after a start.
    Start,
    /// All work has finished.
    End,
    /// The same, and every living blob has been read since.
    Scrubbed,
}

/// Checks that records and media agree.
pub(crate) async fn audit(running: &Running, at: Moment) {
    tokio::time::sleep(SETTLED).await;
    // A drive that the rack has given up itself just before a crash is known from the start.
    absent::look(running).await;
    let journal = &running.journal;
    match running.context.catalog.audit().await {
        Ok(audit) => journal.demand(audit.contradictions == 0, Rule::Audit, || audit.findings.join("; ")),
        Err(error) => journal.broken(Rule::Audit, || format!("the audit: {error}")),
    }
    budgets_hold(running);
    every_stack_is_known(running, at).await;
    if at != Moment::Start {
        stacks_fit_each_other(running).await;
    }
}

/// Checks that the stacks of each living blob, as they were written, are one code word and give the payload that their
/// footers name, even where a read has to do without some stacks. Faults do not show in the written bytes.
async fn stacks_fit_each_other(running: &Running) {
    for blob in living_blobs(running).await {
        let (rack, id) = (running.context.rack_uuid, blob.blob);
        let described = stack::Blob { rack, id, code: blob.code(), payload_bytes: blob.payload_bytes };
        let written =
            |drive: &DriveId| Some(Arc::clone(running.overlay.state().medium(drive.index())) as Arc<dyn Drive>);
        let media: Vec<_> = blob.drives.iter().map(written).collect();
        let found = stack::inspect_deeply(described, &media, &mut Vec::new()).await;
        let misfit = found.flaws.iter().find(|(_, flaw)| matches!(flaw, Flaw::Parity { .. } | Flaw::OtherPayload));
        let is_wrong = matches!(found.payload, Err(StackError::WrongPayload { .. }));
        running.journal.demand(misfit.is_none() && !is_wrong, Rule::Audit, || {
            format!("the stacks of {id} do not fit each other: {misfit:?}, {:?}", found.payload)
        });
    }
}

/// Checks that every stack on a drive is known to the catalog. In the end, each must be where the catalog says, or be
/// recorded as left there. Stacks that were written under an older catalog are unknown to the newest and stay, and a
/// catalog that was made again removes nothing that it does not know; such runs are not checked.
async fn every_stack_is_known(running: &Running, at: Moment) {
    let lacks = [FaultKind::OlderCatalog, FaultKind::LostCatalog];
    if lacks.iter().any(|kind| running.overlay.state().happened.contains_key(kind)) {
        return;
    }
    let catalog = &running.context.catalog;
    // The stacks on a returned drive are unknown until the rack looks through the drive. It does so when the drive's
    // group wakes, and nothing has to wake the group for that.
    let unseen = catalog.returned_drives().await.unwrap_or_default();
    for (drive, name) in stacks(running).into_iter().filter(|(drive, _)| !unseen.contains_key(drive)) {
        let Some((id, index)) = stack_of(&name) else { continue };
        let Ok(blob) = catalog.blob(id).await else { continue };
        let is_counted = blob
            .as_ref()
            .is_some_and(|blob| at == Moment::Start || blob.drives.get(usize::from(index)) == Some(&drive));
        let is_known = is_counted || is_known_as_left(catalog, id, (index, drive), at).await;
        running.journal.demand(is_known, Rule::Audit, || {
            let counted = blob.as_ref().map(|blob| &blob.drives);
            format!("no record names {name} on drive {}: it is counted on {counted:?}", drive.0)
        });
    }
}

/// True if the catalog records that a rebuild left this stack of `blob` there. A drive that was away then keeps it
/// until the blob is rebuilt, scrubbed or deleted, and nothing has to wake its group for that.
async fn is_known_as_left(catalog: &Catalog, blob: BlobId, (index, drive): (u8, DriveId), at: Moment) -> bool {
    let left = RebuildTarget { drive, index, spare: false };
    let is_noted = catalog.rebuild_targets(blob).await.is_ok_and(|targets| targets.contains(&left));
    let is_scrubbed = at == Moment::Scrubbed && catalog.is_blob_living(blob).await.unwrap_or(false);
    is_noted && !is_scrubbed
}

/// Every stack on a drive in service that is as it was written. A drive may report other stacks as missing, and a stack
/// that identifies itself as another's is left where it is, regardless of its name.
fn stacks(running: &Running) -> Vec<(DriveId, disk::FileName)> {
    let state = running.overlay.state();
    let mut stacks = Vec::new();
    for (drive, faults) in state.drives.iter().enumerate().take(state.rack_drives()) {
        if faults.given_up || faults.destroyed || faults.abandoned {
            continue;
        }
        let names = state.medium(drive).names();
        // A stack that an old copy of the drive brought back had been removed, and the catalog does not know it.
        let is_unknown = |file: &FileFaults| file.is_bad() || file.is_back;
        let there = names.into_iter().filter(|name| !faults.faults_of(name).is_some_and(is_unknown));
        stacks.extend(there.map(|name| (DriveId(drive as u32), name)));
    }
    stacks
}

/// Maximum time between two checks. It shares no factor with the period of a scrub; otherwise each check could find the
/// rack in the same phase of it.
const PAUSE_MAX: Duration = Duration::from_mins(47);

struct Healing<'a> {
    running: &'a Running,
    reference: &'a Reference,
    plan: &'a Plan,
}

impl Healing<'_> {
    fn clients(&self) -> Clients<'_> {
        Clients { running: self.running, reference: self.reference, plan: self.plan, store: &self.running.service }
    }

    async fn heal(&self, again: bool) {
        let journal = &self.running.journal;
        journal.note(|| "every drive that failed is replaced".to_owned());
        self.replace_what_failed(self.plan.policy.tries_given_up).await;
        self.complete_uploads().await;
        journal.note(|| "everything is read".to_owned());
        self.read_all().await;
        self.abort_uploads().await;
        // A start tries drives that were given up, together with their group, which wakes for the reads.
        self.replace_what_failed(self.plan.policy.tries_given_up && !again).await;
        if again {
            records::finish(self.running, self.reference, self.plan).await;
        }
        journal.note(|| "everything ends".to_owned());
        self.settle().await;
        self.dead_bytes_are_known().await;
        let scrubbed = self.scrub().await;
        audit(self.running, if scrubbed { Moment::Scrubbed } else { Moment::End }).await;
        self.files_of_the_workshop_are_known().await;
        no_fuse_tripped(self.running);
        close(self.running).await;
        self.drives_stand_still();
    }

    /// Waits for `done`, with checks at growing intervals.
    async fn until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) -> bool {
        let began = disk::clock::monotonic();
        let mut pause = SECOND;
        while !done().await {
            if began.elapsed() > END_MAX {
                let state = self.state().await;
                self.running.journal.broken(Rule::Live, || format!("{what}: not within {END_MAX:?}; {state}"));
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        true
    }

    async fn ask<T: Send + 'static>(&self, look: impl FnOnce(&Rack) -> T + Send + 'static) -> Option<T> {
        self.running.world.ask(move |rack, _| look(rack)).await
    }

    /// Replaces the drives that failed, and those that the rack gave up itself. If there is exactly one, it is sound,
    /// and it is to be `recognised`, that drive is left.
    async fn replace_what_failed(&self, recognised: bool) {
        absent::look(self.running).await;
        let failed: Vec<usize> = {
            let state = self.running.overlay.state();
            let is_dead = |drive: &usize| state.drives[*drive].destroyed || state.drives[*drive].given_up;
            let is_gone = |drive: &usize| is_dead(drive) || state.drives[*drive].abandoned;
            let gone: Vec<usize> = (0..state.rack_drives()).filter(is_gone).collect();
            let is_left = recognised && gone.len() == 1 && !is_dead(&gone[0]);
            if is_left { Vec::new() } else { gone }
        };
        for drive in failed {
            let by_rack = self.running.overlay.state().drives[drive].abandoned;
            let mut is_back = false;
            let is_seen_to = async || {
                // The rack may take back a drive that it gave up itself, and then blobs may depend on it.
                is_back = by_rack && operator::is_taken_back(self.running, drive).await;
                let is_given_up = !is_back && self.give_up(drive).await;
                is_back |= !is_given_up && by_rack && operator::put_back(self.running, drive).await;
                is_given_up || is_back
            };
            self.until("a drive is given up", is_seen_to).await;
            if is_back {
                self.running.journal.note(|| format!("drive {drive} is put back"));
                continue;
            }
            let mut back = self.plan.returns && drive.is_multiple_of(2);
            let replaced = async || operator::replace(self.running, drive, std::mem::take(&mut back)).await;
            self.until("a drive is replaced", replaced).await;
            self.running.journal.note(|| format!("drive {drive} is replaced"));
        }
    }

    /// Gives up a drive, with `force` if it cannot be read.
    async fn give_up(&self, drive: usize) -> bool {
        let is_dead = self.running.overlay.state().drives[drive].destroyed;
        let insists = is_dead || self.plan.beyond;
        operator::give_up_for_good(self.running, drive, insists).await
    }

    async fn complete_uploads(&self) {
        for upload in self.reference.uploads.take() {
            self.clients().judged_complete(&upload).await;
        }
    }

    async fn abort_uploads(&self) {
        let mut watch = StaleWatch::new(Duration::ZERO, None);
        let aborted = self.running.service.abort_stale(&mut watch, Duration::ZERO).await;
        let error = aborted.err();
        self.running.journal.demand(error.is_none(), Rule::Live, || format!("uploads are not aborted: {error:?}"));
    }

    /// Checks that every key that was ever written has an allowed object, byte for byte, and that no other key exists.
    async fn read_all(&self) {
        let clients = self.clients();
        clients.judged_list(BUCKET, "", 7).await;
        for key in self.reference.keys_of(BUCKET) {
            self.read(&clients, &(BUCKET.to_owned(), key)).await;
            if self.running.journal.is_over() {
                return;
            }
        }
    }

    async fn read(&self, clients: &Clients<'_>, at: &At) {
        let began = disk::clock::monotonic();
        loop {
            let answer = clients.get_retrying(at, END_MAX).await;
            tags::look(*clients, at).await;
            let given_up = self.is_forfeited(clients, at) || self.is_quarantined(at).await;
            if answer == Answer::Done || given_up || self.running.journal.is_over() {
                return;
            }
            if began.elapsed() > 3 * 24 * HOUR {
                let (bad, state) = (clients.bad_stacks(at), self.state().await);
                return self.running.journal.broken(Rule::Kept, || {
                    format!("{} cannot be read, and {bad} of its stacks are bad: {answer:?}; {state}", at.1)
                });
            }
            // A drive that was out of service is tried again later.
            tokio::time::sleep(HOUR / 4).await;
        }
    }

    /// True if this key's bytes are in quarantine: they are read again at the next start, and not earlier.
    async fn is_quarantined(&self, at: &At) -> bool {
        let catalog = &self.running.context.catalog;
        let Ok((object, _)) = catalog.get_object(&at.0, &at.1).await else { return false };
        matches!(catalog.unreadable_of(object.version).await, Ok(Some(_)))
    }

    /// True if the run damaged this key's bytes more than can be repaired.
    fn is_forfeited(&self, clients: &Clients<'_>, at: &At) -> bool {
        let held = self.reference.may_hold(at);
        let forfeited = self.reference.forfeited.borrow();
        let rotten = held.iter().flatten().any(|serial| forfeited.contains(serial));
        self.plan.beyond && (rotten || clients.bad_stacks(at) > usize::from(self.running.spec.code.parity))
    }

    /// Checks that the engine knows all dead bytes that the catalog knows: unknown ones stay until the next start. So
    /// do bytes that died by a commit whose answer was lost, or that a misread record hid; such runs are not checked.
    async fn dead_bytes_are_known(&self) {
        let hidden = [FaultKind::CommitUnanswered, FaultKind::CatalogMisread];
        if hidden.iter().any(|kind| self.clients().happened(*kind)) {
            return;
        }
        let Ok(totals) = self.running.context.catalog.dead_totals().await else { return };
        for (group, bytes) in totals {
            let known = self.ask(move |rack| rack.dead_bytes(group)).await.unwrap_or(bytes);
            self.running.journal.demand(known >= bytes, Rule::Audit, || {
                format!("{bytes} bytes of {group} are dead, and the engine knows of {known}")
            });
        }
    }

    /// In runs with scrubs, scrubs everything and checks that nothing rotten is left, except damage that is beyond
    /// repair and reported. True if every living blob was read.
    async fn scrub(&self) -> bool {
        if self.plan.policy.scrub.period.is_none() || self.running.context.catalog_age.older().is_some() {
            return false;
        }
        self.running.journal.note(|| "everything is scrubbed".to_owned());
        if self.plan.meddles {
            _ = self.running.status.pause_scrub(false).await;
        }
        let beyond = self.plan.beyond;
        // The request starts a pass in each group. That pass has ended if the pass is complete, or if a later one is
        // under way and the last ended pass is another. Its time alone proves nothing: in an earlier life a clock may
        // have been ahead, and the pass of an empty group ends at once.
        let lasts = |rack: &Rack, now| rack.scrubs(now).map(|view| (view.group, view.pass.last)).collect();
        let before: BTreeMap<_, _> = self.running.world.ask(lasts).await.unwrap_or_default();
        self.running.world.report(Event::ScrubRequested { group: None });
        let scrubbed = async || {
            let before = before.clone();
            let complete = move |rack: &Rack, now| {
                // A blob that has lost more than r stacks is never read.
                let may_end = |view: &ScrubView| beyond || view.put_off_blobs == 0;
                let is_another = |view: &ScrubView| view.pass.last != before.get(&view.group).copied().flatten();
                rack.scrubs(now).all(|view| may_end(&view) && (view.pass.complete || is_another(&view)))
            };
            let complete = self.running.world.ask(complete).await;
            complete == Some(true) && self.is_settled().await
        };
        let is_scrubbed = self.until("everything scrubbed", scrubbed).await;
        if is_scrubbed {
            scrubs::nothing_is_rotten(self.running, self.plan).await;
        }
        is_scrubbed && !beyond
    }

    /// Waits until nothing that can be moved is staged, everything is rebuilt and the rack rests.
    async fn settle(&self) {
        let began = disk::clock::monotonic();
        let settled = async || {
            budgets_hold(self.running);
            if began.elapsed() > FULL_FOR {
                self.make_room().await;
            }
            self.is_settled().await
        };
        self.until("everything migrated, rebuilt and asleep", settled).await;
    }

    /// Deletes one object, if the rack is too full for the staged data or for a rebuild.
    async fn make_room(&self) {
        let full = self.ask(|rack| rack.is_full() || rack.rebuilds().any(|view| view.waiting_blobs > 0)).await;
        let keys = self.reference.keys_of(BUCKET);
        let living = keys.into_iter().map(|key| (BUCKET.to_owned(), key));
        let mut living = living.filter(|at| self.reference.may_hold(at).iter().any(Option::is_some));
        if full == Some(true)
            && let Some(at) = living.next()
        {
            self.clients().judged_delete(&at, PutCondition::None).await;
        }
    }

    async fn is_settled(&self) -> bool {
        // A drive that the rack has taken back may be written to, even during a scrub of everything.
        absent::look(self.running).await;
        let catalog = &self.running.context.catalog;
        let staged = catalog.staged_usage().await.map_or(1, |usage| usage.count);
        let quarantined = catalog.unreadable_usage().await.map_or(0, |(count, _)| count);
        let asleep = self.running.world.ask(rests);
        let rebuilt = self.plan.beyond || self.exposed().await.is_empty();
        staged <= quarantined && rebuilt && asleep.await == Some(true)
    }

    /// The work that is not finished, as text.
    async fn state(&self) -> String {
        let staged = self.running.context.catalog.staged_usage().await;
        let scrubs = async || {
            let is_open = |view: &ScrubView| !view.pass.complete || view.put_off_blobs > 0;
            let views = self.running.world.ask(move |rack, now| rack.scrubs(now).filter(is_open).collect());
            views.await.unwrap_or_else(Vec::new)
        };
        let rack = self.ask(|rack| {
            let groups = 0..rack.layout().groups.len() as u32;
            let awake: Vec<_> = groups
                .map(|group| (group, rack.group_state(GroupId(group))))
                .filter(|(_, state)| *state != GroupState::Asleep)
                .collect();
            let rebuilds: Vec<_> = rack.rebuilds().collect();
            let away: Vec<_> = (0..rack.spec().drives.len() as u32)
                .map(|drive| (drive, rack.drive_phase(DriveId(drive))))
                .filter(|(_, phase)| *phase != engine::DrivePhase::Standby)
                .collect();
            format!("ops {}, awake {awake:?}, drives {away:?}, rebuilds {rebuilds:?}", rack.open_operations())
        });
        let exposed = self.exposed().await;
        let rack = rack.await.unwrap_or_default();
        format!("staged {staged:?}; exposed {exposed:?}; {rack}; scrubs {:?}", scrubs().await)
    }

    /// Living blobs that lack a stack on a drive in service. A stack that was lost silently does not count: the rack
    /// does not know of it.
    async fn exposed(&self) -> Vec<String> {
        let mut exposed = Vec::new();
        for found in living_blobs(self.running).await {
            let blob = found.blob;
            let state = self.running.overlay.state();
            let is_missing = |index: &usize| {
                let (drive, name) = (found.drives[*index].index(), stack_name(blob, *index as u8));
                let lost = state.drives[drive].faults_of(&name).is_some_and(|file| file.lost);
                let faults = &state.drives[drive];
                let gone = faults.destroyed || faults.given_up || faults.abandoned;
                gone || (!lost && state.medium(drive).contents_len(&name).is_none())
            };
            let missing: Vec<usize> = (0..found.drives.len()).filter(is_missing).collect();
            if !missing.is_empty() {
                exposed.push(format!("stacks {missing:?} of {blob}"));
            }
        }
        exposed
    }

    /// Checks that every file of the workshop is known to the catalog, or stays there for a reason.
    async fn files_of_the_workshop_are_known(&self) {
        // Files that were staged under an older catalog are unknown to the newest, and stay for a while; files that a
        // lost catalog knew are unknown to the one that was made again.
        let lacks = [FaultKind::OlderCatalog, FaultKind::LostCatalog];
        if lacks.into_iter().any(|kind| self.clients().happened(kind)) {
            return;
        }
        let Some(known) = self.known_slots().await else { return };
        let counters = &self.running.context.counters;
        let kept = counters.left_staged.load(std::sync::atomic::Ordering::Relaxed)
            + counters.unknown_staged.load(std::sync::atomic::Ordering::Relaxed);
        let state = self.running.overlay.state();
        let names = state.medium(state.rack_drives()).names();
        drop(state);
        let there = names.iter().filter(|name| name.as_str().starts_with("s-")).count() as u64;
        self.running.journal.demand(there <= known.len() as u64 + kept, Rule::Audit, || {
            format!("{there} staged files, of which {} are known and {kept} kept", known.len())
        });
    }

    async fn known_slots(&self) -> Option<BTreeSet<u64>> {
        let catalog = &self.running.context.catalog;
        let whole = catalog.staged_slots(None, usize::MAX).await.ok()?;
        let mut known: BTreeSet<u64> = whole.items.iter().map(|staged| staged.slot).collect();
        let mut after = None;
        loop {
            let page = catalog.part_slots(after.as_ref()).await.ok()?;
            known.extend(page.items.into_iter().map(|(slot, _)| slot));
            after = page.next;
            if after.is_none() {
                return Some(known);
            }
        }
    }

    fn drives_stand_still(&self) {
        use model::physics::PowerState;
        for drive in 0..self.running.spec.drives.len() as u32 {
            let state = self.running.rack.state(DriveId(drive));
            let still = matches!(state, PowerState::Standby | PowerState::Away);
            self.running.journal.demand(still, Rule::Live, || format!("drive {drive} is {state:?} after closing"));
        }
        let lied = self.clients().happened(FaultKind::LostSync);
        self.running
            .journal
            .note(|| format!("all drives stand still{}", if lied { ", some of which lied" } else { "" }));
    }
}

/// True if nothing is under way, and every group sleeps, or is idle and stays spinning because one of its drives has no
/// starts left today.
fn rests(rack: &Rack, now: Time) -> bool {
    let layout = rack.layout();
    let classes = (0..layout.classes.len() as u32).map(ClassId);
    let kept: Vec<GroupId> = classes.filter_map(|class| rack.kept_spinning(class, now)).collect();
    let sleeps = |group: &GroupId| rack.group_state(*group) == GroupState::Asleep;
    let all_rest = (0..layout.groups.len() as u32).map(GroupId).all(|group| sleeps(&group) || kept.contains(&group));
    let members = kept.iter().flat_map(|group| &layout.groups[group.index()].drives);
    let spinning = members.filter(|drive| rack.drive_phase(**drive) == engine::DrivePhase::Ready).count();
    let under_way = rack.rebuilds().any(|view| view.under_way > 0);
    all_rest && !under_way && rack.open_operations() == 0 && rack.ledger().active_drives() == spinning
}
