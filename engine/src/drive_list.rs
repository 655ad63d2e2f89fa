//! The drives of a blob's stacks, stored inline.
//!
//! An overloaded rack refuses most reads at once, and thousands of others wait for minutes. Each names k + r drives. A
//! separate allocation for them would have to be made and freed with every request, and would be one more distant
//! memory access once the read is served. So the request itself stores as many drives as the paper's racks need
//! (Pelican, section 3: 15 + 3), and only longer lists are allocated separately.

use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};
use model::DriveId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most drives that are stored inline; longer lists are stored apart.
const IN_PLACE_MAX: usize = 18;

const _: () = assert!(IN_PLACE_MAX <= u8::MAX as usize, "they are counted by a byte");

/// Drives, in stack order. The list is used like a slice, and hashed and serialised like a vector.
#[derive(Clone)]
pub struct DriveList(Place);

#[derive(Clone)]
enum Place {
    Here { count: u8, drives: [DriveId; IN_PLACE_MAX] },
    Apart(Vec<DriveId>),
}

impl DriveList {
    /// No drives.
    pub const fn new() -> Self {
        Self(Place::Here { count: 0, drives: [DriveId(0); IN_PLACE_MAX] })
    }

    /// Appends a drive.
    #[inline]
    pub fn push(&mut self, drive: DriveId) {
        match &mut self.0 {
            Place::Here { count, drives } if usize::from(*count) < IN_PLACE_MAX => {
                drives[usize::from(*count)] = drive;
                *count += 1;
            }
            _ => self.push_apart(drive),
        }
    }

    #[cold]
    fn push_apart(&mut self, drive: DriveId) {
        match &mut self.0 {
            Place::Here { drives, .. } => self.0 = Place::Apart(drives.iter().copied().chain([drive]).collect()),
            Place::Apart(drives) => drives.push(drive),
        }
    }
}

impl Default for DriveList {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for DriveList {
    type Target = [DriveId];

    #[inline]
    fn deref(&self) -> &[DriveId] {
        match &self.0 {
            Place::Here { count, drives } => &drives[..usize::from(*count)],
            Place::Apart(drives) => drives,
        }
    }
}

impl DerefMut for DriveList {
    fn deref_mut(&mut self) -> &mut [DriveId] {
        match &mut self.0 {
            Place::Here { count, drives } => &mut drives[..usize::from(*count)],
            Place::Apart(drives) => drives,
        }
    }
}

impl FromIterator<DriveId> for DriveList {
    #[inline]
    fn from_iter<I: IntoIterator<Item = DriveId>>(iter: I) -> Self {
        let mut list = Self::new();
        for drive in iter {
            list.push(drive);
        }
        list
    }
}

impl From<&[DriveId]> for DriveList {
    fn from(drives: &[DriveId]) -> Self {
        drives.iter().copied().collect()
    }
}

impl From<Vec<DriveId>> for DriveList {
    fn from(drives: Vec<DriveId>) -> Self {
        if drives.len() > IN_PLACE_MAX { Self(Place::Apart(drives)) } else { Self::from(&drives[..]) }
    }
}

impl<'a> IntoIterator for &'a DriveList {
    type Item = &'a DriveId;
    type IntoIter = core::slice::Iter<'a, DriveId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for DriveList {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for DriveList {}

impl Hash for DriveList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for DriveList {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for DriveList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DriveList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::trace_hash::TraceHasher;

    fn hash(thing: impl Hash) -> u64 {
        let mut hasher = TraceHasher::default();
        thing.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_list_of_any_length_is_hashed_stored_and_changed_like_a_vector() {
        for count in [0, 1, IN_PLACE_MAX - 1, IN_PLACE_MAX, IN_PLACE_MAX + 1, 300] {
            let mut drives: Vec<DriveId> = (0..count as u32).map(|number| DriveId(number * 7)).collect();
            let mut list: DriveList = drives.iter().copied().collect();
            assert_eq!((&list[..], DriveList::from(drives.clone())), (&drives[..], list.clone()));
            assert_eq!(hash(&list), hash(&drives));
            let text = serde_json::to_string(&list).unwrap();
            assert_eq!(text, serde_json::to_string(&drives).unwrap());
            assert_eq!(serde_json::from_str::<DriveList>(&text).unwrap(), list);
            if let (Some(last), Some(in_vector)) = (list.last_mut(), drives.last_mut()) {
                (*last, *in_vector) = (DriveId(3), DriveId(3));
            }
            assert_eq!(&list[..], &drives[..]);
        }
    }
}
