//! Recalls: what a client wants of a blob is read by the rack into the spool, at the drives' speed, and fed to the
//! client from there, at the client's.
//!
//! 1. The wanted range is cut into segments. What the spool already holds, or is about to hold, is not read again.
//! 2. A segment is widened to whole stripes: they are read and checked anyway, and neighbours in a pack come for free.
//! 3. A client who wants what is queued for the background orders it himself, in his own lane: what the background has
//!    queued is withdrawn, and finds the client's recall when it asks again. Whoever reads what others ordered orders
//!    it himself if they come to nothing, and so is told why if he does.
//! 4. Whoever asks is answered when the beginning of what he wants is in the spool (`HEAD_BYTES`), and a stripe of it
//!    that was found lost before has been read after all: what cannot be read is said by an answer, and not by its end.
//! 5. While a client takes one segment, the next one is already asked for; no more than that, so that a slow client
//!    costs the rack nothing and a vanished one at most a segment. Segments are small at first and grow with the speed
//!    at which the client takes them (`Pace`).
//! 6. Nothing is kept in the spool for a client that does not take its bytes: while it is waited for longer than
//!    `PROMPT`, its segments may be evicted. What is gone when it goes on is ordered anew.
//!
//! Memory: two blocks of the spool for each client, and some more for who reads in the background. A recall that was
//! ordered goes on when its client has gone: whoever comes again finds it in the spool.

use crate::world::{Means, ReadOrder, Ticket, WorldHandle};
use bytes::Bytes;
use catalog::Blob;
use engine::{Lane, Rejection};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use workshop::{Full, ReserveError, Spool, SpoolError, SpoolReader};

/// How long a stream waits for room in the spool for its next segment before it gives up, in wall time.
const SPOOL_PATIENCE: Duration = Duration::from_mins(10);

/// What of a range is in the spool before it is given out, as far as one segment goes: small objects as a whole.
const HEAD_BYTES: u64 = 32 << 20;

/// How long the disk of the spool may take for the first bytes of what it holds, in wall time.
const SPOOL_DISK_PATIENCE: Duration = Duration::from_secs(30);

/// The longest that anybody waits, in wall time: clocks have an end.
const PATIENCE_MAX: Duration = Duration::from_hours(365 * 24);

/// What comes so soon is waited for without a question.
const SOON: Duration = Duration::from_millis(20);

/// Segments of the spool that are looked at to tell whether all of a range is there; of more, it is not known.
const SEGMENTS_LOOKED_AT: usize = 4_096;

/// How often what others ordered may come to nothing before a reader does.
const JOINS_MAX: u32 = 5;

/// How long a client may take for a block before nothing is kept for it in the spool any more, in wall time.
const PROMPT: Duration = Duration::from_secs(2);

/// How long a client should take for a segment, in wall time.
const SEGMENT_TIME: Duration = Duration::from_secs(4);

/// A client's first segment, and one of a client that is slow, is at most this part of the spool, and otherwise holds
/// [`HEAD_BYTES`].
const FIRST_IN_CAPACITY: u64 = 16;
/// How long a client's segments become at most, in bytes: long enough for the seeks between them not to count.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// By how much a segment may be longer than the one before it.
const GROWTH: u64 = 4;

/// Blocks of the spool that are ready for whoever reads in the background and works on the last ones meanwhile.
const BLOCKS_AHEAD: usize = 4;

/// Why a recall did not give its bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// It will take longer than the client is ready to wait. The recall goes on.
    #[error("the object is cold; its group needs about {0:?}")]
    TooLong(Duration),
    /// The spool is full of what other clients read.
    #[error("the spool is full")]
    SpoolFull(Full),
    /// The rack refused it or failed.
    #[error("{}", told(*.0))]
    Refused(Rejection),
    /// The spool failed.
    #[error("spool: {0}")]
    Spool(String),
}

/// What a refusal means, for people.
pub fn told(reason: Rejection) -> &'static str {
    match reason {
        Rejection::QueueFull => "the queue of its class is full",
        Rejection::NoRoom => "no group has room",
        Rejection::TooManyDrivesAway => "more drives of its group are away than the code can make up for",
        Rejection::DataLost => "more stacks are damaged than the code can make up for: data is lost",
        Rejection::StartBudgetSpent => "the drives' starts of the day are used up",
        Rejection::SourceUnreadable => "what was to be written cannot be read",
        Rejection::WriteFailed => "writing failed on every choice of drives",
        Rejection::Malformed => "the rack's description does not know its group or drives",
        Rejection::Closing => "the server is shutting down",
    }
}

/// How far ahead of a client is read, by how fast it takes what it gets.
#[derive(Clone, Copy)]
struct Pace {
    /// How long the next segment is.
    segment_bytes: u64,
    first_bytes: u64,
    max_bytes: u64,
    /// Whether the segment after the one that is taken is asked for already.
    ahead: bool,
}

impl Pace {
    /// Of one who begins: clients slowly, since nothing is known of them.
    fn new(lane: Lane, spool: &Spool) -> Self {
        let longest = spool.segment_bytes();
        if lane != Lane::Client {
            return Self { segment_bytes: longest, first_bytes: longest, max_bytes: longest, ahead: true };
        }
        let first_bytes = HEAD_BYTES.min(spool.usage().capacity_bytes / FIRST_IN_CAPACITY).max(1);
        let max_bytes = SEGMENT_BYTES_MAX.min(longest).max(first_bytes);
        Self { segment_bytes: first_bytes, first_bytes, max_bytes, ahead: true }
    }

    /// `bytes` bytes of a segment were waited for `waited` long until the client had taken them.
    fn took(&mut self, bytes: u64, waited: Duration) {
        let in_time = bytes as f64 / waited.as_secs_f64().max(0.001) * SEGMENT_TIME.as_secs_f64();
        let most = self.segment_bytes.saturating_mul(GROWTH).min(self.max_bytes);
        self.segment_bytes = (in_time as u64).clamp(self.first_bytes, most.max(self.first_bytes));
        self.ahead = true;
    }

    /// The client did not take a block in time.
    fn stalled(&mut self) {
        (self.segment_bytes, self.ahead) = (self.first_bytes, false);
    }
}

/// Orders recalls and feeds from them. A clone is another handle on the same.
#[derive(Clone)]
pub struct Recalls {
    means: Means,
    world: WorldHandle,
    ticket: Option<Arc<Ticket>>,
}

/// A recall that is under way: its reader, and why it failed if it did.
struct Segment {
    reader: SpoolReader,
    refused: Arc<OnceLock<Rejection>>,
    /// Whether somebody else ordered it.
    joined: bool,
}

impl Segment {
    /// Why it came to nothing.
    fn why(&self, error: &SpoolError) -> RecallError {
        let spool = || RecallError::Spool(error.to_string());
        self.refused.get().map_or_else(spool, |reason| RecallError::Refused(*reason))
    }
}

fn blob_stripe_bytes(blob: &Blob) -> u64 {
    u64::from(blob.code_data) * u64::from(blob.fragment_bytes)
}

/// The payload bytes `range` of `blob` from the beginning of a stripe on.
pub(crate) fn in_stripes(blob: &Blob, range: &Range<u64>) -> Range<u64> {
    range.start - range.start % blob_stripe_bytes(blob)..range.end
}

impl Recalls {
    /// Recalls through `world`.
    pub fn new(means: Means, world: WorldHandle) -> Self {
        Self { means, world, ticket: None }
    }

    /// The same, with everything ordered for the holder of `ticket`.
    #[must_use]
    pub fn with_ticket(&self, ticket: &Arc<Ticket>) -> Self {
        Self { ticket: Some(Arc::clone(ticket)), ..self.clone() }
    }

    /// The payload bytes `range` of `blob`, once the first of them is there; [`RecallError::TooLong`] if that takes
    /// longer than `patience` (wall time), or surely will. The recall goes on all the same.
    ///
    /// # Errors
    /// As told by [`RecallError`].
    pub async fn open(
        &self,
        blob: Blob,
        range: Range<u64>,
        patience: Duration,
    ) -> Result<BoxStream<'static, Result<Bytes, RecallError>>, RecallError> {
        if range.is_empty() {
            return Ok(futures::stream::empty().boxed());
        }
        let deadline = Instant::now() + patience.min(PATIENCE_MAX);
        if !self.is_here(&blob, &range) {
            self.may_be_read(&blob, &range, deadline).await?;
        }
        let head = range.start..range.end.min(range.start.saturating_add(HEAD_BYTES));
        let first = self.ready(&blob, &head, range.end, deadline).await?;
        let mut stream = self.feed(blob, range, Lane::Client, Some(first));
        // It lies in the spool, and a retry of who was sent away must find it: it is not waited for with his patience.
        match tokio::time::timeout(SPOOL_DISK_PATIENCE, stream.next()).await {
            Ok(Some(Ok(bytes))) => {
                let head = futures::stream::once(async move { Ok(bytes) });
                Ok(head.chain(stream).boxed())
            }
            Ok(Some(Err(error))) => Err(error),
            Ok(None) => Err(RecallError::Spool("a recall ended before it began".into())),
            Err(_) => Err(RecallError::Spool("its disk does not answer".into())),
        }
    }

    /// Whether the payload bytes `range` of `blob` are all in the spool.
    pub fn is_here(&self, blob: &Blob, range: &Range<u64>) -> bool {
        let mut at = range.start;
        for _ in 0..SEGMENTS_LOOKED_AT {
            if at >= range.end {
                return true;
            }
            let Some(reader) = self.means.spool.find(blob.blob, at).filter(SpoolReader::is_complete) else { break };
            at = reader.range().end;
        }
        at >= range.end
    }

    /// Refuses what cannot be read though its beginning can: if too few drives are left, or if a stripe of it was found
    /// lost and still is.
    async fn may_be_read(&self, blob: &Blob, range: &Range<u64>, deadline: Instant) -> Result<(), RecallError> {
        let drives = blob.drives.clone();
        let enough = self.world.ask(move |rack, _| rack.enough_drives(&drives)).await;
        enough.unwrap_or(Err(Rejection::Closing)).map_err(RecallError::Refused)?;
        let losses = &self.means.counters.losses;
        let Some((at, _)) = losses.within(blob.blob, &in_stripes(blob, range)) else { return Ok(()) };
        let lost = at.max(range.start)..range.end.min(at + blob_stripe_bytes(blob));
        self.ready(blob, &lost, lost.end, deadline).await.map(|_| ())
    }

    /// The segment that begins with `head` of a range up to `end`, once as much of `head` as lies in it is in the
    /// spool. What others ordered and comes to nothing is ordered anew.
    async fn ready(&self, blob: &Blob, head: &Range<u64>, end: u64, deadline: Instant) -> Result<Segment, RecallError> {
        let first_bytes = Pace::new(Lane::Client, &self.means.spool).segment_bytes;
        let mut joins = 0;
        loop {
            let segment = match self.found(blob, head.start, Lane::Client) {
                Some(segment) => segment,
                None => self.order(blob, &(head.start..end), first_bytes, Lane::Client).await?,
            };
            let until = head.end.min(segment.reader.range().end);
            match self.written(&segment, until, blob.group, deadline).await? {
                Ok(()) => return Ok(segment),
                Err(_) if segment.joined && joins < JOINS_MAX => joins += 1,
                Err(error) => return Err(segment.why(&error)),
            }
        }
    }

    /// Waits until payload byte `until` is in the spool, or it is known that it never will be; not longer than to the
    /// deadline, and not at all if it surely takes longer.
    async fn written(
        &self,
        segment: &Segment,
        until: u64,
        group: model::GroupId,
        deadline: Instant,
    ) -> Result<Result<(), SpoolError>, RecallError> {
        let mut written = std::pin::pin!(segment.reader.written(until));
        let soon = deadline.min(Instant::now() + SOON);
        if let Ok(done) = tokio::time::timeout_at(soon, written.as_mut()).await {
            return Ok(done);
        }
        // Only for what is not there is the engine asked how long it will be.
        let wait = self.forecast(group).await;
        if wait > deadline.saturating_duration_since(Instant::now()) {
            return Err(RecallError::TooLong(wait));
        }
        match tokio::time::timeout_at(deadline, written).await {
            Ok(done) => Ok(done),
            Err(_) => Err(RecallError::TooLong(self.forecast(group).await)),
        }
    }

    /// How long a read in `group` waits at least, in wall time.
    async fn forecast(&self, group: model::GroupId) -> Duration {
        let forecast = self.world.ask(move |rack, now| rack.forecast(group, now)).await;
        forecast.map_or(Duration::ZERO, |forecast| self.means.clock.to_wall(forecast.min))
    }

    /// The payload bytes `range` of `blob`, however long it takes.
    pub fn stream(&self, blob: Blob, range: Range<u64>, lane: Lane) -> BoxStream<'static, Result<Bytes, RecallError>> {
        self.feed(blob, range, lane, None)
    }

    fn feed(
        &self,
        blob: Blob,
        range: Range<u64>,
        lane: Lane,
        first: Option<Segment>,
    ) -> BoxStream<'static, Result<Bytes, RecallError>> {
        let (sender, receiver) = mpsc::channel(if lane == Lane::Background { BLOCKS_AHEAD } else { 1 });
        let recalls = self.clone();
        (self.means.spawn)(Box::pin(async move {
            let pumped = tokio::select! {
                biased;
                // Nobody listens any more: what is ordered goes on, and nothing else is ordered or held in the spool.
                () = sender.closed() => return,
                pumped = recalls.pump(&blob, range, lane, first, &sender) => pumped,
            };
            if let Err(error) = pumped {
                let _ = sender.send(Err(error)).await;
            }
        }));
        futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
            .boxed()
    }

    async fn pump(
        &self,
        blob: &Blob,
        range: Range<u64>,
        lane: Lane,
        first: Option<Segment>,
        sender: &mpsc::Sender<Result<Bytes, RecallError>>,
    ) -> Result<(), RecallError> {
        let _hold = self.means.holds.guard(blob.blob);
        let mut segment = first;
        let mut at = range.start;
        let mut joins = 0;
        let mut pace = Pace::new(lane, &self.means.spool);
        'segments: while at < range.end {
            let current = match segment.take() {
                Some(segment) => segment,
                None => self.segment(blob, &(at..range.end), pace.segment_bytes, lane).await?,
            };
            let end = range.end.min(current.reader.range().end);
            // Not waited for: if everybody held on to one segment until there was room for the next, there never would
            // be any.
            let ahead = if end < range.end && pace.ahead {
                self.order(blob, &(end..range.end), pace.segment_bytes, lane).await.ok()
            } else {
                None
            };
            let (from, mut waited) = (at, Duration::ZERO);
            let mut bytes = current.reader.read(at..end);
            while let Some(piece) = bytes.next().await {
                let piece = match piece {
                    Ok(piece) => piece,
                    Err(_) if current.joined && joins < JOINS_MAX => {
                        joins += 1;
                        continue 'segments;
                    }
                    Err(error) => {
                        return Err(current.why(&error));
                    }
                };
                at += piece.len() as u64;
                joins = 0;
                let (sending, began) = (sender.send(Ok(piece)), Instant::now());
                tokio::pin!(sending);
                let sent = match tokio::time::timeout(PROMPT, sending.as_mut()).await {
                    Err(_) if lane == Lane::Client => {
                        drop((bytes, current, ahead));
                        pace.stalled();
                        if sending.await.is_err() {
                            return Ok(());
                        }
                        continue 'segments;
                    }
                    Err(_) => sending.await,
                    Ok(sent) => sent,
                };
                if sent.is_err() {
                    return Ok(()); // nobody listens any more
                }
                waited += began.elapsed();
            }
            pace.took(at - from, waited);
            segment = ahead;
        }
        Ok(())
    }

    /// A segment that begins at the start of `range`: what the spool has of it, or a new recall, waiting for room if
    /// need be.
    async fn segment(
        &self,
        blob: &Blob,
        range: &Range<u64>,
        most_bytes: u64,
        lane: Lane,
    ) -> Result<Segment, RecallError> {
        let mut changes = self.means.spool.changes();
        let patient = tokio::time::sleep(SPOOL_PATIENCE);
        tokio::pin!(patient);
        loop {
            match self.order(blob, range, most_bytes, lane).await {
                Err(RecallError::SpoolFull(full)) => tokio::select! {
                    changed = changes.changed() => changed.map_err(|_| RecallError::SpoolFull(full))?,
                    () = &mut patient => return Err(RecallError::SpoolFull(full)),
                },
                other => return other,
            }
        }
    }

    /// What the spool has of the start of `range`, or a new recall of it, of `most_bytes` or a stripe.
    async fn order(
        &self,
        blob: &Blob,
        range: &Range<u64>,
        most_bytes: u64,
        lane: Lane,
    ) -> Result<Segment, RecallError> {
        // One at a time looks and orders, so that clients who want the same bytes order them once.
        let _turn = self.means.ordering.lock().await;
        if let Some(segment) = self.found(blob, range.start, lane) {
            return Ok(segment);
        }
        let wanted = widened(blob, range, most_bytes);
        let writer = self.means.spool.reserve(blob.blob, wanted).await.map_err(|error| match error {
            ReserveError::Full(full) => RecallError::SpoolFull(full),
            ReserveError::Drive(error) => RecallError::Spool(error.to_string()),
        })?;
        let reader = self.means.spool.find(blob.blob, range.start);
        let reader = reader.ok_or_else(|| RecallError::Spool("a recall was lost as it began".into()))?;
        let refused = Arc::<OnceLock<Rejection>>::default();
        let (blob, ticket) = (blob.clone(), self.ticket.clone());
        self.world.read(ReadOrder { blob, writer, lane, ticket, refused: Arc::clone(&refused) });
        Ok(Segment { reader, refused, joined: false })
    }

    /// What the spool has of payload byte `at`, or is about to have.
    fn found(&self, blob: &Blob, at: u64, lane: Lane) -> Option<Segment> {
        let reader = self.means.spool.find(blob.blob, at)?;
        if lane == Lane::Client && !reader.is_complete() {
            self.world.withdraw_from_background(blob.blob, at);
        }
        Some(Segment { reader, refused: Arc::default(), joined: true })
    }
}

/// The stripes that the start of `range` lies in, up to `most_bytes`, and one at least.
fn widened(blob: &Blob, range: &Range<u64>, most_bytes: u64) -> Range<u64> {
    let stripe = blob_stripe_bytes(blob);
    let start = range.start - range.start % stripe;
    let most = most_bytes.max(stripe);
    let end = range.end.next_multiple_of(stripe).min(start + most - most % stripe);
    start..end.min(blob.payload_bytes)
}

/// One at a time orders recalls. Part of [`Means`].
pub type Ordering = Arc<Mutex<()>>;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pace() -> Pace {
        Pace { segment_bytes: 16 * MIB, first_bytes: 16 * MIB, max_bytes: 256 * MIB, ahead: true }
    }

    #[test]
    fn segments_grow_for_those_who_take_them_and_for_nobody_else() {
        let mut fast = pace();
        for expected in [64, 256, 256] {
            fast.took(fast.segment_bytes, Duration::ZERO);
            assert_eq!(fast.segment_bytes, expected * MIB);
        }
        let mut steady = pace();
        steady.took(16 * MIB, Duration::from_secs(2));
        assert_eq!(steady.segment_bytes, 32 * MIB, "what it takes in 4 s");
        let mut slow = pace();
        slow.took(16 * MIB, Duration::from_mins(1));
        assert_eq!(slow.segment_bytes, 16 * MIB);
        fast.stalled();
        assert_eq!((fast.segment_bytes, fast.ahead), (16 * MIB, false));
        fast.took(16 * MIB, Duration::ZERO);
        assert!(fast.ahead);
    }
}
