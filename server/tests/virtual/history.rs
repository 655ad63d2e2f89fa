//! Random histories, and the book that says which states each key may be in.

use crate::parts::OpenUpload;
use crate::site::{BUCKET, Facts, KIB, Larder, SECOND, content};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use model::{DriveId, Rng};
use s3::store::{ObjectStore, ServiceError};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Keys of each client.
const KEYS: u64 = 8;

/// A state of a key: a serial number, or nothing.
type State = Option<u64>;

/// The knowledge about a key.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The state acknowledged last, or seen after that.
    sure: State,
    /// Other possible states: changes that were not acknowledged.
    open: Vec<State>,
}

/// The states that every key may be in.
#[derive(Default)]
pub struct Book {
    keys: RefCell<BTreeMap<String, Known>>,
    /// Uploads that were left open with all of their parts acknowledged.
    uploads: RefCell<Vec<OpenUpload>>,
}

impl Book {
    /// A change to `state` begins.
    fn begins(&self, key: &str, state: State) {
        self.keys.borrow_mut().entry(key.into()).or_default().open.push(state);
    }

    /// `state` was acknowledged, or seen when nothing was under way.
    fn is_sure(&self, key: &str, state: State) {
        self.keys.borrow_mut().insert(key.into(), Known { sure: state, open: Vec::new() });
    }

    fn check(&self, key: &str, seen: State) {
        let known = self.keys.borrow().get(key).cloned().unwrap_or_default();
        assert!(known.sure == seen || known.open.contains(&seen), "{key} holds {seen:?}, and should {known:?}");
    }

    /// Uploads that were left open are still there with all of their parts, and become what they were to be.
    pub async fn complete_uploads(&self, larder: &Larder) {
        for upload in self.uploads.take() {
            larder.complete(&upload).await.unwrap();
            self.is_sure(&upload.key, Some(upload.serial));
        }
    }

    /// Every key that was ever written holds what it may, byte for byte, and no other key is there. What is seen is
    /// sure from now on.
    pub async fn hold_against(&self, larder: &Larder) {
        let listed = larder.keys().await;
        let known: Vec<String> = self.keys.borrow().keys().cloned().collect();
        assert!(listed.iter().all(|key| known.contains(key)), "{listed:?}");
        for key in known {
            let seen = match larder.get_retrying(&key).await {
                Ok(serial) => Some(serial),
                Err(ServiceError::NoSuchKey) => None,
                Err(error) => panic!("{key}: {error}"),
            };
            self.check(&key, seen);
            assert_eq!(listed.contains(&key), seen.is_some(), "{key} is listed if it is there");
            self.is_sure(&key, seen);
        }
    }

    /// The states that are sure, for comparisons.
    pub fn states(&self) -> Vec<(String, State)> {
        self.keys.borrow().iter().map(|(key, known)| (key.clone(), known.sure)).collect()
    }
}

/// Whether drives come and go, and answer with errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Fair,
    Foul,
}

/// Several clients, each with keys of its own, do `ops` random things each.
pub async fn live(larder: &Larder, (facts, book): (&Facts, &Book), seed: u64, ops: u64, weather: Weather) {
    let clients = (0..3).map(|id| {
        let rng = Rng::for_thing(seed, id + 1);
        Client { larder, book, id, rng, weather }.live(ops)
    });
    let weather_rng = Rng::for_thing(seed, 99);
    let clients = join_all(clients);
    if weather == Weather::Foul {
        tokio::select! {
            biased;
            _ = clients => {}
            () = storm(larder, facts, weather_rng) => {}
        }
    } else {
        clients.await;
    }
    for drive in 0..larder.context.drives.len() as u32 {
        larder.rack.plug(DriveId(drive));
    }
}

/// Pulls a drive and plugs it again, or lets a call of one fail, for ever. Never more than one is away.
async fn storm(larder: &Larder, facts: &Facts, mut rng: Rng) {
    loop {
        tokio::time::sleep(SECOND * rng.between(5, 200) as u32).await;
        let drive = rng.below(larder.context.drives.len() as u64);
        match rng.below(4) {
            0 => facts.staged.fail_call(rng.between(1, 20)),
            1 => facts.media[drive as usize].fail_call(rng.between(1, 20)),
            _ => {
                larder.rack.pull(DriveId(drive as u32));
                tokio::time::sleep(SECOND * rng.between(1, 120) as u32).await;
                larder.rack.plug(DriveId(drive as u32));
            }
        }
    }
}

struct Client<'a> {
    larder: &'a Larder,
    book: &'a Book,
    id: u64,
    rng: Rng,
    weather: Weather,
}

impl Client<'_> {
    async fn live(mut self, ops: u64) {
        for _ in 0..ops {
            let key = format!("c{}/{}", self.id, self.rng.below(KEYS));
            match self.rng.below(24) {
                0..=7 => self.put(&key).await,
                8..=9 => self.delete(&key).await,
                10..=15 => self.get(&key).await,
                16 => self.give_up(&key).await,
                17 => self.look_and_leave(&key).await,
                18 => drop(self.larder.keys().await),
                19..=21 => self.put_in_parts(&key).await,
                22 => self.leave_open().await,
                _ => tokio::time::sleep(SECOND * self.rng.between(1, 400) as u32).await,
            }
            tokio::time::sleep(SECOND * self.rng.below(20) as u32).await;
        }
    }

    fn bytes(&mut self) -> u64 {
        match self.rng.below(8) {
            0 => 0,
            1..=4 => self.rng.between(1, 20 * KIB),
            5..=6 => self.rng.between(1, 200 * KIB),
            _ => self.rng.between(1, 2000 * KIB),
        }
    }

    /// A serial number that nobody had.
    fn serial(&mut self) -> u64 {
        self.rng.next_u64() >> 8
    }

    async fn put(&mut self, key: &str) {
        let (serial, bytes) = (self.serial(), self.bytes());
        self.book.begins(key, Some(serial));
        match self.larder.put(key, serial, bytes).await {
            Ok(()) => self.book.is_sure(key, Some(serial)),
            Err(ServiceError::SlowDown { .. }) => {}
            Err(error) => self.may_fail(key, &error),
        }
    }

    /// Puts an object in parts, some of them twice; or gives up before it is complete.
    async fn put_in_parts(&mut self, key: &str) {
        let (serial, lengths) = (self.serial(), self.lengths());
        let upload = match self.larder.begin(key, serial, lengths).await {
            Ok(upload) => upload,
            Err(error) => return self.may_be_refused(key, &error),
        };
        for number in 1..=upload.lengths.len() as u32 {
            for _ in 0..=self.rng.below(4) / 3 {
                if let Err(error) = self.larder.put_part(&upload, number).await {
                    return self.may_be_refused(key, &error);
                }
            }
        }
        if self.rng.below(4) == 0 {
            match self.larder.service.abort_upload(BUCKET, key, upload.version).await {
                Ok(()) => {}
                Err(error) => self.may_fail(key, &error),
            }
            return;
        }
        self.book.begins(key, Some(serial));
        match self.larder.complete(&upload).await {
            Ok(()) => self.book.is_sure(key, Some(serial)),
            Err(error) => self.may_fail(key, &error),
        }
    }

    /// Puts all parts of an object at a key of its own and goes away.
    async fn leave_open(&mut self) {
        let (serial, lengths) = (self.serial(), self.lengths());
        let key = format!("c{}/open{serial}", self.id);
        let Ok(upload) = self.larder.begin(&key, serial, lengths).await else { return };
        for number in 1..=upload.lengths.len() as u32 {
            if self.larder.put_part(&upload, number).await.is_err() {
                return;
            }
        }
        self.book.uploads.borrow_mut().push(upload);
    }

    fn lengths(&mut self) -> Vec<u64> {
        (0..self.rng.between(1, 4)).map(|_| self.rng.below(300 * KIB)).collect()
    }

    fn may_be_refused(&self, key: &str, error: &ServiceError) {
        if !matches!(error, ServiceError::SlowDown { .. }) {
            self.may_fail(key, error);
        }
    }

    async fn delete(&mut self, key: &str) {
        self.book.begins(key, None);
        match self.larder.service.delete(BUCKET, key, catalog::PutCondition::None).await {
            Ok(()) => self.book.is_sure(key, None),
            Err(error) => self.may_fail(key, &error),
        }
    }

    async fn get(&mut self, key: &str) {
        match self.larder.get(key).await {
            Ok(serial) => self.book.check(key, Some(serial)),
            Err(ServiceError::NoSuchKey) => self.book.check(key, None),
            Err(ServiceError::SlowDown { .. }) => {}
            Err(error) => self.may_fail(key, &error),
        }
    }

    /// Begins a put and goes away in the middle.
    async fn give_up(&mut self, key: &str) {
        let serial = self.serial();
        let Ok(bucket) = self.larder.service.head_bucket(BUCKET).await else { return };
        let object = catalog::Object { bytes: 5 * KIB, ..catalog::Object::default() };
        let begun = self.larder.service.begin_put(&bucket, key, object, catalog::PutCondition::None).await;
        if let Ok(mut sink) = begun {
            let _ = sink.write(Bytes::from(content(key, serial, 2 * KIB))).await;
        }
    }

    /// Begins a get and goes away after the first bytes.
    async fn look_and_leave(&mut self, key: &str) {
        if let Ok(mut body) = self.larder.service.get(BUCKET, key, None).await {
            let _ = body.bytes.next().await;
        }
    }

    fn may_fail(&self, key: &str, error: &ServiceError) {
        assert!(self.weather == Weather::Foul, "{key}: {error}");
        assert!(!matches!(error, ServiceError::DataLost { .. } | ServiceError::Internal(_)), "{key}: {error}");
    }
}
