//! Bytes on their way to or from a drive.
//!
//! A [`Buffer`] starts at an address that is a multiple of 4096, so a transfer past the page cache (O_DIRECT) can use
//! it directly. A [`Meter`] counts the bytes in the buffers of one transfer, and their maximum.
//!
//! Invariant: the address of the bytes never changes while a buffer lives, since its allocation never grows.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment that O_DIRECT requires of addresses, offsets and lengths: the sector of a 4Kn drive, which suits all
/// other drives.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Bytes on their way to or from a drive, aligned to [`ALIGNMENT_BYTES`]. Passed to a call, and returned with its
/// answer.
pub struct Buffer {
    /// `capacity` aligned bytes, and the slack before and after them.
    storage: Vec<u8>,
    start: usize,
    len: usize,
    capacity: usize,
    meter: Option<Arc<Meter>>,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let storage = vec![0; len + ALIGNMENT_BYTES - 1];
        let start = storage.as_ptr().align_offset(ALIGNMENT_BYTES);
        assert!(start < ALIGNMENT_BYTES, "a byte address can always be aligned");
        Self { storage, start, len, capacity: len, meter: None }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Shortens or lengthens the buffer within its original length. Bytes that come back into view are unchanged.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a buffer never grows beyond what it was made with");
        self.len = len;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer of {} bytes", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.live_bytes.fetch_sub(self.capacity, Ordering::Relaxed);
        }
    }
}

/// Counts the bytes in the buffers of one transfer.
#[derive(Debug, Default)]
pub struct Meter {
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Meter {
    /// `len` zero bytes that count until they are dropped.
    pub fn zeroed(self: &Arc<Self>, len: usize) -> Buffer {
        let live_bytes = self.live_bytes.fetch_add(len, Ordering::Relaxed) + len;
        self.peak_bytes.fetch_max(live_bytes, Ordering::Relaxed);
        let mut buffer = Buffer::zeroed(len);
        buffer.meter = Some(Arc::clone(self));
        buffer
    }

    /// The maximum number of bytes that were held at once.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_wherever_they_are_moved() {
        for len in [0, 1, 4095, 4096, 1 << 20] {
            let boxed = Box::new(Buffer::zeroed(len));
            assert_eq!(boxed.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            assert_eq!(boxed.len(), len);
        }
    }

    #[test]
    fn the_meter_knows_the_peak() {
        let meter = Arc::new(Meter::default());
        let first = meter.zeroed(1000);
        drop(meter.zeroed(500));
        drop(first);
        drop(meter.zeroed(100));
        assert_eq!(meter.peak_bytes(), 1500);
        assert_eq!(meter.live_bytes.load(Ordering::Relaxed), 0);
    }
}
