//! Reclaiming: dead blobs of a group are removed while it is awake.
//!
//! The bytes that deletes and overwrites have left dead are counted by group. When a group with dead bytes is ready,
//! its dead blobs are listed page by page, and removed one by one: after the work that is queued for the group, and
//! before the group sleeps. Operations for another group wait for that no longer than a quantum; the remaining blobs
//! are removed at the next wake. A mostly dead blob is evacuated: its live data is copied back to the workshop, and
//! then the whole blob is dead.
//!
//! Invariants: a page counts only if it is the awaited one; the result of a listing replaces the estimate; memory is
//! one page for each class.

use crate::action::Action;
use crate::event::BlobWithDead;
use crate::ops::StackMove;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use model::{Attempt, ClassId, GroupId, Time};

/// Blobs of one page that are evacuated; the others wait for the next wake. An evacuation reads and stages the live
/// data of a blob, and many at once must not fill the workshop.
const EVACUATIONS_PER_PAGE: usize = 2;

/// Number of dead blobs in a page.
const PAGE_BLOBS: u32 = 64;

const _: () = assert!(EVACUATIONS_PER_PAGE <= PAGE_BLOBS as usize, "a page has room for its evacuations");

/// The listing of the dead blobs of the group that is awake.
#[derive(Default)]
struct DeadListing {
    /// The page that is awaited.
    awaiting: Option<Attempt>,
    /// Blobs to be removed as a whole.
    blobs: VecDeque<BlobWithDead>,
    /// There are more pages after the last one.
    more: bool,
    /// The estimated dead bytes of the group when the listing began.
    believed: u64,
    /// Dead bytes that the listing has shown so far.
    shown: u64,
    /// Set once an operation waits for another group: the time at which that wait is long enough.
    yields_at: Option<Time>,
}

/// The next thing to do in a group that is awake.
pub(crate) enum Next {
    /// A page is awaited.
    Wait,
    /// Remove this blob, or defer it.
    Blob(BlobWithDead),
    /// Ask for the next page.
    Page,
    /// Nothing is left.
    Done,
}

/// The conditions for evacuating the blobs of a page.
pub(crate) struct Evacuation {
    /// The workshop has room for their live data.
    pub allowed: bool,
    /// At least this part of a blob is dead, in thousandths.
    pub dead_permille: u32,
}

impl Evacuation {
    fn is_for(&self, blob: &BlobWithDead) -> bool {
        self.allowed
            && blob.readable
            && u128::from(blob.dead_bytes) * 1000 >= u128::from(blob.bytes) * u128::from(self.dead_permille)
    }
}

/// Dead bytes by group, and the listings under way. See the head of this file.
pub(crate) struct Reclaim {
    /// Dead payload bytes by group.
    dead: Vec<u64>,
    /// The part of them that the last listing showed and that could not be reclaimed: a visit would not reclaim it
    /// either.
    stuck: Vec<u64>,
    /// The listing of each class.
    listings: Vec<DeadListing>,
}

impl Reclaim {
    pub fn new(group_count: usize, class_count: usize) -> Self {
        assert!(class_count <= group_count, "a class has at least one group");
        Self {
            dead: vec![0; group_count],
            stuck: vec![0; group_count],
            listings: (0..class_count).map(|_| DeadListing::default()).collect(),
        }
    }

    /// A delete or an overwrite left bytes of `group` dead.
    pub fn add_dead(&mut self, group: GroupId, bytes: u64) {
        if let Some(dead) = self.dead.get_mut(group.index()) {
            *dead = dead.saturating_add(bytes);
        }
    }

    /// Bytes of `group` that counted as removed are still dead, and cannot be reclaimed before its next wake.
    pub fn keep_dead(&mut self, group: GroupId, bytes: u64) {
        if group.index() < self.dead.len() {
            self.add_dead(group, bytes);
            self.defer(group, bytes);
        }
    }

    pub fn dead_bytes(&self, group: GroupId) -> u64 {
        self.dead[group.index()]
    }

    /// Dead bytes of `group` that a visit may reclaim.
    pub fn reclaimable_bytes(&self, group: GroupId) -> u64 {
        self.dead[group.index()].saturating_sub(self.stuck[group.index()])
    }

    /// True if a visit to `group` may free a blob of up to `blob_bytes` that the last one could not. After a visit that
    /// left bytes, as many must have died again, or as many as such a blob has: single deletes wake nothing.
    pub fn is_worth_a_visit(&self, group: GroupId, blob_bytes: u64) -> bool {
        // The catalog may name a group that this rack does not have.
        self.stuck.get(group.index()).is_some_and(|stuck| {
            let reclaimable = self.reclaimable_bytes(group);
            reclaimable > 0 && reclaimable >= (*stuck).min(blob_bytes)
        })
    }

    /// Blobs of `group` that waited for a drive can be removed now.
    pub fn unstick(&mut self, group: GroupId) {
        self.stuck[group.index()] = 0;
    }

    /// The group of `class` that was up goes to sleep, or another group wakes: its listing is dropped.
    pub fn reset(&mut self, class: ClassId) {
        self.listings[class.index()] = DeadListing::default();
    }

    /// True if the dead blobs of `group` are to be listed, and no listing is under way.
    pub fn needs_listing(&self, class: ClassId, group: GroupId) -> bool {
        let listing = &self.listings[class.index()];
        let is_under_way = listing.awaiting.is_some() || listing.more || !listing.blobs.is_empty();
        self.dead[group.index()] > 0 && !is_under_way
    }

    /// Requests a page of the dead blobs of `group`: the first one, or the one after the last.
    pub fn list(&mut self, class: ClassId, group: GroupId, attempt: Attempt, restart: bool) -> Action {
        let listing = &mut self.listings[class.index()];
        assert!(listing.awaiting.is_none() && listing.blobs.is_empty(), "one page of {group} at a time");
        assert!(!listing.more, "whoever asks for a page has taken note that there is one");
        listing.awaiting = Some(attempt);
        if restart {
            (listing.believed, listing.shown) = (self.dead[group.index()], 0);
            self.stuck[group.index()] = 0;
        }
        Action::ListDead { group, attempt, limit: PAGE_BLOBS, restart }
    }

    /// True if `class` waits for this page.
    pub fn awaits(&self, class: ClassId, attempt: Attempt) -> bool {
        self.listings[class.index()].awaiting == Some(attempt)
    }

    /// The page that `class` awaits for `group`. Requests evacuations, and stores the blobs that can be removed as a
    /// whole.
    pub fn page(
        &mut self,
        class: ClassId,
        group: GroupId,
        blobs: Vec<BlobWithDead>,
        evacuation: &Evacuation,
    ) -> impl Iterator<Item = Action> + use<> {
        let listing = &mut self.listings[class.index()];
        assert!(listing.awaiting.is_some() && listing.blobs.is_empty(), "a page of {group} is awaited");
        let shown: u64 = blobs.iter().map(|blob| blob.dead_bytes).sum();
        listing.shown = listing.shown.saturating_add(shown);
        let (living, dead): (Vec<_>, Vec<_>) = blobs.into_iter().partition(|blob| blob.living);
        listing.blobs.extend(dead);
        let (leaving, staying): (Vec<_>, Vec<_>) = living.into_iter().partition(|blob| evacuation.is_for(blob));
        let stuck: u64 = staying.iter().map(|blob| blob.dead_bytes).sum();
        self.stuck[group.index()] = self.stuck[group.index()].saturating_add(stuck);
        leaving.into_iter().take(EVACUATIONS_PER_PAGE).map(|blob| Action::Evacuate { blob: blob.blob })
    }

    /// The awaited page of `group` has ended; dead blobs with `held_bytes` were left out of it. After the last page,
    /// the bytes that the pages have shown replace the estimate; bytes that have died since the listing began are
    /// added.
    pub fn end_page(&mut self, class: ClassId, group: GroupId, held_bytes: u64, more: bool) {
        let listing = &mut self.listings[class.index()];
        assert!(listing.awaiting.is_some(), "a page of {group} is awaited");
        listing.awaiting = None;
        listing.more = more;
        listing.shown = listing.shown.saturating_add(held_bytes);
        if !more {
            let dead = &mut self.dead[group.index()];
            *dead = dead.saturating_sub(listing.believed).saturating_add(listing.shown);
        }
    }

    /// The awaited page could not be listed: the listing ends, and the estimate stays until the next wake.
    pub fn unlisted(&mut self, class: ClassId) {
        let listing = &mut self.listings[class.index()];
        assert!(listing.awaiting.is_some(), "a page is awaited");
        (listing.awaiting, listing.more) = (None, false);
    }

    /// The next thing to do in the group of `class` that is awake.
    pub fn next(&mut self, class: ClassId) -> Next {
        let listing = &mut self.listings[class.index()];
        if listing.awaiting.is_some() {
            assert!(listing.blobs.is_empty(), "a page is asked for when nothing is left of the one before");
            return Next::Wait;
        }
        match listing.blobs.pop_front() {
            Some(blob) => Next::Blob(blob),
            None if core::mem::take(&mut listing.more) => Next::Page,
            None => Next::Done,
        }
    }

    /// Dead bytes of `group` cannot be reclaimed at this wake.
    pub fn defer(&mut self, group: GroupId, bytes: u64) {
        self.stuck[group.index()] = self.stuck[group.index()].saturating_add(bytes);
    }

    /// An operation waits for another group of `class`. Returns the time until which it waits at most, which is
    /// `at_most` unless an earlier time was set.
    pub fn yields_at(&mut self, class: ClassId, at_most: Time) -> Time {
        let yields_at = *self.listings[class.index()].yields_at.get_or_insert(at_most);
        assert!(yields_at <= at_most, "nobody waits the longer for asking again");
        yields_at
    }

    /// A blob of `group` with this number of dead bytes was removed. A listing under way may have more pages: the
    /// removed bytes are subtracted from its estimate and from what it has shown.
    pub fn removed(&mut self, class: ClassId, group: GroupId, bytes: u64) {
        let dead = &mut self.dead[group.index()];
        *dead = dead.saturating_sub(bytes);
        let listing = &mut self.listings[class.index()];
        listing.believed = listing.believed.saturating_sub(bytes);
        listing.shown = listing.shown.saturating_sub(bytes);
    }

    /// Updates all listed blobs for the move of a stack.
    pub fn follow_move(&mut self, moved: &StackMove) {
        for blob in self.listings.iter_mut().flat_map(|listing| &mut listing.blobs) {
            moved.follow(blob.blob, &mut blob.drives);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_deletes_are_not_worth_a_visit_after_one_that_left_bytes() {
        let (mut reclaim, group) = (Reclaim::new(1, 1), GroupId(0));
        let is_worth = |reclaim: &Reclaim| reclaim.is_worth_a_visit(group, 1000);
        assert!(!is_worth(&reclaim) && !reclaim.is_worth_a_visit(GroupId(7), 0));
        reclaim.add_dead(group, 300);
        assert!(is_worth(&reclaim), "no visit has shown that it frees nothing");
        reclaim.defer(group, 300);
        reclaim.add_dead(group, 299);
        assert!(!is_worth(&reclaim));
        reclaim.add_dead(group, 1);
        assert!(is_worth(&reclaim), "as much as was left");
        reclaim.defer(group, 300);
        reclaim.defer(group, 5000);
        reclaim.add_dead(group, 5999);
        assert!(!is_worth(&reclaim));
        reclaim.add_dead(group, 1);
        assert!(is_worth(&reclaim), "as much as a blob has");
    }

    #[test]
    fn what_could_not_be_forgotten_is_dead_again_and_wakes_no_group_before_it_is_listed_once_more() {
        let (class, group, attempt) = (ClassId(0), GroupId(1), Attempt(7));
        let mut reclaim = Reclaim::new(2, 1);
        reclaim.add_dead(group, 100);
        reclaim.removed(class, group, 100);
        assert!(!reclaim.needs_listing(class, group), "nothing is known to be dead");
        reclaim.keep_dead(group, 100);
        reclaim.keep_dead(GroupId(2), 100); // there is none
        assert_eq!((reclaim.dead_bytes(group), reclaim.reclaimable_bytes(group)), (100, 0));
        assert!(reclaim.needs_listing(class, group), "the next wake looks");
        reclaim.list(class, group, attempt, true);
        assert_eq!(reclaim.reclaimable_bytes(group), 100);
    }
}
