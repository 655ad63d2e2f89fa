//! Targets of reads: the spool, for clients; bounded memory, for background work; clients of runs in virtual time.
//!
//! Invariants:
//! - between a transfer and a consumer in memory there are at most [`MEMORY_READ_BYTES`];
//! - an operation waits for its consumer at most [`CONSUMER_WAIT_MAX`] in all. Then it ends early, and the consumer
//!   orders the rest again when it wants it.

use super::spool_sink::SpoolSink;
use bytes::Bytes;
use catalog::Blob;
use disk::clock;
use disk::stack::{PassSink, PayloadSink, SinkClosed};
use engine::recall::{CONSUMER_WAIT_MAX, MEMORY_READ_BYTES};
use engine::{JobClass, PriorityClass, Rejection};
use futures::future::BoxFuture;
use model::Time;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// The size of the pieces that are passed on in memory.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that wait for their consumer; the transfer holds one more.
const PIECES: usize = MEMORY_READ_BYTES as usize / PIECE_BYTES - 1;
const _: () = assert!(PIECES > 0 && (PIECES + 1) * PIECE_BYTES <= MEMORY_READ_BYTES as usize);

/// An order to read a part of a blob's payload.
pub struct ReadOrder {
    /// The blob.
    pub blob: Blob,
    /// The part of its payload.
    pub range: Range<u64>,
    /// The target of the bytes.
    pub target: ReadTarget,
    /// The priority class that is charged.
    pub priority: PriorityClass,
    /// The class of the repartition job whose step this is part of, if any.
    pub job: Option<JobClass>,
    /// True if the read is not worth a wake of the blob's group.
    pub while_awake: bool,
    /// Set if the engine refuses the operation or gives it up.
    pub refused: Arc<OnceLock<Rejection>>,
}

/// The target of a read.
pub enum ReadTarget {
    /// Into the spool, for clients.
    Spool(Box<SpoolSink>),
    /// To a consumer in memory.
    Memory(MemorySink),
    /// To a client of a run in virtual time, as the bytes arrive.
    Timed(Box<dyn TimedClient>),
}

/// A client of a run in virtual time. It is fed as the bytes arrive from the drives; bytes that it does not take at
/// once hold up the read, as in Pelican's prototype: there is no spool between them.
pub trait TimedClient: Send + 'static {
    /// The longest request to a drive if payload is left out; `None` if payload is read.
    fn request_bytes(&self) -> Option<u64>;
    /// Its read was taken from its queue at this moment; `None` if it never was.
    fn picked(&mut self, at: Option<Time>);
    /// Takes the next `bytes` bytes; `payload` has them, unless payload is left out.
    fn take<'a>(&'a mut self, bytes: u64, payload: Option<&'a [u8]>) -> BoxFuture<'a, Result<(), SinkClosed>>;
    /// Its read has ended: answered, or refused.
    fn ended(self: Box<Self>, refused: Option<Rejection>);
}

/// Passes bytes to a consumer in memory.
pub struct MemorySink {
    pieces: mpsc::Sender<Bytes>,
    /// The total time spent waiting for the consumer.
    waited: Duration,
}

impl MemorySink {
    /// A sink, and the channel from which its consumer takes the bytes.
    pub fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (pieces, consumer) = mpsc::channel(PIECES);
        (Self { pieces, waited: Duration::ZERO }, consumer)
    }

    /// Passes on `piece`; fails if the consumer is gone, or has used up its waiting time.
    async fn give(&mut self, piece: Bytes) -> Result<(), SinkClosed> {
        assert!(piece.len() <= PIECE_BYTES, "pieces are bounded");
        let began = clock::monotonic();
        let given = tokio::time::timeout(CONSUMER_WAIT_MAX.saturating_sub(self.waited), self.pieces.send(piece)).await;
        self.waited += began.elapsed();
        given.ok().and_then(Result::ok).ok_or(SinkClosed)
    }
}

/// A read under way: its target, and the number of bytes given to it.
pub(crate) struct ReadProgress {
    pub(super) range: Range<u64>,
    pub(super) target: ReadTarget,
    given_bytes: u64,
    /// The target took no more; the drives are not to blame.
    pub(super) closed: bool,
}

impl ReadProgress {
    /// A read without any bytes yet.
    pub(super) fn new(range: Range<u64>, target: ReadTarget) -> Self {
        Self { range, target, given_bytes: 0, closed: false }
    }

    /// The bytes that the target has.
    pub(super) fn given(&self) -> Range<u64> {
        self.range.start..self.range.start + self.given_bytes
    }

    /// The longest request to a drive, if the payload is left out.
    pub(super) fn request_bytes_without_payload(&self) -> Option<u64> {
        if let ReadTarget::Timed(client) = &self.target { client.request_bytes() } else { None }
    }

    /// True if this reads into memory and its consumer is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.target, ReadTarget::Memory(sink) if sink.pieces.is_closed())
    }

    async fn give(&mut self, bytes: &[u8]) -> Result<(), SinkClosed> {
        match &mut self.target {
            ReadTarget::Spool(sink) => {
                let before = sink.at();
                let given = sink.give(bytes).await;
                self.given_bytes += sink.at() - before;
                given?;
            }
            ReadTarget::Timed(client) => {
                client.take(bytes.len() as u64, Some(bytes)).await?;
                self.given_bytes += bytes.len() as u64;
            }
            ReadTarget::Memory(sink) => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    sink.give(Bytes::copy_from_slice(piece)).await?;
                    self.given_bytes += piece.len() as u64;
                }
            }
        }
        Ok(())
    }
}

impl PayloadSink for ReadProgress {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move {
            let given = self.give(bytes).await;
            assert!(self.given().end <= self.range.end, "no more is given than was ordered");
            self.closed = given.is_err();
            given
        })
    }
}

impl PassSink for ReadProgress {
    fn pass(&mut self, bytes: u64) -> BoxFuture<'_, Result<(), SinkClosed>> {
        Box::pin(async move {
            let ReadTarget::Timed(client) = &mut self.target else { panic!("payload is left out for nobody") };
            let given = client.take(bytes, None).await;
            self.given_bytes += if given.is_ok() { bytes } else { 0 };
            assert!(self.given().end <= self.range.end, "no more is given than was ordered");
            self.closed = given.is_err();
            given
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::time::Instant;

    fn progress(bytes: u64) -> (ReadProgress, mpsc::Receiver<Bytes>) {
        let (sink, consumer) = MemorySink::new();
        (ReadProgress::new(0..bytes, ReadTarget::Memory(sink)), consumer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_waits_for_its_consumer_so_long_and_holds_so_much() {
        let (mut progress, mut consumer) = progress(1 << 40);
        let began = Instant::now();
        let stripe = vec![7; 1 << 20];
        while progress.take(&stripe).await.is_ok() {}
        assert!(progress.closed);
        assert_eq!(began.elapsed(), CONSUMER_WAIT_MAX);
        assert!(progress.given_bytes < MEMORY_READ_BYTES, "{} bytes wait", progress.given_bytes);
        let given = progress.given_bytes;
        drop(progress);
        let mut taken = 0;
        while let Some(piece) = consumer.recv().await {
            taken += piece.len() as u64;
        }
        assert_eq!(taken, given, "what was given is not lost");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_add_up() {
        let (mut progress, mut consumer) = progress(1 << 40);
        let taken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Some(piece) = consumer.recv().await {
                count.fetch_add(piece.len() as u64, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let began = Instant::now();
        while progress.take(&vec![7; PIECE_BYTES]).await.is_ok() {}
        assert_eq!(began.elapsed(), CONSUMER_WAIT_MAX);
        assert!(progress.given_bytes > MEMORY_READ_BYTES, "a slow consumer gets on");
        assert!(progress.given_bytes - taken.load(Ordering::Relaxed) <= MEMORY_READ_BYTES);
    }

    #[tokio::test]
    async fn a_consumer_that_is_gone_ends_the_transfer() {
        let (mut progress, consumer) = progress(1 << 40);
        assert!(!progress.is_abandoned());
        drop(consumer);
        assert!(progress.is_abandoned());
        assert!(progress.take(&[1]).await.is_err());
        assert_eq!(progress.given_bytes, 0);
    }
}
