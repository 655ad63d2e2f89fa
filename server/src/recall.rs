//! Recalls: the rack reads a client's bytes into the spool at the drives' speed, and the client is fed from there at
//! its own speed.
//!
//! [`engine::recall`] decides how much is read at once and how far ahead, which client waits how long, and what is
//! retried; this file carries that out over spool and world.
//!
//! 1. Bytes that the spool holds, or is about to hold, are not read again.
//! 2. A client is answered when the beginning of its range is in the spool, and a stripe of it that was found lost
//!    before has been readable this time: a loss shows in the status of an answer, not in a body that breaks off. A
//!    client that has reached its waiting limit is asked to retry later. If the last recall of its bytes failed
//!    ([`crate::refusals`]), it gets the reason; at once, if it would not wait long enough for the result of this one.
//! 3. An operation continues from segment to segment while its group is awake (`world/spool_sink.rs`), and before it
//!    ends the next one is ordered (`recall/course.rs`).
//! 4. Nothing stays in the spool for a client that does not take its bytes; evicted segments are ordered again when it
//!    resumes.
//!
//! Memory: two blocks of the spool for each client. The operation under way continues when its client has gone, and a
//! retry finds its bytes in the spool.

mod course;

use crate::context::Context;
use crate::refusals::Why;
use crate::world::{ReadOrder, ReadTarget, SegmentFollower, SpoolSink, WorldHandle};
use bytes::Bytes;
use catalog::Blob;
use course::{Course, Segment};
use disk::clock;
use engine::recall::{
    BLOCK_WAIT_MAX, BlobShape, Broken, HEAD_BYTES, Recall, SOON, SPOOL_DISK_WAIT_MAX, SPOOL_ROOM_WAIT_MAX, SpoolShape,
    WAIT_MAX, is_worth_trying_again,
};
use engine::{PriorityClass, Rejection};
use futures::stream::{BoxStream, StreamExt};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use workshop::{Full, ReserveError, SpoolError, SpoolReader};

/// Segments of the spool that are checked to find out if a range is complete; a longer range counts as incomplete.
const SEGMENTS_LOOKED_AT: usize = 4_096;

/// The bytes of a recall.
pub type RecallStream = BoxStream<'static, Result<Bytes, RecallError>>;

/// Why a recall did not deliver its bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// It will take longer than the client waits. The recall continues.
    #[error("the object is cold; its group needs about {0:?}")]
    TooLong(Duration),
    /// The same, after the last recall of these bytes failed.
    #[error("{0}")]
    Before(Why),
    /// The spool is full of segments that other clients read.
    #[error("the spool is full")]
    SpoolFull(Full),
    /// The rack refused the recall, or failed.
    #[error("{0}")]
    Refused(Rejection),
    /// The spool failed.
    #[error("spool: {0}")]
    Spool(String),
}

/// Orders recalls and feeds clients from them. Clones are handles on the same recalls.
#[derive(Clone)]
pub struct Recalls {
    context: Context,
    world: WorldHandle,
}

/// `Break` once the client has gone.
type Fed = ControlFlow<()>;

/// Why `segment` failed.
fn why(segment: &Segment, error: &SpoolError) -> RecallError {
    let spool = || RecallError::Spool(error.to_string());
    segment.refused.get().map_or_else(spool, |reason| RecallError::Refused(*reason))
}

/// `Ok` if `segment`, which failed, is to be ordered again.
fn broken(course: &Course, segment: &Segment, error: &SpoolError) -> Result<(), RecallError> {
    match course.broken(segment) {
        Broken::OrderAnew => Ok(()),
        Broken::GiveUp => Err(why(segment, error)),
    }
}

/// The payload bytes `range` of `blob`, extended to the beginning of a stripe.
pub(crate) fn in_stripes(blob: &Blob, range: &Range<u64>) -> Range<u64> {
    range.start - range.start % blob.code().stripe_bytes()..range.end
}

/// A recall whose first bytes are in the spool.
pub struct ReadyRecall {
    recalls: Recalls,
    blob: Blob,
    /// Its course and its first segment; `None` for an empty range.
    begun: Option<(Arc<Course>, Segment)>,
}

impl ReadyRecall {
    /// The bytes; the first of them are in memory.
    ///
    /// # Errors
    /// [`RecallError::Spool`], or the error of the recall since then.
    pub async fn open(self) -> Result<RecallStream, RecallError> {
        let Some((course, first)) = self.begun else { return Ok(futures::stream::empty().boxed()) };
        let mut stream = self.recalls.feed(self.blob, course, first);
        // The bytes are in the spool, where a retry must find them: the client's `max_wait` does not count here.
        match tokio::time::timeout(SPOOL_DISK_WAIT_MAX, stream.next()).await {
            Ok(Some(Ok(bytes))) => {
                let head = futures::stream::once(async move { Ok(bytes) });
                Ok(head.chain(stream).boxed())
            }
            Ok(Some(Err(error))) => Err(error),
            Ok(None) => Err(RecallError::Spool("a recall ended before it started".into())),
            Err(_) => Err(RecallError::Spool("its disk does not answer".into())),
        }
    }
}

impl Recalls {
    /// Recalls through `world`.
    pub fn new(context: Context, world: WorldHandle) -> Self {
        Self { context, world }
    }

    /// The payload bytes `range` of `blob`, once the first of them is there; [`RecallError::TooLong`] if that takes
    /// longer than `max_wait` (wall time), regardless of the forecast. The recall continues anyway.
    ///
    /// # Errors
    /// Each kind of [`RecallError`].
    pub async fn open(&self, blob: Blob, range: Range<u64>, max_wait: Duration) -> Result<RecallStream, RecallError> {
        self.ready(blob, range, max_wait).await?.open().await
    }

    /// The same in two steps: the result holds none of the bytes in memory, but keeps them in the spool.
    ///
    /// # Errors
    /// Each kind of [`RecallError`].
    pub async fn ready(&self, blob: Blob, range: Range<u64>, max_wait: Duration) -> Result<ReadyRecall, RecallError> {
        let recalls = self.clone();
        if range.is_empty() {
            return Ok(ReadyRecall { recalls, blob, begun: None });
        }
        let deadline = clock::monotonic() + max_wait.min(WAIT_MAX);
        if !self.is_here(&blob, &range) {
            self.may_be_read(&blob, &range, deadline).await?;
        }
        let head_end = range.end.min(range.start.saturating_add(HEAD_BYTES));
        let course = self.plan(&blob, range);
        let first = self.head(&blob, &course, head_end, deadline).await?;
        Ok(ReadyRecall { recalls, blob, begun: Some((course, first)) })
    }

    /// True if the payload bytes `range` of `blob` are all in the spool.
    pub fn is_here(&self, blob: &Blob, range: &Range<u64>) -> bool {
        let mut at = range.start;
        for _ in 0..SEGMENTS_LOOKED_AT {
            if at >= range.end {
                return true;
            }
            let Some(reader) = self.context.spool.find(blob.blob, at).filter(SpoolReader::is_complete) else { break };
            at = reader.range().end;
        }
        at >= range.end
    }

    fn plan(&self, blob: &Blob, range: Range<u64>) -> Arc<Course> {
        let shape = BlobShape { stripe_bytes: blob.code().stripe_bytes(), payload_bytes: blob.payload_bytes };
        let spool = &self.context.spool;
        let (capacity_bytes, segment_bytes) = (spool.usage().capacity_bytes, spool.segment_bytes());
        Arc::new(Course::new(Recall::new(shape, range, SpoolShape { capacity_bytes, segment_bytes })))
    }

    /// Refuses a range whose beginning may be readable although all of it is not: too few drives are left, or a stripe
    /// was found lost and still is.
    async fn may_be_read(&self, blob: &Blob, range: &Range<u64>, deadline: Instant) -> Result<(), RecallError> {
        let drives = blob.drives.clone();
        let enough = self.world.ask(move |rack, _| rack.enough_drives(&drives)).await;
        enough.unwrap_or(Err(Rejection::Closing)).map_err(RecallError::Refused)?;
        let losses = &self.context.counters.losses;
        let Some((at, _)) = losses.within(blob.blob, &in_stripes(blob, range)) else { return Ok(()) };
        let lost = at.max(range.start)..range.end.min(at + blob.code().stripe_bytes());
        let end = lost.end;
        self.first_segment(blob, &self.plan(blob, lost), end, deadline).await.map(drop)
    }

    /// The first segment of a recall, once payload byte `until` is in the spool, or as much before it as one operation
    /// reads.
    async fn head(
        &self,
        blob: &Blob,
        course: &Arc<Course>,
        until: u64,
        deadline: Instant,
    ) -> Result<Segment, RecallError> {
        let first = self.first_segment(blob, course, until, deadline).await?;
        let mut at = first.reader.range().end;
        // An operation without room for more has ended: the rest is ordered when the client gets there.
        while at < until
            && let Some(next) = course.take(at).or_else(|| self.found(blob, at))
        {
            let end = next.reader.range().end;
            // Its group is awake and reads, so no forecast is needed.
            match tokio::time::timeout_at(deadline, next.reader.written(until.min(end))).await {
                Ok(Err(error)) if !next.joined => return Err(why(&next, &error)),
                Ok(Err(_)) | Err(_) => break,
                Ok(Ok(())) => course.keep(next),
            }
            at = end;
        }
        Ok(first)
    }

    /// The first segment of a recall, once payload byte `until`, or all of the segment, is in the spool.
    async fn first_segment(
        &self,
        blob: &Blob,
        course: &Arc<Course>,
        until: u64,
        deadline: Instant,
    ) -> Result<Segment, RecallError> {
        let at = course.left().start;
        loop {
            let segment = match self.found(blob, at) {
                Some(segment) => segment,
                None => self.order(blob, course, at).await?,
            };
            let until = until.min(segment.reader.range().end);
            match self.written(&segment, until, blob, deadline).await? {
                Ok(()) => return Ok(segment),
                Err(error) => broken(course, &segment, &error)?,
            }
        }
    }

    /// Waits until payload byte `until` is in the spool, or is known never to be; at most until the deadline. Bytes
    /// whose last recall failed are waited for only if that [`is_worth_trying_again`].
    async fn written(
        &self,
        segment: &Segment,
        until: u64,
        blob: &Blob,
        deadline: Instant,
    ) -> Result<Result<(), SpoolError>, RecallError> {
        let mut written = std::pin::pin!(segment.reader.written(until));
        let soon = deadline.min(clock::monotonic() + SOON);
        if let Ok(done) = tokio::time::timeout_at(soon, written.as_mut()).await {
            return Ok(done);
        }
        let wanted = segment.reader.range().start..until;
        // The engine is asked for a forecast only if the last recall failed.
        if let Some(why) = self.came_to_nothing(blob, &wanted) {
            let left = deadline.saturating_duration_since(clock::monotonic());
            if !is_worth_trying_again(self.forecast(blob.group).await, left) {
                return Err(RecallError::Before(why));
            }
        }
        match tokio::time::timeout_at(deadline, written).await {
            Ok(done) => Ok(done),
            Err(_) => Err(self.too_long(blob, &wanted).await),
        }
    }

    /// Why the last recall of the payload bytes `wanted` of `blob` failed, if it did.
    fn came_to_nothing(&self, blob: &Blob, wanted: &Range<u64>) -> Option<Why> {
        self.context.counters.refusals.within(blob.blob, wanted, clock::monotonic())
    }

    /// The error if the payload bytes `wanted` of `blob` take longer than their client waits.
    async fn too_long(&self, blob: &Blob, wanted: &Range<u64>) -> RecallError {
        match self.came_to_nothing(blob, wanted) {
            Some(why) => RecallError::Before(why),
            None => RecallError::TooLong(self.forecast(blob.group).await),
        }
    }

    /// The expected waiting time of a read in `group`, in wall time; zero if the world has ended.
    pub async fn forecast(&self, group: model::GroupId) -> Duration {
        let forecast = self.world.ask(move |rack, now| rack.forecast(group, now)).await;
        forecast.map_or(Duration::ZERO, |forecast| self.context.clock.to_wall(forecast.expected))
    }

    fn feed(&self, blob: Blob, course: Arc<Course>, first: Segment) -> RecallStream {
        let (sender, receiver) = mpsc::channel(1);
        let recalls = self.clone();
        (self.context.spawn)(Box::pin(async move {
            let fed = tokio::select! {
                biased;
                // The client has gone: the operation under way continues, and nothing else is ordered or held in the
                // spool.
                () = sender.closed() => return,
                fed = recalls.feed_all(&blob, &course, first, &sender) => fed,
            };
            if let Err(error) = fed {
                let _ = sender.send(Err(error)).await;
            }
        }));
        futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
            .boxed()
    }

    async fn feed_all(
        &self,
        blob: &Blob,
        course: &Arc<Course>,
        first: Segment,
        sender: &mpsc::Sender<Result<Bytes, RecallError>>,
    ) -> Result<(), RecallError> {
        let _hold = self.context.holds.guard(blob.blob);
        let mut next = Some(first);
        while !course.left().is_empty() {
            let segment = match next.take().or_else(|| course.take(course.left().start)) {
                Some(segment) => segment,
                None => self.segment(blob, course).await?,
            };
            if self.feed_segment(blob, course, segment, sender).await?.is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn feed_segment(
        &self,
        blob: &Blob,
        course: &Arc<Course>,
        segment: Segment,
        sender: &mpsc::Sender<Result<Bytes, RecallError>>,
    ) -> Result<Fed, RecallError> {
        let left = course.left();
        let range = left.start..left.end.min(segment.reader.range().end);
        assert!(
            segment.reader.range().start <= range.start && !range.is_empty(),
            "a segment has the byte that is next"
        );
        if segment.is_last || segment.reader.is_complete() {
            self.order_ahead(blob, course, range.end).await;
        }
        let mut waited = Duration::ZERO;
        let mut bytes = segment.reader.read(range.clone());
        while let Some(piece) = bytes.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    broken(course, &segment, &error)?;
                    return Ok(ControlFlow::Continue(()));
                }
            };
            course.received(piece.len() as u64);
            let began = clock::monotonic();
            let mut sending = std::pin::pin!(sender.send(Ok(piece)));
            match tokio::time::timeout(BLOCK_WAIT_MAX, sending.as_mut()).await {
                Ok(Ok(())) => waited += began.elapsed(),
                Ok(Err(_)) => return Ok(ControlFlow::Break(())),
                Err(_) => {
                    drop((bytes, segment));
                    course.stalled();
                    return Ok(sending.await.map_or(ControlFlow::Break(()), ControlFlow::Continue));
                }
            }
        }
        course.segment_ended(range.end - range.start, waited);
        Ok(ControlFlow::Continue(()))
    }

    /// The next segment of a recall; waits for room if necessary.
    async fn segment(&self, blob: &Blob, course: &Arc<Course>) -> Result<Segment, RecallError> {
        let mut changes = self.context.spool.changes();
        let mut room_deadline = std::pin::pin!(tokio::time::sleep(SPOOL_ROOM_WAIT_MAX));
        loop {
            match self.order(blob, course, course.left().start).await {
                Err(RecallError::SpoolFull(full)) => tokio::select! {
                    changed = changes.changed() => changed.map_err(|_| RecallError::SpoolFull(full))?,
                    () = &mut room_deadline => return Err(RecallError::SpoolFull(full)),
                },
                other => return other,
            }
        }
    }

    /// Orders the operation after `end`, the end of another one, if it is not too early for that.
    ///
    /// Does not wait for room: if every client held one segment until there was room for the next, there never would be
    /// any.
    async fn order_ahead(&self, blob: &Blob, course: &Arc<Course>, end: u64) {
        if let Some(at) = course.ahead(end)
            && let Ok(segment) = self.order(blob, course, at).await
        {
            course.keep(segment);
        }
    }

    /// The segment with payload byte `at`, if the spool has it, or the first segment of a new operation.
    async fn order(&self, blob: &Blob, course: &Arc<Course>, at: u64) -> Result<Segment, RecallError> {
        // One caller at a time looks and orders, so that clients of the same bytes order them once.
        let _turn = self.context.recall_order.lock().await;
        if let Some(segment) = self.found(blob, at) {
            return Ok(segment);
        }
        // The first operation uses the caller's recent lookup of the blob; before later ones, stacks may have moved.
        let blob = if course.begins_again() { self.context.as_it_lies(blob).await } else { blob.clone() };
        let operation = course.operation(at);
        let (range, is_last) = (operation.range(), operation.is_in_last_segment());
        assert!(operation.segment().contains(&at), "a segment has the byte that it is ordered for");
        let refused = Arc::<OnceLock<Rejection>>::default();
        let follower = self.follower(&blob, course, &refused);
        let reserved = SpoolSink::reserve(&self.context.spool, blob.blob, operation, follower).await;
        let (sink, reader) = reserved.map_err(|error| match error {
            ReserveError::Full(full) => RecallError::SpoolFull(full),
            ReserveError::Drive(error) => RecallError::Spool(error.to_string()),
        })?;
        let reader = reader.ok_or_else(|| RecallError::Spool("a recall was lost as it started".into()))?;
        self.world.read(ReadOrder {
            blob,
            range,
            target: ReadTarget::Spool(Box::new(sink)),
            priority: PriorityClass::Client,
            job: None,
            while_awake: false,
            refused: Arc::clone(&refused),
        });
        Ok(Segment { reader, refused, joined: false, is_last })
    }

    /// Keeps the segments with which an operation continues, as long as its client is there, and orders the next
    /// operation before this one ends.
    fn follower(&self, blob: &Blob, course: &Arc<Course>, refused: &Arc<OnceLock<Rejection>>) -> SegmentFollower {
        let (recalls, blob, refused) = (self.clone(), blob.clone(), Arc::clone(refused));
        let course = Arc::downgrade(course);
        Box::new(move |segment| {
            let Some(course) = course.upgrade() else { return };
            let (reader, is_last, end) = (segment.reader.clone(), segment.is_last, segment.reader.range().end);
            course.keep(Segment { reader, refused: Arc::clone(&refused), joined: false, is_last });
            if is_last && course.ahead(end).is_some() {
                let (spawn, recalls, blob) = (Arc::clone(&recalls.context.spawn), recalls.clone(), blob.clone());
                spawn(Box::pin(async move { recalls.order_ahead(&blob, &course, end).await }));
            }
        })
    }

    /// The segment with payload byte `at` that the spool has, or is about to have.
    fn found(&self, blob: &Blob, at: u64) -> Option<Segment> {
        let reader = self.context.spool.find(blob.blob, at)?;
        Some(Segment { reader, refused: Arc::default(), joined: true, is_last: false })
    }
}
