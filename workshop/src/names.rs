//! The names of the workshop's files, and of the records of small ones.

use disk::FileName;
use std::sync::Arc;

/// A slot with the object whose bytes are in it, if that is known. A file is found by its slot alone. The record of a
/// small file is found by both, because records are sorted by the object's name, and those of one object by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedSlot {
    /// The bucket, a zero byte, the key; empty if not known.
    name: Arc<[u8]>,
    slot: u64,
}

impl NamedSlot {
    /// The slot of a version of the object at `key` of `bucket`.
    pub fn of(slot: u64, bucket: &str, key: &str) -> Self {
        Self::new([bucket.as_bytes(), &[0], key.as_bytes()].concat(), slot)
    }

    /// The slot of a version of the object called `name`.
    pub fn new(name: Vec<u8>, slot: u64) -> Self {
        Self { name: name.into(), slot }
    }

    /// The slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// The bucket, a zero byte, the key; empty if not known.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The smallest one above it.
    #[must_use]
    pub fn successor(&self) -> Self {
        Self { name: Arc::clone(&self.name), slot: self.slot.saturating_add(1) }
    }
}

impl From<u64> for NamedSlot {
    fn from(slot: u64) -> Self {
        Self { slot, ..Self::default() }
    }
}

/// The name of the file of `slot`.
pub(crate) fn staged_name(slot: u64) -> FileName {
    FileName::new(format!("s-{slot:016x}")).expect("`s-` and 16 hexadecimal digits are a file name")
}

/// The slot of the file called `name`, if it is a staged file.
pub(crate) fn slot_of(name: &FileName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("s-")?;
    let slot = u64::from_str_radix(digits, 16).ok()?;
    (staged_name(slot) == *name).then_some(slot)
}

/// The name of the mark of `run`.
pub(crate) fn run_mark_name(run: u64) -> FileName {
    FileName::new(format!("run-{run:016x}")).expect("`run-` and 16 hexadecimal digits are a file name")
}

/// The run whose mark is called `name`, if it is a mark.
pub(crate) fn run_of(name: &FileName) -> Option<u64> {
    let run = u64::from_str_radix(name.as_str().strip_prefix("run-")?, 16).ok()?;
    (run_mark_name(run) == *name).then_some(run)
}

/// The name of the file of entry `number`.
pub(crate) fn spool_name(number: u64) -> FileName {
    FileName::new(format!("r-{number:016x}")).expect("`r-` and 16 hexadecimal digits are a file name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_slots_are_staged_files() {
        assert_eq!(slot_of(&staged_name(u64::MAX)), Some(u64::MAX));
        for name in ["s-1", "s-000000000000000g", "r-0000000000000001", "s-+000000000000001"] {
            assert_eq!(FileName::new(name).and_then(|name| slot_of(&name)), None);
        }
    }
}
