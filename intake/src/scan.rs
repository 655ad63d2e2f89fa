//! Keys in order, page after page.
//!
//! Each page is what there is at one moment. A key that is written or removed while a scan goes on is seen or not; one
//! that is there all the time is seen once.

use crate::error::ReadError;
use crate::shared::Shared;
use crate::view::{Item, Want};
use std::sync::Arc;

/// Keys of a page.
const PAGE: usize = 256;

/// Keys in order. After an error it ends.
pub struct Scan {
    shared: Arc<Shared>,
    /// Where the next page begins; `None` at the end.
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
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.page.next() {
                return Some(Ok(item));
            }
            let from = self.next.take()?;
            match self.shared.read(|view| view.page(&from, self.to.as_deref(), PAGE, self.want)) {
                Ok(page) => (self.page, self.next) = (page.items.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
