//! Keys in order, page after page.
//!
//! Each page shows one moment. A key that is written or removed during a scan is seen or not; a key that exists
//! throughout is seen once.

use crate::error::ReadError;
use crate::shared::Shared;
use crate::view::{Item, Stored, Want};
use std::sync::Arc;

/// Keys per page.
const PAGE: usize = 256;

/// Keys in order. After an error it ends.
pub struct Scan {
    shared: Arc<Shared>,
    /// Start of the next page; `None` at the end.
    next: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    want: Want,
    page: std::vec::IntoIter<Item>,
}

impl Scan {
    pub(crate) fn new(shared: Arc<Shared>, from: Vec<u8>, to: Option<Vec<u8>>, want: Want) -> Self {
        Self { shared, next: Some(from), to, want, page: Vec::new().into_iter() }
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Stored), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, version)) = self.page.next() {
                return Some(Ok((key, version.stored)));
            }
            let from = self.next.take()?;
            match self.shared.read(|view| view.page(&from, self.to.as_deref(), PAGE, self.want)) {
                Ok(page) => (self.page, self.next) = (page.items.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
