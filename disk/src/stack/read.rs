//! Reading a blob.
//!
//! 1. Each stack that is read is opened: footer, last checksum page and header are read and compared with the expected
//!    ones.
//! 2. Batches of stripes are fetched from all chosen stacks at once, and each fragment is checked; while one batch is
//!    delivered the next one is being fetched.
//! 3. If fewer than k fragments of a stripe are good, further stacks are fetched for that batch; then missing fragments
//!    are rebuilt, and bad ones are written back to their places.
//!
//! Invariants: see [`stack`](super); and a fragment is written back only if it matches the checksum that was there
//! before.

use super::fetch::{Fetch, FetchOrder, Fetched, StackEnds, open};
use super::format::{Blob, ChecksumPage, Provenance, RUN_STRIPES, Shape, StripeBatch, fragment_sum, stack_name};
use super::outcome::{Report, StackError, StackOutcome};
use crate::code::Codec;
use crate::{Buffer, Drive, DriveError, FileName, Meter, finished};
use crc_fast::{CrcAlgorithm, Digest};
use futures::future::{BoxFuture, join_all};
use model::sabotage::{Sabotage, is_on};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The stacks that are read when all of them are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All k + r, so that each is checked (Pelican's policy).
    All,
    /// The first k, and others only if one of them fails.
    K,
}

/// The receiver of a payload wants no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkClosed;

/// Takes a payload, piece by piece and in order. Its answer is awaited before the next piece, so a slow sink slows the
/// reader down.
pub trait PayloadSink: Send {
    /// Takes the next `bytes` of the payload.
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>>;
}

impl PayloadSink for Vec<u8> {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        self.extend_from_slice(bytes);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The state of a stack.
enum SourceState {
    Unopened,
    Open,
    /// Permanently unusable: the drive answers, but not with this stack.
    Bad,
    /// The drive does not answer now, but may later; with its failure.
    Failed(StackOutcome),
}

struct StackSource {
    index: u8,
    drive: Arc<dyn Drive>,
    name: FileName,
    state: SourceState,
    /// The checksum of its header, once it is open.
    header_crc: u32,
    /// The checksum page read last.
    page: Option<Arc<ChecksumPage>>,
    /// Fragments repaired so far.
    repaired: u32,
    /// It has damage that was not repaired.
    unsound: bool,
    /// Fragments found bad and not repaired, including those with unreadable checksums.
    bad: u64,
}

/// Reads one blob.
pub struct StackReader {
    blob: Blob,
    shape: Shape,
    codec: Codec,
    policy: Policy,
    repairs: bool,
    /// Set if parity is recomputed and compared: by stack index, the first stripe with a difference.
    parity: Option<BTreeMap<u8, u64>>,
    stacks: Vec<StackSource>,
    payload_crc64: u64,
    /// The origin of the blob, from the first opened stack.
    provenance: Option<Provenance>,
    /// Buffers that wait for their next use.
    free: Vec<Buffer>,
    meter: Arc<Meter>,
}

/// The fragments of a batch that were fetched.
struct Arrived {
    batch: StripeBatch,
    /// By stack index: the buffer, and for each of its fragments true if it is good.
    by_index: Vec<Option<(Buffer, Vec<bool>)>>,
}

type Fetches = JoinSet<(usize, Fetched)>;

impl StackReader {
    /// Opens `blob` from these `stacks`, each given by its index and drive, each index at most once. At least k of them
    /// must be good.
    pub async fn open(blob: Blob, stacks: Vec<(u8, Arc<dyn Drive>)>, policy: Policy) -> Report<Self> {
        let stack = |(index, drive): (u8, Arc<dyn Drive>)| {
            assert!(usize::from(index) < blob.code.stacks(), "the blob has no stack {index}");
            let name = stack_name(blob.id, index);
            let (state, header_crc, page) = (SourceState::Unopened, 0, None);
            StackSource { index, drive, name, state, header_crc, page, repaired: 0, unsound: false, bad: 0 }
        };
        let mut reader = Self {
            blob,
            shape: Shape::new(blob.code, blob.payload_bytes),
            codec: Codec::new(blob.code),
            policy,
            repairs: true,
            parity: None,
            stacks: stacks.into_iter().map(stack).collect(),
            payload_crc64: 0,
            provenance: None,
            free: Vec::new(),
            meter: Arc::new(Meter::default()),
        };
        let opened = reader.open_enough().await;
        let outcomes = reader.outcomes();
        Report { result: opened.map(|()| reader), outcomes }
    }

    /// Disables repairs, so that bad fragments are only found and counted.
    #[must_use]
    pub fn without_repairs(mut self) -> Self {
        self.repairs = false;
        self
    }

    /// Recomputes the parity of each stripe whose fragments are all good, and compares it.
    #[must_use]
    pub(super) fn with_parity_checked(mut self) -> Self {
        self.parity = Some(BTreeMap::new());
        self
    }

    /// By stack index, the first stripe whose parity fragment does not fit its data fragments.
    pub(super) fn wrong_parity(&self) -> impl Iterator<Item = (u8, u64)> {
        self.parity.iter().flatten().map(|(index, stripe)| (*index, *stripe))
    }

    /// The number of fragments of each stack that were found bad and not repaired, in the given order.
    pub(super) fn bad_fragments(&self) -> Vec<u64> {
        self.stacks.iter().map(|stack| stack.bad).collect()
    }

    /// Passes the payload bytes of `range` to `sink`, reading only the stripes that contain them. Bytes that were
    /// passed before an error are right.
    pub async fn read(&mut self, range: Range<u64>, sink: &mut dyn PayloadSink) -> Result<(), StackError> {
        assert!(range.end <= self.blob.payload_bytes, "the range lies within the payload");
        if range.is_empty() {
            return Ok(());
        }
        let stripe_bytes = self.blob.code.stripe_bytes();
        let end = (range.end - 1) / stripe_bytes + 1;
        let mut crc = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut batch = self.shape.batch(range.start / stripe_bytes, end);
        let mut in_flight = self.fetch(batch, &self.chosen());
        loop {
            let mut arrived = Arrived { batch, by_index: self.blob_slots() };
            self.land(&mut in_flight, &mut arrived).await;
            let next = (batch.end() < end).then(|| self.shape.batch(batch.end(), end));
            if let Some(next) = next {
                in_flight = self.fetch(next, &self.chosen());
            }
            self.fetch_more(&mut arrived).await?;
            self.give_out(arrived, &range, &mut crc, sink).await?;
            match next {
                Some(next) => batch = next,
                None => break,
            }
        }
        self.sync_repairs().await;
        let (expected, found) = (self.payload_crc64, crc.finalize());
        let whole = range == (0..self.blob.payload_bytes);
        if whole && expected != found { Err(StackError::WrongPayload { expected, found }) } else { Ok(()) }
    }

    /// CRC-64/NVME of the payload, from the footers.
    pub fn payload_crc64(&self) -> u64 {
        self.payload_crc64
    }

    /// The origin of the blob, from its headers.
    pub(super) fn provenance(&self) -> Provenance {
        self.provenance.expect("at least k stacks of a reader are open")
    }

    /// The outcome of each stack so far, in the given order.
    pub fn outcomes(&self) -> Vec<StackOutcome> {
        self.stacks.iter().map(StackSource::outcome).collect()
    }

    /// The maximum number of bytes that the buffers of this transfer held at once.
    pub fn peak_buffer_bytes(&self) -> usize {
        self.meter.peak_bytes()
    }

    fn blob_slots(&self) -> Vec<Option<(Buffer, Vec<bool>)>> {
        (0..self.blob.code.stacks()).map(|_| None).collect()
    }

    /// Opens the stacks of the policy, and others in place of bad ones.
    async fn open_enough(&mut self) -> Result<(), StackError> {
        let need = usize::from(self.blob.code.data);
        loop {
            let open = self.stacks.iter().filter(|stack| matches!(stack.state, SourceState::Open)).count();
            let unopened =
                self.stacks.iter().enumerate().filter(|(_, stack)| matches!(stack.state, SourceState::Unopened));
            let mut unopened: Vec<usize> = unopened.map(|(at, _)| at).collect();
            if self.policy == Policy::K {
                unopened.sort_by_key(|at| self.stacks[*at].index);
                unopened.truncate(need.saturating_sub(open));
            }
            if unopened.is_empty() {
                return if open >= need { Ok(()) } else { Err(self.too_few(0, open, &[])) };
            }
            self.open_stacks(&unopened).await;
        }
    }

    async fn open_stacks(&mut self, which: &[usize]) {
        let opened = join_all(which.iter().map(|at| {
            let stack = &self.stacks[*at];
            open(&self.blob, stack.index, &stack.drive, &self.meter)
        }))
        .await;
        let crcs: Vec<u64> = opened.iter().flatten().map(|ends| ends.footer.payload_crc64).collect();
        if self.stacks.iter().all(|stack| !matches!(stack.state, SourceState::Open)) {
            self.payload_crc64 = most_frequent(&crcs);
        }
        for (at, result) in which.iter().zip(opened) {
            let stack = &mut self.stacks[*at];
            match result {
                Ok(StackEnds { footer, page, provenance }) if footer.payload_crc64 == self.payload_crc64 => {
                    stack.state = SourceState::Open;
                    stack.header_crc = footer.header_crc;
                    stack.page = page;
                    self.provenance.get_or_insert(provenance);
                }
                Ok(_) => stack.mark_bad("its payload checksum differs from the others'"),
                Err(error) => stack.mark_failed(&error),
            }
        }
    }

    /// Places of the stacks that are read by default.
    fn chosen(&self) -> Vec<usize> {
        let open = self.stacks.iter().enumerate().filter(|(_, stack)| matches!(stack.state, SourceState::Open));
        let mut open: Vec<usize> = open.map(|(at, _)| at).collect();
        if self.policy == Policy::K {
            open.sort_by_key(|at| self.stacks[*at].index);
            open.truncate(self.blob.code.data.into());
        }
        open
    }

    /// Starts to fetch `batch` from the stacks at `places`.
    fn fetch(&mut self, batch: StripeBatch, places: &[usize]) -> Fetches {
        let mut in_flight = JoinSet::new();
        for at in places {
            let buffer = self.free.pop();
            let stack = &self.stacks[*at];
            let first_stripe = batch.run() * RUN_STRIPES;
            let page = stack.page.clone().filter(|page| page.first_stripe == first_stripe);
            let (drive, name, meter) = (Arc::clone(&stack.drive), stack.name.clone(), Arc::clone(&self.meter));
            let order = FetchOrder {
                blob: self.blob,
                shape: self.shape,
                index: stack.index,
                drive,
                name,
                batch,
                header_crc: stack.header_crc,
                page,
                buffer,
                meter,
            };
            let at = *at;
            in_flight.spawn(async move { (at, order.fetch().await) });
        }
        in_flight
    }

    fn free_buffer(&mut self) -> Buffer {
        let bytes = self.shape.batch_bytes();
        self.free.pop().unwrap_or_else(|| self.meter.zeroed(bytes))
    }

    /// Waits for the fetches, and sorts their fragments into `arrived`.
    async fn land(&mut self, in_flight: &mut Fetches, arrived: &mut Arrived) {
        while let Some(joined) = in_flight.join_next().await {
            let Some((at, Fetched { page, fetch })) = finished(joined) else { continue };
            let stack = &mut self.stacks[at];
            stack.page = page;
            match fetch {
                Fetch::Read { buffer, good } => arrived.by_index[usize::from(stack.index)] = Some((buffer, good)),
                Fetch::NoChecksums(buffer) => {
                    tracing::warn!(stack = %stack.name, run = arrived.batch.run(), "a checksum page is bad");
                    stack.unsound = true;
                    stack.bad += arrived.batch.stripes;
                    self.free.extend(buffer);
                }
                Fetch::Failed(error) => stack.mark_failed(&error),
            }
        }
    }

    /// Fetches further stacks for this batch until every stripe has k good fragments.
    async fn fetch_more(&mut self, arrived: &mut Arrived) -> Result<(), StackError> {
        let need = usize::from(self.blob.code.data);
        let mut tried: Vec<usize> = Vec::new();
        loop {
            let Some((stripe, good)) = arrived.worst().filter(|(_, good)| *good < need) else { return Ok(()) };
            let left = self.stacks.iter().enumerate().filter(|(at, stack)| {
                let usable = matches!(stack.state, SourceState::Open | SourceState::Unopened);
                usable && arrived.by_index[usize::from(stack.index)].is_none() && !tried.contains(at)
            });
            let mut left: Vec<usize> = left.map(|(at, _)| at).take(need - good).collect();
            if left.is_empty() {
                return Err(self.too_few(stripe, good, &arrived.bad(stripe)));
            }
            tried.extend(&left);
            let unopened = left.iter().copied().filter(|at| matches!(self.stacks[*at].state, SourceState::Unopened));
            self.open_stacks(&unopened.collect::<Vec<_>>()).await;
            left.retain(|at| matches!(self.stacks[*at].state, SourceState::Open));
            let mut in_flight = self.fetch(arrived.batch, &left);
            self.land(&mut in_flight, arrived).await;
        }
    }

    /// The error for a stripe with only `good` good fragments.
    fn too_few(&self, stripe: u64, good: usize, bad: &[u8]) -> StackError {
        let need = self.blob.code.data;
        let failed = self.stacks.iter().filter(|stack| matches!(stack.state, SourceState::Failed(_))).count();
        let may_come_back = self.blob.code.stacks() - self.stacks.len() + failed;
        if good + may_come_back >= usize::from(need) {
            return StackError::TooFewStacks { need, good: good as u8 };
        }
        let useless = self.stacks.iter().filter(|stack| stack.unsound || matches!(stack.state, SourceState::Bad));
        let mut bad: Vec<u8> = useless.map(|stack| stack.index).chain(bad.iter().copied()).collect();
        bad.sort_unstable();
        bad.dedup();
        tracing::error!(blob = %self.blob.id, stripe, ?bad, "data is lost");
        StackError::DataLost { blob: self.blob.id, stripe, bad }
    }

    /// Rebuilds missing fragments, passes the requested bytes to the sink, repairs bad fragments.
    async fn give_out(
        &mut self,
        mut arrived: Arrived,
        range: &Range<u64>,
        crc: &mut Digest,
        sink: &mut dyn PayloadSink,
    ) -> Result<(), StackError> {
        let enough = arrived.worst().is_some_and(|(_, good)| good >= usize::from(self.blob.code.data));
        assert!(enough, "a byte is given out if its fragment is good, or rebuilt from k that are");
        let mut scratch: Vec<Buffer> = Vec::new();
        for stripe in arrived.batch.first..arrived.batch.end() {
            if !arrived.is_whole(stripe, self.blob.code.data) {
                self.rebuild(&mut arrived, stripe, &mut scratch)?;
            } else if self.parity.is_some() {
                self.check_parity(&arrived, stripe);
            }
            let payload = self.shape.payload_of(stripe);
            let wanted = payload.start.max(range.start)..payload.end.min(range.end);
            let part = self.shape.within(arrived.batch, stripe);
            for index in 0..u64::from(self.blob.code.data) {
                let start = payload.start + index * part.len() as u64;
                let (from, to) = (wanted.start.max(start), wanted.end.min(start + part.len() as u64));
                if from >= to {
                    continue;
                }
                let fragment = arrived.fragment(index as usize, &scratch, part.clone(), stripe);
                let bytes = &fragment[(from - start) as usize..(to - start) as usize];
                assert!(range.start <= from && to <= range.end, "only requested bytes are given out");
                crc.update(bytes);
                sink.take(bytes).await.map_err(|SinkClosed| StackError::SinkClosed)?;
            }
        }
        self.free.extend(scratch);
        self.repair(arrived).await;
        Ok(())
    }

    /// Rebuilds the fragments of `stripe` that are bad or missing: the bad ones in place, the others in `scratch`,
    /// which has one buffer for each missing stack, in the order of their indices.
    fn rebuild(&mut self, arrived: &mut Arrived, stripe: u64, scratch: &mut Vec<Buffer>) -> Result<(), StackError> {
        while scratch.len() < arrived.by_index.iter().filter(|slot| slot.is_none()).count() {
            scratch.push(self.free_buffer());
        }
        let part = self.shape.within(arrived.batch, stripe);
        let at = (stripe - arrived.batch.first) as usize;
        let mut spare = scratch.iter_mut();
        let mut fragments = Vec::with_capacity(arrived.by_index.len());
        for slot in &mut arrived.by_index {
            if let Some((buffer, good)) = slot {
                fragments.push((&mut buffer[part.clone()], good[at]));
            } else {
                let buffer = spare.next().expect("there is a scratch buffer for each stack that did not come");
                buffer.set_len(self.shape.len(arrived.batch));
                fragments.push((&mut buffer[part.clone()], false));
            }
        }
        assert_eq!(fragments.len(), self.blob.code.stacks(), "a stripe has a fragment, or room for one, in each stack");
        if is_on(Sabotage::WrongFragmentIndex) {
            fragments.rotate_left(1);
        }
        let rebuilt = self.codec.rebuild(&mut fragments);
        rebuilt.expect("a batch is given out only if each of its stripes has k good fragments");
        self.check_rebuilt(arrived, stripe)
    }

    /// Recomputes the parity of a stripe whose data fragments are good, and compares it with the fetched parity.
    fn check_parity(&mut self, arrived: &Arrived, stripe: u64) {
        let part = self.shape.within(arrived.batch, stripe);
        let (data, parity) = arrived.by_index.split_at(self.blob.code.data.into());
        let data: Vec<&[u8]> = data.iter().flatten().map(|(buffer, _)| &buffer[part.clone()]).collect();
        let mut derived: Vec<Buffer> = parity.iter().map(|_| self.meter.zeroed(part.len())).collect();
        self.codec.encode(&data, &mut derived.iter_mut().map(|buffer| &mut buffer[..]).collect::<Vec<_>>());
        let wrong = self.parity.get_or_insert_default();
        for (index, (came, derived)) in (self.blob.code.data..).zip(parity.iter().zip(&derived)) {
            if came.as_ref().is_some_and(|(buffer, _)| buffer[part.clone()] != derived[..]) {
                wrong.entry(index).or_insert(stripe);
            }
        }
    }

    /// Checks that a bad fragment, once rebuilt, has the checksum on its drive.
    fn check_rebuilt(&self, arrived: &Arrived, stripe: u64) -> Result<(), StackError> {
        for index in arrived.bad(stripe) {
            let Some((buffer, _)) = &arrived.by_index[usize::from(index)] else { continue };
            let fragment = &buffer[self.shape.within(arrived.batch, stripe)];
            let page = self.stacks.iter().find(|stack| stack.index == index).and_then(|stack| stack.page.as_ref());
            let expected = page.map(|page| page.sums[(stripe % RUN_STRIPES) as usize]);
            let found = fragment_sum(&self.blob, index, stripe, fragment);
            if expected.is_some_and(|expected| expected != found) {
                return Err(StackError::DataLost { blob: self.blob.id, stripe, bad: vec![index] });
            }
        }
        Ok(())
    }

    /// Writes back the rebuilt bad fragments. Uses up the buffers: each fragment is moved to the front of its buffer.
    async fn repair(&mut self, arrived: Arrived) {
        let batch = arrived.batch;
        for (index, slot) in arrived.by_index.into_iter().enumerate() {
            let Some((mut buffer, good)) = slot else { continue };
            let stack = self.stacks.iter_mut().find(|stack| usize::from(stack.index) == index);
            let stack = stack.expect("what arrived came from a stack");
            for stripe in (batch.first..batch.end()).filter(|stripe| !good[(stripe - batch.first) as usize]) {
                tracing::warn!(stack = %stack.name, stripe, repairs = self.repairs, "a fragment is bad");
                if !self.repairs {
                    stack.unsound = true;
                    stack.bad += 1;
                    continue;
                }
                let part = self.shape.within(batch, stripe);
                let bytes = part.len();
                buffer.set_len(self.shape.len(batch));
                buffer.copy_within(part, 0);
                buffer.set_len(bytes);
                match stack.drive.write_at(&stack.name, self.shape.fragment_offset(stripe), buffer).await {
                    Ok(back) => buffer = back,
                    Err(error) => {
                        stack.mark_failed(&error);
                        buffer = Buffer::zeroed(0);
                        break;
                    }
                }
                assert!(stack.page.is_some(), "a repair was compared with the checksum on the drive");
                stack.repaired += 1;
            }
            if !buffer.is_empty() {
                self.free.push(buffer);
            }
        }
    }

    /// Makes repairs durable.
    async fn sync_repairs(&mut self) {
        for stack in self.stacks.iter_mut().filter(|stack| stack.repaired > 0) {
            if let Err(error) = stack.drive.sync(&stack.name).await {
                stack.mark_failed(&error);
            }
        }
    }
}

impl StackSource {
    fn outcome(&self) -> StackOutcome {
        match &self.state {
            SourceState::Failed(how) => how.clone(),
            SourceState::Bad => StackOutcome::StackBad,
            SourceState::Open if self.unsound => StackOutcome::StackBad,
            SourceState::Open if self.repaired > 0 => StackOutcome::Repaired { fragments: self.repaired },
            SourceState::Open => StackOutcome::Fine,
            SourceState::Unopened => StackOutcome::Unused,
        }
    }

    fn mark_bad(&mut self, why: &str) {
        tracing::warn!(stack = %self.name, why, "a stack is bad");
        self.state = SourceState::Bad;
    }

    fn mark_failed(&mut self, error: &DriveError) {
        tracing::warn!(stack = %self.name, %error, "a stack cannot be read");
        self.state = match StackOutcome::of(error) {
            how @ (StackOutcome::Failed(_) | StackOutcome::NoAnswer | StackOutcome::NotAsked) => {
                SourceState::Failed(how)
            }
            _ => SourceState::Bad,
        };
    }
}

impl Arrived {
    /// The stripe with the fewest good fragments, and their number.
    fn worst(&self) -> Option<(u64, usize)> {
        let good = |stripe: u64| {
            let at = (stripe - self.batch.first) as usize;
            self.by_index.iter().flatten().filter(|(_, good)| good[at]).count()
        };
        (self.batch.first..self.batch.end()).map(|stripe| (stripe, good(stripe))).min_by_key(|(_, good)| *good)
    }

    /// The stacks whose fragment of `stripe` was fetched and is bad.
    fn bad(&self, stripe: u64) -> Vec<u8> {
        let at = (stripe - self.batch.first) as usize;
        let bad = |slot: &Option<(Buffer, Vec<bool>)>| slot.as_ref().is_some_and(|(_, good)| !good[at]);
        self.by_index.iter().enumerate().filter(|(_, slot)| bad(slot)).map(|(index, _)| index as u8).collect()
    }

    /// True if all data fragments of `stripe` arrived, and no fragment that arrived is bad.
    fn is_whole(&self, stripe: u64, data: u8) -> bool {
        self.by_index[..usize::from(data)].iter().all(Option::is_some) && self.bad(stripe).is_empty()
    }

    /// The fragment of a data stack: fetched, or from `scratch`.
    fn fragment<'a>(&'a self, index: usize, scratch: &'a [Buffer], part: Range<usize>, stripe: u64) -> &'a [u8] {
        assert!(self.batch.first <= stripe && stripe < self.batch.end(), "the stripe is of this batch");
        if let Some((buffer, _)) = &self.by_index[index] {
            &buffer[part]
        } else {
            let before = self.by_index[..index].iter().filter(|slot| slot.is_none()).count();
            &scratch[before][part]
        }
    }
}

/// The most frequent of `values`; of several, the first. 0 without values.
pub(super) fn most_frequent(values: &[u64]) -> u64 {
    let count = |value: u64| values.iter().filter(|other| **other == value).count();
    values.iter().rev().copied().max_by_key(|value| count(*value)).unwrap_or(0)
}
