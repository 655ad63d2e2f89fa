//! Reads of cold bytes: how much of a blob is read at once and for which reader, how far ahead, how long a client
//! waits, and what is retried.
//!
//! Each reader has a small state machine here: the server reports events to it and asks it for the next step.
//! [`Rack`](crate::Rack) queues the resulting operations like any other.
//!
//! - A client is fed from the workshop's spool ([`Recall`]). It is answered when the first [`HEAD_BYTES`] of its range
//!   are there. A wake costs more than reading a gigabyte, so the range is read in as few operations as possible
//!   ([`RecallOperation`]):
//!   1. While an operation is queued, it takes room in the spool only for its first segment, which is small.
//!   2. In service it continues from segment to segment, at the drives' speed, while the spool has room beside what
//!      others hold. It never waits for a client: the rest is ordered when the client gets there.
//!   3. While its last segment is read, the next operation is ordered, unless the client lags too far behind.
//! - Of the bytes read for a client, those that it will take soon, at its pace, are kept for it. The rest may be
//!   evicted: a slow client takes no room from others, and a client that has gone costs the operation under way.
//! - Background work reads into memory ([`MemoryRead`]), one operation at a time. Each waits for its consumer only as
//!   long as others of its class are not delayed too much.
//! - A reader that joined another reader's read orders the bytes itself if that read fails.
//! - A client waits for as long as its request allows, regardless of the forecast, and only then is asked to retry
//!   later. It does not learn how its recall ends. If the recall failed, and the returning client would not see the end
//!   of the next one either ([`is_worth_trying_again`]), the client gets the reason at once ([`Rejection::is_kept`]):
//!   no client is put off forever.
//!
//! All durations are wall time: they concern people, their clients and the workshop, not the rack.

use crate::action::Rejection;
use crate::readahead::AheadRead;
use core::ops::Range;
use core::time::Duration;

/// Bytes of a range that are in the spool before any of them are sent; a smaller object is there as a whole.
pub const HEAD_BYTES: u64 = 32 << 20;
/// The first segment of an operation is at most this part of the spool, and at most [`HEAD_BYTES`]: the operations of
/// this number of clients may be queued at once.
const FIRST_IN_CAPACITY: u64 = 64;
/// An operation is at most this part of the spool.
const OPERATION_IN_CAPACITY: u64 = 4;
/// Bytes that are read or ordered for a client, and that it has not taken, are at most this part of the spool.
const AHEAD_IN_CAPACITY: u64 = 2;
/// An operation leaves this part of the spool to others.
const OTHERS_IN_CAPACITY: u64 = 4;
/// The longest operation of one reader: long enough that seeks between two of them are negligible.
const OPERATION_BYTES_MAX: u64 = 1 << 30;
/// Maximum ratio of a segment's length to that of the segment before it.
const GROWTH: u64 = 4;
/// Bytes that a client will take within this time are kept for it: reading them again may cost a wake, which takes
/// about this long.
const KEPT_TIME: Duration = Duration::from_secs(30);
/// The maximum length of an operation: the bytes that its client takes in this many times [`KEPT_TIME`].
const OPERATION_IN_KEPT: u64 = 4;
/// Maximum number of failed joins in a row before a reader gives up.
const JOINS_MAX: u32 = 5;

const _: () = assert!(FIRST_IN_CAPACITY >= OPERATION_IN_CAPACITY, "a first segment is a part of its operation");
const _: () = assert!(AHEAD_IN_CAPACITY < OPERATION_IN_CAPACITY, "there is room to order an operation ahead");
const _: () = assert!(HEAD_BYTES <= OPERATION_BYTES_MAX, "one operation brings what a client is answered with");

/// Time that a client may take for a block before its segments may be evicted from the spool.
pub const BLOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// Time that a stream waits for room in the spool for its next segment.
pub const SPOOL_ROOM_WAIT_MAX: Duration = Duration::from_mins(10);
/// Time that the spool's disk may take for the first bytes of a read.
pub const SPOOL_DISK_WAIT_MAX: Duration = Duration::from_secs(30);
/// Bytes that arrive within this time are waited for without a forecast.
pub const SOON: Duration = Duration::from_millis(20);
/// Time for which the reason of a failed recall is stored: no client is asked to retry later than that.
pub const REASON_KNOWN_FOR: Duration = Duration::from_hours(1);
/// The longest wait of a client, so that times stay within the range of clocks.
pub const WAIT_MAX: Duration = Duration::from_hours(365 * 24);

/// Bytes between a transfer into memory and its consumer, beside the transfer's own buffers.
pub const MEMORY_READ_BYTES: u64 = 4 << 20;
/// Total time that an operation that reads into memory waits for its consumer: it keeps its class in service meanwhile.
pub const CONSUMER_WAIT_MAX: Duration = Duration::from_secs(2);

impl Rejection {
    /// The delay before a retry, if the reason passes by itself.
    pub fn retry_after(self) -> Option<Duration> {
        matches!(self, Self::QueueFull | Self::Closing).then_some(Duration::from_secs(5))
    }

    /// True if a client gets this reason instead of another long wait, when it returns for bytes whose recall failed
    /// with it. False for reasons that pass by themselves, and for a sleeping group, since no client ordered that
    /// recall.
    pub fn is_kept(self) -> bool {
        self.retry_after().is_none() && self != Self::Asleep
    }
}

/// True if a client that can wait for `left` waits for a read that is expected to take `expected`, although the last
/// recall of these bytes failed: only if it will see how this one ends. Otherwise it gets the known reason at once, and
/// the recall continues. A client always waits for bytes without a known failure, regardless of the forecast.
pub fn is_worth_trying_again(expected: Duration, left: Duration) -> bool {
    expected <= left
}

/// The layout of a blob, as far as a recall needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobShape {
    /// Payload bytes of a stripe.
    pub stripe_bytes: u64,
    /// Payload bytes in total.
    pub payload_bytes: u64,
}

/// The state of the spool, as far as a recall needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolShape {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// The longest segment that it takes.
    pub segment_bytes: u64,
}

/// The reaction to a failed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Order the rest again.
    OrderAnew,
    /// The reader gets an error with the reason.
    GiveUp,
}

/// The progress of one client through a range of a blob. See the head of this file.
#[derive(Clone, Debug)]
pub struct Recall {
    blob: BlobShape,
    spool: SpoolShape,
    /// The bytes still to be received.
    left: Range<u64>,
    /// The bytes that it takes in [`KEPT_TIME`], by the last measurement; unlimited before.
    kept_bytes: u64,
    reads_ahead: bool,
    /// Failed segments of other readers since the last byte was received.
    joins: u32,
}

impl Recall {
    /// A recall of the payload bytes `range`.
    pub fn new(blob: BlobShape, range: Range<u64>, spool: SpoolShape) -> Self {
        assert!(blob.stripe_bytes > 0, "a stripe has a length");
        assert!(range.end <= blob.payload_bytes, "a recall lies within its blob");
        Self { blob, spool, left: range, kept_bytes: u64::MAX, reads_ahead: true, joins: 0 }
    }

    /// The bytes still to be received.
    pub fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// The operation to order that starts with byte `at`. It reads whole stripes: they are read and checked anyway, and
    /// neighbours in a pack are free.
    pub fn operation(&self, at: u64) -> RecallOperation {
        assert!(self.left.contains(&at), "an operation reads bytes that are wanted");
        let stripe = self.blob.stripe_bytes;
        let start = at - at % stripe;
        let in_time = if self.reads_ahead { self.kept_bytes.saturating_mul(OPERATION_IN_KEPT) } else { 0 };
        let most = OPERATION_BYTES_MAX.min(self.spool.capacity_bytes / OPERATION_IN_CAPACITY);
        let most = most.min(in_time).max(self.spool.first_bytes());
        let wanted = self.left.end.next_multiple_of(stripe).min(self.blob.payload_bytes);
        let end = wanted.min(whole_stripes(start, most, stripe));
        let first_end = end.min(whole_stripes(start, self.spool.first_bytes(), stripe));
        assert!((start..first_end).contains(&at), "an operation reads a stripe at least");
        assert!(first_end <= end && end <= self.blob.payload_bytes, "an operation lies within its blob");
        RecallOperation {
            spool: self.spool,
            stripe_bytes: stripe,
            range: start..end,
            segment: start..first_end,
            wanted: at..end.min(self.left.end),
        }
    }

    /// The start of the operation to order while the last segment of the one up to `end` is read or received; `None` if
    /// none is to be ordered.
    pub fn ahead(&self, end: u64) -> Option<u64> {
        let reach = end.saturating_add(self.spool.first_bytes()).saturating_sub(self.left.start);
        let most = self.spool.capacity_bytes / AHEAD_IN_CAPACITY;
        (self.reads_ahead && end < self.left.end && reach <= most).then_some(end)
    }

    /// True if a segment that starts at `start` is kept for the client; `is_next` if no other one is kept.
    pub fn keeps(&self, start: u64, is_next: bool) -> bool {
        self.reads_ahead && (is_next || start < self.left.start.saturating_add(self.kept_bytes))
    }

    /// Records received bytes.
    pub fn received(&mut self, bytes: u64) {
        self.left.start += bytes;
        assert!(self.left.start <= self.left.end, "no more is received than is wanted");
        self.joins = 0;
    }

    /// A segment of `bytes` was received to its end; `waited` is the time spent waiting for the client.
    pub fn segment_ended(&mut self, bytes: u64, waited: Duration) {
        let millis = waited.as_millis().max(1);
        let in_time = u128::from(bytes) * KEPT_TIME.as_millis() / millis;
        self.kept_bytes = u64::try_from(in_time).unwrap_or(u64::MAX).max(self.spool.first_bytes());
        self.reads_ahead = true;
    }

    /// The client did not take a block within [`BLOCK_WAIT_MAX`]: its segments are released.
    pub fn stalled(&mut self) {
        self.reads_ahead = false;
    }

    /// A segment failed; `joined` if another reader had ordered it.
    pub fn broken(&mut self, joined: bool) -> Broken {
        if !joined || self.joins == JOINS_MAX {
            return Broken::GiveUp;
        }
        self.joins += 1;
        assert!(self.joins <= JOINS_MAX, "nobody joins without end");
        Broken::OrderAnew
    }
}

impl SpoolShape {
    /// The length of the first segment of an operation, which takes room while it is queued.
    fn first_bytes(&self) -> u64 {
        HEAD_BYTES.min(self.capacity_bytes / FIRST_IN_CAPACITY).max(1)
    }
}

/// The end of the whole stripes from `start` on that fit into `bytes`; at least one stripe.
fn whole_stripes(start: u64, bytes: u64, stripe_bytes: u64) -> u64 {
    assert!(start.is_multiple_of(stripe_bytes), "whole stripes begin with a stripe");
    start.saturating_add((bytes - bytes % stripe_bytes).max(stripe_bytes))
}

/// An operation that reads into the spool, segment by segment. See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallOperation {
    spool: SpoolShape,
    stripe_bytes: u64,
    /// All payload bytes that it is to read.
    range: Range<u64>,
    /// The segment that is read, or is about to be.
    segment: Range<u64>,
    /// The part that a client requested.
    wanted: Range<u64>,
}

impl RecallOperation {
    /// An operation that reads ahead: a single segment, after which it ends.
    pub fn ahead(read: &AheadRead, spool: SpoolShape) -> Self {
        let range = read.range.clone();
        let (segment, wanted) = (range.clone(), range.clone());
        Self { spool, stripe_bytes: read.stripe_bytes, range, segment, wanted }
    }

    /// Bytes of its segment that a client requested and is to take.
    pub fn wanted_bytes(&self) -> u64 {
        let start = self.segment.start.max(self.wanted.start);
        self.segment.end.min(self.wanted.end).saturating_sub(start).max(1)
    }

    /// All payload bytes that it is to read. It may end earlier, at the end of a segment.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The segment that it reads, or is about to read.
    pub fn segment(&self) -> Range<u64> {
        self.segment.clone()
    }

    /// True if its segment is the last one.
    pub fn is_in_last_segment(&self) -> bool {
        self.segment.end == self.range.end
    }

    /// Continues with the next segment, if one is left and fits into the spool, where `free_bytes` are neither held by
    /// readers nor being written. Call this before the end of the current segment is sent, so that a client that
    /// reaches it finds the next one. Without a next segment the operation ends.
    pub fn next_segment(&mut self, free_bytes: u64) -> Option<Range<u64>> {
        let (start, stripe) = (self.segment.end, self.stripe_bytes);
        assert!(start <= self.range.end, "a segment is a part of its operation");
        let left = self.range.end - start;
        let room = free_bytes.saturating_sub(self.spool.capacity_bytes / OTHERS_IN_CAPACITY);
        let grown = (start - self.segment.start).saturating_mul(GROWTH).max(stripe);
        let most = grown.min(self.spool.segment_bytes.max(stripe)).min(room);
        // Only the last segment may be shorter than the first: each is a file.
        if left == 0 || most < left.min(self.spool.first_bytes().max(stripe)) {
            return None;
        }
        let end = if most >= left { self.range.end } else { self.range.end.min(whole_stripes(start, most, stripe)) };
        self.segment = start..end;
        assert!(start < end && end <= self.range.end, "a segment goes on within its operation");
        Some(self.segment())
    }
}

/// The progress of one reader through a range of a blob, in memory. See the head of this file.
#[derive(Clone, Debug)]
pub struct MemoryRead {
    /// The bytes still to be received.
    left: Range<u64>,
    /// The range of the current operation; empty without one.
    operation: Range<u64>,
}

impl MemoryRead {
    /// A read of the payload bytes `range`.
    pub fn new(range: Range<u64>) -> Self {
        let operation = range.start..range.start;
        Self { left: range, operation }
    }

    /// The range of the next operation; `None` if everything was received.
    pub fn next_operation(&mut self) -> Option<Range<u64>> {
        let start = self.left.start;
        self.operation = start..self.left.end.min(start.saturating_add(OPERATION_BYTES_MAX));
        (!self.operation.is_empty()).then(|| self.operation.clone())
    }

    /// Records received bytes.
    pub fn received(&mut self, bytes: u64) {
        self.left.start += bytes;
        assert!(self.left.start <= self.operation.end, "no more is received than the operation reads");
    }

    /// The operation ended without a refusal: it is complete, or waited too long for its consumer. If it delivered
    /// nothing at all, it has no consumer.
    pub fn broken(&self) -> Broken {
        assert!(self.left.start <= self.operation.end, "what was received was read");
        if self.left.start > self.operation.start { Broken::OrderAnew } else { Broken::GiveUp }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use alloc::vec;
    use alloc::vec::Vec;

    const MIB: u64 = 1 << 20;

    fn spool(capacity_bytes: u64) -> SpoolShape {
        SpoolShape { capacity_bytes, segment_bytes: capacity_bytes / 8 }
    }

    fn recall_through(capacity_bytes: u64, range: Range<u64>) -> Recall {
        let blob = BlobShape { stripe_bytes: MIB, payload_bytes: 8_192 * MIB - 7 };
        Recall::new(blob, range, spool(capacity_bytes))
    }

    fn recall(range: Range<u64>) -> Recall {
        recall_through(1_024 * MIB, range)
    }

    /// The segments of an operation in a spool that has `free_bytes` throughout.
    fn segments(mut operation: RecallOperation, free_bytes: u64) -> Vec<Range<u64>> {
        let mut all = vec![operation.segment()];
        while let Some(segment) = operation.next_segment(free_bytes) {
            assert_eq!(all.last().unwrap().end, segment.start);
            all.push(segment);
        }
        all
    }

    #[test]
    fn what_does_not_pass_by_itself_is_kept_for_those_who_come_back() {
        let kept = [Rejection::TooManyDrivesAway, Rejection::DataLost, Rejection::Malformed];
        assert!(kept.into_iter().all(Rejection::is_kept));
        let passing = [Rejection::QueueFull, Rejection::Closing, Rejection::Asleep];
        assert!(!passing.into_iter().any(Rejection::is_kept));
    }

    #[test]
    fn a_gigabyte_is_one_operation_that_takes_little_room_while_it_is_queued() {
        let (gb, capacity) = (1_000_000_000, 25_600 * MIB);
        let operation = recall_through(capacity, 0..gb).operation(0);
        assert_eq!(operation.segment(), 0..32 * MIB);
        assert!(operation.range().end >= gb);
        let lengths: Vec<u64> =
            segments(operation, capacity).iter().map(|segment| (segment.end - segment.start) / MIB).collect();
        assert_eq!(lengths, [32, 128, 512, 282]);
    }

    #[test]
    fn an_operation_ends_where_the_spool_has_no_room_beside_others() {
        let operation = recall(0..256 * MIB).operation(0);
        let end = |free_bytes| segments(operation.clone(), free_bytes).last().unwrap().end / MIB;
        assert_eq!(end(1_024 * MIB), 256);
        assert_eq!(end(300 * MIB), 256, "in shorter segments");
        assert_eq!(end(256 * MIB), 16, "a quarter of the spool is left to others");
        let mut crowded = operation.clone();
        assert_eq!(crowded.next_segment(300 * MIB), Some(16 * MIB..60 * MIB));
        assert!(!crowded.is_in_last_segment());
        assert_eq!(crowded.next_segment(256 * MIB + 15 * MIB), None, "no segment is shorter than the first");
        assert_eq!(crowded.range(), 0..256 * MIB);
    }

    #[test]
    fn an_operation_is_no_longer_than_a_quarter_of_the_spool_and_a_gigabyte() {
        let length = |recall: &Recall| recall.operation(0).range().end / MIB;
        assert_eq!(length(&recall(0..8_000 * MIB)), 256);
        assert_eq!(length(&recall_through(25_600 * MIB, 0..8_000 * MIB)), 1_024);
        assert_eq!(recall_through(32, 0..8_000 * MIB).operation(0).range(), 0..MIB, "and a stripe at least");
    }

    #[test]
    fn the_next_operation_is_ordered_unless_the_client_lags_half_the_spool_behind() {
        let mut reader = recall(0..2_000 * MIB);
        assert_eq!((reader.ahead(256 * MIB), reader.ahead(512 * MIB)), (Some(256 * MIB), None));
        reader.received(16 * MIB);
        assert_eq!(reader.ahead(512 * MIB), Some(512 * MIB));
        reader.stalled();
        assert_eq!(reader.ahead(512 * MIB), None);
        let whole = recall_through(25_600 * MIB, 0..5_000 * MIB);
        assert!((1..5).all(|nth| whole.ahead(nth * 1_024 * MIB).is_some()), "all of it in one wake");
        assert_eq!(whole.ahead(5_000 * MIB), None);
    }

    #[test]
    fn what_a_client_takes_soon_is_kept_for_it() {
        let mut reader = recall(0..2_000 * MIB);
        assert!(reader.keeps(1_999 * MIB, false), "nothing is known of it");
        reader.received(64 * MIB);
        reader.segment_ended(64 * MIB, Duration::from_mins(1));
        assert!(reader.keeps(95 * MIB, false) && !reader.keeps(96 * MIB, false), "what it takes in 30 s");
        assert!(reader.keeps(96 * MIB, true), "and what comes next");
        assert_eq!(reader.operation(512 * MIB).range(), 512 * MIB..640 * MIB, "what it takes in two minutes");
        reader.segment_ended(64 * MIB, Duration::from_hours(1));
        assert!(reader.keeps(79 * MIB, false) && !reader.keeps(80 * MIB, false));
        reader.stalled();
        assert!(!reader.keeps(64 * MIB, true), "nothing for who takes nothing");
        assert_eq!(reader.operation(512 * MIB).range(), 512 * MIB..528 * MIB);
    }

    #[test]
    fn operations_are_whole_stripes_and_no_longer_than_the_blob() {
        let end = 8_192 * MIB - 7;
        assert_eq!(recall(MIB + 5..MIB + 6).operation(MIB + 5).range(), MIB..2 * MIB);
        assert_eq!(recall(MIB + 5..end).operation(MIB + 5).range(), MIB..257 * MIB);
        let last = recall(0..end).operation(end - 1);
        assert_eq!((last.range(), last.segment()), (8_191 * MIB..end, 8_191 * MIB..end));
        assert!(last.is_in_last_segment());
    }

    #[test]
    fn what_others_ordered_is_ordered_anew_a_few_times_while_nothing_comes() {
        let mut reader = recall(0..MIB);
        assert_eq!(reader.broken(false), Broken::GiveUp);
        for _ in 0..2 {
            assert!((0..JOINS_MAX).all(|_| reader.broken(true) == Broken::OrderAnew));
            assert_eq!(reader.broken(true), Broken::GiveUp);
            reader.received(1);
        }
        assert_eq!(reader.left(), 2..MIB);
    }

    #[test]
    fn memory_is_read_by_operations_that_go_on_where_the_last_one_ended() {
        let mut read = MemoryRead::new(5..OPERATION_BYTES_MAX + 10);
        assert_eq!(read.next_operation(), Some(5..OPERATION_BYTES_MAX + 5));
        assert_eq!(read.broken(), Broken::GiveUp);
        read.received(3);
        assert_eq!(read.broken(), Broken::OrderAnew);
        assert_eq!(read.next_operation(), Some(8..OPERATION_BYTES_MAX + 8));
        read.received(OPERATION_BYTES_MAX);
        assert_eq!(read.next_operation(), Some(OPERATION_BYTES_MAX + 8..OPERATION_BYTES_MAX + 10));
        read.received(2);
        assert_eq!(read.next_operation(), None);
    }
}
