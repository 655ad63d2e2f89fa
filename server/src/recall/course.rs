//! The course of one client's recall, which its feeder and its operations share: what [`engine::recall::Recall`] knows,
//! and the segments that are kept for it.
//!
//! Invariants: kept segments are in the order of their bytes; an operation does not keep its client's course, so that
//! nothing is kept for a client that has gone.

use engine::Rejection;
use engine::recall::{Broken, Recall, RecallOperation};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use workshop::SpoolReader;

/// A segment of the spool, which is complete or being read.
#[derive(Clone)]
pub(super) struct Segment {
    /// Keeps it, and reads it.
    pub(super) reader: SpoolReader,
    /// Set if the rack does not give it.
    pub(super) refused: Arc<OnceLock<Rejection>>,
    /// True if somebody else ordered it.
    pub(super) joined: bool,
    /// True if the operation that reads it is known to end with it.
    pub(super) is_last: bool,
}

/// The course of one client's recall.
pub(super) struct Course(Mutex<CourseState>);

struct CourseState {
    recall: Recall,
    /// Segments that come next, each of which is thereby not evicted.
    kept: VecDeque<Segment>,
    /// An operation was ordered for it.
    begun: bool,
}

impl Course {
    pub(super) fn new(recall: Recall) -> Self {
        Self(Mutex::new(CourseState { recall, kept: VecDeque::new(), begun: false }))
    }

    /// An operation is about to be ordered. False for the first one.
    pub(super) fn begins_again(&self) -> bool {
        std::mem::replace(&mut self.0.lock().begun, true)
    }

    /// The bytes that are still to be received.
    pub(super) fn left(&self) -> Range<u64> {
        self.0.lock().recall.left()
    }

    /// The operation to order that begins with byte `at`.
    pub(super) fn operation(&self, at: u64) -> RecallOperation {
        self.0.lock().recall.operation(at)
    }

    /// Where the operation after the one up to `end` begins, if it is ordered ahead.
    pub(super) fn ahead(&self, end: u64) -> Option<u64> {
        self.0.lock().recall.ahead(end)
    }

    /// Keeps `segment`, unless the client will not get there soon.
    pub(super) fn keep(&self, segment: Segment) {
        let mut state = self.0.lock();
        let start = segment.reader.range().start;
        let place = state.kept.partition_point(|kept| kept.reader.range().start < start);
        let is_known = state.kept.get(place).is_some_and(|kept| kept.reader.range().start == start);
        if !is_known && state.recall.keeps(start, state.kept.is_empty()) {
            state.kept.insert(place, segment);
        }
    }

    /// The kept segment that holds byte `at`. Those before it are let go.
    pub(super) fn take(&self, at: u64) -> Option<Segment> {
        let mut state = self.0.lock();
        while state.kept.front().is_some_and(|segment| segment.reader.range().end <= at) {
            state.kept.pop_front();
        }
        state.kept.pop_front_if(|segment| segment.reader.range().contains(&at))
    }

    /// So many bytes were received.
    pub(super) fn received(&self, bytes: u64) {
        self.0.lock().recall.received(bytes);
    }

    /// A segment was received to its end. What the client will not get to soon is let go.
    pub(super) fn segment_ended(&self, bytes: u64, waited: Duration) {
        let mut guard = self.0.lock();
        let CourseState { recall, kept, .. } = &mut *guard;
        recall.segment_ended(bytes, waited);
        while kept.back().is_some_and(|last| !recall.keeps(last.reader.range().start, kept.len() == 1)) {
            kept.pop_back();
        }
    }

    /// The client does not take its bytes: nothing is kept for it.
    pub(super) fn stalled(&self) {
        let mut state = self.0.lock();
        state.recall.stalled();
        state.kept.clear();
    }

    /// `segment` came to nothing.
    pub(super) fn broken(&self, segment: &Segment) -> Broken {
        self.0.lock().recall.broken(segment.joined)
    }
}
