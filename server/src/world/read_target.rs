//! Targets of reads: the spool, for clients; bounded memory, for background work; clients of runs in virtual time.
//!
//! Invariants:
//! - between a transfer and a consumer in memory there are at most [`MEMORY_READ_BYTES`];
//! - an operation waits for such a consumer no longer than [`CONSUMER_WAIT_MAX`] in all. It then ends where it is, and
//!   the consumer orders the rest anew when it wants it.

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

/// The pieces in which bytes are handed over in memory.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that wait for their consumer; one more is in the transfer's hand.
const PIECES: usize = MEMORY_READ_BYTES as usize / PIECE_BYTES - 1;
const _: () = assert!(PIECES > 0 && (PIECES + 1) * PIECE_BYTES <= MEMORY_READ_BYTES as usize);

/// A part of a blob's payload that is to be read.
pub struct ReadOrder {
    /// The blob.
    pub blob: Blob,
    /// The part of its payload.
    pub range: Range<u64>,
    /// Where the bytes go.
    pub target: ReadTarget,
    /// The priority class whose share is charged.
    pub priority: PriorityClass,
    /// The class of the repartition job of whose step it is a part, if it is.
    pub job: Option<JobClass>,
    /// It is worth no wake of the blob's group.
    pub while_awake: bool,
    /// Set if the engine refuses it or gives it up.
    pub refused: Arc<OnceLock<Rejection>>,
}

/// Where the bytes of a read go.
pub enum ReadTarget {
    /// Into the spool, for clients.
    Spool(Box<SpoolSink>),
    /// To a consumer in memory.
    Memory(MemorySink),
    /// To a client of a run in virtual time, as the bytes come.
    Timed(Box<dyn TimedClient>),
}

/// A client of a run in virtual time. It is fed as the bytes come from the drives, and what it does not take at once
/// holds the read up, as in Pelican's prototype: there is no spool between them.
pub trait TimedClient: Send + 'static {
    /// The longest request to a drive where payload is left out; `None` if it is read.
    fn request_bytes(&self) -> Option<u64>;
    /// Its read was taken out of its queue, if it ever was, at this moment.
    fn picked(&mut self, at: Option<Time>);
    /// Takes the next `bytes` bytes, which are `payload` unless that is left out.
    fn take<'a>(&'a mut self, bytes: u64, payload: Option<&'a [u8]>) -> BoxFuture<'a, Result<(), SinkClosed>>;
    /// Its read is over: answered, or refused.
    fn ended(self: Box<Self>, refused: Option<Rejection>);
}

/// Hands bytes to a consumer in memory.
pub struct MemorySink {
    pieces: mpsc::Sender<Bytes>,
    /// The time that the consumer was waited for.
    waited: Duration,
}

impl MemorySink {
    /// A sink, and what its consumer takes the bytes from.
    pub fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (pieces, consumer) = mpsc::channel(PIECES);
        (Self { pieces, waited: Duration::ZERO }, consumer)
    }

    /// Hands over `piece`, unless the consumer is gone, or was waited for long enough.
    async fn give(&mut self, piece: Bytes) -> Result<(), SinkClosed> {
        assert!(piece.len() <= PIECE_BYTES, "pieces are bounded");
        let began = clock::monotonic();
        let given = tokio::time::timeout(CONSUMER_WAIT_MAX.saturating_sub(self.waited), self.pieces.send(piece)).await;
        self.waited += began.elapsed();
        given.ok().and_then(Result::ok).ok_or(SinkClosed)
    }
}

/// A read under way: its target, and how much of it is there.
pub(crate) struct ReadProgress {
    pub(super) range: Range<u64>,
    pub(super) target: ReadTarget,
    given_bytes: u64,
    /// The target took no more; the drives are not to blame.
    pub(super) closed: bool,
}

impl ReadProgress {
    /// Nothing is read yet.
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

    /// True if the consumer of an operation that reads into memory is gone.
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
