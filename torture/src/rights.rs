//! Users and their rights: several users contend for the name of a bucket, and their keys are rotated meanwhile.
//!
//! A request is admitted as the front does it: by the bucket's owner, with a user's access key. When it is done, bucket
//! and key must both have existed at some moment since its commit began, regardless of the time since its admission.

use crate::answers::{Answer, Clients, checksum, commit};
use crate::content::{Serial, content, etag};
use crate::journal::Rule;
use crate::plan::{Item, Life, Plan, Stream};
use crate::reference::{At, Owned};
use crate::register::{Look, Register};
use crate::site::Running;
use bytes::Bytes;
use catalog::{Acl, Authority, Bucket, BucketChange, Object, PutCondition};
use model::Rng;
use s3::store::{ObjectStore, ServiceError};
use server::users::{UserError, Users};
use std::sync::Arc;
use std::time::Duration;

/// The bucket whose name they contend for.
pub(crate) const CONTENDED: &str = "attic";

const USERS: [&str; 2] = ["ann", "bob"];

/// Keys in that bucket.
const KEYS: u64 = 3;

/// The number of the first user's client among the clients of a life.
const FIRST_CLIENT: u64 = 100;

/// The rights by which a request was admitted.
struct Admitted {
    user: &'static str,
    access_key: String,
    bucket: Option<Bucket>,
}

/// The rights at the start of a commit.
struct RightsBefore {
    key: Look<Option<String>>,
    bucket: Look<Owned>,
}

/// The identity of a bucket among those of its name.
#[allow(clippy::unnecessary_wraps)] // an existing bucket, as one of the possible values
fn identity(bucket: &Bucket) -> Owned {
    let number = bucket.tags.iter().find(|(name, _)| name == "n").and_then(|(_, value)| value.parse().ok());
    Some((bucket.owner.clone(), number.unwrap_or(0)))
}

/// Runs the users' clients in a life.
pub(crate) async fn live(clients: Clients<'_>, users: &Users, (round, life): (u64, &Life)) {
    let all = (0..2).map(|index| async move {
        for op in 0..life.ops {
            let client = FIRST_CLIENT + index;
            if !clients.plan.is_dropped(Item::Op { round, client, op }) {
                let rng = Stream::Client { round, client, op }.of(clients.plan.seed);
                Contender { clients, users, rng }.act().await;
            }
        }
    });
    futures::future::join_all(all).await;
}

/// Checks the users that are known after a start: each must be possible.
pub(crate) async fn look_at_users(running: &Running, clients: Clients<'_>, users: &Users) {
    let Ok(listed) = users.list().await else { return };
    for name in USERS {
        let key = listed.iter().find(|user| user.name == name).map(|user| user.access_key.clone());
        let could = clients.reference.user(name, |register| {
            register.adopt(|value| value.as_deref().is_some_and(is_unknown), &key);
            let look = register.look();
            register.saw(&look, |value| *value == key)
        });
        running.journal.demand(could, Rule::Model, || format!("{name} signs with {key:?}, which cannot be"));
    }
}

/// True for the placeholder of an access key that was drawn and never seen.
fn is_unknown(key: &str) -> bool {
    key.starts_with('?')
}

struct Contender<'a> {
    clients: Clients<'a>,
    users: &'a Users,
    rng: Rng,
}

impl Contender<'_> {
    async fn act(mut self) {
        let user = USERS[self.rng.below(2) as usize];
        match self.rng.below(16) {
            0..=1 => self.rotate(user).await,
            2 => self.remove(user).await,
            3..=4 => self.create(user).await,
            5..=6 => self.delete_bucket(user).await,
            7 => self.change(user).await,
            8..=11 => self.put(user).await,
            12 => self.delete(user).await,
            13..=14 => {
                let at = self.key();
                self.clients.judged_get(&at, None).await;
            }
            _ => tokio::time::sleep(Duration::from_secs(self.rng.between(1, 60))).await,
        }
        tokio::time::sleep(Duration::from_millis(self.rng.below(5_000))).await;
    }

    fn key(&mut self) -> At {
        (CONTENDED.to_owned(), format!("k{}", self.rng.below(KEYS)))
    }

    fn note<T, E: std::fmt::Display>(&self, what: impl Fn() -> String, answer: &Result<T, E>) {
        self.clients.journal().answered();
        self.clients.journal().note(|| match answer {
            Ok(_) => format!("{}: done", what()),
            Err(error) => format!("{}: {error}", what()),
        });
    }

    /// Creates a user, or rotates the user's keys.
    async fn rotate(&mut self, user: &'static str) {
        let fresh = format!("?{:x}", self.rng.next_u64());
        let write = self.clients.reference.user(user, |register| register.begin(Some(fresh.clone())));
        let is_there = self.users.list().await.is_ok_and(|all| all.iter().any(|known| known.name == user));
        let answer = if is_there { self.users.rotate(user).await } else { self.users.add(user).await };
        self.note(|| format!("new keys for {user}"), &answer);
        self.clients.reference.user(user, |register| match answer {
            Ok(keys) => {
                register.adopt(|value| value.as_ref() == Some(&fresh), &Some(keys.access_key));
                register.done(write);
            }
            Err(UserError::Catalog(_)) => {}
            Err(_) => register.refused(write),
        });
    }

    async fn remove(&mut self, user: &'static str) {
        let write = self.clients.reference.user(user, |register| register.begin(None));
        let answer = self.users.remove(user).await;
        self.note(|| format!("remove {user}"), &answer);
        match answer {
            Ok(()) => self.clients.reference.user(user, |register| register.done(write)),
            // It may have been removed and restored, or not: its key may be valid or not.
            Err(UserError::Catalog(_) | UserError::OwnsBuckets { .. }) => {}
            Err(_) => self.clients.reference.user(user, |register| register.refused(write)),
        }
    }

    /// Admits a request of `user` as the front does: with the user's key, to the user's bucket.
    async fn admit(&self, user: &'static str, to_bucket: bool) -> Option<(Admitted, Arc<dyn ObjectStore>)> {
        let listed = self.users.list().await.ok()?;
        let access_key = listed.into_iter().find(|known| known.name == user)?.access_key;
        let bucket = if to_bucket {
            let look = self.clients.reference.bucket(CONTENDED, Register::look);
            match self.clients.store.head_bucket(CONTENDED).await {
                Ok(bucket) => {
                    self.saw_bucket(&look, &identity(&bucket));
                    Some(bucket).filter(|bucket| bucket.owner == user)
                }
                Err(ServiceError::NoSuchBucket) => {
                    self.saw_bucket(&look, &None);
                    None
                }
                Err(_) => None,
            }
        } else {
            None
        };
        if to_bucket && bucket.is_none() {
            return None;
        }
        let authority = Authority { bucket: bucket.clone(), access_key: Some(access_key.clone()) };
        Some((Admitted { user, access_key, bucket }, self.clients.store.authorised(authority)))
    }

    fn saw_bucket(&self, look: &Look<Owned>, seen: &Owned) {
        let could = self.clients.reference.bucket(CONTENDED, |register| register.saw(look, |value| value == seen));
        self.clients.journal().demand(could, Rule::Model, || format!("the bucket is {seen:?}, which cannot be"));
    }

    /// The rights at the start of a commit.
    fn rights(&self, admitted: &Admitted) -> RightsBefore {
        RightsBefore {
            key: self.clients.reference.user(admitted.user, Register::look),
            bucket: self.clients.reference.bucket(CONTENDED, Register::look),
        }
    }

    /// A change was made by these rights: checks that they existed.
    fn were_there(&self, admitted: &Admitted, before: &RightsBefore) {
        let Admitted { user, access_key, bucket } = admitted;
        let key = Some(access_key.clone());
        let valid = self.clients.reference.user(user, |register| register.saw(&before.key, |value| *value == key));
        self.clients.journal().demand(valid, Rule::Rights, || format!("a change of {user} by a key that is gone"));
        if let Some(bucket) = bucket {
            let was = identity(bucket);
            let there = self
                .clients
                .reference
                .bucket(CONTENDED, |register| register.saw(&before.bucket, |value| *value == was));
            self.clients
                .journal()
                .demand(there, Rule::Rights, || format!("a change in a bucket that is gone: {was:?}"));
        }
    }

    async fn create(&mut self, user: &'static str) {
        let Some((admitted, store)) = self.admit(user, false).await else { return };
        let number = self.rng.next_u64() >> 8;
        let tags = vec![("n".to_owned(), number.to_string())];
        let bucket = Bucket { tags, ..Bucket::new(CONTENDED, 0, user) };
        let write = self.clients.reference.bucket(CONTENDED, |register| register.begin(identity(&bucket)));
        let before = self.rights(&admitted);
        let answer = store.create_bucket(bucket).await;
        self.note(|| format!("{user} makes the bucket #{number:x}"), &answer);
        match answer {
            Ok(_) => {
                self.were_there(&admitted, &before);
                self.clients.reference.bucket(CONTENDED, |register| register.done(write));
            }
            Err(ServiceError::BucketExists { .. }) => {
                let refused = |register: &mut Register<Owned>| {
                    register.refused(write);
                    register.saw(&before.bucket, Option::is_some)
                };
                let could = self.clients.reference.bucket(CONTENDED, refused);
                self.clients.journal().demand(could, Rule::Model, || "no bucket is there, it is said".to_owned());
            }
            Err(error) => {
                if matches!(self.clients.other(&error), Answer::Refused | Answer::Later(_)) {
                    self.clients.reference.bucket(CONTENDED, |register| register.refused(write));
                }
            }
        }
    }

    async fn delete_bucket(&mut self, user: &'static str) {
        let Some((admitted, store)) = self.admit(user, true).await else { return };
        let write = self.clients.reference.bucket(CONTENDED, |register| register.begin(None));
        let keys = self.clients.reference.keys_of(CONTENDED).into_iter().map(|key| (CONTENDED.to_owned(), key));
        let looks: Vec<_> = keys.map(|at| (self.clients.reference.looks(&at), at)).collect();
        let before = self.rights(&admitted);
        let answer = store.delete_bucket(CONTENDED).await;
        self.note(|| format!("{user} removes the bucket"), &answer);
        match answer {
            Ok(()) => {
                self.were_there(&admitted, &before);
                self.clients.reference.bucket(CONTENDED, |register| register.done(write));
                for (look, at) in &looks {
                    self.clients.saw(at, look, None);
                }
            }
            Err(ServiceError::BucketNotEmpty) => {
                self.clients.reference.bucket(CONTENDED, |register| register.refused(write));
            }
            Err(error) => {
                if matches!(self.clients.other(&error), Answer::Refused | Answer::Later(_)) {
                    self.clients.reference.bucket(CONTENDED, |register| register.refused(write));
                }
            }
        }
    }

    async fn change(&mut self, user: &'static str) {
        let Some((admitted, store)) = self.admit(user, true).await else { return };
        let before = self.rights(&admitted);
        let acl = if self.rng.below(2) == 0 { Acl::Private } else { Acl::PublicRead };
        let answer = store.change_bucket(CONTENDED, BucketChange::Acl(acl)).await;
        self.note(|| format!("{user} changes the bucket"), &answer);
        match answer {
            Ok(_) => self.were_there(&admitted, &before),
            Err(error) => drop(self.clients.other(&error)),
        }
    }

    async fn put(&mut self, user: &'static str) {
        let at = self.key();
        let (serial, bytes) = (self.rng.next_u64() >> 8, Plan::object_bytes(&mut self.rng));
        let Some((admitted, store)) = self.admit(user, true).await else { return };
        let write = self.clients.reference.begins(&at, Some(serial));
        let mut before = None;
        let slowly = Duration::from_millis(self.rng.below(20_000));
        let sent = self.send(&*store, (&admitted, &at, (serial, bytes)), slowly, &mut before);
        let answer = sent.await;
        self.note(|| format!("{user} puts {} #{serial:x}, {bytes} bytes", at.1), &answer);
        match (answer, before) {
            (Ok(()), Some(before)) => {
                self.were_there(&admitted, &before);
                self.clients.reference.done(&at, write);
            }
            (Ok(()), None) => self.clients.reference.done(&at, write),
            (Err(error), _) => {
                if matches!(self.clients.other(&error), Answer::Refused | Answer::Later(_)) {
                    self.clients.reference.refused(&at, write);
                }
            }
        }
    }

    /// Sends the bytes of an object slowly, and records the rights at the commit in `before`.
    async fn send(
        &self,
        store: &dyn ObjectStore,
        (admitted, at, (serial, bytes)): (&Admitted, &At, (Serial, u64)),
        slowly: Duration,
        before: &mut Option<RightsBefore>,
    ) -> Result<(), ServiceError> {
        let Some(bucket) = &admitted.bucket else { return Err(ServiceError::NoSuchBucket) };
        let object = Object { bytes, ..Object::default() };
        let mut sink = store.begin_put(bucket, &at.1, object, PutCondition::None).await?;
        let all = Bytes::from(content(serial, bytes));
        sink.write(all.slice(..all.len() / 2)).await?;
        tokio::time::sleep(slowly).await;
        sink.write(all.slice(all.len() / 2..)).await?;
        *before = Some(self.rights(admitted));
        commit(sink, etag(serial, bytes), vec![checksum(&all)]).await.map(drop)
    }

    async fn delete(&mut self, user: &'static str) {
        let at = self.key();
        let Some((admitted, store)) = self.admit(user, true).await else { return };
        let write = self.clients.reference.begins(&at, None);
        let before = self.rights(&admitted);
        let answer = store.delete(&at.0, &at.1, PutCondition::None).await;
        self.note(|| format!("{user} deletes {}", at.1), &answer);
        match answer {
            Ok(()) => {
                self.were_there(&admitted, &before);
                self.clients.reference.done(&at, write);
            }
            Err(error) => {
                if matches!(self.clients.other(&error), Answer::Refused | Answer::Later(_)) {
                    self.clients.reference.refused(&at, write);
                }
            }
        }
    }
}
