//! Following a store: followers receive every batch from a moment on, as it is logged.
//!
//! A follower receives each batch that is committed after it began to follow, in order and none twice, before the batch
//! is answered: once a [`Store::sequence`](crate::Store::sequence) is seen, the followers have all batches up to it.
//! The committing thread calls the follower, which must not wait. A dropped follower receives nothing more.

use crate::follower::{FollowedFrom, Follower};
use crate::log_entry::{self, Link};
use crate::store::{Batch, Write};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The followers of a store.
#[derive(Default)]
pub(crate) struct Followers {
    state: Mutex<Followed>,
}

#[derive(Default)]
struct Followed {
    last: FollowedFrom,
    followers: Vec<Weak<dyn Follower>>,
}

impl Followers {
    /// Adds `follower`, which receives every batch from now on.
    pub(crate) fn add(&self, follower: &Arc<dyn Follower>) -> FollowedFrom {
        let mut state = self.state.lock();
        state.followers.push(Arc::downgrade(follower));
        state.last
    }

    /// Called before the store starts: sets the last batch that the store has already.
    pub(crate) fn begin(&self, last: FollowedFrom) {
        self.state.lock().last = last;
    }

    /// Notifies the followers that the log in front of the store is about to forget.
    pub(crate) fn sync(&self) {
        let followers: Vec<_> = self.state.lock().followers.iter().filter_map(Weak::upgrade).collect();
        for follower in followers {
            follower.sync();
        }
    }

    /// Sends the followers these committed batches of `group`, given by their positions and links.
    pub(crate) fn committed(&self, group: &[&Batch], links: &[(usize, Link)]) {
        let committed = links.iter().map(|(position, link)| (link, group[*position].writes.as_slice()));
        self.give(committed);
    }

    /// Sends the followers a number that no batch has, between those of two batches.
    pub(crate) fn skipped(&self, link: &Link) {
        self.give(std::iter::once((link, [].as_slice())));
    }

    fn give<'a>(&self, committed: impl Iterator<Item = (&'a Link, &'a [Write])>) {
        let mut state = self.state.lock();
        state.followers.retain(|follower| follower.strong_count() > 0);
        for (link, writes) in committed {
            assert!(link.sequence > state.last.sequence, "numbers grow");
            state.last = FollowedFrom { sequence: link.sequence, keys: link.keys_after };
            let followers: Vec<_> = state.followers.iter().filter_map(Weak::upgrade).collect();
            if !followers.is_empty() {
                let entry = log_entry::encode(link, writes);
                for follower in followers {
                    follower.committed(link.sequence, &entry);
                }
            }
        }
    }
}
