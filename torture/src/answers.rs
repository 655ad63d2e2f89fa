//! The clients' requests to the service. Each answer is checked against the reference model.

use crate::content::{Serial, content, etag, serial_of};
use crate::journal::{Journal, Rule};
use crate::kinds::FaultKind;
use crate::plan::{LOST_FROM, Plan};
use crate::reference::{At, Held, OpenUpload, Reference};
use crate::register::{Look, WriteId};
use crate::site::{BUCKET, Running};
use bytes::Bytes;
use catalog::{Checksum, ChecksumKind, ChosenPart, ListRequest, Object, Place, PutCondition, Upload};
use futures::StreamExt;
use s3::store::{Completion, GetBody, ObjectStore, PartId, PutSink, ServiceError};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use workshop::Checksummer;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was done.
    Done,
    /// It surely was not done.
    Refused,
    /// It may have been done.
    Unsure,
    /// Refused for now: retry after this number of seconds.
    Later(u32),
}

/// The run as clients see it.
#[derive(Clone, Copy)]
pub(crate) struct Clients<'a> {
    pub(crate) running: &'a Running,
    pub(crate) reference: &'a Reference,
    pub(crate) plan: &'a Plan,
    /// The store: with root's rights, or with a user's.
    pub(crate) store: &'a dyn ObjectStore,
}

/// The serial number in an ETag.
fn serial_in(etag: &str) -> Option<Serial> {
    etag.split_once('-').and_then(|(serial, _)| serial.parse().ok())
}

pub(crate) fn checksum(bytes: &[u8]) -> Checksum {
    Checksummer::of(ChecksumKind::Crc64Nvme, bytes)
}

/// Commits in a separate task, as the front does: a client that goes away cuts no commit in half.
pub(crate) async fn commit(sink: Box<dyn PutSink>, etag: String, sums: Vec<Checksum>) -> Result<u64, ServiceError> {
    let ended = |error| ServiceError::Unavailable { reason: format!("the commit ended: {error}") };
    tokio::spawn(sink.commit(etag, sums)).await.unwrap_or_else(|error| Err(ended(error)))
}

impl Clients<'_> {
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.running.journal
    }

    /// Puts object number `serial` at a key, in up to three pieces.
    pub(crate) async fn put(
        &self,
        at: &At,
        (serial, bytes): (Serial, u64),
        condition: PutCondition,
    ) -> Result<(), ServiceError> {
        let bucket = self.store.head_bucket(&at.0).await?;
        let object = Object { bytes, ..Object::default() };
        let mut sink = self.store.begin_put(&bucket, &at.1, object, condition).await?;
        let all = Bytes::from(content(serial, bytes));
        let piece = 1 + all.len() / 3;
        for from in (0..all.len()).step_by(piece) {
            sink.write(all.slice(from..all.len().min(from + piece))).await?;
        }
        let sums = if serial % 3 == 0 { Vec::new() } else { vec![checksum(&all)] };
        commit(sink, etag(serial, bytes), sums).await.map(drop)
    }

    /// Puts an object and checks the answer against the model.
    pub(crate) async fn judged_put(&self, at: &At, (serial, bytes): (Serial, u64), condition: PutCondition) -> Answer {
        let look = self.reference.looks(at);
        let write = self.reference.begins(at, Some(serial));
        let answer = self.put(at, (serial, bytes), condition.clone()).await;
        self.note(|| format!("put {} #{serial:x}, {bytes} bytes, {condition:?}", at.1), &answer);
        let answer = match answer {
            Ok(()) => {
                self.met(at, &look, &condition, true);
                self.done(at, write, &condition);
                return Answer::Done;
            }
            Err(error) => self.failed(&error, Some((at, &look, &condition))),
        };
        if matches!(answer, Answer::Refused | Answer::Later(_)) {
            self.reference.refused(at, write);
        }
        answer
    }

    /// Deletes a key and checks the answer against the model.
    pub(crate) async fn judged_delete(&self, at: &At, condition: PutCondition) -> Answer {
        let look = self.reference.looks(at);
        let write = self.reference.begins(at, None);
        let answer = self.store.delete(&at.0, &at.1, condition.clone()).await;
        self.note(|| format!("delete {}, {condition:?}", at.1), &answer);
        let answer = match answer {
            Ok(()) => {
                self.met(at, &look, &condition, true);
                self.done(at, write, &condition);
                return Answer::Done;
            }
            Err(ServiceError::NoSuchKey) => {
                self.saw(at, &look, None);
                Answer::Refused
            }
            Err(error) => self.failed(&error, Some((at, &look, &condition))),
        };
        if matches!(answer, Answer::Refused | Answer::Later(_)) {
            self.reference.refused(at, write);
        }
        answer
    }

    /// A change was acknowledged.
    fn done(&self, at: &At, write: WriteId, condition: &PutCondition) {
        match condition {
            PutCondition::IfMatch(etag) => self.reference.done_in_place_of(at, write, serial_in(etag)),
            _ => self.reference.done(at, write),
        }
    }

    /// The condition of a request was `met` or not; checks that against the model.
    fn met(&self, at: &At, look: &Look<Held>, condition: &PutCondition, met: bool) {
        let could = match (condition, met) {
            // This tells nothing about the earlier content.
            (PutCondition::None, _) | (PutCondition::IfMatch(_), false) => return,
            (PutCondition::IfMatchAny, true) | (PutCondition::IfNoneMatchAny, false) => {
                self.reference.saw_some(at, look)
            }
            (PutCondition::IfMatchAny, false) | (PutCondition::IfNoneMatchAny, true) => {
                self.reference.saw(at, look, None)
            }
            (PutCondition::IfMatch(etag), true) => self.reference.saw(at, look, serial_in(etag)),
        };
        self.journal().demand(could, Rule::Model, || {
            let may = self.reference.may_hold(at);
            format!("{condition:?} of {} holds is {met}, and it may hold {may:x?}", at.1)
        });
    }

    pub(crate) fn saw(&self, at: &At, look: &Look<Held>, held: Held) {
        let could = self.reference.saw(at, look, held);
        self.journal().demand(could, Rule::Model, || {
            let may = self.reference.may_hold(at);
            format!("{} holds {held:x?}, and it may hold {may:x?}", at.1)
        });
    }

    fn note<T, E: fmt::Display>(&self, what: impl Fn() -> String, answer: &Result<T, E>) {
        self.journal().answered();
        self.journal().note(|| match answer {
            Ok(_) => format!("{}: done", what()),
            Err(error) => format!("{}: {error}", what()),
        });
    }

    /// The answer that an error of a change amounts to. Checks that the error is allowed.
    fn failed(&self, error: &ServiceError, of: Option<(&At, &Look<Held>, &PutCondition)>) -> Answer {
        let journal = self.journal();
        match error {
            ServiceError::SlowDown { retry_after_s, .. } => Answer::Later(*retry_after_s),
            ServiceError::PreconditionFailed => {
                match of {
                    Some((at, look, condition)) => self.met(at, look, condition, false),
                    None => journal.broken(Rule::Model, || "a condition failed that no request had".to_owned()),
                }
                Answer::Refused
            }
            ServiceError::NoSuchKey => {
                match of {
                    Some((at, look, PutCondition::IfMatch(_) | PutCondition::IfMatchAny)) => self.saw(at, look, None),
                    _ => journal.broken(Rule::Model, || "a change finds no such key".to_owned()),
                }
                Answer::Refused
            }
            ServiceError::Unavailable { .. } | ServiceError::Damaged(_) => {
                journal.demand(self.excused(), Rule::Honest, || format!("without a fault: {error}"));
                Answer::Unsure
            }
            ServiceError::NoRoom { .. } | ServiceError::NoSuchUpload | ServiceError::NoSuchPart(_) => Answer::Refused,
            ServiceError::NoSuchBucket | ServiceError::NoSuchAccessKey if of.is_none_or(|(at, ..)| at.0 != BUCKET) => {
                Answer::Refused
            }
            error => {
                journal.broken(Rule::Honest, || format!("a change is answered with: {error}"));
                Answer::Unsure
            }
        }
    }

    /// True after any fault that may be the reason for an error.
    fn excused(&self) -> bool {
        self.running.overlay.state().faults() > 0
    }

    /// Reads a key and checks the result against the model.
    pub(crate) async fn judged_get(&self, at: &At, range: Option<Range<u64>>) -> Answer {
        self.judged_read(at, range, &mut async || ()).await
    }

    /// As [`judged_get`](Self::judged_get), by a client that calls `pace` after each piece.
    pub(crate) async fn judged_read(&self, at: &At, range: Option<Range<u64>>, pace: &mut impl AsyncFnMut()) -> Answer {
        let look = self.reference.looks(at);
        match self.store.get(&at.0, &at.1, range.clone()).await {
            Ok(body) => {
                let serial = self.described(at, &look, &body.object);
                let read = self.read_out(serial, body, range, pace).await;
                self.note(|| format!("get {} #{:x}", at.1, serial.unwrap_or(0)), &read);
                read.map_or_else(|error| self.unread(at, serial, &error), |()| Answer::Done)
            }
            Err(error) => {
                self.note(|| format!("get {}", at.1), &Err::<(), _>(&error));
                if matches!(error, ServiceError::NoSuchKey) {
                    self.saw(at, &look, None);
                    return Answer::Done;
                }
                self.unread(at, None, &error)
            }
        }
    }

    /// Describes an object and checks the answer against the model.
    pub(crate) async fn judged_head(&self, at: &At) -> Answer {
        let look = self.reference.looks(at);
        let answer = self.store.head(&at.0, &at.1).await;
        self.note(|| format!("head {}", at.1), &answer);
        match answer {
            Ok(object) => {
                self.described(at, &look, &object);
                Answer::Done
            }
            Err(ServiceError::NoSuchKey) => {
                self.saw(at, &look, None);
                Answer::Done
            }
            Err(error) => self.failed(&error, None),
        }
    }

    /// The serial number of an object that was seen.
    pub(crate) fn described(&self, at: &At, look: &Look<Held>, object: &Object) -> Option<Serial> {
        let serial = serial_of(object);
        self.journal().demand(serial.is_some(), Rule::Bytes, || {
            format!("{} has {} bytes and the ETag {}", at.1, object.bytes, object.etag)
        });
        if serial.is_some() {
            self.saw(at, look, serial);
        }
        serial
    }

    /// Reads a body to its end and compares every byte.
    async fn read_out(
        &self,
        serial: Option<Serial>,
        body: GetBody,
        range: Option<Range<u64>>,
        pace: &mut impl AsyncFnMut(),
    ) -> Result<(), ServiceError> {
        let GetBody { object, mut bytes } = body;
        let wanted = content(serial.unwrap_or(0), object.bytes);
        let range = range.map_or(0..object.bytes, |range| range.start.min(object.bytes)..range.end.min(object.bytes));
        let wanted = &wanted[range.start as usize..range.end as usize];
        let mut at = 0;
        while let Some(piece) = bytes.next().await {
            let piece = piece?;
            let right = wanted.get(at..at + piece.len()) == Some(&piece[..]);
            self.journal().demand(right, Rule::Bytes, || {
                format!("#{:x} is not what was put, from byte {} on", serial.unwrap_or(0), range.start + at as u64)
            });
            at += piece.len();
            pace().await;
        }
        self.journal().demand(at == wanted.len(), Rule::Bytes, || {
            format!("#{:x}: {at} bytes of {} came", serial.unwrap_or(0), wanted.len())
        });
        Ok(())
    }

    /// Bytes could not be read: checks that this error is allowed.
    fn unread(&self, at: &At, serial: Option<Serial>, error: &ServiceError) -> Answer {
        let journal = self.journal();
        match error {
            ServiceError::SlowDown { retry_after_s, .. } => Answer::Later(*retry_after_s),
            ServiceError::DataLost { .. } => {
                journal.demand(self.is_lost(at, serial), Rule::Honest, || {
                    format!(
                        "the server answered that {} is lost, although only {} of its stacks are bad",
                        at.1,
                        self.bad_stacks(at)
                    )
                });
                Answer::Unsure
            }
            ServiceError::Damaged(_) => {
                let rotten = [
                    FaultKind::WorkshopRot,
                    FaultKind::WorkshopFails,
                    FaultKind::SpoolFails,
                    FaultKind::OlderCatalog,
                    FaultKind::CatalogMisread,
                ];
                let excused = rotten.iter().any(|kind| self.happened(*kind));
                journal.demand(excused, Rule::Honest, || format!("{} is called damaged: {error}", at.1));
                if self.happened(FaultKind::WorkshopRot) {
                    let held = self.reference.may_hold(at).into_iter().flatten();
                    self.reference.forfeited.borrow_mut().extend(held.chain(serial));
                }
                Answer::Unsure
            }
            ServiceError::Unavailable { .. } => {
                journal.demand(self.excused(), Rule::Honest, || format!("{} without a fault: {error}", at.1));
                Answer::Unsure
            }
            ServiceError::NoSuchBucket if at.0 != BUCKET => Answer::Refused,
            error => {
                journal.broken(Rule::Honest, || format!("a get of {} is answered with: {error}", at.1));
                Answer::Unsure
            }
        }
    }

    pub(crate) fn happened(&self, kind: FaultKind) -> bool {
        self.running.overlay.state().happened.contains_key(&kind)
    }

    /// The number of bad stacks of the blob that stores a key.
    pub(crate) fn bad_stacks(&self, at: &At) -> usize {
        let placed = futures::FutureExt::now_or_never(self.running.context.catalog.get_object(&at.0, &at.1));
        match placed {
            Some(Ok((_, Place::Stored { blob, .. }))) => self.running.overlay.state().bad_stacks(blob).len(),
            _ => 0,
        }
    }

    /// True if more stacks of a key's blob may be bad than the code makes up for. That happens only in runs that exceed
    /// r on purpose, and under an older catalog that knows blobs which the newest one has reclaimed; there the overlay
    /// is asked. The object that was read as number `serial` and is gone since may be lost as well where drives are
    /// given up: dead data that is still read does not count as a loss then.
    fn is_lost(&self, at: &At, serial: Option<Serial>) -> bool {
        let may_lack = self.plan.beyond || self.happened(FaultKind::OlderCatalog);
        let given_up = [FaultKind::OperatorFailsDrive, FaultKind::GivenUpByRack];
        if !may_lack && !given_up.iter().any(|kind| self.happened(*kind)) {
            return false;
        }
        let placed = futures::FutureExt::now_or_never(self.running.context.catalog.get_object(&at.0, &at.1));
        let parity = usize::from(self.running.spec.code.parity);
        match placed {
            Some(Ok((object, Place::Stored { blob, .. }))) if serial.is_none() || serial_of(&object) == serial => {
                may_lack && self.running.overlay.state().bad_stacks(blob).len() > parity
            }
            _ => true,
        }
    }

    /// As [`judged_get`](Self::judged_get), with retries while the answer is to come later, for at most `limit`.
    pub(crate) async fn get_retrying(&self, at: &At, limit: Duration) -> Answer {
        let began = disk::clock::monotonic();
        loop {
            match self.judged_get(at, None).await {
                Answer::Later(s) if began.elapsed() < limit => {
                    tokio::time::sleep(Duration::from_secs(u64::from(s.max(1)))).await;
                }
                other => return other,
            }
        }
    }

    /// Lists a bucket in pages of `max_keys` and checks every page against the model.
    pub(crate) async fn judged_list(&self, bucket: &str, prefix: &str, max_keys: usize) -> Answer {
        let mut start_after: Option<String> = None;
        loop {
            let known = self.reference.keys_of(bucket);
            let looks: Vec<_> = known
                .iter()
                .filter(|key| key.starts_with(prefix) && start_after.as_ref().is_none_or(|after| *key > after))
                .map(|key| (key.clone(), self.reference.looks(&(bucket.to_owned(), key.clone()))))
                .collect();
            let request = ListRequest {
                prefix: prefix.to_owned(),
                start_after: start_after.clone(),
                max_keys,
                ..ListRequest::default()
            };
            let page = match self.store.list(bucket, request).await {
                Ok(page) => page,
                Err(error) => {
                    self.note(|| format!("list {bucket}/{prefix}"), &Err::<(), _>(&error));
                    return self.failed(&error, None);
                }
            };
            self.listed(bucket, &looks, &page);
            let last = page.objects.last().map(|(key, _)| key.clone());
            if !page.truncated || last.is_none() {
                self.journal()
                    .demand(!page.truncated, Rule::Model, || "a page without keys is not the last".to_owned());
                self.note(|| format!("list {bucket}/{prefix}"), &Ok::<_, ServiceError>(()));
                return Answer::Done;
            }
            start_after = last;
        }
    }

    fn listed(&self, bucket: &str, looks: &[(String, Look<Held>)], page: &catalog::Listing) {
        let ascending = page.objects.windows(2).all(|two| two[0].0 < two[1].0);
        self.journal().demand(ascending, Rule::Model, || "a page is not in order".to_owned());
        let end = page.objects.last().map(|(key, _)| key.clone()).filter(|_| page.truncated);
        for (key, object) in &page.objects {
            let at = (bucket.to_owned(), key.clone());
            match looks.iter().find(|(known, _)| known == key) {
                Some((_, look)) => drop(self.described(&at, look, object)),
                // It was first written while the list was under way.
                None => {
                    self.journal().demand(
                        self.reference.may_hold(&at).iter().any(Option::is_some),
                        Rule::Model,
                        || format!("{key} is listed, and was never put"),
                    );
                }
            }
        }
        for (key, look) in looks.iter().filter(|(key, _)| end.as_ref().is_none_or(|end| key <= end)) {
            if !page.objects.iter().any(|(listed, _)| listed == key) {
                self.saw(&(bucket.to_owned(), key.clone()), look, None);
            }
        }
    }

    /// Begins an upload in parts.
    pub(crate) async fn begin_upload(
        &self,
        key: &str,
        serial: Serial,
        lengths: Vec<u64>,
    ) -> Result<OpenUpload, ServiceError> {
        let upload = Upload::plain(ChecksumKind::Crc64Nvme);
        let made = self.store.create_upload(BUCKET, key, upload).await;
        self.note(|| format!("begin upload {key} #{serial:x} of {lengths:?}"), &made);
        made.map(|version| OpenUpload { key: key.to_owned(), version, serial, lengths, unsure: false })
    }

    /// Puts a part of an upload: the right bytes, or others of the same length.
    pub(crate) async fn put_part(&self, upload: &OpenUpload, number: u32, wrong: bool) -> Result<(), ServiceError> {
        let before = &upload.lengths[..number as usize - 1];
        let (start, bytes) = (before.iter().sum::<u64>() as usize, upload.lengths[before.len()]);
        let serial = if wrong { !upload.serial } else { upload.serial };
        let whole = Bytes::from(content(serial, upload.bytes()));
        let id = PartId { upload: upload.version, number };
        let part = whole.slice(start..start + bytes as usize);
        let put = async {
            let mut sink = self.store.begin_part(BUCKET, &upload.key, id, bytes).await?;
            sink.write(part.clone()).await?;
            let etag = self.part_etag(number) + if wrong { "x" } else { "" };
            sink.commit(etag, vec![checksum(&part)]).await.map(drop)
        };
        let put = put.await;
        self.note(|| format!("put part {number} of #{:x}", upload.serial), &put);
        put
    }

    /// The ETag of a part: in the form of an MD5 in runs in which packs must have all that a recovery needs.
    fn part_etag(&self, number: u32) -> String {
        if self.plan.seed < LOST_FROM { format!("p{number}") } else { format!("{number:032x}") }
    }

    /// Completes an upload and checks the answer against the model.
    pub(crate) async fn judged_complete(&self, upload: &OpenUpload) -> Answer {
        let at = (BUCKET.to_owned(), upload.key.clone());
        let chosen = |number: u32| ChosenPart { number, etag: self.part_etag(number) };
        let object = Object {
            version: upload.version,
            bytes: upload.bytes(),
            parts: upload.lengths.iter().copied().collect(),
            etag: etag(upload.serial, upload.bytes()),
            checksums: vec![checksum(&content(upload.serial, upload.bytes()))],
            ..Object::default()
        };
        let parts = (1..=upload.lengths.len() as u32).map(chosen).collect();
        let completion = Completion { object, parts, condition: PutCondition::None };
        let write = self.reference.begins(&at, Some(upload.serial));
        let answer = self.store.complete_upload(BUCKET, &upload.key, completion).await;
        self.note(|| format!("complete {} #{:x}", upload.key, upload.serial), &answer);
        match answer {
            Ok(()) => {
                self.reference.done(&at, write);
                Answer::Done
            }
            Err(error) => {
                let missing = matches!(error, ServiceError::NoSuchUpload | ServiceError::NoSuchPart(_));
                self.journal().demand(!missing || upload.unsure, Rule::Kept, || {
                    format!("upload #{:x} with all its parts is not there: {error}", upload.serial)
                });
                let answer = self.failed(&error, None);
                if matches!(answer, Answer::Refused | Answer::Later(_)) {
                    self.reference.refused(&at, write);
                }
                answer
            }
        }
    }

    /// Aborts an upload.
    pub(crate) async fn abort(&self, upload: &OpenUpload) -> Answer {
        let answer = self.store.abort_upload(BUCKET, &upload.key, upload.version).await;
        self.note(|| format!("abort #{:x}", upload.serial), &answer);
        answer.map_or_else(|error| self.failed(&error, None), |()| Answer::Done)
    }

    /// An error of any other request.
    pub(crate) fn other(&self, error: &ServiceError) -> Answer {
        self.failed(error, None)
    }
}
