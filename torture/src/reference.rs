//! The reference model: the objects that each key may hold, the buckets and access keys that may exist, and the uploads
//! that were left open.
//!
//! It knows nothing of drives, packs or crashes, only the requests of clients and their answers.

use crate::content::Serial;
use crate::register::{Look, Register, WriteId};
use catalog::VersionId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A possible content of a key: the number of an object, or nothing.
pub(crate) type Held = Option<Serial>;

/// A key in a bucket.
pub(crate) type At = (String, String);

/// The number in the tag of a version; 0 if it has none.
pub(crate) type Tag = u64;

/// The owner of a bucket, and the number that distinguishes it from other buckets of its name.
pub(crate) type Owned = Option<(String, Serial)>;

/// An upload that was left open with all of its parts acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct OpenUpload {
    pub(crate) key: String,
    pub(crate) version: VersionId,
    pub(crate) serial: Serial,
    pub(crate) lengths: Vec<u64>,
    /// It may have been completed or aborted since.
    pub(crate) unsure: bool,
}

impl OpenUpload {
    pub(crate) fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }
}

/// The state of repartitioning that outlives a life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// Files that were acknowledged.
    pub(crate) files: BTreeSet<u64>,
    /// Number of requested jobs, for the names of their outputs.
    pub(crate) asked: u64,
}

/// The reference model of a run.
#[derive(Clone, Default)]
pub(crate) struct Reference {
    keys: RefCell<BTreeMap<At, Register<Held>>>,
    /// Every object that was ever put at a key, acknowledged or not.
    put: RefCell<BTreeSet<(At, Serial)>>,
    /// The bucket of each name.
    buckets: RefCell<BTreeMap<String, Register<Owned>>>,
    /// The access key of each user.
    users: RefCell<BTreeMap<String, Register<Option<String>>>>,
    /// The tag of each version.
    tags: RefCell<BTreeMap<VersionId, Register<Tag>>>,
    /// Tags that were ever given to a version. A change may reach another version than the one it was meant for.
    given_tags: RefCell<BTreeSet<Tag>>,
    pub(crate) uploads: RefCell<Vec<OpenUpload>>,
    pub(crate) records: RefCell<Records>,
    /// Objects whose bytes may be lost, since the run did more than the code bears.
    pub(crate) forfeited: RefCell<BTreeSet<Serial>>,
}

impl Reference {
    fn key<T>(&self, at: &At, act: impl FnOnce(&mut Register<Held>) -> T) -> T {
        let mut keys = self.keys.borrow_mut();
        act(keys.entry(at.clone()).or_insert_with(|| Register::new(None)))
    }

    /// A change of a key to `held` begins.
    pub(crate) fn begins(&self, at: &At, held: Held) -> WriteId {
        self.put.borrow_mut().extend(held.map(|serial| (at.clone(), serial)));
        self.key(at, |key| key.begin(held))
    }

    /// True if object number `serial` was ever put at a key.
    pub(crate) fn was_ever(&self, at: &At, serial: Serial) -> bool {
        self.put.borrow().contains(&(at.clone(), serial))
    }

    /// A key holds `held` from now on, regardless of its earlier content: the catalog was lost and made again. No
    /// change is under way.
    pub(crate) fn put_back(&self, at: &At, held: Held) {
        self.keys.borrow_mut().insert(at.clone(), Register::new(held));
    }

    /// The change was acknowledged.
    pub(crate) fn done(&self, at: &At, write: WriteId) {
        self.key(at, |key| key.done(write));
    }

    /// The change was acknowledged, and replaced `old`, which was seen before it began.
    pub(crate) fn done_in_place_of(&self, at: &At, write: WriteId, old: Held) {
        self.key(at, |key| key.done_in_place_of(write, old));
    }

    /// The change surely did not happen.
    pub(crate) fn refused(&self, at: &At, write: WriteId) {
        self.key(at, |key| key.refused(write));
    }

    /// A look at a key begins.
    pub(crate) fn looks(&self, at: &At) -> Look<Held> {
        self.key(at, Register::look)
    }

    /// The look saw `held`. False if that is impossible.
    pub(crate) fn saw(&self, at: &At, look: &Look<Held>, held: Held) -> bool {
        self.key(at, |key| key.saw(look, |value| *value == held))
    }

    /// The look saw an object. False if that is impossible.
    pub(crate) fn saw_some(&self, at: &At, look: &Look<Held>) -> bool {
        self.key(at, |key| key.saw(look, Option::is_some))
    }

    /// The possible contents of a key.
    pub(crate) fn may_hold(&self, at: &At) -> Vec<Held> {
        self.key(at, |key| key.values())
    }

    /// All keys of a bucket that were ever written, by name.
    pub(crate) fn keys_of(&self, bucket: &str) -> Vec<String> {
        let keys = self.keys.borrow();
        keys.keys().filter(|(of, _)| of == bucket).map(|(_, key)| key.clone()).collect()
    }

    /// The register of a bucket.
    pub(crate) fn bucket<T>(&self, name: &str, act: impl FnOnce(&mut Register<Owned>) -> T) -> T {
        let mut buckets = self.buckets.borrow_mut();
        act(buckets.entry(name.to_owned()).or_insert_with(|| Register::new(None)))
    }

    /// The register of a user's access key.
    pub(crate) fn user<T>(&self, name: &str, act: impl FnOnce(&mut Register<Option<String>>) -> T) -> T {
        let mut users = self.users.borrow_mut();
        act(users.entry(name.to_owned()).or_insert_with(|| Register::new(None)))
    }

    /// The register of a version's tag.
    pub(crate) fn tags<T>(&self, version: VersionId, act: impl FnOnce(&mut Register<Tag>) -> T) -> T {
        let mut tags = self.tags.borrow_mut();
        act(tags.entry(version).or_insert_with(|| Register::new(0)))
    }

    /// A change of the tag of the object at a key begins; this version was seen there.
    pub(crate) fn begins_tag(&self, version: VersionId, tag: Tag) -> WriteId {
        self.given_tags.borrow_mut().insert(tag);
        self.tags(version, |register| register.begin(tag))
    }

    /// The look saw this tag of the version. False if that is impossible. A tag that was meant for another version may
    /// be there, and the time of its change is unknown.
    pub(crate) fn saw_tag(&self, version: VersionId, look: &Look<Tag>, tag: Tag) -> bool {
        if self.tags(version, |register| register.saw(look, |value| *value == tag)) {
            return true;
        }
        let was_meant_for_it = self.tags(version, |register| register.ever(&tag));
        let strayed = !was_meant_for_it && self.given_tags.borrow().contains(&tag);
        if strayed {
            self.tags(version, |register| register.begin(tag));
        }
        strayed
    }

    /// The life of the server has ended: every unanswered change has happened, or never will.
    pub(crate) fn life_ended(&self) {
        self.keys.borrow_mut().values_mut().for_each(Register::life_ended);
        self.buckets.borrow_mut().values_mut().for_each(Register::life_ended);
        self.users.borrow_mut().values_mut().for_each(Register::life_ended);
        self.tags.borrow_mut().values_mut().for_each(Register::life_ended);
    }
}
