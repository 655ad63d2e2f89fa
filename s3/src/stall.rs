//! Cuts off a client that reads nothing of a response for too long, or hardly anything, so that it cannot hold a permit
//! and room in the spool forever.
//!
//! Only the time in which bytes wait to be read counts: a response that waits for a drive is not the client's fault.

use crate::traffic::Traffic;
use disk::clock;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The pace of a peer: bytes that passed, over the time that the server waited for the peer.
pub(crate) struct MinimumPace {
    stall: Duration,
    min_bytes_per_s: u64,
    waited: Duration,
    bytes: u64,
}

impl MinimumPace {
    /// Requires `min_bytes_per_s`, checked after each `stall` of waiting; 0 allows any pace.
    pub fn new(stall: Duration, min_bytes_per_s: u64) -> Self {
        Self { stall, min_bytes_per_s, waited: Duration::ZERO, bytes: 0 }
    }

    /// Records that `bytes` bytes passed after a wait. False if the peer is too slow.
    pub fn passed(&mut self, bytes: u64, waited: Duration) -> bool {
        self.bytes += bytes;
        self.waited += waited;
        if self.waited < self.stall {
            return true;
        }
        let fast = self.bytes as f64 >= self.min_bytes_per_s as f64 * self.waited.as_secs_f64();
        (self.bytes, self.waited) = (0, Duration::ZERO);
        fast
    }
}

/// A connection that fails a write which makes no progress for the stall time.
pub(crate) struct StallGuard {
    stream: TcpStream,
    traffic: Arc<Traffic>,
    pace: MinimumPace,
    pending: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl StallGuard {
    /// Guards `stream`.
    pub fn new(stream: TcpStream, traffic: &Arc<Traffic>) -> Self {
        let limits = traffic.limits();
        let pace = MinimumPace::new(limits.stall, limits.min_bytes_per_s);
        Self { stream, traffic: Arc::clone(traffic), pace, pending: None }
    }

    /// The first byte that the client sends, which remains to be read; `None` if it sends nothing.
    pub async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok(if self.stream.peek(&mut byte).await? == 0 { None } else { Some(byte[0]) })
    }

    /// Passes a completed write on if the peer keeps its pace, and fails a pending one after the stall time.
    fn guard(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = poll {
            let waited = self.pending.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
            let bytes = done.as_ref().map_or(0, |bytes| *bytes as u64);
            let fast = self.pace.passed(bytes, waited);
            return Poll::Ready(if fast { done } else { Err(self.too_slow()) });
        }
        let stall = self.pace.stall;
        let begin = || {
            let now = clock::monotonic();
            (now, Box::pin(tokio::time::sleep_until(now + stall)))
        };
        let (_, timer) = self.pending.get_or_insert_with(begin);
        timer.as_mut().poll(cx).map(|()| Err(self.too_slow()))
    }

    fn too_slow(&self) -> io::Error {
        self.traffic.too_slow();
        io::ErrorKind::TimedOut.into()
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.guard(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_waited_for_long_and_takes_little_is_too_slow() {
        let mut pace = MinimumPace::new(Duration::from_mins(1), 1000);
        assert!(pace.passed(1, Duration::from_secs(59)));
        assert!(pace.passed(59_999, Duration::from_secs(1)), "60 kB in a minute");
        assert!(pace.passed(10, Duration::from_secs(30)));
        assert!(!pace.passed(59_000, Duration::from_secs(30)));
        assert!(pace.passed(0, Duration::from_secs(59)), "it begins anew");
        let mut any = MinimumPace::new(Duration::from_mins(1), 0);
        assert!(any.passed(1, Duration::from_mins(1)));
    }
}
