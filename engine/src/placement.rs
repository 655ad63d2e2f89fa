//! Placement of a new blob: accounting of capacity, choice of a group, and choice of drives in it.
//!
//! Pelican, section 3, "Data placement", for any geometry. Each of the k + r stacks of a blob goes to another drive of
//! one group.
//! 1. *Group.* A random one with room; or, so that a migration wakes few groups, the one chosen last, until its share
//!    of bytes is used up.
//! 2. *Drives.* The drives with most spare capacity, but at most r in any domain whose loss loses media (tray,
//!    chassis), for every kind of these domains at once: then losing one domain loses no blob. On Pelican's rack these
//!    are the three with most spare capacity of each of six chassis. Ties go to the lower drive id.
//! 3. *Relaxed.* If no group can satisfy rule 2, because members are away or full or the geometry has too few domains,
//!    the largest number of stacks in one domain is minimised. A write is refused only when no group (that its pin
//!    allows) has k + r drives with room.
//!
//! The choice reserves space, which is settled, released or freed later.
//!
//! Invariants:
//! - used + reserved grows only by choices that fitted into the spare space as it was known;
//! - the same calls with the same random stream return the same choices;
//! - a blob's drives are in ascending order, so the order of its stacks needs no separate record;
//! - room of a file system that drives share counts once (`host.rs`).

mod host;
mod spread;
#[cfg(test)]
mod tests;

use crate::policy::{GroupChoice, PinnedTo};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use host::Hosts;
use model::{DriveId, GroupId, RackSpec, Rng};
use spread::Spread;

/// One drive's space, in bytes.
#[derive(Clone, Copy, Default)]
struct Space {
    capacity: u64,
    used: u64,
    reserved: u64,
    /// The amount by which the last mount found less than `capacity - used` free.
    shortfall: u64,
    away: bool,
    /// True if the drive failed permanently or is retired.
    retired: bool,
}

impl Space {
    fn spare(&self) -> u64 {
        let taken = self.used.saturating_add(self.reserved).saturating_add(self.shortfall);
        self.capacity.saturating_sub(taken)
    }
}

/// The group that writes of one pin go to, and the payload bytes that may still go there.
#[derive(Clone, Copy)]
struct Batch {
    group: GroupId,
    bytes_left: u64,
}

/// The order of preference of a group's drives, apart from the rule of domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriveRule {
    /// The drives with most spare capacity first (Pelican, section 3).
    #[default]
    MostSpare,
    /// All drives with room, in random order: Pelican compares its rule with this one (section 5).
    Random,
}

/// A blob to be placed.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Bytes of each of its stacks.
    pub stack_bytes: u64,
    /// Its payload bytes.
    pub payload_bytes: u64,
    /// The class or group in which it must be stored.
    pub pin: PinnedTo,
    /// The choice of a group for it.
    pub choice: GroupChoice,
    /// Groups in which it must not be stored.
    pub excluded_groups: &'a [GroupId],
}

impl Wanted<'_> {
    /// A blob that may be stored in any group, which is chosen at random.
    pub fn anywhere(payload_bytes: u64, stack_bytes: u64) -> Self {
        let (pin, choice) = (PinnedTo::Anywhere, GroupChoice::Random);
        Self { stack_bytes, payload_bytes, pin, choice, excluded_groups: &[] }
    }
}

/// The placement of one rack. See the head of this file.
pub struct Placement {
    rule: DriveRule,
    drives: Vec<Space>,
    hosts: Hosts,
    groups: Vec<Vec<DriveId>>,
    class_of: Vec<model::ClassId>,
    spread: Spread,
    batches: BTreeMap<PinnedTo, Batch>,
    relaxed: u64,
}

impl Placement {
    /// An empty rack with these groups; `class_of` is the class of each.
    pub fn new(spec: &RackSpec, groups: &[Vec<DriveId>], class_of: &[model::ClassId]) -> Self {
        assert!(groups.len() == class_of.len(), "every group is in one class");
        assert!(
            groups.iter().flatten().all(|drive| drive.index() < spec.drives.len()),
            "groups are of the rack's drives"
        );
        let space = |drive: &model::DriveSpec| Space { capacity: spec.capacity_bytes(drive.id), ..Space::default() };
        Self {
            rule: DriveRule::default(),
            drives: spec.drives.iter().map(space).collect(),
            hosts: Hosts::new(spec.drives.len()),
            groups: groups.to_vec(),
            class_of: class_of.to_vec(),
            spread: Spread::new(spec),
            batches: BTreeMap::new(),
            relaxed: 0,
        }
    }

    /// The same, with another rule for the drives of a group.
    #[must_use]
    pub fn with_rule(self, rule: DriveRule) -> Self {
        assert!(self.batches.is_empty(), "the rule is chosen before anything is placed");
        Self { rule, ..self }
    }

    /// Sets, at boot, the total capacity of `drive` and the bytes that blobs use of it. Reservations stay.
    pub fn restate(&mut self, drive: DriveId, capacity_bytes: u64, used_bytes: u64) {
        let space = &mut self.drives[drive.index()];
        *space = Space { capacity: capacity_bytes, used: used_bytes, shortfall: 0, ..*space };
    }

    /// Records the free bytes found by a mount. If they are fewer than expected, the drive accepts less until another
    /// mount finds more.
    pub fn set_free(&mut self, drive: DriveId, free_bytes: u64) {
        let space = &mut self.drives[drive.index()];
        let shortfall = space.capacity.saturating_sub(space.used).saturating_sub(free_bytes);
        // The room of a shared file system is measured separately, and may be all that a drive on it found.
        let is_hosts = self.hosts.of_mut(drive).is_some_and(|host| host.free <= free_bytes);
        space.shortfall = if is_hosts { 0 } else { shortfall };
    }

    /// Records the free bytes of file system number `host`, which stores all of `drives`; they count once.
    pub fn set_host_free(&mut self, host: usize, drives: &[DriveId], free_bytes: u64) {
        let spaces = &self.drives;
        let reserved = |drive: DriveId| spaces.get(drive.index()).map_or(0, |space| space.reserved);
        self.hosts.measured(host, drives, free_bytes, reserved);
    }

    /// Records whether `drive` is away: then it gets no stacks. Its reservations stay.
    pub fn set_away(&mut self, drive: DriveId, away: bool) {
        self.drives[drive.index()].away = away;
    }

    /// Records that `drive` failed permanently or is retired: it gets no stacks until it is replaced.
    pub fn retire(&mut self, drive: DriveId) {
        self.drives[drive.index()].retired = true;
    }

    /// Another drive, which is empty, is in the place of `drive`, which failed; or `drive` itself is back, and its data
    /// does not count.
    pub fn replace(&mut self, drive: DriveId) {
        let space = &mut self.drives[drive.index()];
        assert!(space.retired, "{drive} failed before it is replaced");
        *space = Space { used: 0, shortfall: 0, retired: false, ..*space };
    }

    /// `drive` failed or is retired, and stacks of this number of bytes are lost in addition to those that were counted
    /// on it.
    pub fn lose_more(&mut self, drive: DriveId, bytes: u64) {
        let space = &mut self.drives[drive.index()];
        assert!(space.retired, "{drive} failed before more of it is lost");
        space.used = space.used.saturating_add(bytes);
    }

    /// True if `drive` is away.
    pub fn is_away(&self, drive: DriveId) -> bool {
        self.drives[drive.index()].away
    }

    /// Bytes that can still be reserved on `drive`, away or not.
    pub fn free_bytes(&self, drive: DriveId) -> u64 {
        self.own_spare(drive).min(self.hosts.spare(drive).unwrap_or(u64::MAX))
    }

    /// Bytes that can still be reserved on all drives of groups together, away or not, except those that failed or are
    /// retired. The room of a file system that drives share counts once.
    pub fn free_total(&self) -> u64 {
        let mut total = 0_u64;
        let mut of_hosts = BTreeMap::<usize, (u64, u64)>::new();
        for drive in self.groups.iter().flatten().filter(|drive| !self.drives[drive.index()].retired) {
            let own = self.own_spare(*drive);
            match self.hosts.host(*drive).zip(self.hosts.spare(*drive)) {
                None => total = total.saturating_add(own),
                Some((host, spare)) => {
                    let (sum, _) = of_hosts.entry(host).or_insert((0, spare));
                    *sum = sum.saturating_add(own);
                }
            }
        }
        of_hosts.values().fold(total, |total, (sum, spare)| total.saturating_add(*sum.min(spare)))
    }

    /// Bytes that the drive itself has left, regardless of its file system.
    fn own_spare(&self, drive: DriveId) -> u64 {
        self.drives[drive.index()].spare()
    }

    /// True if the file system of `drive` has room for all the stacks of a blob. The check of each drive assumes that
    /// all of them are stored there.
    fn host_takes(&self, drive: DriveId, stack_bytes: u64) -> bool {
        let all = stack_bytes.saturating_mul(self.spread.stacks as u64);
        self.hosts.spare(drive).is_none_or(|spare| spare >= all)
    }

    /// Bytes of `drive` that blobs use, without reservations.
    pub fn used_bytes(&self, drive: DriveId) -> u64 {
        self.drives[drive.index()].used
    }

    /// Bytes that are reserved on `drive` for blobs that are not written yet.
    pub fn reserved_bytes(&self, drive: DriveId) -> u64 {
        self.drives[drive.index()].reserved
    }

    /// The number of choices that put more stacks into one domain than its loss may cost.
    pub fn relaxed_total(&self) -> u64 {
        self.relaxed
    }

    /// True if `group` has k + r drives that are present and can take `stack_bytes` more.
    pub fn has_room(&self, group: GroupId, stack_bytes: u64) -> bool {
        let fitting = self.groups[group.index()].iter().filter(|drive| self.takes(**drive, stack_bytes));
        fitting.count() >= self.spread.stacks
    }

    /// True if `group` would have room for stacks of `stack_bytes` if its drives that are away were back.
    pub fn has_room_away(&self, group: GroupId, stack_bytes: u64) -> bool {
        let members = self.groups[group.index()].iter().filter(|drive| self.host_takes(**drive, stack_bytes));
        let spaces = members.map(|drive| &self.drives[drive.index()]);
        spaces.filter(|space| !space.retired && space.spare() >= stack_bytes).count() >= self.spread.stacks
    }

    /// The group that the next write of this pin goes to, if it has room: where a batch of writes stays with one group.
    pub fn batch_group(&self, pin: PinnedTo) -> Option<GroupId> {
        self.batches.get(&pin).filter(|batch| batch.bytes_left > 0).map(|batch| batch.group)
    }

    /// Chooses group and drives for a blob, and reserves their space. `None` means that no allowed group has room.
    pub fn choose(&mut self, wanted: &Wanted, rng: &mut Rng) -> Option<(GroupId, Vec<DriveId>)> {
        let Wanted { stack_bytes, payload_bytes, pin, choice, excluded_groups } = *wanted;
        let allowed =
            |group: &GroupId| pin.allows(*group, self.class_of[group.index()]) && !excluded_groups.contains(group);
        let groups: Vec<_> = (0..self.groups.len()).map(|g| GroupId(g as u32)).filter(allowed).collect();
        let staying = self.stay(wanted, &groups);
        let (group, mut drives) = staying.or_else(|| self.draw(groups, stack_bytes, rng))?;
        drives.sort_unstable();
        assert!(drives.len() == self.spread.stacks, "a blob has k + r drives");
        assert!(drives.is_sorted_by(|a, b| a < b), "a drive holds one stack of a blob");
        assert!(allowed(&group), "{group} is allowed");
        self.relaxed += u64::from(self.spread.excess(&drives) > 0);
        self.note_batch(pin, choice, group, payload_bytes);
        for drive in &drives {
            self.reserve(*drive, stack_bytes);
        }
        Some((group, drives))
    }

    /// A place in `group` for a stack of `stack_bytes` that a blob on the drives `holders` has lost: a drive that is
    /// present, has no stack of the blob and is not in `unfit`. Drives that keep the rule of domains, or break it
    /// least, come first; of these, the ones whose domains already hold fewest stacks of the blob; of these, the one
    /// with most spare capacity. Reserves nothing.
    pub fn choose_another(
        &self,
        group: GroupId,
        holders: &[DriveId],
        unfit: &[DriveId],
        stack_bytes: u64,
    ) -> Option<DriveId> {
        let mut stacks = self.left_of(holders);
        let members = self.groups[group.index()].iter().copied();
        let has_room = |drive: &DriveId| self.is_in_use(*drive) && self.free_bytes(*drive) >= stack_bytes;
        let fitting = members.filter(|drive| has_room(drive) && !holders.contains(drive) && !unfit.contains(drive));
        fitting.min_by_key(|drive| {
            stacks.push(*drive);
            let excess = self.spread.excess(&stacks);
            stacks.pop();
            (excess, self.spread.beside(&stacks, *drive), core::cmp::Reverse(self.own_spare(*drive)), *drive)
        })
    }

    /// Reserves space on `target`, which was chosen for it, for the lost stack of a blob on the drives `holders`.
    pub fn reserve_another(&mut self, holders: &[DriveId], target: DriveId, stack_bytes: u64) {
        assert!(!holders.contains(&target), "{target} has no other stack of the blob");
        let mut stacks = self.left_of(holders);
        stacks.push(target);
        self.relaxed += u64::from(self.spread.excess(&stacks) > 0);
        self.reserve(target, stack_bytes);
    }

    /// Reserves room on `drive` for a replacement of a stack, beside the stack that is there. False if there is no
    /// room, or if the drive is away or failed.
    pub fn reserve_beside(&mut self, drive: DriveId, stack_bytes: u64) -> bool {
        let has_room = self.is_in_use(drive) && self.free_bytes(drive) >= stack_bytes;
        if has_room {
            self.reserve(drive, stack_bytes);
        }
        has_room
    }

    /// Reserves the space of a stack of this number of bytes that is not counted on `drive`, and is looked for there.
    /// That space counted as a shortfall until now.
    pub fn reserve_found(&mut self, drive: DriveId, stack_bytes: u64) {
        assert!(self.is_in_use(drive), "{drive} is there, and did not fail");
        let space = &mut self.drives[drive.index()];
        space.shortfall = space.shortfall.saturating_sub(stack_bytes);
        space.reserved += stack_bytes;
        self.hosts.of_mut(drive).into_iter().for_each(|host| host.reserved += stack_bytes);
    }

    fn reserve(&mut self, drive: DriveId, bytes: u64) {
        assert!(self.own_spare(drive) >= bytes, "{drive} has room for what is reserved");
        assert!(self.is_in_use(drive), "{drive} is there, and did not fail");
        self.drives[drive.index()].reserved += bytes;
        self.hosts.of_mut(drive).into_iter().for_each(|host| host.reserved += bytes);
    }

    /// The drives in `drives` that have not failed and are not retired.
    fn left_of(&self, drives: &[DriveId]) -> Vec<DriveId> {
        drives.iter().copied().filter(|drive| !self.drives[drive.index()].retired).collect()
    }

    /// A blob was written: the space reserved on each of `drives` is now used, or the part of it that was needed.
    pub fn settle(&mut self, drives: &[DriveId], reserved_bytes: u64, used_bytes: u64) {
        self.release(drives, reserved_bytes);
        for drive in drives {
            let space = &mut self.drives[drive.index()];
            space.used = space.used.saturating_add(used_bytes);
            self.hosts.of_mut(*drive).into_iter().for_each(|host| host.free = host.free.saturating_sub(used_bytes));
        }
    }

    /// A blob was not written: the space reserved on each of `drives` is spare again.
    pub fn release(&mut self, drives: &[DriveId], reserved_bytes: u64) {
        for drive in drives {
            let space = &mut self.drives[drive.index()];
            assert!(space.reserved >= reserved_bytes, "{drive} gives back no more than was reserved");
            space.reserved -= reserved_bytes;
            if let Some(host) = self.hosts.of_mut(*drive) {
                assert!(host.reserved >= reserved_bytes, "{drive} gives back no more than was reserved");
                host.reserved -= reserved_bytes;
            }
        }
    }

    /// A stack was removed from `drive`. Saturates: the next boot sets the used bytes again.
    pub fn freed(&mut self, drive: DriveId, bytes: u64) {
        let space = &mut self.drives[drive.index()];
        space.used = space.used.saturating_sub(bytes);
        self.hosts.of_mut(drive).into_iter().for_each(|host| host.free = host.free.saturating_add(bytes));
    }

    /// True if `drive`, a member of a group, has room for a stack of `stack_bytes`.
    fn takes(&self, drive: DriveId, stack_bytes: u64) -> bool {
        self.is_in_use(drive) && self.own_spare(drive) >= stack_bytes && self.host_takes(drive, stack_bytes)
    }

    /// True if `drive` is present, has not failed and is not retired.
    fn is_in_use(&self, drive: DriveId) -> bool {
        let space = &self.drives[drive.index()];
        !space.away && !space.retired
    }

    /// The members of `group` that can take `stack_bytes`, those with most spare capacity first.
    fn candidates(&self, group: GroupId, stack_bytes: u64) -> Vec<DriveId> {
        let members = self.groups[group.index()].iter().copied();
        let mut fitting: Vec<_> = members.filter(|drive| self.takes(*drive, stack_bytes)).collect();
        fitting.sort_unstable_by_key(|drive| (core::cmp::Reverse(self.own_spare(*drive)), *drive));
        fitting
    }

    /// The group chosen last for `pin`, as long as its share of bytes lasts and it keeps the rule of domains.
    fn stay(&self, wanted: &Wanted, allowed: &[GroupId]) -> Option<(GroupId, Vec<DriveId>)> {
        let GroupChoice::Batch { .. } = wanted.choice else { return None };
        let batch = self.batches.get(&wanted.pin).filter(|b| b.bytes_left > 0 && allowed.contains(&b.group))?;
        Some((batch.group, self.spread.strict(&self.candidates(batch.group, wanted.stack_bytes))?))
    }

    /// Draws groups until one can keep the rule of domains; if none can, returns the one that breaks it least.
    fn draw(&self, mut groups: Vec<GroupId>, stack_bytes: u64, rng: &mut Rng) -> Option<(GroupId, Vec<DriveId>)> {
        assert!(groups.len() <= self.groups.len(), "each group is drawn once");
        let mut fallbacks = vec![];
        while !groups.is_empty() {
            let group = groups.swap_remove(rng.below(groups.len() as u64) as usize);
            let mut candidates = self.candidates(group, stack_bytes);
            if self.rule == DriveRule::Random {
                shuffle(&mut candidates, rng);
            }
            if let Some(drives) = self.spread.strict(&candidates) {
                return Some((group, drives));
            }
            if let Some(drives) = self.spread.relaxed(&candidates) {
                fallbacks.push((group, drives));
            }
        }
        fallbacks.into_iter().min_by_key(|(_, drives)| self.spread.excess(drives))
    }

    fn note_batch(&mut self, pin: PinnedTo, choice: GroupChoice, group: GroupId, payload_bytes: u64) {
        let GroupChoice::Batch { bytes } = choice else { return };
        let batch = self.batches.entry(pin).or_insert(Batch { group, bytes_left: bytes });
        if batch.group != group || batch.bytes_left == 0 {
            *batch = Batch { group, bytes_left: bytes };
        }
        assert!(batch.group == group, "writes stay with the group that was drawn last");
        batch.bytes_left = batch.bytes_left.saturating_sub(payload_bytes);
    }
}

/// Shuffles `drives`; all orders are equally likely (Fisher and Yates).
fn shuffle(drives: &mut [DriveId], rng: &mut Rng) {
    for last in (1..drives.len()).rev() {
        drives.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
