//! Blobs that cannot be read completely, gathered until their objects are looked up; and the sink of a payload that is
//! read only to see if that succeeds.

use catalog::Blob;
use disk::stack::{PayloadSink, SinkClosed};
use futures::future::BoxFuture;

/// Blobs that are gathered before their objects are looked up.
pub(super) const GATHERED_MAX: usize = 1_024;

/// A blob that cannot be read completely, and the findings about its objects.
pub(super) struct LostBlob {
    pub(super) blob: Blob,
    pub(super) why: String,
    pub(super) mend: &'static str,
    /// True if drives that are away may bring back the missing data.
    pub(super) may_come_back: bool,
    pub(super) lost: u64,
    pub(super) readable: u64,
    pub(super) names: Vec<String>,
}

impl LostBlob {
    pub(super) fn sentence(&self) -> String {
        let Self { blob, why, lost, readable, names, .. } = self;
        let plural = if *lost == 1 { "object" } else { "objects" };
        let more = match lost.saturating_sub(names.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more (--all names them)"),
        };
        let whole = if *readable > 0 { format!("; {readable} can still be read") } else { String::new() };
        format!("blob {} cannot be read: {why}; {lost} {plural} in it: {}{more}{whole}", blob.blob, names.join(", "))
    }
}

/// Counts a payload and discards it.
pub(super) struct DiscardedPayload(pub(super) u64);

impl PayloadSink for DiscardedPayload {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        self.0 += bytes.len() as u64;
        Box::pin(std::future::ready(Ok(())))
    }
}
