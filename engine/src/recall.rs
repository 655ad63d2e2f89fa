//! Reads of cold bytes: how much of a blob is read at once and for whom, how far ahead, who waits how long, and what is
//! tried again.
//!
//! Each reader has a small state machine of its own here, which the server feeds with what happened and asks what to do
//! next; the operations that come of it are queued by [`Rack`](crate::Rack) like any other.
//!
//! - A client is fed from the workshop's spool ([`Recall`]). It is answered when the first [`HEAD_BYTES`] of what it
//!   wants are there. While it takes one segment, the next is read, and no more than that: a slow client costs the rack
//!   nothing, a vanished one at most a segment. Segments begin small and grow with the speed at which they are taken.
//! - Background work reads into memory ([`MemoryRead`]), one operation at a time, each of which waits for its consumer
//!   so long at most that others of its class are not kept waiting.
//! - Whoever joins a read that somebody else ordered orders it anew if that comes to nothing.
//!
//! All durations are wall time: they are about people, their clients and the workshop, not about the rack.

use crate::action::Rejection;
use core::ops::Range;
use core::time::Duration;

/// The part of a range that is in the spool before any of it is given out; small objects as a whole.
pub const HEAD_BYTES: u64 = 32 << 20;
/// A client's first segment, and one of a slow client, is at most this part of the spool, and else [`HEAD_BYTES`].
const FIRST_IN_CAPACITY: u64 = 16;
/// The longest operation of one reader: long enough for the seeks between two of them not to count.
const OPERATION_BYTES_MAX: u64 = 1 << 30;
/// By how much a segment may be longer than the one before it.
const GROWTH: u64 = 4;
/// How long a client should take for a segment.
const SEGMENT_TIME: Duration = Duration::from_secs(4);
/// How often what others ordered may come to nothing before a reader gives up.
const JOINS_MAX: u32 = 5;

/// How long a client may take for a block before its segments may be evicted from the spool.
pub const BLOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a stream waits for room in the spool for its next segment.
pub const SPOOL_ROOM_WAIT_MAX: Duration = Duration::from_mins(10);
/// How long the disk of the spool may take for the first bytes of what it holds.
pub const SPOOL_DISK_WAIT_MAX: Duration = Duration::from_secs(30);
/// Bytes that come so soon are waited for without a forecast.
pub const SOON: Duration = Duration::from_millis(20);
/// The longest that anybody waits: clocks have an end.
pub const WAIT_MAX: Duration = Duration::from_hours(365 * 24);

/// Bytes between a transfer into memory and its consumer, beside the transfer's own buffers.
pub const MEMORY_READ_BYTES: u64 = 4 << 20;
/// How long, in all, an operation that reads into memory waits for its consumer: it keeps its class in service
/// meanwhile.
pub const CONSUMER_WAIT_MAX: Duration = Duration::from_secs(2);

impl Rejection {
    /// When to ask again, if the reason passes by itself.
    pub fn retry_after(self) -> Option<Duration> {
        matches!(self, Self::QueueFull | Self::Closing).then_some(Duration::from_secs(5))
    }
}

/// Whether a client waits on that can wait for `left` and is expected to have to wait for `expected`. One that does not
/// is told so; its recall goes on.
pub fn is_worth_waiting(expected: Duration, left: Duration) -> bool {
    expected <= left
}

/// The layout of a blob, as far as a recall needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobShape {
    /// Payload bytes of a stripe.
    pub stripe_bytes: u64,
    /// Payload bytes in all.
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

/// The way on after a segment that came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Order the rest anew.
    OrderAnew,
    /// The reader is told why.
    GiveUp,
}

/// One client's way through a range of a blob. See the head of this file.
#[derive(Clone, Debug)]
pub struct Recall {
    blob: BlobShape,
    /// The bytes that are still to be received.
    left: Range<u64>,
    segment_bytes: u64,
    first_bytes: u64,
    max_bytes: u64,
    reads_ahead: bool,
    /// Segments of others that came to nothing since the last byte was received.
    joins: u32,
}

impl Recall {
    /// A recall of the payload bytes `range`.
    pub fn new(blob: BlobShape, range: Range<u64>, spool: SpoolShape) -> Self {
        assert!(blob.stripe_bytes > 0, "a stripe has a length");
        assert!(range.end <= blob.payload_bytes, "a recall lies within its blob");
        let first_bytes = HEAD_BYTES.min(spool.capacity_bytes / FIRST_IN_CAPACITY).max(1);
        let max_bytes = OPERATION_BYTES_MAX.min(spool.segment_bytes).max(first_bytes);
        Self { blob, left: range, segment_bytes: first_bytes, first_bytes, max_bytes, reads_ahead: true, joins: 0 }
    }

    /// The bytes that are still to be received.
    pub fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// The segment to order that holds byte `at`. It is made of whole stripes: they are read and checked anyway, and
    /// neighbours in a pack come for free.
    pub fn segment(&self, at: u64) -> Range<u64> {
        assert!(self.left.contains(&at), "a segment holds bytes that are wanted");
        let stripe = self.blob.stripe_bytes;
        let start = at - at % stripe;
        let most = self.segment_bytes.max(stripe);
        let end = self.left.end.next_multiple_of(stripe).min(start + most - most % stripe);
        let segment = start..end.min(self.blob.payload_bytes);
        assert!(segment.contains(&at), "a segment is a stripe at least");
        segment
    }

    /// Where the segment begins that is ordered while the one up to `end` is received; `None` if none is.
    pub fn ahead(&self, end: u64) -> Option<u64> {
        (self.reads_ahead && end < self.left.end).then_some(end)
    }

    /// So many bytes were received.
    pub fn received(&mut self, bytes: u64) {
        self.left.start += bytes;
        assert!(self.left.start <= self.left.end, "no more is received than is wanted");
        self.joins = 0;
    }

    /// A segment was received to its end: of `bytes`, and `waited` is how long the client was waited for meanwhile.
    pub fn segment_ended(&mut self, bytes: u64, waited: Duration) {
        let millis = waited.as_millis().max(1);
        let in_time = u128::from(bytes) * SEGMENT_TIME.as_millis() / millis;
        let most = self.segment_bytes.saturating_mul(GROWTH).min(self.max_bytes).max(self.first_bytes);
        self.segment_bytes = u64::try_from(in_time).unwrap_or(u64::MAX).clamp(self.first_bytes, most);
        self.reads_ahead = true;
    }

    /// The client did not take a block within [`BLOCK_WAIT_MAX`]: its segments are let go.
    pub fn stalled(&mut self) {
        (self.segment_bytes, self.reads_ahead) = (self.first_bytes, false);
    }

    /// A segment came to nothing; `joined` if somebody else had ordered it.
    pub fn broken(&mut self, joined: bool) -> Broken {
        if !joined || self.joins == JOINS_MAX {
            return Broken::GiveUp;
        }
        self.joins += 1;
        assert!(self.joins <= JOINS_MAX, "nobody joins without end");
        Broken::OrderAnew
    }
}

/// One reader's way through a range of a blob, in memory. See the head of this file.
#[derive(Clone, Debug)]
pub struct MemoryRead {
    /// The bytes that are still to be received.
    left: Range<u64>,
    /// The range of the operation under way; empty if there is none.
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

    /// So many bytes were received.
    pub fn received(&mut self, bytes: u64) {
        self.left.start += bytes;
        assert!(self.left.start <= self.operation.end, "no more is received than the operation reads");
    }

    /// The operation ended and was not refused: complete, or since it waited for the consumer for too long. One that
    /// gave nothing at all has nobody to read it.
    pub fn broken(&self) -> Broken {
        assert!(self.left.start <= self.operation.end, "what was received was read");
        if self.left.start > self.operation.start { Broken::OrderAnew } else { Broken::GiveUp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn recall(range: Range<u64>) -> Recall {
        let blob = BlobShape { stripe_bytes: MIB, payload_bytes: 2_048 * MIB - 7 };
        Recall::new(blob, range, SpoolShape { capacity_bytes: 256 * MIB, segment_bytes: 256 * MIB })
    }

    #[test]
    fn segments_grow_for_those_who_take_them_and_for_nobody_else() {
        let mut fast = recall(0..2_000 * MIB);
        for expected in [64, 256, 256] {
            fast.segment_ended(fast.segment_bytes, Duration::ZERO);
            assert_eq!(fast.segment_bytes, expected * MIB);
        }
        let mut steady = recall(0..2_000 * MIB);
        steady.segment_ended(16 * MIB, Duration::from_secs(2));
        assert_eq!(steady.segment_bytes, 32 * MIB, "what it takes in 4 s");
        let mut slow = recall(0..2_000 * MIB);
        slow.segment_ended(16 * MIB, Duration::from_mins(1));
        assert_eq!(slow.segment_bytes, 16 * MIB);
        fast.stalled();
        assert_eq!((fast.segment_bytes, fast.ahead(MIB)), (16 * MIB, None));
        fast.segment_ended(16 * MIB, Duration::ZERO);
        assert_eq!(fast.ahead(MIB), Some(MIB));
        assert_eq!(fast.ahead(2_000 * MIB), None);
    }

    #[test]
    fn segments_are_whole_stripes_and_no_longer_than_the_blob() {
        let end = 2_048 * MIB - 7;
        assert_eq!(recall(MIB + 5..MIB + 6).segment(MIB + 5), MIB..2 * MIB);
        assert_eq!(recall(MIB + 5..end).segment(MIB + 5), MIB..17 * MIB);
        assert_eq!(recall(0..end).segment(end - 1), 2_047 * MIB..end);
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
