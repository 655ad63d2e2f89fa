//! Masks: a mask forgets a whole range of keys in one operation.
//!
//! A mask hides every version of the keys in its range whose number is at most `up_to`, so an object that was written
//! later is not hidden. Hidden versions are dropped when they are next rewritten, and a shelf that is hidden as a whole
//! is removed without being read. The mask itself is removed once nothing is left that it could hide.

use crate::bytes::{Damage, Fields, put_text};
use crate::record::{Kind, Record, Sequence};

/// A range of keys whose versions up to a number are forgotten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mask {
    /// The first key.
    pub from: Vec<u8>,
    /// The end, which is not in the range; `None` means all keys from the first one on.
    pub to: Option<Vec<u8>>,
    /// The last hidden number.
    pub up_to: Sequence,
}

impl Mask {
    /// True if it hides the version `sequence` of `key`.
    pub(crate) fn hides(&self, key: &[u8], sequence: Sequence) -> bool {
        sequence <= self.up_to && self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// True if it may hide a version of keys from `first` to `last`, both included, with a number from `min` on.
    pub(crate) fn may_hide(&self, (first, last): (&[u8], &[u8]), min: Sequence) -> bool {
        min <= self.up_to && self.from.as_slice() <= last && self.to.as_deref().is_none_or(|to| first < to)
    }

    /// True if it hides all keys from `first` to `last`, both included, with numbers up to `max`.
    pub(crate) fn hides_all(&self, (first, last): (&[u8], &[u8]), max: Sequence) -> bool {
        self.hides(first, max) && self.hides(last, max)
    }

    /// The mask in a record of kind [`Kind::Forget`]; `None` if the record is of another kind or invalid.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        if record.kind != Kind::Forget {
            return None;
        }
        // Later versions are not included.
        let up_to = Sequence(u64::from_le_bytes(record.entry.try_into().ok()?)).min(record.sequence);
        let to = Some(record.value.to_vec()).filter(|to| !to.is_empty());
        Some(Self { from: record.key.to_vec(), to, up_to })
    }

    /// Appends the mask to the tail of a shelf.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.up_to.0.to_le_bytes());
        put_text(out, &self.from);
        put_text(out, self.to.as_deref().unwrap_or_default());
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, Damage> {
        let up_to = Sequence(fields.u64()?);
        let (from, to) = (fields.text()?.to_vec(), fields.text()?.to_vec());
        Ok(Self { from, to: Some(to).filter(|to| !to.is_empty()), up_to })
    }
}
