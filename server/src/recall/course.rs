//! The course of one client's recall, which its feeder and its operations share: the state of
//! [`engine::recall::Recall`], and the segments that are kept for the client.
//!
//! Invariants: kept segments are in the order of their bytes; an operation does not keep its client's course alive, so
//! nothing is kept for a client that has gone.

use engine::Rejection;
use engine::recall::{Broken, Recall, RecallOperation};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use workshop::SpoolReader;

/// A segment of the spool; complete, or being read.
#[derive(Clone)]
pub(super) struct Segment {
    /// Holds the segment, and reads it.
    pub(super) reader: SpoolReader,
    /// Set if the rack refuses the read.
    pub(super) refused: Arc<OnceLock<Rejection>>,
    /// True if it was found in the spool, and not ordered by this recall.
    pub(super) joined: bool,
    /// True if the operation that reads it is known to end with it.
    pub(super) is_last: bool,
}

/// The course of one client's recall.
pub(super) struct Course(Mutex<CourseState>);

struct CourseState {
    recall: Recall,
    /// The next segments; while they are here they are not evicted.
    kept: VecDeque<Segment>,
    /// True if an operation was ordered for this recall.
    begun: bool,
}

impl Course {
    pub(super) fn new(recall: Recall) -> Self {
        Self(Mutex::new(CourseState { recall, kept: VecDeque::new(), begun: false }))
    }

    /// Records that an operation is about to be ordered. False for the first one.
    pub(super) fn begins_again(&self) -> bool {
        std::mem::replace(&mut self.0.lock().begun, true)
    }

    /// The bytes still to be received.
    pub(super) fn left(&self) -> Range<u64> {
        self.0.lock().recall.left()
    }

    /// The operation to order, which begins with byte `at`.
    pub(super) fn operation(&self, at: u64) -> RecallOperation {
        self.0.lock().recall.operation(at)
    }

    /// The beginning of the operation after the one up to `end`, if it is to be ordered ahead.
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

    /// The kept segment with byte `at`. Releases those before it.
    pub(super) fn take(&self, at: u64) -> Option<Segment> {
        let mut state = self.0.lock();
        while state.kept.front().is_some_and(|segment| segment.reader.range().end <= at) {
            state.kept.pop_front();
        }
        state.kept.pop_front_if(|segment| segment.reader.range().contains(&at))
    }

    /// Records that `bytes` were received.
    pub(super) fn received(&self, bytes: u64) {
        self.0.lock().recall.received(bytes);
    }

    /// Records that a segment was received completely. Releases segments that the client will not get to soon.
    pub(super) fn segment_ended(&self, bytes: u64, waited: Duration) {
        let mut guard = self.0.lock();
        let CourseState { recall, kept, .. } = &mut *guard;
        recall.segment_ended(bytes, waited);
        while kept.back().is_some_and(|last| !recall.keeps(last.reader.range().start, kept.len() == 1)) {
            kept.pop_back();
        }
    }

    /// Records that the client does not take its bytes: nothing is kept for it.
    pub(super) fn stalled(&self) {
        let mut state = self.0.lock();
        state.recall.stalled();
        state.kept.clear();
    }

    /// Records that `segment` failed; returns the next step.
    pub(super) fn broken(&self, segment: &Segment) -> Broken {
        self.0.lock().recall.broken(segment.joined)
    }
}
