//! Bounds the chunks of `aws-chunked` bodies before the protocol library sees them.
//!
//! The library gathers a chunk in memory before it passes it on, and a chunk may announce 4 GiB; some clients really
//! send a whole object as one chunk. Unsigned chunks are cut into smaller chunks as they arrive. A signed chunk cannot
//! be cut, so one above [`SIGNED_BYTES`] is refused.
//!
//! The library reads the trailer, but reports a malformed trailer as a malformed chunk. Here it has its own error, as
//! on AWS.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use s3s::StdError;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The largest signed chunk, in bytes; clients send 64 KiB to 1 MiB.
const SIGNED_BYTES: u64 = 16 << 20;
/// The longest line before a chunk, in bytes; a signature takes 64.
const LINE_BYTES: usize = 256;
/// The longest trailer, in bytes; the library accepts no longer one.
const TRAILER_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkMode {
    /// Not in chunks.
    Plain,
    /// In unsigned chunks.
    Unsigned,
    /// In signed chunks.
    Signed,
}

enum ChunkState {
    /// In the line before a chunk.
    Line(Vec<u8>),
    /// In a chunk; this number of its bytes is still to come.
    Data(u64),
    /// After a chunk; this number of bytes of its line end is still to come.
    End(u8),
    /// In the trailer; its bytes so far.
    Trailer(Vec<u8>),
}

/// A body whose chunks are bounded.
pub(crate) struct ChunkedBody<B> {
    inner: B,
    mode: ChunkMode,
    state: ChunkState,
    ready: VecDeque<Bytes>,
}

impl<B> ChunkedBody<B> {
    /// The body of a request with these headers.
    pub fn of(headers: &HeaderMap, inner: B) -> Self {
        let kind = headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes).unwrap_or_default();
        let mode = match kind {
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => ChunkMode::Unsigned,
            _ if kind.starts_with(b"STREAMING-") => ChunkMode::Signed,
            _ => ChunkMode::Plain,
        };
        Self { inner, mode, state: ChunkState::Line(Vec::new()), ready: VecDeque::new() }
    }

    fn take(&mut self, mut piece: Bytes) -> Result<(), StdError> {
        while !piece.is_empty() {
            match &mut self.state {
                ChunkState::Line(line) => {
                    let end = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |at| at + 1);
                    line.extend_from_slice(&piece.split_to(end));
                    if line.len() > LINE_BYTES {
                        return Err("FormatError: the line before a chunk is too long".into());
                    }
                    if line.ends_with(b"\n") {
                        let line = std::mem::take(line);
                        self.begin_chunk(line)?;
                    }
                }
                ChunkState::Data(left) => {
                    assert!(*left > 0, "a chunk is over with its last byte");
                    let data = piece.split_to((*left).min(piece.len() as u64) as usize);
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = ChunkState::End(2);
                    }
                    self.pass_data(data);
                }
                ChunkState::End(left) => {
                    assert!((1..=2).contains(left), "a chunk ends with two bytes");
                    let byte = piece.split_to(1);
                    if byte[0] != [b'\n', b'\r'][usize::from(*left) - 1] {
                        return Err("FormatError: a chunk is longer than it says".into());
                    }
                    *left -= 1;
                    if *left == 0 {
                        self.state = ChunkState::Line(Vec::new());
                    }
                    if self.mode == ChunkMode::Signed {
                        self.ready.push_back(byte);
                    }
                }
                ChunkState::Trailer(trailer) => {
                    if trailer.len() + piece.len() > TRAILER_BYTES {
                        return Err("MalformedTrailer: it is too long".into());
                    }
                    trailer.extend_from_slice(&piece);
                    self.ready.push_back(piece.split_to(piece.len()));
                }
            }
        }
        Ok(())
    }

    fn begin_chunk(&mut self, line: Vec<u8>) -> Result<(), StdError> {
        assert!(line.ends_with(b"\n"), "a chunk begins behind its whole line");
        let digits = line.split(|byte| matches!(byte, b';' | b'\r' | b'\n')).next().unwrap_or_default();
        let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let size = size.ok_or("FormatError: a chunk without a size")?;
        if self.mode == ChunkMode::Signed && size > SIGNED_BYTES {
            return Err(format!("ChunkTooLarge: a signed chunk may have {SIGNED_BYTES} bytes").into());
        }
        self.state = if size == 0 { ChunkState::Trailer(Vec::new()) } else { ChunkState::Data(size) };
        if size == 0 || self.mode == ChunkMode::Signed {
            self.ready.push_back(line.into());
        }
        Ok(())
    }

    /// Checks the state at the end of the body.
    ///
    /// # Errors
    /// A body without the empty chunk that ends it; a body of unsigned chunks without the empty line after the trailer,
    /// because the library accepts a body that is cut off there; a trailer with lines that are no headers.
    fn check_end(&self) -> Result<(), StdError> {
        match &self.state {
            _ if self.mode == ChunkMode::Plain => Ok(()),
            ChunkState::Trailer(trailer) if self.mode == ChunkMode::Unsigned && !ends_with_empty_line(trailer) => {
                Err("Incomplete: the last line end is missing".into())
            }
            ChunkState::Trailer(trailer) if trailer.split(|byte| *byte == b'\n').all(is_trailer_line) => Ok(()),
            ChunkState::Trailer(_) => Err("MalformedTrailer: a line is no header".into()),
            _ => Err("Incomplete: the last chunk is missing".into()),
        }
    }

    fn pass_data(&mut self, data: Bytes) {
        if self.mode == ChunkMode::Signed {
            self.ready.push_back(data);
        } else {
            self.ready.extend([format!("{:x}\r\n", data.len()).into(), data, Bytes::from_static(b"\r\n")]);
        }
    }
}

/// True if the last line of `trailer` is empty.
fn ends_with_empty_line(trailer: &[u8]) -> bool {
    trailer == b"\r\n" || trailer.ends_with(b"\r\n\r\n")
}

/// True for a line of a trailer: a header or an empty line.
fn is_trailer_line(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let colon = line.iter().position(|byte| *byte == b':');
    let is_header = |colon: usize| {
        HeaderName::from_bytes(&line[..colon]).is_ok() && HeaderValue::from_bytes(&line[colon + 1..]).is_ok()
    };
    line.is_empty() || colon.is_some_and(is_header)
}

impl<B: HttpBody<Data = Bytes, Error = StdError> + Unpin> HttpBody for ChunkedBody<B> {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) if self.mode != ChunkMode::Plain => frame,
                None => {
                    let checked = self.check_end();
                    // The error is reported once.
                    self.mode = ChunkMode::Plain;
                    return Poll::Ready(checked.err().map(Err));
                }
                other => return Poll::Ready(other),
            };
            if let Ok(piece) = frame.into_data() {
                self.take(piece)?;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.mode == ChunkMode::Plain { self.inner.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn framed(kind: &'static str, bytes: &[u8], cut: usize) -> Result<Vec<Bytes>, StdError> {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-content-sha256", kind.try_into().unwrap());
        let mut framing = ChunkedBody::of(&headers, ());
        for piece in bytes.chunks(cut) {
            framing.take(Bytes::copy_from_slice(piece))?;
        }
        Ok(framing.ready.into())
    }

    const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

    #[test]
    fn an_unsigned_chunk_is_cut_where_the_network_cut_it() {
        let sent = b"a\r\n0123456789\r\n3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let whole = framed(UNSIGNED, sent, sent.len()).unwrap().concat();
        assert_eq!(whole, sent);
        let cut = framed(UNSIGNED, sent, 4).unwrap().concat();
        assert!(cut.starts_with(b"1\r\n0\r\n4\r\n1234\r\n"), "{cut:?}");
        assert!(cut.ends_with(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"));
    }

    #[test]
    fn signed_chunks_pass_as_they_are_but_for_huge_ones() {
        let sent = b"3;chunk-signature=00\r\nabc\r\n0;chunk-signature=11\r\n\r\n";
        for cut in [1, 5, sent.len()] {
            assert_eq!(framed(SIGNED, sent, cut).unwrap().concat(), sent);
        }
        assert!(framed(SIGNED, b"1000001;chunk-signature=00\r\n", 7).is_err());
    }

    #[test]
    fn a_body_ends_with_a_chunk_of_no_bytes_and_a_trailer_of_headers() {
        for kind in [UNSIGNED, SIGNED] {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-content-sha256", kind.try_into().unwrap());
            for (sent, error) in [
                (&b"1\r\na\r\n"[..], Some("Incomplete")),
                (b"", Some("Incomplete")),
                (b"1\r\n", Some("Incomplete")),
                (b"1\r\na\r\n0\r\n\r\n", None),
                (b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:00\r\n\r\n", None),
                (b"0\r\ngarbage\r\n\r\n", Some("MalformedTrailer")),
                (b"0\r\na b:c\r\n\r\n", Some("MalformedTrailer")),
                (b"0\r\n:c\r\n\r\n", Some("MalformedTrailer")),
                (b"0\r\na:b\r\n\r\nmore:b\r\n", Some("Incomplete").filter(|_| kind == UNSIGNED)),
                (b"0\r\na:b\r\n\rX", Some(if kind == UNSIGNED { "Incomplete" } else { "MalformedTrailer" })),
                (b"0\r\na:b\r\n", Some("Incomplete").filter(|_| kind == UNSIGNED)),
                (b"0\r\n", Some("Incomplete").filter(|_| kind == UNSIGNED)),
            ] {
                let mut framing = ChunkedBody::of(&headers, ());
                framing.take(Bytes::from_static(sent)).unwrap();
                let found = framing.check_end().err().map(|error| error.to_string());
                let found = found.as_deref().and_then(|text| text.split(':').next());
                assert_eq!(found, error, "{kind} {sent:?}");
            }
        }
        let long = [b"0\r\na:".as_slice(), &[b'b'; TRAILER_BYTES]].concat();
        assert!(framed(UNSIGNED, &long, 1_000).unwrap_err().to_string().starts_with("MalformedTrailer"));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        assert!(framed(UNSIGNED, b"zz\r\n", 1).is_err());
        assert!(framed(UNSIGNED, b"1\r\nab\r\n", 2).is_err());
        assert!(framed(UNSIGNED, &[b'1'; 300], 10).is_err());
    }
}
