//! Tags: a client tags an object repeatedly while it moves, so its record changes in the middle of every operation on
//! it. A version's tags have their own register, since they change without a new version.

use crate::answers::{Answer, Clients};
use crate::journal::Rule;
use crate::plan::{Item, Life, Plan, Stream};
use crate::reference::{At, Reference, Tag};
use crate::register::Register;
use crate::site::{BUCKET, Running};
use catalog::{Object, ObjectChange, Place, PutCondition, VersionId};
use model::Rng;
use s3::store::ServiceError;
use std::time::Duration;

/// The number of the tagging client among the clients of a life: above theirs, and the slow reader's.
pub(crate) const CLIENT: u64 = 65;

/// Maximum number of changes of one object. They are more frequent while it migrates.
const CHANGES_MAX: usize = 400;

/// Objects that are tagged in a life.
pub(crate) fn ops(life: &Life) -> u64 {
    life.ops.div_ceil(10)
}

/// The tagging client, if the plan has one.
pub(crate) async fn live(running: &Running, reference: &Reference, plan: &Plan, (round, life): (u64, &Life)) {
    if !plan.tags {
        return;
    }
    let clients = Clients { running, reference, plan, store: &running.service };
    for op in 0..ops(life) {
        if !plan.is_dropped(Item::Op { round, client: CLIENT, op }) {
            let rng = Stream::Client { round, client: CLIENT, op }.of(plan.seed);
            Tagger { clients, rng }.act().await;
        }
    }
}

/// The tag of an object: 0 without one.
fn tag_of(object: &Object) -> Tag {
    object.tags.iter().find(|(key, _)| key == "tag").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Checks the tag of the object at a key against the model.
pub(crate) async fn look(clients: Clients<'_>, at: &At) {
    let Ok(before) = clients.store.head(&at.0, &at.1).await else { return };
    let look = clients.reference.tags(before.version, Register::look);
    let Ok(object) = clients.store.head(&at.0, &at.1).await else { return };
    if object.version != before.version {
        return;
    }
    let tag = tag_of(&object);
    let could = clients.reference.saw_tag(object.version, &look, tag);
    clients.journal().demand(could, Rule::Model, || {
        let may = clients.reference.tags(object.version, |register| register.values());
        format!("{} has the tag {tag:x}, and it may have {may:x?}", at.1)
    });
}

struct Tagger<'a> {
    clients: Clients<'a>,
    rng: Rng,
}

impl Tagger<'_> {
    async fn act(mut self) {
        let at: At = (BUCKET.to_owned(), format!("tagged/{}", self.rng.below(2)));
        let object = (self.rng.next_u64() >> 8, Plan::object_bytes(&mut self.rng));
        if self.clients.judged_put(&at, object, PutCondition::None).await != Answer::Done {
            return;
        }
        for _ in 0..CHANGES_MAX {
            let placed = self.clients.running.context.catalog.get_object(&at.0, &at.1).await;
            let pause_ms = match placed {
                Ok((object, Place::Staged { .. })) if self.is_migrating(object.version).await => self.rng.below(300),
                Ok((_, Place::Staged { .. })) => self.rng.between(2_000, 20_000),
                _ => break,
            };
            self.tag(&at).await;
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        look(self.clients, &at).await;
    }

    async fn is_migrating(&self, version: VersionId) -> bool {
        self.clients.running.world.is_migrating(version).await
    }

    /// Gives the object at the key another tag.
    async fn tag(&mut self, at: &At) {
        let reference = self.clients.reference;
        let Ok(object) = self.clients.store.head(&at.0, &at.1).await else { return };
        let tag = (self.rng.next_u64() >> 8).max(1);
        let write = reference.begins_tag(object.version, tag);
        let change = ObjectChange::Tags(vec![("tag".to_owned(), tag.to_string())]);
        let answer = self.clients.store.change(&at.0, &at.1, change).await;
        self.clients
            .journal()
            .note(|| format!("tag {} {tag:x}: {}", at.1, if answer.is_ok() { "done" } else { "not" }));
        match answer {
            Ok(changed) if changed.version == object.version => reference.tags(object.version, |tags| tags.done(write)),
            // Another version is there now, and has the tag.
            Ok(_) => reference.tags(object.version, |tags| tags.refused(write)),
            Err(ServiceError::NoSuchKey) => {}
            Err(error) => _ = self.clients.other(&error),
        }
    }
}
