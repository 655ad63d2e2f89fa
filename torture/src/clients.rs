//! Random histories: several clients at once, whose operations are drawn one by one, each from its own stream.

use crate::answers::{Answer, Clients, commit};
use crate::content::{Serial, content, etag};
use crate::plan::{Item, Life, Plan, Stream};
use crate::reference::{At, OpenUpload, Reference};
use crate::site::{BUCKET, Running};
use crate::{readers, records, rights, tags};
use bytes::Bytes;
use catalog::{Object, PutCondition};
use futures::StreamExt;
use futures::future::join_all;
use model::Rng;
use s3::store::ServiceError;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Runs the clients of a life.
pub(crate) async fn live(running: &Running, reference: &Reference, plan: &Plan, (round, life): (u64, &Life)) {
    let clients = Clients { running, reference, plan, store: &running.service };
    let all = (0..life.clients).map(|client| async move {
        for op in 0..life.ops {
            if !plan.is_dropped(Item::Op { round, client, op }) {
                let rng = Stream::Client { round, client, op }.of(plan.seed);
                Client { clients, rng }.act(life).await;
            }
        }
    });
    let users = async {
        if let Some(users) = &running.users {
            rights::look_at_users(running, clients, users).await;
            rights::live(clients, users, (round, life)).await;
        }
    };
    let life = (round, life);
    let readers = readers::live(running, reference, plan, life);
    let tags = tags::live(running, reference, plan, life);
    tokio::join!(join_all(all), users, records::live(running, reference, plan, life), readers, tags);
}

struct Client<'a> {
    clients: Clients<'a>,
    rng: Rng,
}

impl Client<'_> {
    async fn act(mut self, life: &Life) {
        let at = self.key();
        if self.clients.plan.rivals && self.rng.below(8) == 0 {
            return self.duel(&at).await;
        }
        if life.rest_s > 0 && self.rng.below(2) == 0 {
            tokio::time::sleep(SECOND * self.rng.between(1, life.rest_s) as u32).await;
        }
        match self.rng.below(32) {
            0..=8 => _ = self.put(&at).await,
            9..=11 => _ = self.delete(&at).await,
            12..=16 => _ = self.clients.judged_get(&at, None).await,
            17..=18 => self.get_range(&at).await,
            19 => self.look_and_leave(&at).await,
            20 => self.give_up(&at).await,
            21 => _ = self.clients.judged_head(&at).await,
            22..=23 => self.list().await,
            24 => self.copy(&at).await,
            25..=27 => self.put_in_parts(&at).await,
            28 => self.leave_open().await,
            29 => self.complete_one().await,
            30 => self.crowd().await,
            _ => tokio::time::sleep(SECOND * self.rng.between(1, 400) as u32).await,
        }
        let pause_ms = [0, 200, 3_000, 20_000][self.rng.below(4) as usize];
        tokio::time::sleep(Duration::from_millis(self.rng.between(0, pause_ms))).await;
    }

    fn key(&mut self) -> At {
        let folder = self.rng.below(3);
        (BUCKET.to_owned(), format!("{folder}/{}", self.rng.below(self.clients.plan.keys)))
    }

    /// A new serial number.
    fn serial(&mut self) -> Serial {
        self.rng.next_u64() >> 8
    }

    fn new_object(&mut self) -> (Serial, u64) {
        (self.serial(), Plan::object_bytes(&mut self.rng))
    }

    /// Usually no condition; otherwise one that may hold.
    async fn condition(&mut self, at: &At) -> PutCondition {
        match self.rng.below(8) {
            0 => PutCondition::IfNoneMatchAny,
            1 => PutCondition::IfMatchAny,
            2 => match self.clients.store.head(&at.0, &at.1).await {
                Ok(object) => PutCondition::IfMatch(object.etag),
                Err(_) => PutCondition::IfMatch(etag(1, 1)),
            },
            _ => PutCondition::None,
        }
    }

    async fn put(&mut self, at: &At) -> Answer {
        let (object, condition) = (self.new_object(), self.condition(at).await);
        self.clients.judged_put(at, object, condition).await
    }

    async fn delete(&mut self, at: &At) -> Answer {
        let condition = self.condition(at).await;
        self.clients.judged_delete(at, condition).await
    }

    async fn get_range(&mut self, at: &At) {
        let (one, other) = (self.rng.below(100_000), self.rng.below(100_000));
        let range = match self.rng.below(3) {
            0 => one..one + 1,
            1 => one / 4096 * 4096..(other / 4096 + 1) * 4096,
            _ => one.min(other)..one.max(other),
        };
        let range = range.start.min(range.end)..range.end;
        self.clients.judged_get(at, Some(range)).await;
    }

    /// Begins a get and leaves after the first bytes.
    async fn look_and_leave(&mut self, at: &At) {
        let wait = Duration::from_millis(self.rng.below(20_000));
        let get = async {
            if let Ok(mut body) = self.clients.store.get(&at.0, &at.1, None).await {
                let _ = body.bytes.next().await;
            }
        };
        let _ = tokio::time::timeout(wait, get).await;
        self.clients.journal().note(|| format!("get {}, and leave", at.1));
    }

    /// Begins a put and leaves in the middle, or during the commit.
    async fn give_up(&mut self, at: &At) {
        let (serial, bytes) = self.new_object();
        if self.rng.below(2) == 0 {
            let wait = Duration::from_millis(self.rng.below(50));
            // It may yet be committed; that shows after the life has ended.
            self.clients.reference.begins(at, Some(serial));
            let put = self.clients.put(at, (serial, bytes), PutCondition::None);
            let _ = tokio::time::timeout(wait, put).await;
        } else {
            let Ok(bucket) = self.clients.store.head_bucket(BUCKET).await else { return };
            let object = Object { bytes: bytes + 1, ..Object::default() };
            if let Ok(mut sink) = self.clients.store.begin_put(&bucket, &at.1, object, PutCondition::None).await {
                let _ = sink.write(Bytes::from(content(serial, bytes))).await;
            }
        }
        self.clients.journal().note(|| format!("put {} #{serial:x}, {bytes} bytes, and leave", at.1));
    }

    async fn list(&mut self) {
        let prefix = ["", "1/", "2/1"][self.rng.below(3) as usize];
        self.clients.judged_list(BUCKET, prefix, self.rng.between(1, 12) as usize).await;
    }

    /// Copies an object: puts the bytes that it reads as another object.
    async fn copy(&mut self, to: &At) {
        let from = self.key();
        let look = self.clients.reference.looks(&from);
        let Ok(body) = self.clients.store.get(&from.0, &from.1, None).await else { return };
        let Some(serial) = self.clients.described(&from, &look, &body.object) else { return };
        let bytes = body.object.bytes;
        let write = self.clients.reference.begins(to, Some(serial));
        let copied = self.copy_body(body, to, (serial, bytes)).await;
        self.clients.journal().note(|| format!("copy {} to {}: {copied:?}", from.1, to.1));
        match copied {
            Ok(()) => self.clients.reference.done(to, write),
            Err(None) => self.clients.reference.refused(to, write),
            Err(Some(error)) => {
                let answer = self.clients.other(&error);
                if matches!(answer, Answer::Refused | Answer::Later(_)) {
                    self.clients.reference.refused(to, write);
                }
            }
        }
    }

    /// The error `None` is an error of the source.
    async fn copy_body(
        &self,
        mut body: s3::store::GetBody,
        to: &At,
        (serial, bytes): (Serial, u64),
    ) -> Result<(), Option<ServiceError>> {
        let bucket = self.clients.store.head_bucket(&to.0).await.map_err(Some)?;
        let object = Object { bytes, created_ms: body.object.created_ms, ..Object::default() };
        let begun = self.clients.store.begin_put(&bucket, &to.1, object, PutCondition::None).await;
        let mut sink = begun.map_err(Some)?;
        while let Some(piece) = body.bytes.next().await {
            sink.write(piece.map_err(|_| None)?).await.map_err(Some)?;
        }
        commit(sink, etag(serial, bytes), body.object.checksums).await.map(drop).map_err(Some)
    }

    fn lengths(&mut self) -> Vec<u64> {
        (0..self.rng.between(1, 4)).map(|_| self.rng.below(60_000)).collect()
    }

    /// Puts all parts of a new upload, in ascending or descending order, some of them twice; `None` if one was refused.
    async fn upload(&mut self, key: &str) -> Option<OpenUpload> {
        let (serial, lengths) = (self.serial(), self.lengths());
        let upload = match self.clients.begin_upload(key, serial, lengths).await {
            Ok(upload) => upload,
            Err(error) => {
                self.clients.other(&error);
                return None;
            }
        };
        let last = upload.lengths.len() as u32;
        let numbers: Vec<u32> = if self.rng.below(2) == 0 { (1..=last).collect() } else { (1..=last).rev().collect() };
        for number in numbers {
            if self.rng.below(5) == 0
                && let Err(error) = self.clients.put_part(&upload, number, true).await
            {
                self.clients.other(&error);
            }
            if let Err(error) = self.clients.put_part(&upload, number, false).await {
                self.clients.other(&error);
                return None;
            }
        }
        Some(upload)
    }

    /// Puts an object in parts, or aborts the upload before it is complete.
    async fn put_in_parts(&mut self, at: &At) {
        let Some(mut upload) = self.upload(&at.1).await else { return };
        if self.clients.plan.rivals && self.rng.below(2) == 0 {
            self.contend(upload).await;
        } else if self.rng.below(4) == 0 {
            self.clients.abort(&upload).await;
        } else if self.clients.judged_complete(&upload).await != Answer::Done {
            upload.unsure = true;
            self.clients.reference.uploads.borrow_mut().push(upload);
        }
    }

    /// Completes an upload while others put a part of it again, and perhaps abort it.
    async fn contend(&mut self, mut upload: OpenUpload) {
        upload.unsure = true;
        let number = self.rng.between(1, upload.lengths.len() as u64) as u32;
        let (wrong, aborted) = (self.rng.below(2) == 0, self.rng.below(4) == 0);
        let [put_ms, abort_ms] = [30, 30].map(|most| self.rng.below(most));
        let (clients, upload_of_all) = (self.clients, &upload);
        let put = async {
            tokio::time::sleep(Duration::from_millis(put_ms)).await;
            match clients.put_part(upload_of_all, number, wrong).await {
                Ok(()) | Err(ServiceError::NoSuchUpload) => {}
                Err(error) => drop(clients.other(&error)),
            }
        };
        let abort = async {
            if aborted {
                tokio::time::sleep(Duration::from_millis(abort_ms)).await;
                clients.abort(upload_of_all).await;
            }
        };
        let (answer, (), ()) = tokio::join!(clients.judged_complete(upload_of_all), put, abort);
        if answer != Answer::Done {
            self.clients.reference.uploads.borrow_mut().push(upload);
        }
    }

    /// Puts all parts of an object at its own key and leaves.
    async fn leave_open(&mut self) {
        let key = format!("open/{:x}", self.serial());
        if let Some(upload) = self.upload(&key).await {
            self.clients.reference.uploads.borrow_mut().push(upload);
        }
    }

    /// Completes an upload that was left open.
    async fn complete_one(&mut self) {
        let found = {
            let mut uploads = self.clients.reference.uploads.borrow_mut();
            let count = uploads.len() as u64;
            (count > 0).then(|| uploads.swap_remove(self.rng.below(count) as usize))
        };
        if let Some(mut upload) = found
            && self.clients.judged_complete(&upload).await != Answer::Done
        {
            upload.unsure = true;
            self.clients.reference.uploads.borrow_mut().push(upload);
        }
    }

    /// One client puts an object. Then another client replaces it while a third deletes or replaces exactly that
    /// object.
    async fn duel(&mut self, at: &At) {
        let (first, second, third) = (self.new_object(), self.new_object(), self.new_object());
        if self.clients.judged_put(at, first, PutCondition::None).await != Answer::Done {
            return;
        }
        let meant = || PutCondition::IfMatch(etag(first.0, first.1));
        let [put_ms, change_ms] = [30, 30].map(|most| self.rng.below(most));
        let (clients, deletes) = (self.clients, self.rng.below(3) > 0);
        let put = async {
            tokio::time::sleep(Duration::from_millis(put_ms)).await;
            clients.judged_put(at, second, PutCondition::None).await
        };
        let change = async {
            tokio::time::sleep(Duration::from_millis(change_ms)).await;
            if deletes {
                clients.judged_delete(at, meant()).await
            } else {
                clients.judged_put(at, third, meant()).await
            }
        };
        tokio::join!(put, change);
        clients.judged_head(at).await;
    }

    /// Several requests for one key at once.
    async fn crowd(&mut self) {
        let at = self.key();
        let objects: Vec<_> = (0..self.rng.between(2, 5)).map(|_| self.new_object()).collect();
        let clients = self.clients;
        let puts = objects.into_iter().map(|object| clients.judged_put(&at, object, PutCondition::None));
        let gets = (0..2).map(|_| clients.judged_get(&at, None));
        tokio::join!(join_all(puts), join_all(gets), clients.judged_delete(&at, PutCondition::None));
    }
}
