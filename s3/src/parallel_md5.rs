//! MD5, which S3's `ETag` needs of every upload, computed in parallel to receiving and writing the bytes.
//!
//! The MD5 of one upload cannot be split, so it takes a core. The MD5s of many uploads share a core, each in a lane of
//! its vectors ([`lanes`]), at several times the rate. Each upload gathers a batch of the bytes it receives and hands
//! it to a worker, without a copy. A worker is a blocking task that runs while there are batches. It takes waiting
//! batches into its lanes, hashes [`SLICE_BLOCKS`] of each, and looks again, so new batches join those in progress.
//! Batches too few for lanes to pay take slices in turn, hashed in the faster way for one.
//!
//! Small uploads end before a worker would wake. Small uploads of one runtime that end at the same moment, as they do
//! when many clients were answered at once, are hashed together by the first of them, in place.
//!
//! Invariants:
//! - an upload has one batch with a worker and another that gathers, of at most [`BATCH_BYTES`] and a piece each; it
//!   waits when both are full;
//! - no batch waits without a worker: the upload that adds a batch ensures that there is one, and a worker leaves only
//!   when no batch waits;
//! - an upload that is dropped removes its batch from its lane at the next slice;
//! - an upload that ends beside others continues once its bytes are hashed, even if the others are dropped: it hashes
//!   every batch that no other upload has started;
//! - on a runtime of one thread, and for few bytes, the bytes are hashed in place: nothing there runs in parallel.

mod lanes;
mod state;

use bytes::{Buf, Bytes};
use fearless_simd::Level;
use lanes::{LANES, Words};
use parking_lot::{Mutex, MutexGuard};
use state::{BLOCK_BYTES, Block, Md5State};
use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Bytes that an upload gathers before it waits for its last batch.
const BATCH_BYTES: usize = 1 << 20;
/// The fewest bytes that an upload hands to an idle worker: 80 microseconds of work.
const HANDOVER_BYTES: usize = 64 << 10;
/// The fewest bytes for which an upload that ends looks for others that end.
const BESIDE_BYTES: usize = 4 << 10;
/// Blocks that a worker hashes before it looks for other batches.
const SLICE_BLOCKS: usize = 1024;

/// Hashes the uploads of one server. A clone is another handle to the same workers.
#[derive(Clone)]
pub(crate) struct Md5Workers {
    shared: Arc<SharedWorkers>,
}

struct SharedWorkers {
    level: Level,
    /// The number of batches from which hashing side by side pays.
    together_from: usize,
    workers_max: usize,
    queue: Mutex<LaneQueue>,
    /// Small uploads that are ending.
    ending: Mutex<VecDeque<LaneBatch>>,
}

#[derive(Default)]
struct LaneQueue {
    waiting: VecDeque<LaneBatch>,
    workers: usize,
}

impl Md5Workers {
    /// Uses at most half of the cores for workers; the other half receives and writes.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::with_workers((cores / 2).max(1))
    }

    fn with_workers(workers_max: usize) -> Self {
        let level = Level::new();
        let together_from = lanes::pay_from(level);
        let (queue, ending) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(SharedWorkers { level, together_from, workers_max, queue, ending }) }
    }

    /// The MD5 of a new upload.
    pub fn upload(&self) -> Md5 {
        Md5 {
            workers: self.clone(),
            work: StateAt::Here(Md5State::new()),
            gathered: VecDeque::new(),
            gathered_bytes: 0,
        }
    }

    /// Hashes the first of the small uploads that are ending, in place. False if no upload is ending.
    fn hash_ending(&self) -> bool {
        let mut ending = self.shared.ending.lock();
        let now = ending.len().min(LANES);
        let lanes: Vec<LaneBatch> = ending.drain(..now).collect();
        drop(ending);
        let mut worker = Md5Worker { shared: Arc::clone(&self.shared), lanes, left: true };
        while !worker.lanes.is_empty() {
            worker.settle();
            worker.go_on();
        }
        now > 0
    }

    /// Queues a batch, and starts another worker if fewer than the maximum run.
    fn add(&self, lane: LaneBatch, runtime: &Handle) {
        let mut queue = self.shared.lock();
        queue.waiting.push_back(lane);
        if queue.workers == self.shared.workers_max {
            return;
        }
        queue.workers += 1;
        assert!(queue.workers <= self.shared.workers_max, "no more workers run than may");
        drop(queue);
        let worker = Md5Worker { shared: Arc::clone(&self.shared), lanes: Vec::new(), left: false };
        runtime.spawn_blocking(move || worker.work());
    }
}

impl SharedWorkers {
    fn lock(&self) -> MutexGuard<'_, LaneQueue> {
        self.queue.lock()
    }
}

/// The MD5 of `bytes`, in place.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = Md5InPlace::default();
    digest.update(bytes);
    digest.finish()
}

/// An MD5 that is computed as the bytes pass.
pub(crate) struct Md5InPlace(Md5State);

impl Default for Md5InPlace {
    fn default() -> Self {
        Self(Md5State::new())
    }
}

impl Md5InPlace {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> [u8; 16] {
        self.0.finish()
    }
}

/// The runtime ended a worker early.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("hashing ended")]
pub(crate) struct HashingEnded;

/// The location of an upload's state.
enum StateAt {
    Here(Md5State),
    Away(oneshot::Receiver<Md5State>),
    Lost,
}

/// The MD5 of one upload.
pub(crate) struct Md5 {
    workers: Md5Workers,
    work: StateAt,
    gathered: VecDeque<Bytes>,
    gathered_bytes: usize,
}

impl Md5 {
    /// Takes the next bytes; waits only if hashing is two batches behind.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn feed(&mut self, piece: Bytes) -> Result<(), HashingEnded> {
        self.gathered_bytes += piece.len();
        self.gathered.push_back(piece);
        if self.gathered_bytes < HANDOVER_BYTES {
            return Ok(());
        }
        if self.gathered_bytes >= BATCH_BYTES || self.is_back() {
            self.hand_over().await?;
        }
        Ok(())
    }

    /// The digest of all bytes that were fed.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn finish(mut self) -> Result<[u8; 16], HashingEnded> {
        if self.gathered_bytes >= HANDOVER_BYTES {
            self.hand_over().await?;
        }
        let mut state = self.state().await?;
        if self.gathered_bytes >= BESIDE_BYTES && Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
            return Ok(self.end_beside_others(state).await?.finish());
        }
        for piece in &self.gathered {
            state.update(piece);
        }
        Ok(state.finish())
    }

    /// `state` after the gathered bytes, which are hashed together with other uploads that end.
    async fn end_beside_others(self, state: Md5State) -> Result<Md5State, HashingEnded> {
        let (done, mut back) = oneshot::channel();
        self.workers.shared.ending.lock().push_back(LaneBatch { state, pieces: self.gathered, done });
        // Uploads that are ready by now run first, and join.
        tokio::task::yield_now().await;
        loop {
            match back.try_recv() {
                Ok(state) => return Ok(state),
                Err(TryRecvError::Empty) if self.workers.hash_ending() => {}
                // Another thread has it in its lanes.
                Err(_) => return back.await.map_err(|_| HashingEnded),
            }
        }
    }

    /// True if the last batch is done.
    fn is_back(&mut self) -> bool {
        if let StateAt::Away(back) = &mut self.work
            && let Ok(state) = back.try_recv()
        {
            self.work = StateAt::Here(state);
        }
        matches!(self.work, StateAt::Here(_))
    }

    /// Hands the gathered bytes over, after the batch before them.
    async fn hand_over(&mut self) -> Result<(), HashingEnded> {
        assert!(self.gathered_bytes >= HANDOVER_BYTES, "little is hashed where it is");
        let mut state = self.state().await?;
        let pieces = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            for piece in pieces {
                state.update(&piece);
            }
            self.work = StateAt::Here(state);
        } else {
            let (done, back) = oneshot::channel();
            self.work = StateAt::Away(back);
            self.workers.add(LaneBatch { state, pieces, done }, &runtime);
        }
        Ok(())
    }

    async fn state(&mut self) -> Result<Md5State, HashingEnded> {
        match &mut self.work {
            // Awaited in place: a caller that drops this call can make the next.
            StateAt::Away(back) => {
                let state = back.await.map_err(|_| HashingEnded);
                self.work = StateAt::Lost;
                state
            }
            StateAt::Here(_) | StateAt::Lost => match std::mem::replace(&mut self.work, StateAt::Lost) {
                StateAt::Here(state) => Ok(state),
                StateAt::Away(_) | StateAt::Lost => Err(HashingEnded),
            },
        }
    }
}

/// A batch that has a worker or waits for one.
struct LaneBatch {
    state: Md5State,
    pieces: VecDeque<Bytes>,
    done: oneshot::Sender<Md5State>,
}

impl LaneBatch {
    /// Advances to the next piece that starts with whole blocks. False if no piece is left.
    fn settle(&mut self) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            let odd = (BLOCK_BYTES - self.state.held_bytes()) % BLOCK_BYTES;
            if odd == 0 && piece.len() >= BLOCK_BYTES {
                return true;
            }
            let few = if odd == 0 { piece.len() } else { odd.min(piece.len()) };
            self.state.update(&piece.split_to(few));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        false
    }

    /// The next whole blocks.
    fn blocks(&self) -> &[Block] {
        self.pieces.front().map_or(&[], |piece| piece.as_chunks::<BLOCK_BYTES>().0)
    }

    /// Hashes the next `count` blocks.
    fn advance_alone(&mut self, count: usize) {
        assert!(count <= self.blocks().len(), "a lane advances over what it has");
        if let Some(piece) = self.pieces.front_mut() {
            self.state.update(&piece.split_to(count * BLOCK_BYTES));
        }
    }

    /// Records that the next `count` blocks led to `words`.
    fn advance(&mut self, words: [u32; 4], count: usize) {
        assert!(count <= self.blocks().len(), "a lane advances over what it has");
        self.state.words = words;
        self.state.skip(count);
        if let Some(piece) = self.pieces.front_mut() {
            piece.advance(count * BLOCK_BYTES);
        }
    }
}

/// Works through batches until none waits.
struct Md5Worker {
    shared: Arc<SharedWorkers>,
    lanes: Vec<LaneBatch>,
    /// True once the worker is no longer counted.
    left: bool,
}

impl Md5Worker {
    fn work(mut self) {
        while self.admit() {
            self.settle();
            self.go_on();
        }
    }

    /// Fills the lanes with waiting batches. False if there is nothing to do; the worker then no longer counts.
    fn admit(&mut self) -> bool {
        let mut queue = self.shared.lock();
        let room = LANES - self.lanes.len();
        let now = queue.waiting.len().min(room);
        self.lanes.extend(queue.waiting.drain(..now));
        assert!(self.lanes.len() <= LANES, "a worker hashes as many messages as it has lanes");
        if self.lanes.is_empty() {
            assert!(queue.waiting.is_empty(), "a worker leaves only when no batch waits");
            queue.workers -= 1;
            self.left = true;
        }
        !self.lanes.is_empty()
    }

    /// Returns the state of each batch that is done; the lanes with whole blocks left stay.
    fn settle(&mut self) {
        let mut at = 0;
        while at < self.lanes.len() {
            if !self.lanes[at].done.is_closed() && self.lanes[at].settle() {
                at += 1;
            } else {
                let lane = self.lanes.swap_remove(at);
                // The receiver is gone if the upload was dropped.
                let _ = lane.done.send(lane.state);
            }
        }
    }

    /// Advances every lane by the same number of blocks.
    fn go_on(&mut self) {
        let Some(shortest) = self.lanes.iter().map(|lane| lane.blocks().len()).min() else { return };
        let count = shortest.min(SLICE_BLOCKS);
        assert!(count > 0, "a lane that is settled has a block to hash");
        if self.lanes.len() >= self.shared.together_from {
            self.go_on_together(count);
        } else {
            for lane in &mut self.lanes {
                lane.advance_alone(count);
            }
        }
    }

    fn go_on_together(&mut self, count: usize) {
        let mut words = Words::default();
        for (at, lane) in self.lanes.iter().enumerate() {
            (0..4).for_each(|word| words[word][at] = lane.state.words[word]);
        }
        // An unused lane repeats the first lane; its result is not used.
        let runs = std::array::from_fn(|at| self.lanes.get(at).unwrap_or(&self.lanes[0]).blocks());
        lanes::compress(self.shared.level, &mut words, &runs, count);
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            lane.advance(words.map(|lanes| lanes[at]), count);
        }
    }
}

impl Drop for Md5Worker {
    /// A runtime that shuts down ends workers before they start. Uploads that wait for a worker that will not come get
    /// an error.
    fn drop(&mut self) {
        if !self.left {
            let mut queue = self.shared.lock();
            assert!(queue.workers > 0, "a worker counts until it leaves");
            queue.workers -= 1;
            if queue.workers == 0 {
                queue.waiting.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
